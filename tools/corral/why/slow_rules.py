"""Rules for a model that answers slowly, or did until it was unloaded: each names one cause, with its figures."""

from __future__ import annotations

from corral.agent.progress import count, duration, human
from corral.vram.prediction import mib
from corral.why.case import Case
from corral.why.run_rules import at_work
from corral.why.verdict import Reason, Verdict

_RECENT_S = 300.0  # an older load or answer explains no request of now
_QUEUED_S = 30.0  # in the engine's queue
_LOAD_S = 30.0
_COLD = 0.1  # of the files that were in the page cache before a load
_SWAPS = 3  # loads within ``_RECENT_S``
_COMPUTES = 50  # per cent of the time


def paused(case: Case) -> Verdict | None:
    """New requests of all models wait in the guard."""
    pause = case.stack.pause
    if pause is None:
        return None
    return case.verdict(
        Reason.SLOW, "a pause of all models", [str(pause), at_work(case) if case.is_ready else ""], case.steps("status")
    )


def on_processor(case: Case) -> Verdict | None:
    """The processor computes it, on a machine with a card."""
    memory = case.facts.memory
    if not case.is_ready or not case.stack.has_card or memory is None or memory.cards:
        return None
    lines = [
        f"Its engine has {mib(memory.host)} MiB in the host's memory and none on a card; this machine has a card.",
        *case.last_answer(),
    ]
    return case.verdict(Reason.SLOW, "the processor, in place of the card", lines, case.steps("engine", "inspect"))


def queued(case: Case) -> Verdict | None:
    """A request has waited for long in the engine's queue, because all of its slots are at work."""
    probe, since = case.facts.probe, sorted(one.since for one in case.facts.in_flight)
    if not case.is_ready or not probe or not 0 < probe.busy < len(since):
        return None
    waited = case.facts.now - since[probe.busy]  # the older ones are those at work
    if waited < _QUEUED_S:
        return None
    waiting = len(since) - probe.busy
    lines = [
        at_work(case),
        f"{count(waiting, 'request')} for {count(probe.busy, 'slot')}: the first has waited {duration(waited)}.",
        *case.last_answer(),
    ]
    parallel = case.facts.command.parallel if case.facts.command else probe.busy
    return case.verdict(
        Reason.SLOW,
        f"its queue, {count(waiting, 'request')}",
        lines,
        case.steps("status", "widen", parallel=parallel + 1),
    )


def loaded_slowly(case: Case) -> Verdict | None:
    """Its last load took long, or it was loaded again and again: requests waited for that, and the next ones will."""
    facts, history = case.facts, case.facts.history
    recent = [at for at in history.loads if facts.now - at < _RECENT_S]
    rivals = facts.command.rivals if facts.command else ()
    in_its_place = [one for one, _ in facts.other_models if one in rivals and not facts.resident]
    is_swapped = len(recent) >= _SWAPS and bool(rivals if case.is_ready else in_its_place)
    if not (case.is_ready or case.is_unloaded) or not recent or (history.load_s < _LOAD_S and not is_swapped):
        return None
    lines = [f"Its last load took {duration(history.load_s)}, and ended {case.ago(recent[-1])}."]
    if in_its_place:
        lines.append(f"It is not loaded now: {', '.join(in_its_place)} took its place.")
    if is_swapped:
        others, have = ", ".join(rivals), "has" if len(rivals) == 1 else "have"
        lines.append(f"It was loaded {len(recent)} times within {duration(_RECENT_S)}; {others} {have} the same group.")
    if history.cached is not None:
        share = f"{history.cached:.0%} of its {human(history.size)} were in the page cache before it"
        speed = f": {human(round(history.size / history.load_s))} a second" if history.load_s else ""
        lines.append(f"{share}{speed}.")
    lines += case.last_answer()
    if is_swapped:
        return case.verdict(Reason.SLOW, f"swaps, {len(recent)} loads", lines, case.steps("status", "seat"))
    if history.cached is not None and history.cached < _COLD:
        return case.verdict(Reason.SLOW, "a cold page cache", lines, case.steps("warm", "status"))
    return case.verdict(Reason.SLOW, f"its load, {duration(history.load_s)}", lines, case.steps("status", "warm"))


def tenant_computes(case: Case) -> Verdict | None:
    """The card computes while no engine of the stack has a request: other programs of it do."""
    stack, facts = case.stack, case.facts
    is_idle = not facts.in_flight and not any(requests for _, requests in facts.other_models)
    recent = [one for one in facts.answered if facts.now - one.ended < _RECENT_S]
    if not case.is_ready or not is_idle or not recent or (stack.card_busy or 0) < _COMPUTES:
        return None
    others = ", ".join(stack.card_users) or "programs that its driver does not list"
    lines = [
        f"The card computes {stack.card_busy} % of the time, and no engine of this stack has a request.",
        f"Others on the card: {others}.",
        *case.last_answer(),
    ]
    return case.verdict(
        Reason.SLOW, f"another program that computes on the card, {stack.card_busy} %", lines, case.steps("card")
    )
