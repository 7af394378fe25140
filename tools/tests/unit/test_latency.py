"""What a benchmark predicts of an answer's time, and of a latency budget."""

from __future__ import annotations

import itertools
import random

import pytest
from pydantic import ValidationError

from corral.bench import speeds
from corral.bench.exchange import Sample
from corral.bench.load import Level, Run
from corral.catalog.intent import LatencyBudget
from corral.catalog.ledger import FirstToken, Ledger, NextToken, Speed, argv_sha256
from corral.errors import CannotRun
from corral.latency import budgets
from corral.latency.budgets import State
from corral.latency.prediction import answer_seconds
from tests.support.seating_locks import intent

T4 = "Tesla T4"
SHAPES = list(itertools.product((32, 300, 1100), (8, 120), (1, 3)))


def first(prompt):
    """Seconds of an imagined engine for a prompt alone."""
    return 0.05 + 0.002 * prompt


def following(context, beside):
    """Seconds of that engine for a token: the weights are read once for all, each context for itself."""
    return 0.02 + 0.001 * beside + 0.00001 * context * beside


def speed(*, device=T4, p95_ratio=1.2, load_seconds=3.0, parallel=4):
    contexts = [prompt + 16 for prompt in (64, 256, 1024)]
    beside = [2**power for power in range(1, parallel.bit_length())]
    return Speed(
        model="m",
        argv_sha256="0" * 64,
        card="t4",
        engine="b11549",
        device=device,
        date="2026-11-24T00:00:00Z",
        first_token=tuple(FirstToken(prompt_tokens=at, seconds=first(at)) for at in (64, 256, 1024)),
        next_token=(
            *(NextToken(at_once=1, context_tokens=at, seconds=following(at, 1)) for at in contexts),
            *(NextToken(at_once=n, context_tokens=contexts[0], seconds=following(contexts[0], n)) for n in beside),
        ),
        answers=200,
        p95_ratio=p95_ratio,
        load_seconds=load_seconds,
    )


def forecast(known, *, parallel=4, **budget):
    wanted = {"consumer": "triage", "prompt_tokens": 300, "answer_tokens": 100, "p95_seconds": 60.0} | budget
    return budgets.forecast("m", intent(parallel=parallel), LatencyBudget.model_validate(wanted), known)


@pytest.mark.parametrize(("prompt", "answer", "beside"), SHAPES)
def test_an_engine_that_follows_the_arithmetic_is_predicted_exactly(prompt, answer, beside):
    context = prompt + answer / 2
    expected = beside * first(prompt) + (answer - 1) * following(context, beside)
    found = answer_seconds(speed(), prompt_tokens=prompt, answer_tokens=answer, at_once=beside, parallel=4)
    assert found == pytest.approx(expected)


def test_requests_beyond_the_slots_wait_for_one():
    shape = {"prompt_tokens": 300, "answer_tokens": 100, "parallel": 4}
    alone, waiting = (answer_seconds(speed(), at_once=at_once, **shape) for at_once in (4, 10))
    assert waiting == pytest.approx(2.5 * alone)


@pytest.mark.parametrize(
    "more", [{"prompt_tokens": 1281}, {"answer_tokens": 4000}, {"requests_at_once": 5, "parallel": 8}]
)
def test_what_is_much_larger_than_the_measured_is_unknown(more):
    found = forecast(speed(), **more)
    assert (found.state, found.p50) == (State.UNKNOWN, None)
    assert "corral bench --speeds m" in found.reason


def test_no_benchmark_is_unknown_and_leads_to_one():
    found = forecast(None)
    assert (found.state, found.p50, found.p95, found.load) == (State.UNKNOWN, None, None, None)
    assert "corral bench --speeds m" in found.reason


def test_a_benchmark_on_a_processor_decides_nothing_about_a_card():
    found = forecast(speed(device="CPU"), p95_seconds=0.001)
    assert found.state is State.UNKNOWN
    assert found.p50 is not None
    assert found.p95 == pytest.approx(1.2 * found.p50)
    assert "on a processor, and not on card t4" in found.reason


def test_a_budget_is_impossible_from_the_median_and_unlikely_from_the_95th_percentile_on():
    p50 = forecast(speed(load_seconds=0.0)).p50
    states = [forecast(speed(load_seconds=0.0), p95_seconds=p50 * part).state for part in (0.99, 1.01, 1.19, 1.21)]
    assert states == [State.IMPOSSIBLE, State.UNLIKELY, State.UNLIKELY, State.HOLDS]


def test_too_few_answers_for_a_p95_are_unknown_but_not_for_what_is_impossible():
    assert forecast(speed(p95_ratio=None)).state is State.UNKNOWN
    assert forecast(speed(p95_ratio=None), p95_seconds=0.1).state is State.IMPOSSIBLE


@pytest.mark.parametrize(
    ("cold", "load", "state"),
    [
        ("allowed", None, State.UNKNOWN),
        ("allowed", 100.0, State.UNLIKELY),
        ("allowed", 1.0, State.HOLDS),
        ("excluded", None, State.HOLDS),
        ("excluded", 100.0, State.HOLDS),
    ],
)
def test_loads_count_where_the_budget_allows_them(cold, load, state):
    assert forecast(speed(load_seconds=load), cold=cold).state is state


@pytest.mark.parametrize(
    ("budget", "remedy"),
    [
        ({"prompt_tokens": 1000, "answer_tokens": 8}, "most of it for the prompt: a shorter prompt"),
        ({"answer_tokens": 200}, "most of it for the answer: a shorter answer"),
        ({"requests_at_once": 3, "p95_seconds": 3.2}, "fewer at once"),
        ({"requests_at_once": 20, "p95_seconds": 3.2}, "more parallel"),
    ],
)
def test_what_is_too_slow_has_the_remedy_for_the_largest_part(budget, remedy):
    found = forecast(speed(), **({"p95_seconds": 1.0} | budget))
    assert found.state is State.IMPOSSIBLE
    assert remedy in found.reason


