"""Where a throwaway cluster lives on this machine: a number, and everything that follows from it.

Several clusters run side by side; each has its own name spaces, so only what is visible outside needs a number.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from corral import paths
from corral.errors import CannotRun

COUNT = 10
USUAL, APART = range(8), range(8, COUNT)
"""The places of most clusters, and those of the tests that free a place and expect it to stay free."""
PLACES = "CORRAL_TEST_PLACES"  # "apart": a new cluster gets one of ``APART``
NODE, SECOND = "gpu-1", "gpu-2"
"""The node of every cluster, and the one that ``second_node`` adds."""
_CGROUPS = Path("/sys/fs/cgroup")
_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class Place:
    """One of the ``COUNT`` places for a cluster."""

    number: int

    @property
    def folder(self) -> Path:
        """Everything that the cluster writes."""
        return folder() / str(self.number)

    @property
    def context(self) -> str:
        """Its name in a kubeconfig."""
        return f"corral-test-{self.number}"

    @property
    def link(self) -> str:
        """The network interface of this machine that leads to it."""
        return f"corral-{self.number}"

    @property
    def cgroup(self) -> str:
        """The cgroup that its pods live in, below every controller."""
        return f"corral-cluster-{self.number}"

    @property
    def network(self) -> str:
        """The first half of all its addresses."""
        return f"10.{201 + self.number}"

    @property
    def node_address(self) -> str:
        """The node's, the API server's and the resolver's address."""
        return f"{self.network}.0.1"

    def address_of(self, node: str) -> str:
        """The address of *node*."""
        return {NODE: self.node_address, SECOND: f"{self.network}.0.2"}[node]

    @property
    def host_address(self) -> str:
        """This machine, as pods see it."""
        return f"{self.network}.255.1"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "pki" / "admin.kubeconfig"

    def claim(self) -> int | None:
        """A file descriptor that holds the place for as long as it, or a copy of it, is open; None: it is taken."""
        folder().mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder() / f"{self.number}.lock", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def claim_after(self, pid: int | None) -> int | None:
        """As ``claim``, once the processes of the cluster with *pid* have let go; None: another cluster took the place.

        Raises:
            CannotRun: they do not let go.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while (descriptor := self.claim()) is None and pid is not None and self.pid() == pid:
            if time.monotonic() > deadline:
                raise CannotRun(
                    f"The place {self.folder} is still held after its cluster was killed.",
                    next_step=f"Which process holds it? fuser {folder() / f'{self.number}.lock'}",
                )
            time.sleep(0.05)
        return descriptor

    def pid(self) -> int | None:
        """The process that holds its cluster together; None: there is none."""
        try:
            return int((self.folder / "pid").read_text())
        except (FileNotFoundError, ValueError):  # an empty file is being written
            return None

    def is_free(self) -> bool:
        """Whether no other process of this machine uses its addresses."""
        found = subprocess.run(
            ["ip", "-4", "route", "show", "root", f"{self.network}.0.0/16"], capture_output=True, text=True, check=True
        )
        return not found.stdout.strip()

    def cgroups(self) -> list[Path]:
        """Its cgroups that exist, one a controller (one in all with cgroup version 2)."""
        below = [_CGROUPS, *(group for group in _CGROUPS.iterdir() if group.is_dir() and not group.is_symlink())]
        return [group / self.cgroup for group in below if (group / self.cgroup).is_dir()]

    def make_cgroups(self) -> None:
        """Make its cgroup below every controller."""
        if (_CGROUPS / "cgroup.controllers").exists():
            wanted = " ".join(f"+{name}" for name in (_CGROUPS / "cgroup.controllers").read_text().split())
            (_CGROUPS / "cgroup.subtree_control").write_text(wanted)
            (_CGROUPS / self.cgroup).mkdir(exist_ok=True)
            return
        for controller in _CGROUPS.iterdir():
            if (controller / "cgroup.procs").exists() and not controller.is_symlink():
                (controller / self.cgroup).mkdir(exist_ok=True)

    def clean(self) -> None:
        """Remove what a cluster leaves behind when its processes are gone; everything else went with them.

        Raises:
            CannotRun: something still holds it.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                for top in self.cgroups():
                    for group, _folders, _files in os.walk(top, topdown=False):
                        Path(group).rmdir()
                if self.folder.exists():
                    shutil.rmtree(self.folder)
                self._check_link()
            except OSError as error:  # a process is still on its way out
                if time.monotonic() > deadline:
                    what = f"The test cluster in {self.folder} cannot be removed: {error}."
                    raise CannotRun(
                        what, next_step="Which process holds it? grep -l corral-cluster /proc/*/cgroup"
                    ) from None
                time.sleep(0.05)
            else:
                return

    def _check_link(self) -> None:
        """The kernel takes a network away in its own time, some after its last process."""
        if Path("/sys/class/net", self.link).exists():
            raise OSError(f"the link {self.link} is still there")


def folder() -> Path:
    """Where the places lie."""
    return paths.cache_dir() / "cluster"


def claim_one() -> tuple[Place, int]:
    """A place that is not in use, cleaned, and the descriptor that holds it; places of the dead are cleaned on the way.

    Raises:
        CannotRun: all are taken.
    """
    found: tuple[Place, int] | None = None
    places = APART if os.environ.get(PLACES) == "apart" else USUAL
    for place in map(Place, places):
        descriptor = place.claim()
        if descriptor is None:
            continue
        place.clean()
        if found is None and place.is_free():
            found = place, descriptor
        else:
            os.close(descriptor)
    if found is None:
        raise CannotRun(
            f"All {len(places)} places for test clusters are taken, or their networks (10.201.0.0/16 …) are in use.",
            next_step="(cd tools && ../.venv/bin/python -m tests.support.cluster down)",
        )
    return found
