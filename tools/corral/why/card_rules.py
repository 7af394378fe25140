"""Who takes the room of a model on its card now, by the account of the exporter on the card's node."""

from __future__ import annotations

from corral.agent.progress import duration
from corral.exporter.account import FOREIGN, Row
from corral.vram.prediction import mib
from corral.why.case import Case
from corral.why.next_steps import for_pod
from corral.why.verdict import Reason, Verdict

_MOST_LISTED = 3  # holders, and pods of one: a verdict is read at a glance


def no_room_now(case: Case) -> Verdict | None:
    """The model is not loaded, and its card lacks room for it: the next request would be refused."""
    row = case.card_row
    if case.facts.resident or row is None or not row.short:
        return None
    line = f"It is not loaded, and the card lacks {mib(row.short)} MiB of its seat of {mib(row.promised or 0)} MiB."
    steps = [*case.steps("card"), *case.steps("seat", "status")]
    culprit = f"the card, {mib(row.short)} MiB short"
    return no_room(case, [line]) or case.verdict(Reason.OUT_OF_MEMORY, culprit, [line, *held_too_much(case)], steps)


def no_room(case: Case, evidence: list[str]) -> Verdict | None:
    """Holders with more than they were promised have most of what the model lacks; None: they have not, or unknown."""
    row, excesses = case.card_row, _excesses(case)
    if row is None or not excesses or not row.short or sum(one.excess for one in excesses) * 2 < row.short:
        return None
    first = excesses[0]
    verb = {"tenant": "delete", "pod": "describe"}.get(first.kind)  # the workload of a tenant starts another pod
    pods = [for_pod(case.options, pod, verb) for pod in first.pods[:_MOST_LISTED]] if verb else []
    steps = [*case.steps("card"), *pods, *case.steps("smoke")]
    return case.verdict(Reason.OUT_OF_MEMORY, _culprit(first), [*held_too_much(case), *evidence], steps)


def held_too_much(case: Case) -> list[str]:
    """A sentence for each of the largest excesses on the model's card."""
    return [_line(row, case.facts.now) for row in _excesses(case)[:_MOST_LISTED]]


def _excesses(case: Case) -> tuple[Row, ...]:
    """The excesses on the model's card, the largest first; none where the card is unknown."""
    return next((card.excesses for card in case.stack.cards if case.facts.row(card)), ())


def _culprit(row: Row) -> str:
    return f"{row.name}, {mib(row.excess)} MiB {'without a' if row.kind in FOREIGN else 'over its'} promise"


def _line(row: Row, now: float) -> str:
    pods = f", in {', '.join(row.pods[:_MOST_LISTED])}" if row.pods and row.kind != "pod" else ""
    if row.kind in FOREIGN:
        return f"{row.name} holds {mib(row.held or 0)} MiB of the card now, and was promised none{pods}."
    since = f", first observed {duration(max(0.0, now - row.over_since))} ago" if row.over_since else ""
    promised = f"and was promised {mib(row.promised or 0)}"
    return f"{row.name} holds {mib(row.held or 0)} MiB of the card now, {promised}{since}{pods}."
