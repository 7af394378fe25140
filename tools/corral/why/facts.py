"""Everything that was seen, before anybody judges it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from corral.engine.llama_swap import Exchange, InFlight, Resident
from corral.engine.log_lines import EngineError
from corral.why.command import Command
from corral.why.files import FileFact
from corral.why.history import History
from corral.why.process import Engine, Pulse


@dataclass(frozen=True)
class StackFacts:
    """The local stack.

    Attributes:
        state: ``none``: nobody started one; ``died``; ``silent``: alive, and does not answer.
        endpoint: where clients ask; empty when there is none.
        pid: llama-swap's.
        is_stopped: llama-swap was stopped (SIGSTOP).
        orphans: engines that a dead llama-swap left behind.
        problem: what is wrong with it, in a sentence.
        last_words: of its log.
        is_at_work: llama-swap used processor time while it was asked.
        overload: that the machine has much more to do than it can, in a sentence: silence is no proof then.
        has_nvidia_smi: the preflight asks nvidia-smi, and there is one to ask.
        no_engine: why no llama-server could be started now; empty when one could, or nobody looked.
        no_lock: why the lock cannot be read; empty when it can.
        catalog: the catalog that was looked at.
        catalog_is_a_guess: nobody named it, and no stack says which one it serves.
    """

    state: Literal["none", "died", "silent", "answers"]
    endpoint: str = ""
    pid: int | None = None
    is_stopped: bool = False
    orphans: int = 0
    problem: str = ""
    last_words: tuple[str, ...] = ()
    is_at_work: bool = False
    overload: str = ""
    has_nvidia_smi: bool = False
    no_engine: str = ""
    no_lock: str = ""
    catalog: Path | None = None
    catalog_is_a_guess: bool = False


@dataclass(frozen=True)
class ModelFacts:
    """One model; what could not be seen is left as it is here.

    Attributes:
        model: as it was asked for.
        id: its id; empty when the catalog has no such model.
        catalog_ids: what the catalog has.
        command: how the running stack serves it; None when it does not.
        resident: its entry in /running.
        engine: its process.
        pulse: what its engine answers.
        history: its last load.
        error: why its engine ended, by its log, when the last load failed; None when that could not be read.
        files: those that its command names.
        in_flight: its requests that have no answer yet.
        refused: its requests that were answered 429.
        others: the other models that are loaded, and how many requests each has.
        members: the processes of the stack.
        port_holder: who listens on its port and is not its engine.
        sees_processes: its engine runs on this machine, and can be looked at.
        sees_ports: the system says who listens where.
        missing_program: of its command, one that is not there.
        unseen: which source of evidence said nothing, and why.
        now: seconds since 1970.
    """

    model: str
    id: str
    catalog_ids: tuple[str, ...]
    command: Command | None = None
    resident: Resident | None = None
    engine: Engine | None = None
    pulse: Pulse | None = None
    history: History = field(default_factory=History)
    error: EngineError | None = None
    files: tuple[FileFact, ...] = ()
    in_flight: tuple[InFlight, ...] = ()
    refused: tuple[Exchange, ...] = ()
    others: tuple[tuple[str, int], ...] = ()
    members: frozenset[int] = frozenset()
    port_holder: str = ""
    sees_processes: bool = True
    sees_ports: bool = False
    missing_program: str = ""
    unseen: tuple[str, ...] = ()
    now: float = 0.0

    @property
    def is_abandoned(self) -> bool:
        """Whether llama-swap waits for a load whose process has gone."""
        starting = self.resident is not None and self.resident.state == "starting"
        return starting and self.sees_processes and self.engine is None


@dataclass(frozen=True)
class Place:
    """Where things are, for commands that can be typed as they are; None where it is the default."""

    catalog: Path | None = None
    store: Path | None = None
    port: int | None = None
    cluster: ClusterPlace | None = None


@dataclass(frozen=True)
class ClusterPlace:
    """A cluster, and where in it llama-swap is; ``kubeconfig`` is None for the default one."""

    context: str
    kubeconfig: Path | None
    namespace: str
    service: str
