"""Everything that `corral seat` shows of a catalog: the chart, the largest contexts, remedies, sets and advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from corral.catalog.catalog import Catalog
from corral.lock import placement
from corral.lock.lock import Lock, LockEntry
from corral.seating import advice as advising
from corral.seating import chart as charts
from corral.seating import contexts, remedies
from corral.seating.advice import Advice
from corral.seating.chart import Chart
from corral.seating.contexts import Largest
from corral.seating.remedies import Remedy
from corral.vram.prediction import mib

MODEL_COLUMNS = ("model", "card", "group", "MiB", "number is", "context", "largest that fits")
"""The headings of ``Report.model_rows``."""


@dataclass(frozen=True)
class Report:
    """What is known of the seating of one catalog: its lock, the sums of it, and the largest context of each model."""

    lock: Lock
    chart: Chart
    contexts: Mapping[str, Largest]

    @property
    def fits(self) -> bool:
        """Whether every card holds its set."""
        return all(card.fits for card in self.chart.cards.values())

    @property
    def advice(self) -> list[Advice]:
        """What deserves attention."""
        return list(advising.of(self.lock, self.chart))

    def remedies(self, card: str) -> list[Remedy]:
        """What alone would make *card* fit; empty for one that is not short."""
        return remedies.of(self.lock, self.chart, self.contexts, card)

    def remedy_lines(self, card: str, *, hypothetical: bool = False) -> list[str]:
        """What would make *card*, which is short, fit, in lines for people; *hypothetical* after a what-if question."""
        short = f"{card} {'would be' if hypothetical else 'is'} short of {self.chart.cards[card].short_mib:,} MiB."
        edits = [remedies.edit(card, remedy) for remedy in self.remedies(card)]
        if not edits:
            return [f"{short} {remedies.without_remedy(self.chart.cards[card])}"]
        return [
            f"{short} Each of these alone would do:",
            *(f"  - {line.replace('(now ', '(in question: ') if hypothetical else line}" for line in edits),
        ]

    def model_rows(self) -> Iterator[tuple[str, ...]]:
        """A line for each model, under ``MODEL_COLUMNS``; ``~`` stands before a context that is not proved."""
        for model_id, model in self.chart.models.items():
            entry = self.lock.models[model_id]
            yield (
                model_id,
                model.card,
                model.group,
                f"{model.mib:,}",
                _basis(model.basis, entry),
                f"{entry.intent.context:,}",
                _tokens(self.contexts[model_id]),
            )

    def as_json(self) -> dict[str, Any]:
        """The whole report: figures in MiB and tokens."""
        cards = {
            name: {
                **asdict(card),
                "fits": card.fits,
                "remedies": [remedy.as_json() for remedy in self.remedies(name)],
                "together": (sets := remedies.together(self.chart, name)) and [asdict(one) for one in sets],
            }
            for name, card in self.chart.cards.items()
        }
        models = {
            model_id: {
                **asdict(self.chart.models[model_id]),
                "predicted_mib": _mib(entry.predicted.gpu_bytes),
                "measured_mib": _measured_mib(entry),
                "placed": placement.reason(entry) or None,
                "context": entry.intent.context,
                "context_trained": entry.predicted.context_trained,
                "largest_context": self.contexts[model_id].tokens,
                "largest_context_proved": self.contexts[model_id].proved,
            }
            for model_id, entry in sorted(self.lock.models.items())
        }
        warnings = [{**asdict(one), "message": advising.sentence(one)} for one in self.advice]
        return {"cards": cards, "models": models, "warnings": warnings}


def of(catalog: Catalog, lock: Lock) -> Report:
    """The report on *catalog* and its *lock*; runs the embedded engine where a context decides."""
    chart = charts.of(lock)
    return Report(lock, chart, contexts.largest(catalog, lock, chart))


def help_for_short_cards(catalog: Catalog, lock: Lock) -> list[str]:
    """For each card that is short, a headline and its remedies as edits; empty when every card holds its set."""
    chart = charts.of(lock)
    short = [name for name, card in chart.cards.items() if not card.fits]
    affected = [model_id for model_id, model in chart.models.items() if model.card in short]
    report = Report(lock, chart, contexts.largest(catalog, lock, chart, affected))
    return [line for name in short for line in report.remedy_lines(name)]


def _tokens(found: Largest) -> str:
    if found.tokens is None:
        return "none"
    return f"{found.tokens:,}" if found.proved else f"~{found.tokens:,}"


def _basis(basis: str, entry: LockEntry) -> str:
    """Which figure decides a seat, and the other ones where a model was measured."""
    predicted, measured = _mib(entry.predicted.gpu_bytes), _measured_mib(entry)
    if basis == "measured":
        return "measured" if predicted is None else f"measured (predicted {predicted:,})"
    return basis if measured is None else f"{basis} (measured {measured:,})"


def _mib(count: int | None) -> int | None:
    return None if count is None else mib(count)


def _measured_mib(entry: LockEntry) -> int | None:
    return mib(entry.measured.gpu_bytes) if entry.measured else None
