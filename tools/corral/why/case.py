"""One model's case: what was seen of it, and what every rule needs to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from corral.agent.progress import count, duration
from corral.why.answer import Answer, Reason, one_line
from corral.why.cluster_steps import ClusterSteps
from corral.why.facts import ModelFacts, Place, StackFacts
from corral.why.steps import Steps


@dataclass(frozen=True)
class Case:
    """What is to be judged."""

    stack: StackFacts
    seen: ModelFacts
    place: Place

    @property
    def model(self) -> str:
        """Its id, or what it was called."""
        return self.seen.id or self.seen.model

    @cached_property
    def steps(self) -> Steps:
        """What can be typed next."""
        kind = ClusterSteps if self.place.cluster else Steps
        return kind(self.place, self.stack, self.model)

    @property
    def is_ready(self) -> bool:
        """Whether llama-swap calls it ready."""
        return self.seen.resident is not None and self.seen.resident.state == "ready"

    def answer(self, reason: Reason, culprit: str, evidence: Iterable[str], steps: Iterable[str]) -> Answer:
        """The answer; empty evidence, and what is there twice, is left out."""
        told = [line for one in evidence if (line := one_line(one))]
        return Answer(
            self.seen.model, reason, one_line(culprit), tuple(dict.fromkeys(told)), tuple(dict.fromkeys(steps))
        )

    def in_flight(self) -> str:
        """How many requests have no answer yet, and since when."""
        waiting = self.seen.in_flight
        return f"{count(len(waiting), 'request')} in flight{f', {self.oldest()}' if waiting else ''}."

    def oldest(self) -> str:
        """For how long the oldest request has had no answer."""
        return f"the oldest for {duration(self.waited_s)}"

    @property
    def waited_s(self) -> float:
        """Seconds for which the oldest request has had no answer; 0 when there is none."""
        return max((self.seen.now - one.since for one in self.seen.in_flight), default=0.0)

    def ago(self, at: float) -> str:
        """How long ago *at* was."""
        return f"{duration(max(0.0, self.seen.now - at))} ago" if at else "at an unknown time"

    def file_details(self) -> list[str]:
        """A sentence for each file."""
        return [file.detail for file in self.seen.files]

    def bad_files(self) -> list[str]:
        """A sentence for each file that no server can work with."""
        return [file.detail for file in self.seen.files if file.is_bad]


Rule: TypeAlias = Callable[[Case], Answer | None]