def run_of(shape, *, count=80):
    """Answers of the imagined engine, each up to 10 % longer; those at the ends have nothing beside them."""
    dice, samples = random.Random(1), []
    for at in range(count):
        edge = shape.at_once > 1 and not shape.at_once <= at < count - shape.at_once
        beside = 1 if edge else shape.at_once
        longer = 1 + 0.1 * dice.random()
        waited = beside * first(shape.prompt_tokens) * longer
        tokens = speeds.ANSWER_TOKENS
        whole = waited + (tokens - 1) * following(shape.prompt_tokens + tokens / 2, beside) * longer
        samples.append(
            Sample(
                *(float(at), float(at), "ok"),
                first=at + waited,
                last=at + whole,
                ended=at + whole,
                prompt_tokens=shape.prompt_tokens,
                output_tokens=tokens,
            )
        )
    return Run(Level(users=shape.at_once), samples, seconds=float(count))


def test_the_points_are_read_off_the_runs_and_the_spread_is_that_of_all():
    model = intent(parallel=3, latency=[{"consumer": "a", "prompt_tokens": 700, "answer_tokens": 9, "p95_seconds": 9}])
    shapes = speeds.shapes(model)
    assert [(one.prompt_tokens, one.at_once) for one in shapes] == [
        *((tokens, 1) for tokens in (64, 256, 1024)),
        *((64, beside) for beside in (2, 3)),
    ]
    names = {
        "model": "m",
        "argv_sha256": "0" * 64,
        "card": "t4",
        "engine": "b",
        "device": T4,
        "date": "2026-11-24T00:00:00Z",
    }
    found = speeds.speed(speeds.Runs({one: run_of(one) for one in shapes}, 1.5), **names)
    assert (found.answers, found.load_seconds) == (80 * 5 - 4 - 6, 1.5)
    assert found.p95_ratio == pytest.approx(1.045, abs=0.01)
    for prompt, answer, beside in SHAPES:
        shape = {"prompt_tokens": prompt, "answer_tokens": answer}
        expected = beside * first(prompt) + (answer - 1) * following(prompt + answer / 2, beside)
        assert answer_seconds(found, at_once=beside, parallel=3, **shape) == pytest.approx(1.05 * expected, rel=0.02)


def test_prompts_are_no_longer_than_the_context_allows():
    assert [one.prompt_tokens for one in speeds.shapes(intent(context=128))] == [16, 64]
    assert [one.prompt_tokens for one in speeds.shapes(intent(context=400))] == [64, 256, 336]


def test_nearly_equal_prompts_are_measured_once_and_only_a_longer_budget_adds_one():
    budget = {"consumer": "a", "answer_tokens": 9, "p95_seconds": 9}
    assert [one.prompt_tokens for one in speeds.shapes(intent(latency=[budget | {"prompt_tokens": 65}]))] == [
        64,
        256,
        1024,
    ]
    longer = speeds.shapes(intent(latency=[budget | {"prompt_tokens": 3000}]))
    assert [one.prompt_tokens for one in longer] == [64, 256, 1024, 3000]


def test_what_is_left_of_a_budget_that_counts_loads_is_less_by_a_load():
    left = [forecast(speed(load_seconds=5.0), cold=cold).reason for cold in ("allowed", "excluded")]
    numbers = [float(one.removesuffix(" s are left")) for one in left]
    assert numbers[1] - numbers[0] == pytest.approx(5.0, abs=0.011)


def test_a_speed_counts_for_its_card_alone():
    argv = ("llama-server",)
    found = Ledger().with_speed(speed().model_copy(update={"argv_sha256": argv_sha256(argv)}))
    assert found.speed("m", argv, "t4") is not None
    assert found.speed("m", argv, "p40") is None
    assert found.speed("m", (*argv, "-fa"), "t4") is None


def test_a_processor_does_not_replace_a_card_and_a_second_run_replaces_the_first():
    argv = ("llama-server",)
    one = speed().model_copy(update={"argv_sha256": argv_sha256(argv)})
    later = one.model_copy(update={"date": "2026-11-25T00:00:00Z"})
    cpu = later.model_copy(update={"device": "CPU"})
    found = Ledger().with_speed(one).with_speed(cpu)
    assert found.speed("m", argv, "t4") == one
    assert found.with_speed(later).speeds == (cpu, later)


@pytest.mark.parametrize(
    ("series", "points"),
    [
        ("first_token", [{"prompt_tokens": 64, "seconds": 1.0}] * 2),
        ("next_token", [{"at_once": 1, "context_tokens": 80, "seconds": 1.0}] * 2),
        ("next_token", [{"at_once": at, "context_tokens": 80, "seconds": 1.0} for at in (2, 4)]),
        ("next_token", [{"at_once": at, "context_tokens": 80 * at, "seconds": 1.0} for at in (1, 2)]),
    ],
)
def test_points_that_no_line_goes_through_are_refused_when_they_are_read(series, points):
    with pytest.raises(ValidationError, match=r"has two speeds|has no speed"):
        Speed.model_validate(speed().model_dump() | {series: tuple(points)}, strict=False)


def test_answers_that_end_too_early_are_no_speed():
    (shape, *_) = speeds.shapes(intent())
    run = run_of(shape)
    for one in run.samples:
        one.output_tokens = 1
    with pytest.raises(CannotRun, match="fewer than 16 tokens"):
        speeds._require_whole("m", shape, run)
