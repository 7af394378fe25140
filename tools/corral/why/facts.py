"""Everything that was seen, before anybody judges it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from corral.engine.llama_swap import Exchange, InFlight, Resident
from corral.why.command import Command
from corral.why.engine_words import Said
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
        overload: that the machine has much more to do than it can, in a sentence: silence is no proof then.
        no_engine: why no llama-server could be started now; empty when one could, or nobody looked.
        no_lock: why the lock cannot be read; empty when it can.
    """

    state: Literal["none", "died", "silent", "answers"]
    endpoint: str = ""
    pid: int | None = None
    is_stopped: bool = False
    orphans: int = 0
    problem: str = ""
    last_words: tuple[str, ...] = ()
    overload: str = ""
    no_engine: str = ""
    no_lock: str = ""


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
        said: the telling line of its engine, when the last load failed.
        files: those that its command names.
        in_flight: its requests that have no answer yet.
        refused: its requests that were answered 429.
        rivals: resident models of the same slot, and how many requests each has.
        port_holder: a stranger on its port.
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
    said: Said | None = None
    files: tuple[FileFact, ...] = ()
    in_flight: tuple[InFlight, ...] = ()
    refused: tuple[Exchange, ...] = ()
    rivals: tuple[tuple[str, int], ...] = ()
    port_holder: str = ""
    missing_program: str = ""
    unseen: tuple[str, ...] = ()
    now: float = 0.0


@dataclass(frozen=True)
class Place:
    """Where things are, for commands that can be typed as they are: folders that are not the default ones."""

    catalog: Path | None = None
    store: Path | None = None
