"""The rules in their order: the first that applies to the facts decides the verdict; no evidence is read here.

What is true now comes before what ended the last load: a file that is back is missing no more.
"""

from __future__ import annotations

from collections.abc import Callable

from corral.why import card_rules, load_rules, run_rules, slow_rules, stack_rules
from corral.why.case import Case
from corral.why.facts import ModelFacts, StackFacts
from corral.why.next_steps import StepOptions
from corral.why.verdict import Verdict

_RULES: tuple[Callable[[Case], Verdict | None], ...] = (
    stack_rules.not_in_catalog,
    stack_rules.stack_down,
    stack_rules.stack_unresponsive,
    stack_rules.door_down,
    stack_rules.not_served,
    run_rules.hung,
    run_rules.port_taken_while_ready,
    run_rules.over_limit_while_ready,
    load_rules.engine_missing,
    load_rules.file_missing,
    load_rules.file_damaged,
    load_rules.port_taken,
    load_rules.failed,
    card_rules.no_room_now,
    run_rules.over_limit,
    run_rules.unresponsive,
    run_rules.evidence_missing,
    run_rules.progress_unknown,
    run_rules.waiting_for_rival,
    run_rules.load_without_end,
    stack_rules.lock_unusable,
    slow_rules.paused,
    slow_rules.on_processor,
    slow_rules.queued,
    slow_rules.loaded_slowly,
    slow_rules.tenant_computes,
)


def judge(stack: StackFacts, facts: ModelFacts, options: StepOptions) -> Verdict:
    """The verdict on one model."""
    case = Case(stack, facts, options)
    return next((verdict for rule in _RULES if (verdict := rule(case))), run_rules.healthy(case))
