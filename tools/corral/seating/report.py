"""Everything that `corral seat` shows of a catalog: the chart, the largest contexts, remedies, sets and advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from corral.catalog.catalog import Catalog
from corral.lock.lock import Lock, LockEntry
from corral.seating import advice as advising
from corral.seating import chart as charts
from corral.seating import contexts, remedies
from corral.seating.advice import Advice
from corral.seating.chart import Chart
from corral.seating.contexts import Largest
from corral.seating.remedies import Remedy, Together
from corral.vram.prediction import mib

MODEL_COLUMNS = ("model", "card", "group", "MiB", "number is", "context", "largest that fits")
"""The headings of ``Report.model_rows``."""


@dataclass(frozen=True)
class Report:
    """What is known of the seating of one catalog.

    Attributes:
        lock: the lock.
        chart: its sums.
        contexts: the largest context of each model, by id.
        remedies: what alone would help each card that is short, by name; empty for the others.
        together: the sets that can run side by side, by card; None where they are too many.
        advice: what deserves attention.
    """

    lock: Lock
    chart: Chart
    contexts: Mapping[str, Largest]
    remedies: Mapping[str, Sequence[Remedy]]
    together: Mapping[str, Sequence[Together] | None]
    advice: Sequence[Advice]

    @property
    def fits(self) -> bool:
        """Whether every card holds its set."""
        return all(card.fits for card in self.chart.cards.values())

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
                "remedies": [remedy.as_json() for remedy in self.remedies[name]],
                "together": None if (sets := self.together[name]) is None else [asdict(one) for one in sets],
            }
            for name, card in self.chart.cards.items()
        }
        models = {
            model_id: {
                **asdict(model),
                "predicted_mib": _mib(self.lock.models[model_id].predicted.gpu_bytes),
                "measured_mib": _measured_mib(self.lock.models[model_id]),
                "context": self.lock.models[model_id].intent.context,
                "context_trained": self.lock.models[model_id].predicted.context_trained,
                "largest_context": self.contexts[model_id].tokens,
                "largest_context_proved": self.contexts[model_id].proved,
            }
            for model_id, model in self.chart.models.items()
        }
        warnings = [{**asdict(one), "message": advising.sentence(one)} for one in self.advice]
        return {"cards": cards, "models": models, "warnings": warnings}


def of(catalog: Catalog, lock: Lock) -> Report:
    """The report on *catalog* and its *lock*; asks the embedded engine where a context decides."""
    chart = charts.of(lock)
    largest = contexts.largest(catalog, lock, chart)
    return Report(
        lock,
        chart,
        largest,
        {name: remedies.of(lock, chart, largest, name) for name in chart.cards},
        {name: remedies.together(chart, name) for name in chart.cards},
        list(advising.of(lock, chart)),
    )


def help_for_short_cards(catalog: Catalog, lock: Lock) -> list[str]:
    """For each card that is short, a headline and its remedies as edits; empty when every card holds its set."""
    chart = charts.of(lock)
    lines = []
    for name, card in chart.cards.items():
        if card.fits:
            continue
        on_card = [model_id for group in card.groups.values() for model_id in group.models]
        largest = contexts.largest(catalog, lock, chart, on_card)
        lines += remedy_lines(name, chart, remedies.of(lock, chart, largest, name))
    return lines


def remedy_lines(card: str, chart: Chart, found: Sequence[Remedy], *, asked: bool = False) -> list[str]:
    """What would make *card* fit, in lines for people.

    Args:
        card: name of a card that is short.
        chart: the chart that it is in.
        found: its remedies.
        asked: the chart is the answer to a question, and nothing of it is in the catalog.
    """
    short = f"{card} {'would be' if asked else 'is'} short of {chart.cards[card].short_mib:,} MiB."
    if not found:
        return [f"{short} {remedies.without_remedy(chart.cards[card])}"]
    edits = [remedies.edit(card, remedy) for remedy in found]
    return [
        f"{short} Each of these alone would do:",
        *(f"  - {line.replace('(now ', '(in question: ') if asked else line}" for line in edits),
    ]


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
