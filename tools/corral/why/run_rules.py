"""Rules for a model that is loaded: who answers for it, whether it gets on, and whether it has too much to do."""

from __future__ import annotations

from corral.agent.progress import count, duration
from corral.why import past
from corral.why.answer import Answer, Reason
from corral.why.case import Case

_RECENT_S = 300.0  # a refusal that is older explains no request of now
_STUCK_S = 10.0  # a request that old, without a token or any work, is not just slow


def hung(case: Case) -> Answer | None:
    """Its engine is stopped, or has done nothing for a request that waits long enough to be sure."""
    seen = case.seen
    if not seen.resident or not seen.engine:
        return None
    culprit = f"llama-server of {case.model} (pid {seen.engine.pid})"
    waiting = [case.in_flight()] if seen.in_flight else []
    if seen.engine.is_stopped:
        said = f"{culprit} is stopped (SIGSTOP); llama-swap calls it {seen.resident.state}."
        steps = [f"kill -CONT {seen.engine.pid}", case.steps.smoke()]
        return case.answer(Reason.HUNG, culprit, [said, *waiting], steps)
    if not case.is_ready or not seen.pulse or seen.pulse.moves or case.waited_s <= _STUCK_S:
        return None
    told = [f"llama-swap calls it ready; {_silence(case)}", *waiting, "Neither tokens nor processor time get on."]
    if case.stack.overload:
        return case.answer(Reason.UNKNOWN, "", [*told, case.stack.overload], case.steps.look())
    # It does not listen to less; llama-swap starts it again.
    return case.answer(Reason.HUNG, culprit, told, [f"kill -9 {seen.engine.pid}", case.steps.smoke()])


def stranger(case: Case) -> Answer | None:
    """Somebody else answers for a model that llama-swap calls ready."""
    seen = case.seen
    if not case.is_ready or not seen.port_holder or not seen.command:
        return None
    engine = f"its engine (pid {seen.engine.pid})" if seen.engine else "an engine of its own"
    port = seen.command.port
    told = f"llama-swap calls {case.model} ready; {seen.port_holder} answers on its port {port}, not {engine}."
    steps = [case.steps.listeners(port), *case.steps.restart()]
    return case.answer(Reason.PORT_IN_USE, seen.port_holder, [told], steps)


def over_limit(case: Case) -> Answer | None:
    """It was asked for more at once than llama-swap takes; the burst may be what caused the load."""
    seen = case.seen
    if not seen.command:
        return None
    limit = seen.command.limit
    refused = [one.ended for one in seen.refused if seen.now - one.ended < _RECENT_S]
    if not refused and len(seen.in_flight) < limit:
        return None
    evidence = [
        f"{count(len(refused), 'request')} answered 429, the last {case.ago(max(refused))}." if refused else "",
        f"llama-swap takes {count(limit, 'request')} of {case.model} at a time; one more is answered 429.",
        f"Now: {case.in_flight()}",
        *past.mended(case),
    ]
    steps = [case.steps.status(), case.steps.again()]
    return case.answer(Reason.OVER_CONCURRENCY, f"more than {count(limit, 'request')} at once", evidence, steps)


def over_limit_while_ready(case: Case) -> Answer | None:
    """The same, of a model that is loaded: no doubt about its files explains a refusal."""
    return over_limit(case) if case.is_ready else None


def silent(case: Case) -> Answer | None:
    """Its engine gave no answer, or an odd one, and that proves nothing yet."""
    pulse = case.seen.pulse
    if not case.is_ready or not pulse or not (pulse.problem or (pulse.late and not pulse.moves)):
        return None
    work = "It used processor time meanwhile." if pulse.moves else "It did nothing meanwhile."
    rule = f"Only a request that waits for more than {duration(_STUCK_S)} without any work proves that it hangs."
    told = [f"llama-swap calls it ready; {_silence(case)}", work, case.in_flight(), rule, case.stack.overload]
    return case.answer(Reason.UNKNOWN, "", [*told, *past.mended(case)], [*case.steps.look(), case.steps.again()])


def waiting_for_rival(case: Case) -> Answer | None:
    """It cannot be loaded as long as another one of its group works."""
    seen = case.seen
    rivals = seen.command.rivals if seen.command else ()
    busy = [(model, requests) for model, requests in seen.others if requests and model in rivals]
    if seen.resident or not seen.in_flight or not busy:
        return None
    rival, requests = busy[0]
    evidence = [
        f"{count(len(seen.in_flight), 'request')} for {case.model} without an answer, {case.oldest()}.",
        f"{rival} has the group and {count(requests, 'request')} in flight: llama-swap swaps when it has none.",
    ]
    return case.answer(Reason.OVER_CONCURRENCY, f"{rival}, which is in the same group", evidence, [case.steps.status()])


def not_looked_into(case: Case) -> Answer | None:
    """A request waits for long, and from here nobody can see whether the engine works at it."""
    if case.seen.sees_processes or not case.is_ready or case.waited_s <= _STUCK_S:
        return None
    told = [
        "llama-swap calls it ready.",
        case.in_flight(),
        "Whether its engine works at that cannot be seen from here.",
    ]
    return case.answer(Reason.UNKNOWN, "", [*told, *past.mended(case)], [*case.steps.look(), case.steps.again()])


def unseen(case: Case) -> Answer | None:
    """Something could not be looked at."""
    return case.answer(Reason.UNKNOWN, "", case.seen.unseen, case.steps.look()) if case.seen.unseen else None


def healthy(case: Case) -> Answer:
    """Nothing is wrong; what did go wrong before the last load is told all the same."""
    seen = case.seen
    steps = [case.steps.smoke()]
    if not seen.resident:
        told = ["It is not loaded; the next request loads it."]
    elif not case.is_ready:
        since = f" since {duration(seen.now - seen.history.at)}" if seen.history.state == "loading" else ""
        limit = f", of {seen.command.load_limit_s} s at most" if seen.command else ""
        told, steps = [f"It is {seen.resident.state}{since}{limit}."], [case.steps.status()]
    else:
        told = [_at_work(case)]
        steps = [case.steps.status(), case.steps.again()] if seen.pulse and seen.pulse.late else steps
    return case.answer(Reason.HEALTHY, "", [*told, *past.mended(case), *case.file_details()], steps)


def _at_work(case: Case) -> str:
    seen, pulse = case.seen, case.seen.pulse
    at = f" at {seen.resident.proxy}" if seen.resident else ""
    if pulse and pulse.late:
        return f"It is loaded and works{at}, too busy for its own /health: {_queue(case)}."
    if not seen.sees_processes:
        return f"It is loaded by llama-swap's word, {case.in_flight()} Its engine itself was not asked."
    return f"It is loaded and answers{at}{f'; it works: {_queue(case)}' if seen.in_flight else ''}."


def _queue(case: Case) -> str:
    """What there is to do, and how much of it waits for its turn."""
    requests, busy = len(case.seen.in_flight), case.seen.pulse.busy if case.seen.pulse else 0
    waiting = f", {requests - busy} of them in the engine's queue" if 0 < busy < requests else ""
    limit = f" (of {case.seen.command.limit} at most)" if case.seen.command else ""
    return f"{count(requests, 'request')} in flight{limit}{waiting}{f', {case.oldest()}' if requests else ''}"


def _silence(case: Case) -> str:
    pulse = case.seen.pulse
    if pulse and pulse.late:
        return f"its engine gives no answer within {duration(pulse.late)}."
    return f"{pulse.problem}." if pulse and pulse.problem else "its engine answers, and does not work."
