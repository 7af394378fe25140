"""Rules for a model that is loaded: which process serves it, whether it progresses, and whether it is overloaded."""

from __future__ import annotations

from corral.agent.progress import count, duration
from corral.why.case import Case
from corral.why.verdict import Reason, Verdict

_RECENT_S = 300.0  # an older refusal explains no request of now
_STUCK_S = 10.0  # a request that old, without a token or any work, is not just slow


def hung(case: Case) -> Verdict | None:
    """Its engine is stopped, or has done nothing for a request that is old enough to be sure."""
    facts = case.facts
    if not facts.resident or not facts.engine:
        return None
    culprit = f"llama-server of {case.model} (pid {facts.engine.pid})"
    waiting = [case.in_flight()] if facts.in_flight else []
    if facts.engine.is_stopped:
        line = f"{culprit} is stopped (SIGSTOP); llama-swap reports it as {facts.resident.state}."
        steps = [f"kill -CONT {facts.engine.pid}", *case.steps("smoke")]
        return case.verdict(Reason.HUNG, culprit, [line, *waiting], steps)
    if not case.is_ready or not facts.probe or facts.probe.progresses or case.waited_s <= _STUCK_S:
        return None
    lines = [
        f"llama-swap reports it as ready; {facts.probe.sentence}",
        *waiting,
        "Neither tokens nor processor time grow.",
    ]
    if case.stack.overload:
        return case.verdict(Reason.UNKNOWN, "", [*lines, case.stack.overload], case.steps("inspect", "smoke"))
    # It does not react to a weaker signal; llama-swap starts it again.
    return case.verdict(Reason.HUNG, culprit, lines, [f"kill -9 {facts.engine.pid}", *case.steps("smoke")])


def port_taken_while_ready(case: Case) -> Verdict | None:
    """Another process listens on the port of a model that llama-swap reports as ready."""
    facts = case.facts
    if not case.is_ready or not facts.port_holder or not facts.command:
        return None
    engine = f"its engine (pid {facts.engine.pid})" if facts.engine else "an engine of its own"
    port = facts.command.port
    line = f"llama-swap reports {case.model} as ready; {facts.port_holder} listens on its port {port}, not {engine}."
    steps = case.steps("listeners", "restart", engine_port=port)
    return case.verdict(Reason.PORT_IN_USE, facts.port_holder, [line], steps)


def over_limit(case: Case) -> Verdict | None:
    """It got more requests at a time than llama-swap accepts; the burst may be what caused the load."""
    facts = case.facts
    if not facts.command:
        return None
    limit = facts.command.limit
    refused = [one.ended for one in facts.refused if facts.now - one.ended < _RECENT_S]
    if not refused and len(facts.in_flight) < limit:
        return None
    evidence = [
        f"{count(len(refused), 'request')} got 429, the last {case.ago(max(refused))}." if refused else "",
        f"llama-swap accepts {count(limit, 'request')} for {case.model} at a time; one more gets 429.",
        f"Now: {case.in_flight()}",
        *case.resolved_evidence(),
    ]
    culprit = f"more than {count(limit, 'request')} at a time"
    return case.verdict(
        Reason.OVER_CONCURRENCY, culprit, evidence, case.steps("status", "widen", parallel=facts.command.parallel + 1)
    )


def over_limit_while_ready(case: Case) -> Verdict | None:
    """The same, of a model that is loaded: no doubt about its files explains a refusal."""
    return over_limit(case) if case.is_ready else None


def unresponsive(case: Case) -> Verdict | None:
    """Its engine gave no response, or an unexpected one, and that proves nothing yet."""
    probe = case.facts.probe
    if not case.is_ready or not probe or not probe.is_silent:
        return None
    work = "It used processor time meanwhile." if probe.progresses else "It did nothing meanwhile."
    work = work if case.facts.can_see_processes else "Whether it works cannot be observed from here."
    rule = f"Only a request that waits for more than {duration(_STUCK_S)} without any work proves that it hangs."
    lines = [f"llama-swap reports it as ready; {probe.sentence}", work, case.in_flight(), rule, case.stack.overload]
    return _unknown(case, lines)


