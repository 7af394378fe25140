"""The seating chart as Terraform gives it (output ``chart`` of ``terraform/modules/seating``), with names for parts.

The sums are Terraform's.  Here is only what a picture needs: an order, a share of the card, and a number of cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Chart = Mapping[str, Any]
"""The whole chart."""
CardChart = Mapping[str, Any]
"""One entry of its ``cards``."""


@dataclass(frozen=True)
class Part:
    """A stretch of a card's memory.

    Attributes:
        kind: ``slot``, ``tenant``, ``reserve`` or ``free``.
        name: of the slot or the tenant; else the kind.
        mib: how much it takes.
        percent: the same of the whole card.
        note: which model decides it, and who else may sit there.
    """

    kind: str
    name: str
    mib: int
    percent: float
    note: str = ""


def parts(name: str, chart: Chart) -> list[Part]:
    """The parts of card *name*: slots and tenants, each by size, then the reserve, then what is free."""
    card = chart["cards"][name]
    slots = [_part(card, "slot", slot, found["mib"], _who(found, chart)) for slot, found in card["slots"].items()]
    tenants = [_part(card, "tenant", tenant, budget) for tenant, budget in card["tenants"].items()]
    rest = [_part(card, "reserve", "reserve", card["reserve_mib"])] if card["reserve_mib"] else []
    if card["free_mib"] > 0:
        rest.append(_part(card, "free", "free", card["free_mib"]))
    return [*_by_size(slots), *_by_size(tenants), *rest]


def wanted_or_there(card: CardChart) -> int:
    """MiB that a picture of *card* spans: the card, or what is wanted of it where that is more."""
    return max(int(card["vram_mib"]), int(card["used_mib"]))


def cells(stretches: Sequence[Part], whole: int, width: int) -> list[int]:
    """How many of *width* cells each of *stretches* gets: its share of *whole* MiB, one at least, *width* in all."""
    exact = [part.mib * width / whole for part in stretches]
    given = [max(1, int(share)) for share in exact]
    while sum(given) < width:
        given[max(range(len(given)), key=lambda at: exact[at] - given[at])] += 1
    while sum(given) > max(width, len(given)):
        given[max((at for at in range(len(given)) if given[at] > 1), key=lambda at: given[at] - exact[at])] -= 1
    return given


def model_rows(chart: Chart) -> Iterator[tuple[str, ...]]:
    """A line for each model: id, card, slot, MiB, where the number is from, context, largest context that fits."""
    for model_id, model in chart["models"].items():
        largest = model["largest_context"]
        yield (
            model_id,
            model["card"],
            model["slot"],
            f"{model['mib']:,}",
            basis(model),
            f"{model['context']:,}",
            "none" if largest is None else f"{largest:,}",
        )


MODEL_COLUMNS = ("model", "card", "slot", "MiB", "number is", "context", "largest that fits")
"""The headings of ``model_rows``."""


def basis(model: Mapping[str, Any]) -> str:
    """Where the seat of a model is from, in words."""
    measured, predicted = model["measured_mib"], model["predicted_mib"]
    if model["basis"] == "measured":
        return f"measured (predicted {predicted:,})"
    return f"{model['basis']} (measured {measured:,})" if measured is not None else str(model["basis"])


def percent(mib: int, card: CardChart) -> float:
    """*mib* as a percentage of the card's memory."""
    return 100 * mib / int(card["vram_mib"])


def _part(card: CardChart, kind: str, name: str, mib: int, note: str = "") -> Part:
    return Part(kind, name, mib, percent(mib, card), note)


def _by_size(found: list[Part]) -> list[Part]:
    return sorted(found, key=lambda part: (-part.mib, part.name))


def _who(slot: Mapping[str, Any], chart: Chart) -> str:
    seats: Mapping[str, int] = slot["models"]
    ids = sorted(seats, key=lambda model_id: (-seats[model_id], model_id))
    bases = [chart["models"][model_id]["basis"] for model_id in ids]
    shown = [
        model_id if basis_ == "predicted" else f"{model_id} ({basis_})"
        for model_id, basis_ in zip(ids, bases, strict=True)
    ]
    return shown[0] if len(shown) == 1 else f"one of {', '.join(shown)}"
