"""One model's case: the facts, and what several rules conclude from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from corral.agent.progress import count, duration
from corral.engine.log_lines import End, EngineCode, EngineError
from corral.exporter.account import Row
from corral.why.facts import ModelFacts, StackFacts
from corral.why.next_steps import Action, StepOptions, commands
from corral.why.verdict import Reason, Verdict, one_line

_EARLIER_FAILURE_S = 3600.0  # a failure that a later load recovered from is reported for so long


@dataclass(frozen=True)
class Case:
    """What a rule judges."""

    stack: StackFacts
    facts: ModelFacts
    options: StepOptions

    @property
    def model(self) -> str:
        """Its id, or the name that was given."""
        return self.facts.id or self.facts.name

    @property
    def is_ready(self) -> bool:
        """Whether llama-swap reports it as ready."""
        return self.facts.resident is not None and self.facts.resident.state == "ready"

    @property
    def is_unloaded(self) -> bool:
        """Whether it has no process, and its last one did not fail."""
        return self.facts.resident is None and self.facts.history.state in ("never", "ready")

    @property
    def card_row(self) -> Row | None:
        """The model's line in the account of its card; None without an account."""
        return next((row for card in self.stack.cards if (row := self.facts.row(card))), None)

    def steps(self, *actions: Action, **values: object) -> list[str]:
        """The commands of *actions*, about this model unless *values* name another."""
        return commands(self.options, self.stack, *actions, **{"model": self.model} | values)

    def lock_steps(self) -> list[str]:
        """The command that makes the lock usable; none where it is."""
        relock = self.steps("lock")[0]
        return [self.stack.lock_step.replace("corral lock", relock) or relock] if self.stack.no_lock else []

    def verdict(self, reason: Reason, culprit: str, evidence: Iterable[str], next_steps: Iterable[str]) -> Verdict:
        """The verdict, without empty and repeated lines."""
        lines = dict.fromkeys(line for one in evidence if (line := one_line(one)))
        return Verdict(self.facts.name, reason, one_line(culprit), tuple(lines), tuple(dict.fromkeys(next_steps)))

    # -- requests and files -----------------------------------------------------------------------------------

    @property
    def waited_s(self) -> float:
        """The age of the oldest request in flight, in seconds; 0 when there is none."""
        return max((self.facts.now - one.since for one in self.facts.in_flight), default=0.0)

    def oldest(self) -> str:
        """The age of the oldest request in flight, in words."""
        return f"the oldest for {duration(self.waited_s)}"

    def in_flight(self) -> str:
        """The number of requests in flight and the age of the oldest, in words."""
        waiting = self.facts.in_flight
        return f"{count(len(waiting), 'request')} in flight{f', {self.oldest()}' if waiting else ''}."

    def last_answer(self) -> list[str]:
        """The newest answer with its seconds and its tokens a second, in words; nothing where there is none."""
        if not self.facts.answered:
            return []
        one = self.facts.answered[0]
        speed = "" if one.tokens_per_second is None else f", {one.tokens_per_second:,.1f} tokens a second"
        return [f"Its last answer, {self.ago(one.ended)}, took {one.seconds:.2f} s{speed}."]

    def file_details(self, *, only_bad: bool = False) -> list[str]:
        """A sentence for each file; *only_bad*: for each that a server cannot use."""
        return [file.detail for file in self.facts.files if file.is_bad or not only_bad]

    # -- the last failure -------------------------------------------------------------------------------------

    @property
    def has_failed(self) -> bool:
        """Whether the last load, or the run after it, failed."""
        if self.is_ready:
            return False
        return self.facts.history.failures > 0 or (self.facts.is_abandoned and self.facts.error is not None)

    @property
    def error(self) -> EngineError:
        """Why the engine ended; ``other`` when its log could not be read."""
        return self.facts.error or EngineError(EngineCode.OTHER)

    @property
    def failure_reason(self) -> Reason:
        """The reason of the last failure; ``unknown`` where the engine's error does not decide."""
        return Reason(self.error.code.value) if self.error.decides else Reason.UNKNOWN

    def failure_evidence(self) -> list[str]:
        """What is known of the last failure, the engine's own line first."""
        history, error = self.facts.history, self.error
        lines = [error.line if error.refusal else f"The engine's log: {error.line}"] if error.line else []
        if history.reason:
            lines.append(f"llama-swap, {self.ago(history.at)}: {history.reason}.")
        if history.failures > 1:
            lines.append(f"It failed {history.failures} times in a row.")
        if self.facts.resident and history.failures:
            lines.append(f"It is {self.facts.resident.state} again now.")
        if self.facts.is_abandoned:
            lines.append("Its process has ended; llama-swap still waits for a response on its port.")
        return lines

    @property
    def is_resolved(self) -> bool:
        """Whether the cause of the last failure can be checked and no longer holds."""
        if self.facts.history.failure in (End.NO_PROGRAM, End.NOT_STARTED):
            return self.facts.history.failure is End.NO_PROGRAM and not self.facts.missing_program
        check = _CHECKS.get(self.failure_reason)
        return check is not None and check(self)

    def resolved_evidence(self) -> list[str]:
        """What failed before and works now: requests of that time failed because of it."""
        history = self.facts.history
        lines = []
        if self.has_failed and self.is_resolved:
            failed = f"Its last load failed {self.ago(history.at)} for a reason that no longer holds"
            lines = [f"{failed}: send the request again.", *self.failure_evidence()]
        if history.earlier_failure and self.facts.now - history.earlier_failure_at < _EARLIER_FAILURE_S:
            loaded = f", and was loaded again {self.ago(history.at)}" if history.state == "ready" else ""
            failed = f"{self.model} failed {self.ago(history.earlier_failure_at)} ({history.earlier_failure})"
            lines.append(f"{failed}{loaded}.")
        return lines

    def ago(self, at: float) -> str:
        """How long ago *at*, in seconds since 1970, was, in words; 0 when that is not known."""
        return f"{duration(max(0.0, self.facts.now - at))} ago" if at else "at an unknown time"


def _has_room(case: Case) -> bool:
    """Whether the preflight, which refused the load, would find room by now."""
    row = case.card_row
    return bool(case.error.refusal) and row is not None and row.short == 0


def _files_are_usable(case: Case) -> bool:
    return bool(case.facts.files) and not any(file.is_bad for file in case.facts.files)


def _files_were_replaced(case: Case) -> bool:
    named = [file for file in case.facts.files if str(file.path) == case.error.subject] or case.facts.files
    # llama-swap dates its lines to the second.
    return _files_are_usable(case) and any(file.changed_at >= case.facts.history.at + 1 for file in named)


_CHECKS: dict[Reason, Callable[[Case], bool]] = {
    Reason.OUT_OF_MEMORY: _has_room,
    Reason.FILE_MISSING: _files_are_usable,
    Reason.FILE_DAMAGED: _files_were_replaced,
    Reason.PORT_IN_USE: lambda case: case.facts.can_see_ports and not case.facts.port_holder,
    Reason.ENGINE_MISSING: lambda case: not case.facts.missing_program,
}