def waiting_for_rival(case: Case) -> Verdict | None:
    """It cannot be loaded as long as a model of its group beside which it does not fit has requests in flight."""
    facts = case.facts
    rivals = facts.command.rivals if facts.command else ()
    busy = [(model, requests) for model, requests in facts.other_models if requests and model in rivals]
    if facts.resident or not facts.in_flight or not busy:
        return None
    rival, requests = busy[0]
    evidence = [
        f"{count(len(facts.in_flight), 'request')} for {case.model} without a response, {case.oldest()}.",
        f"{rival} has its place and {count(requests, 'request')} in flight: llama-swap swaps when it has none.",
    ]
    culprit = f"{rival}, which is in the same group"
    return case.verdict(Reason.OVER_CONCURRENCY, culprit, evidence, case.steps("status"))


def progress_unknown(case: Case) -> Verdict | None:
    """A request is old, and whether the engine works on it cannot be observed from here."""
    probe = case.facts.probe
    if case.facts.can_see_processes or not case.is_ready or case.waited_s <= _STUCK_S:
        return None
    if probe and probe.busy and probe.progresses:
        return None
    unknown = "Whether its engine works on that cannot be observed from here."
    return _unknown(case, ["llama-swap reports it as ready.", case.in_flight(), unknown])


def load_without_end(case: Case) -> Verdict | None:
    """Its load began, by the log, and llama-swap has no process of it: the end is not in the log yet."""
    if case.facts.resident or case.facts.history.state != "loading":
        return None
    return _unknown(case, ["Its load has begun, and llama-swap lists no process of it: the log lags behind."])


def _unknown(case: Case, lines: list[str]) -> Verdict:
    steps = case.steps("inspect", "smoke", "why")
    return case.verdict(Reason.UNKNOWN, "", [*lines, *case.resolved_evidence()], steps)


def evidence_missing(case: Case) -> Verdict | None:
    """A source of evidence gave nothing."""
    if not case.facts.missing_evidence:
        return None
    return case.verdict(Reason.UNKNOWN, "", case.facts.missing_evidence, case.steps("inspect", "smoke"))


def healthy(case: Case) -> Verdict:
    """Nothing is wrong; a failure before the last load is reported all the same."""
    facts = case.facts
    steps = case.steps("smoke")
    if not facts.resident:
        line = "It is not loaded; the next request loads it."
    elif case.is_ready:
        line = at_work(case)
        steps = case.steps("status", "why") if facts.probe and facts.probe.late_s else steps
    else:
        since = f" for {duration(facts.now - facts.history.at)}" if facts.history.state == "loading" else ""
        limit = f", of {facts.command.load_limit_s} s at most" if facts.command else ""
        line, steps = f"It is {facts.resident.state}{since}{limit}.", case.steps("status")
    return case.verdict(Reason.HEALTHY, "", [line, *case.resolved_evidence(), *case.file_details()], steps)


def at_work(case: Case) -> str:
    """What a loaded model does now, in a sentence."""
    facts, probe = case.facts, case.facts.probe
    at = f" at {facts.resident.proxy}" if facts.resident else ""
    if probe and probe.late_s:
        return f"It is loaded and works{at}, too busy for its own /health: {_queue(case)}."
    if not facts.can_see_processes and not probe:
        return f"llama-swap reports it as loaded, {case.in_flight()} Its engine itself was not probed."
    return f"It is loaded and responds{at}{f'; it works: {_queue(case)}' if facts.in_flight else ''}."


def _queue(case: Case) -> str:
    """The requests in flight, and how many of them wait, in words."""
    requests, busy = len(case.facts.in_flight), case.facts.probe.busy if case.facts.probe else 0
    waiting = f", {requests - busy} of them in the engine's queue" if 0 < busy < requests else ""
    limit = f" (of {case.facts.command.limit} at most)" if case.facts.command else ""
    return f"{count(requests, 'request')} in flight{limit}{waiting}{f', {case.oldest()}' if requests else ''}"
