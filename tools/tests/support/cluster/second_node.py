"""A second node of a throwaway cluster, for as long as a block runs: a kubelet and a container runtime more."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import psutil
from kubernetes import client

from tests.support.cluster import parts, pods
from tests.support.cluster.cluster import COLLECT_LATE, SLICES, Cluster
from tests.support.cluster.place import SECOND, Place


@contextlib.contextmanager
def second_node(cluster: Cluster) -> Iterator[str]:
    """The name of a node more in *cluster*, a throwaway one, with GPU slices of its own.

    It has no pod any more when the block ends: a test removes those that it put there.
    """
    assert cluster.folder
    place = Place(int(cluster.folder.name))
    core = client.CoreV1Api(cluster.api)
    for group in place.cgroups():
        (group / SECOND).mkdir(exist_ok=True)
    address = f"{place.address_of(SECOND)}/24"
    subprocess.run([*_inside(place), "ip", "address", "replace", address, "dev", parts.BRIDGE], check=True)
    with contextlib.ExitStack() as running:
        start(running, place, "containerd", parts.containerd(place, f"{cluster.registry}/pause:1", SECOND), {})
        socket = Path(f"/proc/{_room(place)}/root{parts.containerd_socket(SECOND)}")
        pods.eventually(socket.exists, bool)
        start(running, place, "kubelet", parts.kubelet(place, SECOND), parts.kubelet_environment(place))
        own = replace(cluster, node=SECOND)
        own.wait_until_ready()
        own.set_gpus(SLICES)
        try:
            yield SECOND
        finally:
            there = {"field_selector": f"spec.nodeName={SECOND}"}
            pods.eventually(lambda: core.list_pod_for_all_namespaces(**there).items, lambda found: not found, 120.0)
            core.delete_node(SECOND)


def _room(place: Place) -> int:
    """The process of the room that is process 1 in it."""
    return int(psutil.Process(int((place.folder / "pid").read_text())).children()[0].pid)


def _inside(place: Place) -> list[str]:
    return ["nsenter", "-t", str(_room(place)), "-m", "-n", "-p"]


def start(running: contextlib.ExitStack, place: Place, name: str, command: list[str], more: Mapping[str, str]) -> None:
    """Start *command* on the node, with *more* of its environment; it ends with *running*."""
    environment = os.environ | {"GOGC": COLLECT_LATE} | more
    with (place.folder / "log" / f"{name}-{SECOND}.log").open("wb") as log:
        outer = subprocess.Popen(
            [*_inside(place), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd="/"
        )
    running.callback(_end, outer)


def _end(outer: subprocess.Popen[bytes]) -> None:
    """End what runs in the room: its parent outside ends with it."""
    for process in psutil.Process(outer.pid).children():
        process.kill()
    outer.wait()
