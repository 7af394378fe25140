"""Whose a process on the card is: a model's, a tenant's, a pod's, or this machine's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Protocol

from . import containers
from .containers import Container
from .driver import Process
from .holders import Kind, Owner
from .pods import Pod, Selector, tenants_of

PROC = Path("/proc")


class Attribution(Protocol):
    """Names the owners of processes."""

    def owner(self, process: Process) -> Owner:
        """Whose *process* is."""

    def certain(self) -> frozenset[Kind]:
        """The kinds of which, after all processes, one without a process holds nothing; else that is unknown."""

    @property
    def problem(self) -> str:
        """What is in the way of more certainty, in a sentence; empty: nothing."""


@dataclass(frozen=True)
class OnThisMachine:
    """Engines by their pids; every other process is its own owner."""

    models: Mapping[int, str]
    problem = ""

    def owner(self, process: Process) -> Owner:
        """Whose *process* is."""
        if model := self.models.get(process.pid):
            return Owner(Kind.MODEL, model)
        return _owner(process, PROC, lambda container: Owner(Kind.POD, f"pod {container.pod_uid}"))

    def certain(self) -> frozenset[Kind]:
        """The models: no process of this machine is known to be a tenant's."""
        return frozenset({Kind.MODEL})


@dataclass
class OnNode:
    """Every process of a Kubernetes node by its container's pod, and the pod by the catalog's tenants.

    Attributes:
        pods: of the node by uid; None: unknown, and every pod has its uid for a name.
        tenants: the pods of each tenant.
        engines: the pods whose processes are llama-servers of the catalog's models.
        models: their ids: the ``--alias`` of a command line.
        problem: why the list of pods is old or unknown; empty otherwise.
        proc: where the processes are.
    """

    pods: Mapping[str, Pod] | None
    tenants: Mapping[str, Selector]
    engines: Selector
    models: Collection[str]
    problem: str = ""
    proc: Path = PROC
    _unnamed: bool = field(default=False, init=False)  # a pod that is not in the list may be anyone's

    def certain(self) -> frozenset[Kind]:
        """Models and tenants, where every pod with a process on the card is in the list."""
        return frozenset() if self.pods is None or self._unnamed else frozenset({Kind.MODEL, Kind.TENANT})

    def owner(self, process: Process) -> Owner:
        """Whose *process* is."""
        return _owner(process, self.proc, lambda container: self._of_pod(container, process))

    def _of_pod(self, container: Container, process: Process) -> Owner:
        pod = (self.pods or {}).get(container.pod_uid)
        if pod is None:
            self._unnamed = True
            return Owner(Kind.POD, f"pod {container.pod_uid}")
        name = f"{pod.namespace}/{pod.name}"
        if self.engines.selects(pod):
            model = self._alias(process.pid)
            return Owner(Kind.MODEL, model, name) if model in self.models else Owner(Kind.POD, name, name)
        tenants = tenants_of(pod, self.tenants)
        return Owner(Kind.TENANT, tenants[0], name) if len(tenants) == 1 else Owner(Kind.POD, name, name)

    def _alias(self, pid: int) -> str:
        try:
            words = (self.proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return ""
        return next((value for flag, value in pairwise(words) if flag == "--alias"), "")


def _owner(process: Process, proc: Path, of_container: Callable[[Container], Owner]) -> Owner:
    cgroups = containers.read_cgroups(process.pid, proc=proc)
    if cgroups is None:
        return Owner(Kind.HIDDEN, f"pid {process.pid}")
    if container := containers.container_of(cgroups):
        return of_container(container)
    program = PurePosixPath(process.program.partition(" ")[0]).name
    return Owner(Kind.PROCESS, program or f"pid {process.pid}")
