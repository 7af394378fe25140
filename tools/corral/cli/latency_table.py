"""Whether a catalog's latency budgets can be kept, as `corral lock` and `corral plan` show and refuse it."""

from __future__ import annotations

from collections.abc import Mapping

from corral import output
from corral.catalog.ledger import Ledger
from corral.errors import Refused
from corral.latency import budgets
from corral.latency.budgets import Forecast, State
from corral.lock.lock import LockEntry


def forecasts(models: Mapping[str, LockEntry], measured: Ledger) -> list[Forecast]:
    """Of each latency budget of *models*, by what was *measured*."""
    return [
        budgets.forecast(model_id, entry.intent, budget, measured.speed(model_id, entry.argv, entry.intent.card))
        for model_id, entry in models.items()
        for budget in entry.intent.latency
    ]


def show(found: list[Forecast]) -> None:
    """Print *found* to stdout, where there is something."""
    if found:
        output.table(budgets.COLUMNS, [one.row() for one in found], title="Latency budgets, as predicted")


def sentence(one: Forecast) -> str:
    """*one* as a line."""
    times = [
        (name, value) for name, value in (("p50", one.p50), ("p95", one.p95), ("a load", one.load)) if value is not None
    ]
    predicted = f", predicted {', '.join(f'{name} {value:.2f} s' for name, value in times)}" if times else ""
    return f"{one.model}: latency budget of {one.consumer}: {one.asked:g} s{predicted}: {one.state}, {one.reason}"


def require_possible(found: list[Forecast]) -> None:
    """No budget of *found* is one that the model's own benchmark shows impossible.

    Raises:
        Refused: one is; every one is named.
    """
    lines = [
        f"{one.model}: the latency budget of {one.consumer} is {one.asked:g} s, and {one.reason}."
        for one in found
        if one.state is State.IMPOSSIBLE
    ]
    if lines:
        step = (
            "Raise p95_seconds in the model's file, or change the model. Has the card been exchanged? "
            "Remove its speeds from measured.json, then: corral lock, corral bench --speeds MODEL"
        )
        raise Refused("\n".join(lines), next_step=step)
