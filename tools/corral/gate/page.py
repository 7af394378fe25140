"""The gate as a table, as JSON, as JUnit XML, and as a page for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from corral import markdown, templates
from corral.gate.box import BOXES, Line, State
from corral.gate.evidence import Judged, now
from corral.smoke import report
from corral.smoke.checks import Status
from corral.smoke.report import CheckResult

COLUMNS = ("box", "state", "date", "evidence", "next")
"""The headings of ``rows``."""
SUITE = "corral gate"
"""The name of the JUnit suite."""
_JUNIT: dict[State, Status] = {
    State.PASSED: "passed",
    State.FAILED: "failed",
    State.UNKNOWN: "error",
    State.NOT_USED: "skipped",
}


@dataclass(frozen=True)
class Gate:
    """All boxes of *model* at *place*, served by *engine* with the lock that has *seal*; *date* is of this document."""

    model: str
    place: str
    seal: str
    engine: str
    date: str
    boxes: Sequence[Judged]

    @property
    def ticks(self) -> int:
        """Boxes that are ticked."""
        return sum(one.state.is_tick for one in self.boxes)

    @property
    def is_open(self) -> bool:
        """Whether every box is ticked."""
        return len(self.boxes) == self.ticks == len(BOXES)

    @property
    def summary(self) -> str:
        """In a sentence."""
        return f"{self.ticks} of {len(self.boxes)} boxes are ticked: {'open' if self.is_open else 'closed'}."

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        about = {name: getattr(self, name) for name in ("model", "place", "seal", "engine", "date", "is_open")}
        return about | {
            "boxes": [
                {"box": one.box, "title": one.title, "state": one.state, "date": one.date or None}
                | {"command": one.command, "lines": [each.model_dump(mode="json") for each in one.lines]}
                for one in self.boxes
            ]
        }

    def rows(self) -> Iterator[tuple[str, ...]]:
        """A row for each line of a box, under ``COLUMNS``."""
        for number, one in enumerate(self.boxes, 1):
            for line in one.lines:
                yield f"{number} {one.title}", line.state, one.date, line.text, line.next_step

    def junit(self) -> bytes:
        """One test case for each line of a box; *unknown* is an error, *not used* is skipped."""
        found = [
            CheckResult(self.model, f"{title} {at}" if at else title, _JUNIT[line.state], _reason(line), 0.0)
            for one in self.boxes
            for title in [one.title]
            for at, line in zip(_numbers(one), one.lines, strict=True)
        ]
        return report.junit(report.Report(self.place, tuple(found)), name=SUITE)

    def page(self) -> str:
        """Markdown for a pull request."""
        return templates.render(
            "gate.md.j2",
            model=markdown.cell(self.model),
            summary=self.summary,
            facts=[
                (name, markdown.cell(value))
                for name, value in (
                    ("served at", self.place),
                    ("lock", self.seal[:12]),
                    ("engine", self.engine),
                    ("date", self.date),
                )
            ],
            boxes=[
                (
                    "x" if one.state.is_tick else " ",
                    one.title,
                    one.state,
                    one.date or "no date",
                    [markdown.cell(_reason(line)) for line in one.lines],
                    markdown.one_line(one.command),
                )
                for one in self.boxes
            ],
        )


def undecided(model: str, reason: str) -> str:
    """The page of a run that could not judge *model*, for a *reason*: no box is ticked."""
    why = [(f"why, at {now()}", markdown.cell(reason))]
    return templates.render("gate.md.j2", model=markdown.cell(model), summary="not decided.", facts=why, boxes=[])


def _reason(line: Line) -> str:
    return f"{line.text} → {line.next_step}" if line.next_step else line.text


def _numbers(one: Judged) -> list[str]:
    return [str(at) for at in range(1, len(one.lines) + 1)] if len(one.lines) > 1 else [""]
