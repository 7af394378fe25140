"""Whose a process on the card is: a model's, a tenant's, a pod's, or this machine's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Protocol

from . import containers, units
from .account import OTHER
from .containers import Container
from .driver import Process
from .holders import Kind, Owner
from .pods import Pod, Selector, tenants_of

PROC = Path("/proc")
MODEL = "corral/model"
"""The label of a pod that serves one model alone (terraform/modules/vllm): vLLM renames its processes."""


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
        """The models, by the pids of their engines; no process of this machine is known to be a tenant's."""
        return frozenset({Kind.MODEL})


@dataclass
class _Doubts:
    """What the processes leave open: while one of them may be anyone's, no tenant or model without one is empty."""

    hidden: dict[str, None] = field(default_factory=dict)  # each once, in their order
    unlisted: dict[str, None] = field(default_factory=dict)
    claimed: dict[str, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.hidden or self.unlisted)

    def noted(self, owner: Owner, process: Process) -> Owner:
        """*owner*, whose *process* is."""
        if owner.kind is Kind.HIDDEN and not containers.has_ended(process.pid):
            self.hidden[owner.name] = None
        if owner.claims:
            self.claimed[f"{owner.name} of {', '.join(owner.claims)}"] = None
        return owner

    def sentences(self) -> Iterator[str]:
        """Why, for people."""
        if self.hidden:
            yield f"Whose these processes on the card are cannot be read in /proc: {', '.join(self.hidden)}."
        if self.unlisted:
            yield f"The list of pods does not have these, with processes on the card: {', '.join(self.unlisted)}."
        if self.claimed:
            yield f"The card's file makes these holders those of several tenants: {'; '.join(self.claimed)}."


@dataclass
class OnNode:
    """Every process of a Kubernetes node by its container's pod, and the pod by the catalog's tenants.

    Attributes:
        pods: of the node by uid; None: unknown, and every pod has its uid for a name.
        tenants: the pods of each; None: the catalog names none.
        engines: the pods whose processes are llama-servers of the catalog's models.
        models: their ids: the ``--alias`` of a command line, or the label of a pod beside those of ``engines``.
        list_problem: why the list of pods is old or unknown; empty otherwise.
        proc: where the processes are.
    """

    pods: Mapping[str, Pod] | None
    tenants: Mapping[str, Selector | None]
    engines: Selector
    models: Collection[str]
    list_problem: str = ""
    proc: Path = PROC
    _doubts: _Doubts = field(default_factory=_Doubts, init=False)

    @property
    def problem(self) -> str:
        """Why the list of pods is old or unknown, which tenants cannot be found, and whose processes are in the way."""
        without = _without("namespace and no selector", self.tenants)
        return " ".join(filter(None, (self.list_problem, without, *self._doubts.sentences())))

    def certain(self) -> frozenset[Kind]:
        """Models and tenants, where every pod with a process on the card is in the list, and no process is hidden.

        Models alone where a tenant has no selector: a process of any pod may be that tenant's.
        """
        is_open = self.pods is None or self._doubts
        return frozenset() if is_open else _findable(self.tenants)

    def owner(self, process: Process) -> Owner:
        """Whose *process* is."""
        return self._doubts.noted(_owner(process, self.proc, lambda one: self._of_pod(one, process)), process)

    def _of_pod(self, container: Container, process: Process) -> Owner:
        pod = (self.pods or {}).get(container.pod_uid)
        if pod is None:
            if self.pods is not None:
                self._doubts.unlisted[container.pod_uid] = None
            return Owner(Kind.POD, f"pod {container.pod_uid}")
        name = f"{pod.namespace}/{pod.name}"
        has_engines = self.engines.selects(pod)
        is_beside = pod.namespace == self.engines.namespace
        model = _alias(process.pid, self.proc) if has_engines else pod.labels.get(MODEL, "") if is_beside else ""
        if model in self.models:
            return Owner(Kind.MODEL, model, name)
        if has_engines:
            return Owner(Kind.POD, name, name)
        tenants = tenants_of(pod, self.tenants)
        return Owner(Kind.TENANT, tenants[0], name) if len(tenants) == 1 else Owner(Kind.POD, name, name, tenants)


@dataclass
class OnHost:
    """Every process of a machine without Kubernetes by its unit of systemd, and the unit by the catalog's tenants.

    Attributes:
        tenants: the service or slice of each; None: the catalog names none.
        engines: the units whose processes are llama-servers of the catalog's models.
        models: their ids: the ``--alias`` of a command line.
        proc: where the processes are.
    """

    tenants: Mapping[str, str | None]
    engines: Collection[str]
    models: Collection[str]
    proc: Path = PROC
    _doubts: _Doubts = field(default_factory=_Doubts, init=False)

    @property
    def problem(self) -> str:
        """Which tenants cannot be found, and which processes are hidden; empty: none."""
        return " ".join(filter(None, (_without("unit", self.tenants), *self._doubts.sentences())))

    def certain(self) -> frozenset[Kind]:
        """The models, and the tenants where each has a unit: else a process of any unit may be a tenant's.

        None of them while a process is hidden.
        """
        return frozenset() if self._doubts else _findable(self.tenants)

    def owner(self, process: Process) -> Owner:
        """Whose *process* is."""
        found = _owner(process, self.proc, lambda one: Owner(Kind.POD, f"pod {one.pod_uid}"), self._of_unit)
        return self._doubts.noted(found, process)

    def _of_unit(self, cgroups: str, process: Process) -> Owner:
        found = units.units_of(cgroups)
        if found and found[-1] in self.engines and (model := _alias(process.pid, self.proc)) in self.models:
            return Owner(Kind.MODEL, model)
        tenants = tuple(name for name, unit in self.tenants.items() if unit in found)
        if len(tenants) == 1:
            return Owner(Kind.TENANT, tenants[0])
        place = units.place(cgroups)
        name = f"{_program(process)} in {place}" if place else _program(process)
        return Owner(Kind.PROCESS, name, claims=tenants)


def _findable(tenants: Mapping[str, object]) -> frozenset[Kind]:
    return frozenset({Kind.MODEL} if None in tenants.values() else {Kind.MODEL, Kind.TENANT})


def _without(what: str, tenants: Mapping[str, object]) -> str:
    names = sorted(name for name, place in tenants.items() if place is None)
    return f"The card's file names no {what} of these tenants: {', '.join(names)}." if names else ""


def _owner(
    process: Process,
    proc: Path,
    of_container: Callable[[Container], Owner],
    of_others: Callable[[str, Process], Owner] = lambda _, process: Owner(Kind.PROCESS, _program(process)),
) -> Owner:
    cgroups = containers.read_cgroups(process.pid, proc=proc)
    if cgroups is None:
        return Owner(Kind.HIDDEN, f"pid {process.pid}")
    container = containers.container_of(cgroups)
    return of_container(container) if container else of_others(cgroups, process)


def _program(process: Process) -> str:
    name = PurePosixPath(process.program.partition(" ")[0]).name
    return name if name not in ("", OTHER) else f"pid {process.pid}"


def _alias(pid: int, proc: Path) -> str:
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return next((value for flag, value in pairwise(words) if flag == "--alias"), "")
