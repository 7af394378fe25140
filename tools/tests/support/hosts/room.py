"""The room that test hosts live in: mount, network and process name spaces of their own.

``tools/dev/test_hosts.sh`` enters it with unshare(1) before pytest starts.  Bridges, veths, mounts and processes end
with the room, also when it is killed; nothing of it reaches the machine's own network.
"""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

from corral import paths

FOLDER = Path("/run/corral-hosts")
"""A tmpfs of the room: the hosts' disks, keys and sockets."""

KEYS = paths.cache_dir() / "hosts" / "keys"

NETWORK = "10.231.0"
"""The first three numbers of every address; the room itself is .1, there is no way out."""

BRIDGE = "corral-hosts"


def run(*words: str | Path) -> str:
    """Run a command of the room's own machine and return its output.

    Raises:
        AssertionError: it failed; the message has its output.
    """
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def make_keys() -> None:
    """Make the keys of the hosts and of their user; in the cache, because a virtual machine's disk holds them."""
    KEYS.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in ("ops", "host"):
        if not (KEYS / name).exists():
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"corral test {name}", "-f", KEYS / name)


def settle(root: Path, name: str, address: str) -> None:
    """Give the root file system *root* a host's name, its ssh key, and the key that opens it."""
    (root / "etc/hostname").write_text(f"{name}\n", encoding="utf-8")
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n", encoding="utf-8")
    run("install", "-m", "0600", KEYS / "host", root / "etc/ssh/ssh_host_ed25519_key")
    for user, home in (("0", root / "root"), ("1000", root / "home/ops")):
        run("install", "-d", "-m", "0700", "-o", user, "-g", user, home / ".ssh")
        run("install", "-m", "0600", "-o", user, "-g", user, KEYS / "ops.pub", home / ".ssh/authorized_keys")
    # Lists that are older than a day would make apt look for a mirror.
    (root / "var/lib/apt/periodic/update-success-stamp").touch()


@dataclass
class Room:
    """The network, the ssh keys and the list of hosts."""

    addresses: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert os.environ.get("CORRAL_HOSTS_ROOM"), "Test hosts need a room of their own. Run: make test-hosts"
        FOLDER.mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", FOLDER)
        Path("/run/netns").mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        make_keys()

    def address(self, name: str) -> str:
        """The address of the host *name*; a new one for a new name."""
        return self.addresses.setdefault(name, f"{NETWORK}.{10 + len(self.addresses)}")

    def ssh_options(self) -> list[str]:
        """Options of ssh: the key, the host key that every test host has, one connection a host."""
        known = FOLDER / "known_hosts"
        public = (KEYS / "host.pub").read_text(encoding="utf-8").split()[:2]
        line = f"{NETWORK}.* {' '.join(public)}\n"
        if not known.exists() or known.read_text(encoding="utf-8") != line:  # no ssh may read half a file
            partial = known.with_name(f"known_hosts.{threading.get_ident()}")
            partial.write_text(line, encoding="utf-8")
            partial.replace(known)
        settings = {
            "IdentityFile": KEYS / "ops",
            "UserKnownHostsFile": known,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": "60",
            "ControlMaster": "auto",
            "ControlPersist": "120s",
            "ControlPath": FOLDER / "ssh-%h",
        }
        return ["-F", "/dev/null", *(f"-o{name}={value}" for name, value in settings.items())]

    def forget_connection(self, name: str) -> None:
        """End the ssh connection to a host that was, or will be, started anew."""
        socket = FOLDER / f"ssh-{self.address(name)}"
        if socket.exists():
            subprocess.run(
                ["ssh", "-F", "/dev/null", f"-oControlPath={socket}", "-O", "exit", self.address(name)],
                capture_output=True,
                check=False,
            )
        socket.unlink(missing_ok=True)

    def client(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the room's own machine from the address of *name*, which is nothing but an address."""
        if not (Path("/run/netns") / name).exists():
            self.connect(name)
        return subprocess.run(
            ["ip", "netns", "exec", name, *words], capture_output=True, text=True, timeout=120, check=False
        )

    def connect(self, name: str) -> None:
        """Make the network of *name*: a name space with one link to the bridge."""
        address = self.address(name)
        run("ip", "netns", "add", name)
        end = f"v-{address.rsplit('.', 1)[1]}"
        run("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", end, "master", BRIDGE, "up")
        run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            run("ip", "-n", name, "link", "set", link, "up")
        run("ip", "-n", name, "route", "add", "default", "via", f"{NETWORK}.1")
