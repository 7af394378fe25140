"""From what was seen to one reason.  The first rule that has something to say wins; nothing is looked at here.

What is true now comes before what ended the last load: a file that is back is missing no more.
"""

from __future__ import annotations

from corral.why import load_rules, run_rules, stack_rules
from corral.why.answer import Answer
from corral.why.case import Case, Rule
from corral.why.facts import ModelFacts, Place, StackFacts

_RULES: tuple[Rule, ...] = (
    stack_rules.not_in_catalog,
    stack_rules.stack_down,
    stack_rules.stack_silent,
    stack_rules.not_served,
    run_rules.hung,
    run_rules.stranger,
    run_rules.over_limit_while_ready,
    load_rules.engine_missing,
    load_rules.file_missing,
    load_rules.file_damaged,
    load_rules.port_taken,
    load_rules.failed,
    run_rules.over_limit,
    run_rules.silent,
    run_rules.unseen,
    run_rules.not_looked_into,
    run_rules.waiting_for_rival,
)


def judge(stack: StackFacts, seen: ModelFacts, place: Place) -> Answer:
    """The answer for one model."""
    case = Case(stack, seen, place)
    return next((answer for rule in _RULES if (answer := rule(case))), run_rules.healthy(case))
