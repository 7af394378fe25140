"""A test host: Debian with systemd as process 1, booted by systemd-nspawn in well under a second."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.support.hosts.images import Image
from tests.support.hosts.room import FOLDER, Room, run, settle

GROUPS = [Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/unified")]
"""Where cgroup v1 and v2 are mounted side by side; a machine with v2 alone has the one below."""

# systemd-nspawn ends with 133 when its system asks for a reboot.
_RUN = """
for group; do [ "$group" = -- ] && break; echo $$ > "$group/cgroup.procs"; shift; done; shift
while "$@"; [ $? -eq 133 ]; do :; done
"""


def wait_for(what: str, ready: Callable[[], bool], *, seconds: float) -> None:
    """Wait until *ready*.

    Raises:
        AssertionError: it was not, after *seconds*.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)


class Machine:
    """What every test host can do, whatever it runs on."""

    def __init__(self, room: Room, name: str, *, user: str) -> None:
        self.room, self.name, self.user = room, name, user
        self.address = room.address(name)

    def run(self, command: str, *, check: bool = True) -> str:
        """Run a shell *command* as root and return what it wrote on stdout.

        Raises:
            AssertionError: it failed, and *check* is set; the message has its output.
        """
        done = self.result(command)
        assert not check or done.returncode == 0, (
            f"{self.name}: {command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout.strip()

    def result(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run a shell *command* as root, and return everything that came of it."""
        return subprocess.run(
            ["ssh", *options, *self.room.ssh_options(), f"root@{self.address}", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def put(self, text: str | bytes, path: str, *, mode: str = "0644") -> None:
        """Write a file on the host, with the folders above it."""
        content = text.encode() if isinstance(text, str) else text
        words = f"install -D -m {mode} /dev/stdin {path}"
        subprocess.run(
            ["ssh", *self.room.ssh_options(), f"root@{self.address}", words], input=content, check=True, timeout=240
        )

    def answers(self) -> bool:
        """Whether ssh works; a connection that a booting system accepts and forgets ends after 5 s."""
        return self.result("true", "-oConnectTimeout=5").returncode == 0

    def reboot(self, *, seconds: float = 60) -> None:
        """Restart the system, and wait until it answers again."""
        before = self.booted()
        self.result("systemctl reboot")
        self.room.forget_connection(self.name)
        wait_for(f"{self.name}: the reboot", lambda: self.booted() not in {"", before}, seconds=seconds)
        self.run("systemctl is-system-running --wait")

    def booted(self) -> str:
        """What differs after every boot; empty while it does not answer."""
        # A container has the boot_id of the machine below; the time of its process 1 is its own.
        return self.result("cat /proc/sys/kernel/random/boot_id; stat --format %Y%Z /proc/1").stdout.strip()


class Host(Machine):
    """One such host; ``start`` boots it, ``stop`` removes every trace of it."""

    def __init__(self, room: Room, name: str, image: Image) -> None:
        super().__init__(room, name, user="ops")
        self.image = image
        self.folder = FOLDER / name
        self.root = self.folder / "root"
        self.process: subprocess.Popen[bytes] | None = None
        parents = [group for group in GROUPS if group.is_dir()] or [Path("/sys/fs/cgroup")]
        self.groups = [parent / os.environ["CORRAL_HOSTS_ROOM"] / name for parent in parents]

    def start(self) -> None:
        """Boot it from a fresh copy of its image, and wait until ssh answers."""
        for part in ("upper", "work", "root"):
            (self.folder / part).mkdir(parents=True)
        layers = f"lowerdir={self.image.path},upperdir={self.folder}/upper,workdir={self.folder}/work"
        run("mount", "-t", "overlay", "overlay", "-o", layers, self.root)
        settle(self.root, self.name, self.address)
        self.room.connect(self.name)
        self._boot()

    def stop(self) -> None:
        """Kill it, and take away its disk, its network and its groups."""
        self.room.forget_connection(self.name)
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)  # the loop first, or it would boot the host again
            self.process.wait()
            self.process = None
        wait_for(f"{self.name}: the end of its processes", self._is_killed, seconds=10)
        run("umount", self.root)
        run("ip", "netns", "del", self.name)
        shutil.rmtree(self.folder)
        for group in self.groups:
            run("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+")

    def changed_files(self) -> set[str]:
        """Files below /etc, /usr, /srv, /opt and /var/lib that differ from the image."""
        upper = self.folder / "upper"
        found = (path for top in ("etc", "usr", "srv", "opt", "var/lib") for path in (upper / top).rglob("*"))
        return {f"/{path.relative_to(upper)}" for path in found if not path.is_dir()}

    def _boot(self) -> None:
        for group in self.groups:
            group.mkdir(parents=True)
        bytecode = FOLDER / "zip-bytecode"  # the same for all hosts: zip_bytecode.py
        bytecode.mkdir(exist_ok=True)
        nspawn = [
            *("systemd-nspawn", "--quiet", f"--directory={self.root}", f"--machine={self.name}", "--boot"),
            *("--register=no", "--keep-unit", f"--network-namespace-path=/run/netns/{self.name}"),
            *("--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=read-only"),
            f"--bind={bytecode}:/var/cache/zip-bytecode",
        ]
        console = self.folder / "console.log"
        with console.open("wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", _RUN, "bash", *map(str, self.groups), "--", *nspawn],
                env=os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_for(f"{self.name}: ssh", self.answers, seconds=180)
        except AssertionError as error:
            error.add_note(
                f"ssh: {self.result('true').stderr}\nIts console:\n{console.read_text(errors='replace')[-4000:]}"
            )
            raise
        state = self.run("systemctl is-system-running --wait", check=False)
        failed = self.run("systemctl --failed --no-legend", check=False)
        assert state == "running", f"{self.name} is {state}: {failed}"

    def _is_killed(self) -> bool:
        alive = set()
        for group in self.groups:
            for folder, _, _ in os.walk(group):
                with suppress(FileNotFoundError):  # groups vanish meanwhile
                    alive |= {int(pid) for pid in (Path(folder) / "cgroup.procs").read_text().split()}
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not alive
