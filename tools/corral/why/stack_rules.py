"""Rules for the whole stack: whether it runs, whether it responds, and whether it serves the model."""

from __future__ import annotations

import difflib

from corral.why.case import Case
from corral.why.verdict import Reason, Verdict


def not_in_catalog(case: Case) -> Verdict | None:
    """The catalog has no model of that name."""
    if case.facts.id:
        return None
    stack = case.stack
    near = difflib.get_close_matches(case.facts.name, stack.catalog_ids, n=1)
    known = f"The catalog {stack.catalog or ''} has: {', '.join(stack.catalog_ids) or 'no model'}."
    steps = case.steps("why", model=near[0]) if near else []
    if stack.state == "absent" and stack.catalog_is_assumed:
        # The stack that served it may have had any catalog, and no record of that is left.
        which = f"If {case.facts.name} is in another catalog, name that one with --catalog DIR."
        return _absent(case, [stack.problem, known, which], steps)
    return case.verdict(
        Reason.NOT_IN_CATALOG, f"the name {case.facts.name}", [known], [*steps, *case.steps("validate")]
    )


def stack_down(case: Case) -> Verdict | None:
    """There is no stack, or it died."""
    stack = case.stack
    if stack.state not in ("absent", "died"):
        return None
    if stack.no_engine:
        remedy = "unset LLAMA_SERVER" if stack.no_engine.startswith("LLAMA_SERVER ") else "corral engine"
        lines = [stack.no_engine, stack.problem, stack.no_lock]
        return case.verdict(
            Reason.ENGINE_MISSING, "llama-server", lines, [remedy, *case.lock_steps(), *case.steps("up")]
        )
    logged = [f"llama-swap's log: {line}" for line in stack.last_lines]
    evidence = [stack.problem, stack.no_lock, *logged, *case.file_details(only_bad=True)]
    steps = case.lock_steps()
    if stack.state == "absent":
        return _absent(case, evidence, steps)
    culprit = f"llama-swap (pid {stack.pid}), which died"
    return case.verdict(Reason.STACK_DOWN, culprit, evidence, ["corral logs -n 50", *steps, *case.steps("up")])


def _absent(case: Case, evidence: list[str], steps: list[str]) -> Verdict:
    steps = [*steps, *case.steps("up")]
    if not (case.options.catalog or case.options.store):  # no folder of this machine is named: maybe it is the cluster
        both = "corral up serves on this machine, corral apply in the cluster of terraform/stacks/homelab."
        evidence, steps = [*evidence, both], [*steps, "corral apply"]
    return case.verdict(Reason.STACK_DOWN, "no local stack", evidence, steps)


def stack_unresponsive(case: Case) -> Verdict | None:
    """llama-swap runs and does not respond."""
    stack = case.stack
    if stack.state != "unresponsive":
        return None
    culprit = f"llama-swap (pid {stack.pid})"
    if stack.is_stopped:
        lines = [f"{culprit} is stopped (SIGSTOP).", stack.problem]
        return case.verdict(Reason.HUNG, culprit, lines, [f"kill -CONT {stack.pid}"])
    if stack.used_cpu:
        lines = [stack.problem, "It used processor time meanwhile, so it does not hang.", stack.overload]
        return case.verdict(Reason.UNKNOWN, "", lines, case.steps("why"))
    if stack.overload:
        return case.verdict(Reason.UNKNOWN, "", [stack.problem, stack.overload], case.steps("inspect", "smoke"))
    lines = [stack.problem, "It used no processor time meanwhile."]
    return case.verdict(Reason.HUNG, culprit, lines, ["corral down --now", *case.steps("up")])


def door_down(case: Case) -> Verdict | None:
    """llama-swap responds, and no request reaches it."""
    stack = case.stack
    if stack.lost_part:
        line = f"{stack.lost_part} has died: no request reaches llama-swap, which runs. Models stay loaded."
        return case.verdict(Reason.STACK_DOWN, stack.lost_part, [line], ["corral logs --door -n 50", *case.steps("up")])
    if stack.stopped_part:
        line = f"{stack.stopped_part} is stopped (SIGSTOP): no request reaches llama-swap, which runs."
        return case.verdict(
            Reason.HUNG, str(stack.stopped_part), [line], [f"kill -CONT {stack.stopped_part.process.pid}"]
        )
    return None


def lock_unusable(case: Case) -> Verdict | None:
    """Nothing else explains a failure, and without the lock its files are not known to be right."""
    if not case.stack.no_lock:
        return None
    lines = [case.stack.no_lock, *case.resolved_evidence(), *case.file_details()]
    return case.verdict(Reason.UNKNOWN, "", lines, [*case.lock_steps(), *case.steps("smoke")])


def not_served(case: Case) -> Verdict | None:
    """The running stack was started without the model."""
    if case.facts.command or case.facts.missing_evidence:
        return None
    line = f"{case.model} is in the catalog, but not in the configuration of {case.stack.endpoint}."
    return case.verdict(Reason.NOT_IN_CATALOG, "the running stack, which is older", [line], case.steps("up"))
