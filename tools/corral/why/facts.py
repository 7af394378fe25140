"""The evidence as plain data, before any rule judges it; a field keeps its default where its source gave nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from corral.engine.command import Command
from corral.engine.engine_process import Engine, Probe
from corral.engine.llama_swap import Exchange, InFlight, Resident
from corral.engine.log_lines import EngineError
from corral.engine.pause import Pause
from corral.engine.stack import Leader
from corral.exporter.account import CardAccount, Row
from corral.measure.engine_report import Report
from corral.why.files import FileFact
from corral.why.history import History


@dataclass(frozen=True)
class StackFacts:
    """llama-swap, and the catalog that it serves."""

    state: Literal["absent", "died", "unresponsive", "running"]
    endpoint: str = ""  # where clients send requests; empty when there is no stack
    pid: int | None = None  # of llama-swap
    is_stopped: bool = False  # llama-swap was stopped (SIGSTOP)
    problem: str = ""  # what is wrong with it, in a sentence
    last_lines: tuple[str, ...] = ()  # of its log, when it died
    used_cpu: bool = False  # llama-swap used processor time while the evidence was collected
    lost_part: str = ""  # a part of its door that has died, in words
    stopped_part: Leader | None = None  # a part that was stopped (SIGSTOP)
    pause: Pause | None = None  # of all models, in which new requests wait
    curl: str = "curl"  # the beginning of a command that sends the endpoint a request
    overload: str = ""  # the machine has more work than it can do, in a sentence: a timeout is no proof then
    cards: tuple[CardAccount, ...] = ()  # as the exporter of their node reports them
    exporter: str = ""  # its namespace; empty when none knows this llama-swap
    no_account: str = ""  # why there are no ``cards``, or what is not known of them, in a sentence; empty: all is known
    has_card: bool = False  # there is a card to compute on
    card_busy: int | None = None  # the share of the time that the busiest card computes, in per cent; None: unknown
    card_users: tuple[str, ...] = ()  # other programs on the cards, with their pids
    has_nvidia_smi: bool = False  # the preflight queries nvidia-smi, and it is installed
    no_engine: str = ""  # why no llama-server can be started; empty when one can, or when llama-swap is running
    no_lock: str = ""  # why the lock cannot be used; empty when it can
    lock_step: str = ""  # the command that makes it usable; empty for `corral lock`
    catalog: Path | None = None
    catalog_ids: tuple[str, ...] = ()
    catalog_is_assumed: bool = False  # no option names the catalog, and no stack records which one it serves


@dataclass(frozen=True)
class ModelFacts:
    """One model."""

    name: str  # the id or alias that was given
    id: str  # empty when the catalog has no such model
    command: Command | None = None  # how the running stack serves it; None when it does not
    resident: Resident | None = None  # its entry in /running
    engine: Engine | None = None  # its process
    probe: Probe | None = None  # of its engine's own endpoints
    history: History = field(default_factory=History)  # of its last load
    error: EngineError | None = None  # why its engine ended; None when its log could not be read
    files: tuple[FileFact, ...] = ()  # that its command names
    in_flight: tuple[InFlight, ...] = ()  # its requests without a complete response
    refused: tuple[Exchange, ...] = ()  # its requests that got 429
    answered: tuple[Exchange, ...] = ()  # its requests that got 200, the newest first
    memory: Report | None = None  # the buffers of its engine, by its log; None: unknown, or it is not loaded
    other_models: tuple[tuple[str, int], ...] = ()  # that are loaded, with their number of requests in flight
    stack_pids: frozenset[int] = frozenset()
    port_holder: str = ""  # the process on its port that is not its engine
    can_see_processes: bool = True  # its engine runs on this machine
    can_see_ports: bool = False  # the system reports which process listens on which port
    missing_program: str = ""  # of its command
    missing_evidence: tuple[str, ...] = ()  # each source that gave nothing, and why
    now: float = 0.0  # seconds since 1970

    def row(self, card: CardAccount) -> Row | None:
        """Its line in the account of *card*; None when it is on another."""
        return next((row for row in card.rows if (row.kind, row.name) == ("model", self.id)), None)

    @property
    def is_abandoned(self) -> bool:
        """Whether llama-swap waits for a load whose process has ended."""
        starting = self.resident is not None and self.resident.state == "starting"
        return starting and self.can_see_processes and self.engine is None
