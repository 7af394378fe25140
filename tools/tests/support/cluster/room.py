"""Process 1 of a throwaway cluster: makes its room and runs its parts.  ``python -m tests.support.cluster.room …``.

The room is a set of name spaces (processes, mounts, network).  When this process dies, however it dies, the kernel ends
every process in it, and with them go mounts, interfaces, addresses and firewall rules.  Outside, only the folder and
the cgroups remain: ``Place.clean``.  Prints "ready" when the API server and containerd answer.
"""

from __future__ import annotations

import argparse
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.support.cluster import parts, pki
from tests.support.cluster.place import Place

_TIMEOUT_S = 60.0
# The kubelet sets these for the whole machine; it is shown files of its own that hold what it wants.
_KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


class Room:
    """The running parts, by process id."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.parts: dict[int, str] = {}
        self.logs = place.folder / "log"
        self.logs.mkdir()

    def start(self, name: str, command: list[str], environment: dict[str, str] | None = None) -> None:
        """Start a part; its output goes to its log."""
        with (self.logs / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd="/"
            )
        self.parts[process.pid] = name

    def check(self) -> None:
        """Collect the dead; end the room when a part is among them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._buried(pid, status)

    def keep(self) -> None:
        """Collect the dead until a part is among them; then the room ends."""
        while True:
            self._buried(*os.wait())

    def _buried(self, pid: int, status: int) -> None:
        if name := self.parts.pop(pid, None):
            last = (self.logs / f"{name}.log").read_text(errors="replace").splitlines()[-8:]
            sys.exit(f"{name} ended (exit code {os.waitstatus_to_exitcode(status)}):\n" + "\n".join(last))


def furnish(place: Place) -> None:
    """Cover what the parts would write outside of the place's folder, wherever they insist on it."""
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for name in ("folder", "upper", "work", "settings"):
        Path("/run/room", name).mkdir(parents=True)
    # The folder itself may lie below what is covered now.
    _run("mount", "--bind", str(place.folder), "/run/room/folder")
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/var/log")
    layers = "lowerdir=/var/lib,upperdir=/run/room/upper,workdir=/run/room/work"
    _run("mount", "-t", "overlay", "-o", layers, "overlay", "/var/lib")
    _run("mount", "--bind", "/run/room/folder", str(place.folder))
    for name, value in _KERNEL_SETTINGS.items():
        if Path("/proc/sys", name).exists():
            own = Path("/run/room/settings", name.replace("/", "."))
            own.write_text(f"{value}\n")
            _run("mount", "--bind", str(own), f"/proc/sys/{name}")


def connect(place: Place, outside: list[str]) -> None:
    """Make the pods' bridge, and a link to this machine; *outside* runs a command in the machine's network."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", parts.BRIDGE, "type", "bridge")
    _run("ip", "address", "add", f"{place.node_address}/24", "dev", parts.BRIDGE)
    _run("ip", "link", "set", parts.BRIDGE, "up")
    _run(*outside, "ip", "link", "add", place.link, "type", "veth", "peer", "name", "uplink", "netns", "1")
    _run("ip", "address", "add", f"{place.network}.255.2/30", "dev", "uplink")
    _run("ip", "link", "set", "uplink", "up")
    _run(*outside, "ip", "address", "add", f"{place.host_address}/30", "dev", place.link)
    _run(*outside, "ip", "link", "set", place.link, "up")
    _run(*outside, "ip", "route", "add", f"{place.network}.0.0/16", "via", f"{place.network}.255.2", "dev", place.link)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")


def run(place: Place, outside: list[str], port: int, store: Path, pause: str, features: Sequence[str]) -> None:
    """Make the room, start everything in it, print "ready", and keep it until a part ends."""
    furnish(place)
    connect(place, outside)
    place.make_cgroups()
    pki.write(place)
    (place.folder / "volumes" / "nfs").mkdir(parents=True)
    room = Room(place)
    serve = parts.registry(place, port, store)
    room.start("registry-of-the-machine", [*outside, *serve])
    room.start("registry", serve)
    room.start("etcd", parts.etcd())
    room.start("containerd", parts.containerd(place, pause))
    room.start("kube-apiserver", parts.apiserver(place, features))
    _wait_for_api(place, room)
    room.start("kube-controller-manager", parts.controller_manager(place, features))
    room.start("kube-scheduler", parts.scheduler(place, features))
    while not Path(parts.CONTAINERD).exists():
        room.check()
        time.sleep(0.02)
    room.start("kubelet", parts.kubelet(place, features=features), parts.kubelet_environment(place))
    room.start("kube-proxy", parts.proxy(place))
    room.start("names", [sys.executable, "-m", "tests.support.cluster.names", str(place.number)], _python())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    room.keep()


def _wait_for_api(place: Place, room: Room) -> None:
    trusted = ssl.create_default_context(cafile=str(place.folder / "pki" / "ca.crt"))
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        room.check()
        try:
            with urllib.request.urlopen(
                f"https://{place.node_address}:{pki.API_PORT}/readyz", timeout=5, context=trusted
            ):
                return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"kube-apiserver was not ready within {_TIMEOUT_S:.0f} s: {room.logs}/kube-apiserver.log")


def _python() -> dict[str, str]:
    return dict(os.environ) | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")


def main() -> None:
    """Run the room that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", type=int, required=True)
    parser.add_argument("--folder", help="the place's folder; only for readers of the list of processes")
    parser.add_argument("--network", type=int, required=True, help="a descriptor of the machine's network name space")
    parser.add_argument("--port", type=int, required=True, help="of the registry")
    parser.add_argument("--store", type=Path, required=True, help="of the registry")
    parser.add_argument("--pause", required=True, help="the image that holds a pod together")
    parser.add_argument("--features", nargs="*", default=[], help="feature gates of Kubernetes to turn on")
    words = parser.parse_args()
    outside = ["nsenter", f"--net=/proc/1/fd/{words.network}"]
    run(Place(words.place), outside, words.port, words.store, words.pause, words.features)


if __name__ == "__main__":
    main()
