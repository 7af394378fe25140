"""Box 1: which serving stack the rule decides for, by stated inputs, and whether that one serves."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from corral.engine.llama_swap import LlamaSwap
from corral.errors import CannotRun
from corral.gate import box
from corral.gate.box import Line, State
from corral.lock.lock import LockEntry
from corral.measure import engine_report

LLAMA_CPP, VLLM = "llama.cpp", "vLLM"
FEW, MANY = 10, 30
RULE = (
    f"at most {FEW} requests at once: {LLAMA_CPP}; {MANY} or more on a card: {VLLM}; between: by the measured "
    f"break-even; without a card: {LLAMA_CPP}"
)
_SERVERS = {"llama-server": LLAMA_CPP}


@dataclass(frozen=True)
class Inputs:
    """What the rule decides by.

    Attributes:
        at_once: the most requests under way at a time.
        source: where that number is from.
        has_card: whether the engine computes on a card; None: unknown.
        break_even: users from which on vLLM serves more than llama.cpp, as measured; None: not measured.
    """

    at_once: int
    source: str
    has_card: bool | None
    break_even: int | None = None

    def __str__(self) -> str:
        card = {True: "on a card", False: "without a card", None: "whether on a card is unknown"}[self.has_card]
        even = "not measured" if self.break_even is None else f"{self.break_even} users"
        return f"{self.at_once} at once ({self.source}), {card}, break-even {even}"


def decide(given: Inputs) -> str | None:
    """The stack by ``RULE``; None: an input that it needs is unknown."""
    if given.at_once <= FEW or given.has_card is False:
        return LLAMA_CPP
    if given.has_card is None:
        return None
    if given.at_once >= MANY:
        return VLLM
    if given.break_even is None:
        return None
    return LLAMA_CPP if given.at_once < given.break_even else VLLM


def most_at_once(entry: LockEntry) -> tuple[int, str]:
    """The most requests at a time that a latency budget of a model has, else its request slots; and the source."""
    if not entry.intent.latency:
        return entry.intent.parallel, "parallel; no latency budget"
    largest = max(entry.intent.latency, key=lambda one: one.requests_at_once)
    return largest.requests_at_once, f"the budget of {largest.consumer}"


def has_card(client: LlamaSwap, model: str, entry: LockEntry) -> bool | None:
    """Whether the loaded engine of *model* computes on a card; None: unknown.

    Its own log has its buffers.  Where it has not, a measurement of the same command line on a card counts.
    """
    with suppress(CannotRun):
        if found := engine_report.parse(client.model_log(model)):
            return bool(found.cards)
    return True if entry.measured else None


def judge(entry: LockEntry, given: Inputs, *, model: str) -> tuple[Line, ...]:
    """Whether what serves *entry* is what the rule decides."""
    decided, serves = decide(given), _SERVERS.get(PurePosixPath(entry.argv[0]).name, entry.argv[0])
    if decided is None:
        if given.has_card is None:
            step = f"Load it anew, so that its log has its buffers: corral measure {model} --reload --dry-run"
        else:
            step = f"Measure both stacks, then: corral gate {model} --only stack --break-even USERS"
        return box.line(State.UNKNOWN, f"{given}: the rule cannot decide ({RULE})", step)
    text = f"{given}: {decided}, and {serves} serves ({RULE})"
    if decided == serves:
        return box.line(State.PASSED, text)
    return box.line(State.FAILED, text, f"Serve it with {decided}, or lower requests_at_once in the model's file")
