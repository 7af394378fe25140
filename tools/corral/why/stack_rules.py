"""Rules for the whole stack: whether there is one, whether it answers, and whether it knows the model."""

from __future__ import annotations

import difflib

from corral.why.answer import Answer, Reason
from corral.why.case import Case


def not_in_catalog(case: Case) -> Answer | None:
    """Nobody knows that name."""
    if case.seen.id:
        return None
    near = difflib.get_close_matches(case.seen.model, case.seen.catalog_ids, n=1)
    known = f"The catalog {case.stack.catalog or ''} has: {', '.join(case.seen.catalog_ids) or 'no model'}."
    steps = [case.steps.of("why", near[0])] if near else []
    if case.stack.state == "none" and case.stack.catalog_is_a_guess:
        # The stack that served it may have been started with any catalog, and took that knowledge with it.
        which = f"If {case.seen.model} is of another catalog, name that one with --catalog DIR."
        return case.answer(
            Reason.STACK_DOWN,
            "no local stack",
            [case.stack.problem, known, which, *_ways(case)],
            [*steps, *case.steps.begin()],
        )
    return case.answer(
        Reason.NOT_IN_CATALOG, f"the name {case.seen.model}", [known], [*steps, case.steps.of("validate")]
    )


def stack_down(case: Case) -> Answer | None:
    """There is no stack, or it died."""
    stack = case.stack
    if stack.state not in ("none", "died"):
        return None
    if stack.no_engine:
        remedy = "unset LLAMA_SERVER" if stack.no_engine.startswith("LLAMA_SERVER ") else "corral engine"
        told = [stack.no_engine, stack.problem]
        return case.answer(Reason.ENGINE_MISSING, "llama-server", told, [remedy, case.steps.up()])
    words = [f"llama-swap's log: {line}" for line in stack.last_words]
    evidence = [stack.problem, stack.no_lock, *words, *case.bad_files()]
    steps = ["corral logs -n 50"] if stack.state == "died" else []
    steps += [case.steps.of("lock")] if stack.no_lock else []
    if stack.state == "died":
        culprit = f"llama-swap (pid {stack.pid}), which died"
        return case.answer(Reason.STACK_DOWN, culprit, evidence, [*steps, case.steps.up()])
    return case.answer(Reason.STACK_DOWN, "no local stack", [*evidence, *_ways(case)], [*steps, *case.steps.begin()])


def _ways(case: Case) -> list[str]:
    """What each of the commands that begin does, when there is more than one."""
    if len(case.steps.begin()) == 1:
        return []
    return ["corral up serves on this machine, corral apply in the cluster of terraform/stacks/homelab."]


def stack_silent(case: Case) -> Answer | None:
    """llama-swap lives and says nothing."""
    stack = case.stack
    if stack.state != "silent":
        return None
    culprit = f"llama-swap (pid {stack.pid})"
    if stack.is_stopped:
        told = [f"{culprit} is stopped (SIGSTOP).", stack.problem]
        return case.answer(Reason.HUNG, culprit, told, [f"kill -CONT {stack.pid}"])
    if stack.is_at_work:
        told = [stack.problem, "It used processor time meanwhile: it works, and does not hang."]
        return case.answer(Reason.UNKNOWN, "", [*told, stack.overload], [case.steps.again()])
    if stack.overload:
        return case.answer(Reason.UNKNOWN, "", [stack.problem, stack.overload], case.steps.look())
    told = [stack.problem, "It used no processor time meanwhile."]
    return case.answer(Reason.HUNG, culprit, told, ["corral down --now", case.steps.up()])


def not_served(case: Case) -> Answer | None:
    """The running stack was started without it."""
    if case.seen.command or case.seen.unseen:
        return None
    said = f"{case.model} is in the catalog, but not in the configuration of {case.stack.endpoint}."
    return case.answer(Reason.NOT_IN_CATALOG, "the running stack, which is older", [said], case.steps.restart())
