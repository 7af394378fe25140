"""Whether a latency budget is kept, and what would help where it is not."""

from __future__ import annotations

import pytest

from corral.bench import budgets, figures
from corral.bench.exchange import Sample
from corral.bench.load import Level, Run
from corral.bench.verdict import Goal, State


def goal(*, at_once=1, p95=4.0):
    return Goal("triage", 800, 120, p95_seconds=p95, requests_at_once=at_once)


def run_of(*, e2e=2.0, prompt=0.5, output=1.0, count=200, failed=0):
    whole = [
        Sample(
            *(float(at), float(at), "ok"),
            first=at + e2e / 2,
            last=at + e2e,
            ended=at + e2e,
            chunks=8,
            output_tokens=8,
            server_prompt_s=prompt,
            server_output_s=output,
        )
        for at in range(count)
    ]
    refused = [Sample(0.0, 0.0, "http-429", ended=0.1) for _ in range(failed)]
    return Run(Level(users=1), whole + refused, seconds=count * e2e)


def judged(run, *, asked=None, parallel=1):
    return budgets.judge("m", asked or goal(), run, parallel=parallel)


def test_a_budget_is_kept_up_to_its_last_second():
    assert judged(run_of(e2e=4.0)).state is State.HOLDS
    assert judged(run_of(e2e=4.01)).state is State.FAILS


def test_what_is_left_and_what_is_missing_are_named():
    assert judged(run_of(e2e=3.0)).reason == "1.00 s are left"
    assert judged(run_of(e2e=5.5)).reason == "1.50 s too long"


def test_too_few_answers_are_unknown_and_not_kept():
    found = judged(run_of(count=199))
    assert (found.state, found.p95, found.reason) == (State.UNKNOWN, None, "199 answers are too few for a p95")
    assert "--seconds" in found.remedy


def test_a_budget_of_more_requests_at_once_than_were_under_way_is_unknown():
    found = judged(run_of(e2e=1.0), asked=goal(at_once=2), parallel=2)
    assert (found.state, found.reason) == (State.UNKNOWN, "2 at a time were asked for, and at most 1 were under way")
    assert "--requests" in found.remedy


def test_a_failed_request_breaks_a_budget_and_leads_to_its_reason():
    found = judged(run_of(failed=2))
    assert (found.state, found.remedy) == (State.FAILS, "corral why m")
    assert found.reason == "2 of 202 requests failed: 2 http-429"


def test_a_late_client_decides_nothing(monkeypatch):
    monkeypatch.setattr(figures, "MOST_LAG_S", -1.0)
    assert judged(run_of()).state is State.INVALID


def test_requests_that_wait_for_a_slot_need_more_slots():
    found = judged(run_of(e2e=6.0), asked=goal(at_once=4), parallel=2)
    assert found.serving_p95 == pytest.approx(1.5)
    assert found.remedy.startswith("requests wait for a slot: parallel: 4 in the model's file (now 2)")


def test_requests_that_have_slots_and_wait_need_a_group_of_their_own():
    assert "a group of its own" in judged(run_of(e2e=6.0), asked=goal(at_once=2), parallel=2).remedy


@pytest.mark.parametrize(
    ("prompt", "output", "words"),
    [(4.0, 1.0, "most of it for the prompt: a shorter prompt"), (1.0, 4.0, "most of it for the answer: a shorter ans")],
)
def test_an_engine_that_is_too_slow_alone_needs_less_work_or_another_quant(prompt, output, words):
    found = judged(run_of(e2e=6.0, prompt=prompt, output=output))
    assert found.serving_p95 == pytest.approx(5.0)
    assert words in found.remedy
    assert "another quant" in found.remedy


def test_without_the_engines_own_times_no_remedy_is_guessed():
    found = judged(run_of(e2e=6.0, prompt=None, output=None))
    assert (found.serving_p95, found.state) == (None, State.FAILS)
    assert "unknown" in found.remedy


def test_a_row_has_all_of_it():
    cells = dict(zip(budgets.COLUMNS, budgets.row(judged(run_of(e2e=6.0), asked=goal(at_once=4))), strict=True))
    assert (cells["asked p95"], cells["p95"], cells["serving p95"], cells["n"]) == ("4.00 s", "6.00 s", "1.50 s", "200")
    assert cells["verdict"] == "fails"
    assert cells["reason and remedy"].startswith("2.00 s too long; requests wait")
