"""Brings a throwaway cluster up and down on this machine."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from kubernetes import client

from corral import output
from corral.errors import CannotRun
from tests.support.cluster import images
from tests.support.cluster.cluster import COLLECT_LATE, GPU, RUNTIME_CLASS, SLICES, Cluster
from tests.support.cluster.place import COUNT, NODE, Place, claim_one
from tests.support.cluster.programs import KUBERNETES, PAUSE

_START_LIMIT_S = 90.0
_TOOLS = Path(__file__).resolve().parents[3]


def build() -> None:
    """Make everything that a cluster is made of, where it is missing.

    Raises:
        CannotRun, subprocess.CalledProcessError: something cannot be made; the message or stderr has the reason.
    """
    with ThreadPoolExecutor() as pool:  # the compiler keeps the cores busy, Debian's packages the network
        debian = pool.submit(images.base().make)
        KUBERNETES.build(output.info)
        PAUSE.build(output.info)
        for image in (images.pause(), *images.all_images().values()):
            for layer in image.layers:
                layer.make()
        debian.result()


def up(*, keep: bool, features: Sequence[str] = ()) -> Cluster:
    """A new cluster, ready for pods; *keep*: it outlives this process, else it ends with it, however that ends.

    *features* are feature gates of Kubernetes that are on in all of its parts, beside those that are on by default.

    Raises:
        CannotRun: it cannot be made or does not get ready; the message names the logs.
    """
    started = time.monotonic()
    build()
    place, descriptor = claim_one()
    place.folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    registry = f"localhost:{port}"
    try:
        _start(place, descriptor, port, f"{registry}/pause:1", features, keep=keep)
    finally:
        os.close(descriptor)
    try:
        cluster = Cluster(
            kubeconfig=place.kubeconfig,
            context=place.context,
            node=NODE,
            registry=registry,
            hub_host=place.host_address,
            images=images.push_all(registry),
            runtime_class=RUNTIME_CLASS,
            folder=place.folder,
        )
        (place.folder / "cluster.json").write_text(cluster.saved())
        cluster.wait_until_ready()
        _equip(cluster)
    except BaseException as error:
        room_log = (place.folder / "room.log").read_text(errors="replace").strip()  # before its end writes into it
        down(place, remove=False)
        if room_log:
            raise CannotRun(f"The test cluster broke: {room_log}", next_step=f"Its logs: {place.folder}/log") from error
        raise
    output.info(f"cluster {place.context}: ready in {time.monotonic() - started:.1f} s")
    return cluster


def down(place: Place, *, remove: bool = True) -> bool:
    """End the cluster at *place*, in whatever state it is; whether there was anything to do.

    Args:
        place: where it is; left alone when another cluster begins there meanwhile.
        remove: also remove its folder and its cgroups.

    Raises:
        CannotRun: something still holds it.
    """
    found = False
    pid = place.pid()
    if pid:
        with contextlib.suppress(psutil.NoSuchProcess):
            shell = psutil.Process(pid)
            if str(place.folder) in shell.cmdline():  # the number may be another process's by now
                found = True
                inside = shell.children()
                for process in inside or [shell]:
                    process.kill()  # the kernel ends everything else in the room before this one is gone
                psutil.wait_procs([shell, *inside], timeout=_START_LIMIT_S)
    descriptor = place.claim_after(pid) if remove else None
    if descriptor is not None:
        with os.fdopen(descriptor):
            found = found or place.folder.exists() or bool(place.cgroups())
            place.clean()
    return found


def kept() -> list[Cluster]:
    """The clusters that stay on this machine until they are taken down."""
    found = []
    for place in map(Place, range(COUNT)):
        descriptor = place.claim()
        if descriptor is not None:
            os.close(descriptor)
        elif (place.folder / "kept").exists() and (place.folder / "cluster.json").exists():
            found.append(Cluster.loaded((place.folder / "cluster.json").read_text()))
    return found


def sweep() -> None:
    """Clean up after the clusters that died.

    Raises:
        CannotRun: something still holds one.
    """
    for place in map(Place, range(COUNT)):
        descriptor = place.claim()
        if descriptor is not None:
            try:
                place.clean()
            finally:
                os.close(descriptor)


def _start(place: Place, descriptor: int, port: int, pause: str, features: Sequence[str], *, keep: bool) -> None:
    network = os.open("/proc/self/ns/net", os.O_RDONLY)
    command = [
        *([] if keep else ["setpriv", "--pdeathsig", "KILL"]),
        *("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *(sys.executable, "-m", "tests.support.cluster.room", "--place", str(place.number)),
        *("--folder", str(place.folder), "--network", str(network), "--port", str(port)),
        *("--store", str(images.store()), "--pause", pause),
        *("--features", *features),
    ]
    log = place.folder / "room.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            cwd=_TOOLS,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=os.environ | {"GOGC": COLLECT_LATE},
            pass_fds=(network, descriptor),  # the place is held for as long as the room lives
            start_new_session=True,
        )
    os.close(network)
    (place.folder / "pid").write_text(str(process.pid))
    if keep:
        (place.folder / "kept").touch()
    assert process.stdout
    with process.stdout as stdout:
        is_readable, _, _ = select.select([stdout], [], [], _START_LIMIT_S)
        if not is_readable or stdout.readline() != b"ready\n":
            why = log.read_text(errors="replace").strip() or _last_words(place)  # before its end writes into it
            down(place, remove=False)
            raise CannotRun(f"The test cluster did not start: {why}", next_step=f"Its logs: {place.folder}/log")
    process.returncode = 0  # the room outlives this object; ``down`` finds it by its number, from any process


def _last_words(place: Place) -> str:
    """Which parts of a room that took too long have started, and the end of the last one's log: it may be gone soon."""
    logs = sorted((place.folder / "log").glob("*.log"), key=lambda file: file.stat().st_ctime_ns)
    names = ", ".join(file.stem for file in logs)
    ends = "\n".join(
        f"{file.name}: {line}" for file in logs for line in file.read_text(errors="replace").splitlines()[-4:]
    )
    return f"it took more than {_START_LIMIT_S:.0f} s; parts that have started: {names or 'none'}\n{ends}"


def _equip(cluster: Cluster) -> None:
    """What the node of a homelab has: a runtime for GPUs, and one GPU in ``SLICES`` slices."""
    node = client.NodeV1Api(cluster.api)
    node.create_runtime_class(
        client.V1RuntimeClass(metadata=client.V1ObjectMeta(name=RUNTIME_CLASS), handler=RUNTIME_CLASS)
    )
    cluster.set_gpus(SLICES)
    allocatable = client.CoreV1Api(cluster.api).read_node(cluster.node).status.allocatable
    if allocatable.get(GPU) != str(SLICES):
        raise CannotRun(f"The node {cluster.node} does not show its {SLICES} GPU slices: {allocatable}.")
