"""Root file systems for the test hosts: bare Debian, made once and kept in the cache by content.

    python -m tests.support.hosts.images        make what is missing (as root, in tools/)

A host has no network but the other hosts of its test.  So the image holds the package lists, and the archive of every
package that a role installs: apt then works as it does on a real machine, without a mirror.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from corral import paths

SUITES = {"debian-12": "bookworm", "debian-13": "trixie"}
"""Name of a test host's system, and the suite that it is made from."""

BARE = [
    "ca-certificates",
    "dbus",
    "iproute2",
    "kmod",
    "openssh-server",
    "procps",
    "python3",
    "python3-apt",
    "sudo",
    "systemd",
    "systemd-sysv",
    "udev",
]
"""What an ordinary Debian server has, and Ansible relies on."""

ROLES = ["containerd", "gpg", "lvm2", "nfs-common", "nfs-kernel-server", "prometheus-node-exporter", "xfsprogs"]
"""What the roles install: downloaded into the image, not installed."""

TOOLCHAIN = ["binutils", "ccache", "cmake", "g++", "make"]
"""What the role llama_cpp installs to compile with: downloaded into the image, not installed."""

COMPILING = ("libgomp1", *TOOLCHAIN)
"""What a host is made with whose test is not about installing that."""

EMULATED = ("fdisk", "linux-image-cloud-amd64", "libnfs-utils", *ROLES)
"""What the virtual machine is made with: under emulation, installing it in a test would take minutes."""


_HERE = Path(__file__).parent
_HELPERS = (_HERE / "apt_lists.py", _HERE / "zip_bytecode.py")
_PYTHON = "/usr/lib/python3/dist-packages"


@dataclass(frozen=True)
class Image:
    """A root file system: a bare suite, with packages *installed* and others *downloaded* on top."""

    system: str
    installed: tuple[str, ...] = ()
    downloaded: tuple[str, ...] = (*ROLES, *TOOLCHAIN)

    @property
    def path(self) -> Path:
        """Its folder in the cache; it need not be there yet."""
        recipe = "\n".join([*self._recipe("", ""), *(file.read_text(encoding="utf-8") for file in _HELPERS)])
        return folder() / f"{self.system}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"

    def make(self) -> Path:
        """Return its folder, made now when it is missing.

        Raises:
            subprocess.CalledProcessError: mmdebstrap failed; its output is on stderr.
        """
        if not self.path.exists():
            sys.stderr.write(f"hosts: making the image {self.path.name}; about a minute, once\n")
            with unfinished(self.path) as partial:
                logged(
                    [
                        *self._recipe(shlex.quote(sys.executable), shlex.quote(f"{_HERE}/")),
                        SUITES[self.system],
                        str(partial),
                    ]
                )
        return self.path

    def _recipe(self, python: str, here: str) -> list[str]:
        hooks = [
            "apt-get clean",
            "rm -f /etc/ssh/ssh_host_* /etc/machine-id && touch /etc/machine-id",
            "useradd --create-home --shell /bin/bash ops",
            "echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops",
            "ln -sf /lib/systemd/system/multi-user.target /etc/systemd/system/default.target",
        ]
        if self.downloaded:
            hooks.append(f"apt-get install --yes --no-install-recommends --download-only {' '.join(self.downloaded)}")
        return [
            *("mmdebstrap", "--quiet", "--variant=minbase", "--skip=cleanup/apt"),
            f"--include={','.join((*BARE, *self.installed))}",
            *(f'--customize-hook=chroot "$1" sh -ec "{hook}"' for hook in hooks),
            f'--customize-hook={python} {here}apt_lists.py "$1" && chroot "$1" apt-get check --quiet=2',
            f"--customize-hook=copy-in {here}zip_bytecode.py {_PYTHON}",
            f'--customize-hook=chroot "$1" python3 -m py_compile {_PYTHON}/zip_bytecode.py',
            f'--customize-hook=echo import zip_bytecode > "$1{_PYTHON}/zip_bytecode.pth"',
        ]


def folder() -> Path:
    """Where the images lie."""
    return paths.cache_dir() / "hosts"


@contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """A path beside *target* that becomes *target* at the end of the block, and is removed when the block fails."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)  # in a room, numbers of processes come again
    try:
        yield partial
        if not target.exists():  # another session may have been quicker
            partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def logged(command: list[str]) -> None:
    """Run *command*, and show its output when it fails.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
    done.check_returncode()


def sweep() -> None:
    """Remove what a killed process was making; its mounts ended with it (``test_hosts.sh`` gives it its own)."""
    for partial in folder().glob("*.partial-*"):
        if not Path("/proc", partial.name.rpartition("-")[2]).exists():
            shutil.rmtree(partial)


def main() -> int:
    """Make everything that the tests boot from."""
    from tests.support.hosts import vm

    sweep()
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(Image.make, [*map(Image, SUITES), Image("debian-13", installed=COMPILING), vm.IMAGE]))
    vm.make_disk()
    return 0


if __name__ == "__main__":
    sys.exit(main())
