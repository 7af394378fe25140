"""A small virtual machine, for what needs a kernel of its own: LVM, the kernel's NFS server, NFS mounts, sysctls.

It is emulated without KVM, and so about seven times slower than the machine below: a snapshot of the booted system,
kept in the cache, is where every test starts.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.hosts.host import Machine, wait_for
from tests.support.hosts.images import EMULATED, Image, folder, unfinished
from tests.support.hosts.playbook import play
from tests.support.hosts.room import BRIDGE, FOLDER, KEYS, NETWORK, Room, make_keys, run, settle

IMAGE = Image("debian-13", installed=EMULATED, downloaded=())

NAME = "virtual"
ADDRESS = f"{NETWORK}.200"
DISKS = ("system", "vdb", "vdc", "vdd", "vde")
"""The system's own disk, and four empty ones of 2 GB each."""

_SNAPSHOT = "booted"
_NETWORK = f"""[Match]
Name=e*

[Network]
Address={ADDRESS}/24
"""
# A processor without AVX: what the C library would do with it is slower than without when it is emulated.
_HARDWARE = [
    *("-accel", "tcg,thread=multi,tb-size=512", "-cpu", "Nehalem", "-smp", "2", "-m", "1024"),
    *("-nodefaults", "-display", "none", "-serial", "stdio", "-device", "virtio-rng-pci"),
    *("-append", "root=/dev/vda rw console=ttyS0 mitigations=off quiet"),
    *("-netdev", "tap,id=room,ifname=corral-vm,script=no,downscript=no"),
    *("-device", "virtio-net-pci,netdev=room,mac=52:54:00:c0:44:a1"),
]
# They only cost time at boot.
_IDLE = ["apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer"]


def disk() -> Path:
    """The folder in the cache with the disks; they need not be there yet."""
    recipe = (
        IMAGE.path.name,
        ADDRESS,
        DISKS,
        _NETWORK,
        _IDLE,
        _HARDWARE,
        inspect.getsource(_use),
        (KEYS / "ops.pub").read_text(encoding="utf-8"),
    )
    return folder() / f"{NAME}-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}"


def make_disk() -> Path:
    """Make the disks from the image; return their folder."""
    make_keys()
    if disk().exists():
        return disk()
    with unfinished(disk()) as partial, tempfile.TemporaryDirectory(dir=folder()) as scratch:
        root, raw = Path(scratch) / "root", Path(scratch) / "raw"
        partial.mkdir()
        run("cp", "-a", IMAGE.make(), root)
        settle(root, NAME, ADDRESS)
        (root / "etc/systemd/network/10-room.network").write_text(_NETWORK, encoding="utf-8")
        (root / "etc/fstab").write_text("/dev/vda / ext4 noatime 0 1\n", encoding="utf-8")
        run("systemctl", f"--root={root}", "enable", "systemd-networkd")
        run("systemctl", f"--root={root}", "mask", *_IDLE)
        for kind in ("vmlinuz", "initrd.img"):
            shutil.copy(next((root / "boot").glob(f"{kind}-*")), partial / kind)
        run("mke2fs", "-q", "-t", "ext4", "-d", root, raw, "3G")
        run("qemu-img", "convert", "-O", "qcow2", raw, partial / "system")
        for name in DISKS[1:]:
            run("qemu-img", "create", "-q", "-f", "qcow2", partial / name, "2G")
    return disk()


def _use(machine: Machine) -> None:
    """Run what every test runs, so that the snapshot has it in memory, and its bytecode compiled (zip_bytecode.py)."""
    tasks = [
        {"ansible.builtin.setup": {"gather_subset": ["!all", "!min"]}},
        {"ansible.builtin.command": {"cmd": "true"}},
        {"ansible.builtin.stat": {"path": "/"}},
        {"ansible.builtin.file": {"path": "/var/tmp", "state": "directory"}},
        {"ansible.builtin.copy": {"content": "\n", "dest": "/var/tmp/used", "mode": "0644"}},
        {"ansible.builtin.apt": {"name": "xfsprogs"}},
        {"ansible.builtin.systemd_service": {"name": "ssh.service", "state": "started"}},
        {"community.general.lvg": {"vg": "none", "state": "absent"}},
        {"community.general.lvol": {"vg": "none", "lv": "none", "size": "1g"}, "ignore_errors": True},
        {"community.general.filesystem": {"dev": "/dev/none", "fstype": "xfs"}, "ignore_errors": True},
    ]
    playbook = FOLDER / "use.json"
    playbook.write_text(json.dumps([{"name": "Use it", "hosts": "all", "gather_facts": False, "tasks": tasks}]))
    play(playbook, {"test": [machine]}).succeeded()


class VirtualMachine(Machine):
    """The virtual machine; ``start`` gives one that has just booted."""

    def __init__(self, room: Room) -> None:
        room.addresses[NAME] = ADDRESS
        super().__init__(room, NAME, user="root")
        self.folder = FOLDER / NAME
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Load the snapshot of the booted system; the first time ever, boot it and take the snapshot."""
        snapshot = disk() / _SNAPSHOT
        if snapshot.exists() and not self._loads(snapshot):
            shutil.rmtree(snapshot)  # cut off while it was copied, or taken by another QEMU
        if not snapshot.exists():
            self._take(snapshot)
            assert self._loads(snapshot), (self.folder / "console.log").read_text(encoding="utf-8", errors="replace")
        self.run(f"date --set=@{time.time():.0f}; touch /var/lib/apt/periodic/update-success-stamp")

    def stop(self) -> None:
        """End it, and remove its disks."""
        if self.process is not None:
            self._end()

    def _take(self, snapshot: Path) -> None:
        self._launch()
        wait_for("the virtual machine: ssh", self.answers, seconds=240)
        self.run("systemctl is-system-running --wait", check=False)
        _use(self)
        time.sleep(1)  # what was started last settles; only the quality of the snapshot depends on it
        self._monitor(f"savevm {_SNAPSHOT}")
        self._end()
        with unfinished(snapshot) as partial:
            partial.mkdir()
            for name in DISKS:
                shutil.copy(self.folder / name, partial)

    def _loads(self, snapshot: Path) -> bool:
        self._launch("-loadvm", _SNAPSHOT, source=snapshot)
        assert self.process is not None
        deadline = time.monotonic() + 90
        while self.process.poll() is None and time.monotonic() < deadline:
            if self.answers():
                return True
            time.sleep(0.2)
        self._end()
        return False

    def _launch(self, *options: str, source: Path | None = None) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for name in DISKS:
            shutil.copy((source or disk()) / name, self.folder)
        drives = (f"file={self.folder / name},format=qcow2,if=virtio,cache=unsafe" for name in DISKS)
        run("ip", "tuntap", "add", "corral-vm", "mode", "tap")
        run("ip", "link", "set", "corral-vm", "master", BRIDGE, "up")
        with (self.folder / "console.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *("qemu-system-x86_64", *_HARDWARE),
                    *("-kernel", str(disk() / "vmlinuz"), "-initrd", str(disk() / "initrd.img")),
                    *(word for drive in drives for word in ("-drive", drive)),
                    *("-monitor", f"unix:{self.folder}/monitor,server,nowait", *options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _monitor(self, command: str) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self.folder / "monitor"))
            # A prompt comes at first, and when the command is done.
            for line in ("", f"{command}\n"):
                connection.sendall(line.encode())
                received = b""
                while not received.endswith(b"(qemu) "):
                    received += connection.recv(4096)

    def _end(self) -> None:
        assert self.process is not None
        self.room.forget_connection(self.name)
        self.process.kill()
        self.process.wait()
        self.process = None
        run("ip", "link", "del", "corral-vm")
