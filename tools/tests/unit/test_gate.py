"""What ticks a box of the gate, and what does not."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from corral.bench import figures
from corral.bench.exchange import Sample
from corral.bench.load import Level, Run
from corral.bench.verdict import Goal
from corral.catalog.intent import Adapter, LatencyBudget
from corral.catalog.source import Source
from corral.cli.main import main
from corral.contract.check import Finding
from corral.contract.check import State as Promise
from corral.errors import Refused
from corral.gate import adapters, answers, box, evidence, health, monitoring, sdk, shutdown, stack
from corral.gate.adapters import Change
from corral.gate.box import BOXES, Line, State
from corral.gate.evidence import Evidence, Kept
from corral.gate.page import Gate
from corral.gate.shutdown import STREAMS, Ended
from corral.gate.stack import Inputs
from corral.lock import lock as locks
from corral.smoke.questions import Subject
from corral.smoke.report import CheckResult
from tests.support.tiny_catalog import DEMO

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
WEEK = 7 * 86400.0
PASSED = box.line(State.PASSED, "it is so")


@pytest.fixture(scope="module")
def entry():
    """Of tiny-text in the demo's lock."""
    return locks.require(DEMO).models["tiny-text"]


def site(entry):
    """What judging users needs of a site."""
    question = SimpleNamespace(prompt_tokens=256, answer_tokens=64)
    return SimpleNamespace(model="m", why="corral why m", entry=entry, question=question)


def only(lines):
    (one,) = lines
    return one


# -- the rule for the stack


@pytest.mark.parametrize(
    ("at_once", "has_card", "break_even", "decided"),
    [
        (1, None, None, stack.LLAMA_CPP),
        (10, True, 5, stack.LLAMA_CPP),
        (11, True, None, None),
        (29, True, None, None),
        (11, True, 12, stack.LLAMA_CPP),
        (12, True, 12, stack.VLLM),
        (29, None, 12, None),
        (30, True, None, stack.VLLM),
        (30, True, 200, stack.VLLM),
        (30, None, None, None),
        (30, False, None, stack.LLAMA_CPP),
        (11, False, None, stack.LLAMA_CPP),
    ],
)
def test_the_rule_decides_by_requests_card_and_break_even_and_nothing_that_is_unknown(
    at_once, has_card, break_even, decided
):
    assert stack.decide(Inputs(at_once, "test", has_card, break_even)) == decided


@pytest.mark.parametrize(
    ("given", "state", "part"),
    [
        (
            Inputs(2, "parallel", None),
            State.PASSED,
            "2 at once (parallel), whether on a card is unknown, break-even not",
        ),
        (Inputs(40, "parallel", True), State.FAILED, "vLLM, and llama.cpp serves"),
        (Inputs(20, "parallel", True), State.UNKNOWN, "the rule cannot decide"),
        (Inputs(20, "parallel", None, 12), State.UNKNOWN, "whether on a card is unknown, break-even 12 users"),
    ],
)
def test_the_box_prints_the_inputs_of_the_rule(entry, given, state, part):
    found = only(stack.judge(entry, given, model="m"))
    assert found.state is state
    assert part in found.text
    assert bool(found.next_step) is (state is not State.PASSED)


def test_the_most_requests_at_once_are_those_of_the_largest_budget_else_the_slots(entry):
    assert stack.most_at_once(entry) == (1, "parallel; no latency budget")
    budgets = tuple(
        LatencyBudget(consumer=name, prompt_tokens=8, answer_tokens=8, p95_seconds=1, requests_at_once=count)
        for name, count in (("a", 2), ("b", 12), ("c", 3))
    )
    with_budgets = entry.model_copy(update={"intent": entry.intent.model_copy(update={"latency": budgets})})
    assert stack.most_at_once(with_budgets) == (12, "the budget of b")


def test_an_engine_whose_log_has_no_buffers_is_on_a_card_only_by_a_measurement(entry):
    silent = SimpleNamespace(model_log=lambda model: "")
    assert stack.has_card(silent, "m", entry) is None
    assert stack.has_card(silent, "m", entry.model_copy(update={"measured": object()})) is True


# -- users


def run_of(users, *, count, seconds=1.0, refused=0, lags=(), at_once=None):
    begun = [float(at // (at_once or users)) * seconds for at in range(count)]
    samples = [
        Sample(at, at, "ok", at + seconds / 2, at + seconds, at + seconds, 8, [], output_tokens=8) for at in begun
    ]
    samples += [Sample(0.0, 0.0, "http-429", ended=0.1) for _ in range(refused)]
    return figures.of(Run(Level(users=users), samples, float(count), list(lags)))


LATE = [1.0] * 200
GOAL = Goal("reader", 100, 20, p95_seconds=2.0)


@pytest.mark.parametrize(
    ("found", "goals", "state", "part"),
    [
        (run_of(10, count=30), (), State.PASSED, "10 users, 30 s: 30 of 30 whole"),
        (run_of(10, count=200), (GOAL,), State.PASSED, "E2E p95 1.00 s"),
        (run_of(10, count=200, seconds=3.0), (GOAL,), State.FAILED, "reader asks for 2 s"),
        (run_of(10, count=30), (GOAL,), State.UNKNOWN, "30 answers are too few for a p95"),
        (run_of(10, count=30, lags=LATE), (), State.UNKNOWN, "the run is invalid: this process was late"),
        (run_of(50, count=30, refused=7), (), State.FAILED, "7 requests were refused with HTTP 429"),
        (run_of(50, count=30, refused=7, lags=LATE), (), State.FAILED, "7 requests were refused with HTTP 429"),
    ],
)
def test_users_pass_when_the_run_is_valid_and_every_answer_is_whole_and_in_time(entry, found, goals, state, part):
    line = only(answers.judge_users([found], goals, site(entry)))
    assert (line.state, part in line.text) == (state, True), line
    assert bool(line.next_step) is (state is not State.PASSED)


def test_users_of_whom_not_all_had_a_request_under_way_at_a_time_tick_nothing(entry):
    alone = run_of(100, count=1)
    line = only(answers.judge_users([alone], (), site(entry)))
    assert line.state is State.UNKNOWN
    assert "100 at a time were asked for, and at most 1 were under way" in line.text
    assert "--seconds" in line.next_step
    almost = run_of(10, count=200, at_once=9)
    for goals in ((), (GOAL,)):
        assert only(answers.judge_users([almost], goals, site(entry))).state is State.UNKNOWN
    assert only(answers.judge_users([almost], [replace(GOAL, p95_seconds=0.5)], site(entry))).state is State.UNKNOWN


def test_a_level_in_which_no_request_was_sent_is_unknown_and_to_be_longer(entry):
    line = only(answers.judge_users([figures.of(Run(Level(users=1)))], (), site(entry)))
    assert (line.state, "no request was sent" in line.text) == (State.UNKNOWN, True)
    assert line.next_step.startswith("Measure longer")


def test_a_refusal_over_the_limit_names_the_limit_and_what_would_help(entry):
    line = only(answers.judge_users([run_of(50, count=30, refused=7)], (), site(entry)))
    assert "concurrencyLimit: ten, or `parallel` where that is more" in line.text
    assert line.next_step.startswith("parallel: 50 in the file of m, then corral lock")


# -- the other boxes


def test_a_promise_is_kept_when_it_works_or_is_as_documented_and_not_otherwise():
    works, differs = Finding(Promise.WORKS), Finding(Promise.DIFFERS, "HTTP 400")
    documented = {("f", "a"): "**works**", ("f", "b"): "**differs**: HTTP 400", ("g", "b"): "**works**"}
    kept = only(sdk.judge({("f", "a"): works, ("f", "b"): differs, ("g", "b"): works}, documented, "api.md"))
    assert (kept.state, kept.text) == (State.PASSED, "3 promises: 2 work, 1 are as api.md has them")
    better = only(sdk.judge({("f", "b"): works}, documented, "api.md"))
    assert better.state is State.PASSED
    for broken in ({("g", "b"): differs}, {("f", "a"): differs}, {("f", "new"): differs}):
        assert only(sdk.judge(broken, documented, "api.md")).state is State.FAILED
    assert only(sdk.judge({}, documented, "api.md")).state is State.FAILED


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"modalities": ("text",), "reasoning": "off"}, {"text"}),
        ({"modalities": ("text",), "reasoning": "auto"}, {"text"}),
        ({"modalities": ("text", "image"), "reasoning": "off"}, {"text", "vision"}),
        ({"modalities": ("text",), "reasoning": "on"}, {"thinking"}),
        ({"modalities": ("text", "image"), "reasoning": "on"}, {"thinking", "vision"}),
    ],
)
def test_a_model_is_sent_every_promise_for_one_of_its_kind_or_is_unknown(entry, changes, kinds):
    intent = entry.intent.model_copy(update=changes)
    sent = [one for _, one in sdk.wanted_of(intent)]
    all_of = [one for family in sdk.FAMILIES.values() for one in sdk.checks_of(family)]
    left_out = [one.code for one in all_of if one.of in kinds and one not in sent]
    assert {one.of for one in sent} == kinds
    assert left_out == (["image-to-text-model"] if {"text", "vision"} <= kinds else [])
    passed = sdk.require_all(PASSED, intent)
    if "text" in kinds:
        assert passed == PASSED
    else:
        text = sum(one.of == "text" for one in all_of)
        assert only(passed).state is State.UNKNOWN
        assert f"{text} promises of text were not sent" in only(passed).text
        failed = box.line(State.FAILED, "no")
        assert sdk.require_all(failed, intent) == failed


def test_health_needs_every_check_and_at_least_one():
    passed = CheckResult("m", "answer", "passed", "", 0.1)
    assert only(health.judge([passed], "why")).state is State.PASSED
    for status in ("failed", "skipped", "error"):
        line = only(health.judge([passed, CheckResult("m", "stream", status, "because", 0.1)], "why"))
        assert (line.state, line.text) == (State.FAILED, f"stream {status}: because")
    assert only(health.judge([], "why")).state is State.FAILED


@pytest.mark.parametrize(
    ("subject", "state"),
    [
        (Subject("m"), State.UNKNOWN),
        (Subject("m", thinks=False, prompt="What is 2+2?"), State.UNKNOWN),
        (Subject("m", expect="4"), State.PASSED),
        (Subject("m", sees=True), State.PASSED),
    ],
)
def test_health_of_a_model_for_which_any_answer_would_do_is_unknown_and_not_ticked(subject, state):
    found = health.judge([CheckResult("m", "answer", "passed", "", 0.1)], "why")
    line = only(health.require_right(found, subject))
    assert (line.state, "expect: " in line.next_step) == (state, state is State.UNKNOWN)
    failed = health.judge([CheckResult("m", "answer", "failed", "", 0.1)], "why")
    assert health.require_right(failed, subject) == failed


def streams(count, *, outcome="ok"):
    return [Sample(0.0, 0.0, outcome, ended=2.0) for _ in range(count)]


@pytest.mark.parametrize(
    ("found", "state", "part"),
    [
        (Ended(streams(STREAMS), 1.5), State.PASSED, "10 of 10 streams whole, the last 1.5 s after the end began"),
        (Ended(streams(9) + streams(1, outcome="cut"), 1.5), State.FAILED, "9 of 10 streams whole"),
        (Ended(streams(8), 1.5), State.UNKNOWN, "10 must be under way"),
        (Ended(streams(8) + streams(1, outcome="cut"), 1.5), State.FAILED, "1 cut (the stream ended without [DONE]"),
        (Ended(streams(STREAMS), 1.5, "llama-swap did not end by itself"), State.FAILED, "did not end by itself"),
        (Ended(), State.UNKNOWN, "0 of 0"),
        (
            Ended(failed=Sample(0.0, outcome="http-500")),
            State.FAILED,
            "before anything ended a stream failed: http-500",
        ),
        (Ended(failed=Sample(0.0, outcome="http-429")), State.UNKNOWN, "so that another client had one"),
    ],
)
def test_a_shutdown_is_graceful_when_all_ten_streams_are_whole_and_the_end_was_its_own(found, state, part):
    line = only(shutdown.judge(found, "corral why m"))
    assert (line.state, part in line.text) == (state, True), line


def test_a_model_that_does_not_answer_after_the_shutdown_fails_the_box():
    lines = shutdown._and_back(PASSED, box.line(State.FAILED, "answer failed: no"))
    assert box.worst(lines) is State.FAILED
    assert "it is back, and does not answer right: answer failed: no" in lines[-1].text


def test_a_text_that_is_too_long_is_cut_and_can_be_read_again(tmp_path):
    lines = shutdown._and_back(box.line(State.PASSED, "x" * 5000), box.line(State.PASSED, "y" * 5000))
    Kept(tmp_path).keep(made(lines=lines))
    assert len(Kept(tmp_path).of("local", "m")["users"].lines[0].text) == 2000


def with_adapters(entry, *named):
    """*entry* with an adapter for each of *named*, a name and a version, or None for one that is always applied."""
    source = Source(repo="org/lora", file="a.gguf")
    loras = [Adapter(source=source, **({"name": one[0], "version": one[1]} if one else {})) for one in named]
    intent = entry.intent.model_copy(update={"adapters": tuple(loras)})
    return entry.model_copy(update={"intent": intent, "argv": (*entry.argv, "--lora-scaled", "x.gguf:0")})


def test_adapters_are_not_used_where_none_has_another_version_to_swap(entry):
    assert only(adapters.unused(entry)).state is State.NOT_USED
    assert only(adapters.unused(with_adapters(entry, None))).state is State.NOT_USED
    assert only(adapters.unused(with_adapters(entry, None, ("a", "v1"), ("b", "v1")))).state is State.NOT_USED
    two = with_adapters(entry, ("a", "v1"), ("b", "v1"), ("b", "v2"))
    assert adapters.unused(two) is None
    assert adapters.swappable(two) == ["b"]


def test_a_swap_passes_with_both_answers_in_time():
    found = [Change("v2", 0.2), Change("v1", 3.0)]
    line = only(adapters.judge("m:a", found, "why"))
    assert (line.state, line.text) == (
        State.PASSED,
        "m:a: v2 after 0.20 s, then v1 after 3.00 s, each with a whole answer",
    )
    for wrong in (Change("v1", 30.1), Change("v1", 1.0, "no whole answer of v1: cut off")):
        assert only(adapters.judge("m:a", [found[0], wrong], "why")).state is State.FAILED


@pytest.mark.parametrize(
    ("series", "part"),
    [
        ({}, "none of corral's"),
        ({(monitoring.SEAL, "other"): 1.0, (monitoring.UP,): 1.0}, "of another lock (other)"),
        ({(monitoring.SEAL, "mine"): 1.0}, "corral_llama_swap_up is missing"),
        ({(monitoring.SEAL, "mine"): 1.0, (monitoring.UP,): 0.0}, "corral_llama_swap_up is 0"),
    ],
)
def test_an_exporter_that_is_none_of_this_lock_or_does_not_read_llama_swap_fails(series, part):
    line = only(monitoring.judge(series, seal="mine"))
    assert (line.state, part in line.text) == (State.FAILED, True), line
    assert monitoring.judge({(monitoring.SEAL, "mine"): 1.0, (monitoring.UP,): 1.0}, seal="mine") == ()


# -- evidence


def made(name="users", **changes):
    about = {
        "place": "local",
        "model": "m",
        "box": name,
        "seal": "a" * 64,
        "engine": "b11549",
        "date": (NOW - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": f"corral gate m --only {name}",
        "lines": PASSED,
    }
    return Evidence(**about | changes)


def judged(found, *, name="users", **changes):
    how = {"seal": "a" * 64, "engine": "b11549", "max_age_s": WEEK, "at": NOW, "command": "corral gate m"} | changes
    return evidence.judge(name, found, **how)


def test_evidence_of_this_lock_and_engine_that_is_young_ticks_its_box():
    assert judged(made()).state is State.PASSED


@pytest.mark.parametrize(
    ("found", "changes", "part"),
    [
        (None, {}, "not measured"),
        (made(), {"seal": "c" * 64}, "measured of another lock (aaaaaaaaaaaa, and cccccccccccc is served)"),
        (made(), {"engine": "b2"}, "measured of another engine (b11549, and b2 runs)"),
        (made(), {"max_age_s": 3599.0}, "measured 1 h 00 min ago; "),
        (made(), {"at": NOW - timedelta(hours=2)}, "dated in the future"),
    ],
)
def test_other_evidence_is_unknown_and_names_what_is_wrong_with_it(found, changes, part):
    one = judged(found, **changes)
    assert (one.state, one.command) == (State.UNKNOWN, "corral gate m")
    assert part in only(one.lines).text
    assert only(one.lines).next_step == "corral gate m"


def test_newer_evidence_replaces_that_of_the_same_box_place_and_model_alone(tmp_path):
    kept = Kept(tmp_path)
    assert kept.of("local", "m") == {}
    others = [made(), made("health"), made(place="lab/llama-cpp"), made(model="n")]
    for one in others:
        kept.keep(one)
    kept.keep(made(lines=box.line(State.FAILED, "no more")))
    assert kept.of("local", "m")["users"].lines[0].text == "no more"
    assert kept.of("local", "m")["health"] == others[1]
    assert kept.of("lab/llama-cpp", "m") == {"users": others[2]}
    assert kept.of("local", "n") == {"users": others[3]}
    assert (tmp_path / "gate" / "evidence.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"version": 2, "evidence": []}',
        b"[" * 100_000,
        json.dumps({"version": 1, "evidence": [made().model_dump(mode="json") | {"box": "other"}]}).encode(),
        json.dumps({"version": 1, "evidence": [made().model_dump(mode="json") | {"date": "today"}]}).encode(),
        json.dumps({"version": 1, "evidence": [made().model_dump(mode="json") | {"lines": []}]}).encode(),
        json.dumps({"version": 1, "evidence": [made().model_dump(mode="json") | {"more": 1}]}).encode(),
        *(
            json.dumps({"version": 1, "evidence": [made().model_dump(mode="json") | {"lines": [line]}]}).encode()
            for line in ({"state": "passed", "text": ""}, {"state": "passed", "text": " "}, {"state": "passed"})
        ),
    ],
    ids=["empty", "list", "no-utf8", "version", "deep", "box", "date", "no-line", "key", "no-text", "blank", "none"],
)
def test_a_damaged_file_of_evidence_is_refused_and_ticks_nothing(tmp_path, content):
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate" / "evidence.json").write_bytes(content)
    with pytest.raises(Refused, match="is no evidence that corral kept") as refused:
        Kept(tmp_path).of("local", "m")
    assert refused.value.next_step.startswith("mv ")


@pytest.mark.parametrize("name", sorted(BOXES.keys() - {"adapters"}))
def test_no_box_but_that_of_the_adapters_is_ticked_by_evidence_that_it_is_not_used(tmp_path, name):
    unused = {"state": "not used", "text": "so it says"}
    kept = [made(one).model_dump(mode="json") | {"lines": [unused]} for one in ("adapters", name)]
    (tmp_path / "gate").mkdir()
    file = tmp_path / "gate" / "evidence.json"
    file.write_text(json.dumps({"version": 1, "evidence": kept[:1]}))
    assert Kept(tmp_path).of("local", "m")["adapters"].lines[0].state is State.NOT_USED
    file.write_text(json.dumps({"version": 1, "evidence": kept}))
    with pytest.raises(Refused, match=f"evidence.1: .*the box {name} is never not used"):
        Kept(tmp_path).of("local", "m")


@pytest.mark.parametrize("kind", ["pipe", "folder", "large"])
def test_evidence_that_is_no_regular_file_or_too_large_is_refused_with_a_way_out_that_works(tmp_path, kind):
    file = tmp_path / "gate" / "evidence.json"
    file.parent.mkdir(mode=0o700)
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.write_bytes(b" " * (evidence.MOST_BYTES + 1))
    with pytest.raises(Refused, match="cannot be read") as refused:
        Kept(tmp_path).of("local", "m")
    step, _, _ = refused.value.next_step.partition(",")
    subprocess.run(shlex.split(step), check=True)
    Kept(tmp_path).keep(made())
    assert Kept(tmp_path).of("local", "m") == {"users": made()}


# -- the gate as a whole


def gate_of(**lines):
    """A gate whose boxes have passed, but for those with other *lines*."""
    found = [judged(made(name, lines=lines.get(name, PASSED)), name=name) for name in BOXES]
    return Gate("m", "local", "a" * 64, "b11549", "2026-11-25T12:00:00Z", found)


def test_the_gate_is_open_when_all_nine_boxes_are_ticked_and_unknown_is_no_tick():
    assert gate_of().is_open
    assert gate_of(adapters=box.line(State.NOT_USED, "none")).is_open
    for state in (State.UNKNOWN, State.FAILED):
        closed = gate_of(users=(*PASSED, Line(state=state, text="no")))
        assert not closed.is_open
        assert closed.summary == "8 of 9 boxes are ticked: closed."
    assert not Gate("m", "local", "a", "b", "now", ()).is_open


def test_a_page_has_a_tick_for_each_box_that_has_one_and_nothing_of_a_text_is_markup():
    page = gate_of(users=box.line(State.FAILED, "*no*\n# heading", "corral why m")).page()
    assert page.count("* [x] **") == 8
    assert "* [ ] **users at a time**: failed, 2026-11-25T11:00:00Z" in page
    assert r"\*no\*" in page
    assert "\n# heading" not in page


def test_every_state_of_the_document_is_that_of_its_box():
    document = gate_of(adapters=box.line(State.NOT_USED, "none")).as_json()
    assert json.loads(json.dumps(document))["is_open"] is True
    assert {one["box"]: one["state"] for one in document["boxes"]} == dict.fromkeys(BOXES, "passed") | {
        "adapters": "not used"
    }


def test_junit_has_an_error_for_unknown_and_a_failure_for_failed():
    unknown, failed = (box.line(state, "no") for state in (State.UNKNOWN, State.FAILED))
    text = gate_of(users=unknown, health=failed, adapters=box.line(State.NOT_USED, "none")).junit().decode()
    assert '<testsuite name="corral gate"' in text
    assert 'tests="9" failures="1" errors="1" skipped="1"' in text


@pytest.mark.parametrize(
    "words",
    [
        ("--only", "nothing"),
        ("--users", "0"),
        ("--break-even", "0"),
        ("--max-age", "soon"),
        ("--seconds", "0"),
    ],
)
def test_an_option_that_means_nothing_is_wrong_usage(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["gate", "m", *words])
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--page", "--junit"])
def test_a_report_into_a_folder_that_does_not_exist_is_refused_before_anything_is_measured(option, tmp_path, capsys):
    assert main(["gate", "m", option, str(tmp_path / "none" / "x")]) == 2
    assert "mkdir -p" in capsys.readouterr().err
    assert main(["gate", "m", option, str(tmp_path)]) == 2
    assert f"Name another file with {option}" in capsys.readouterr().err


def test_an_address_of_an_exporter_that_is_none_is_refused_with_the_option_that_has_it(capsys):
    assert main(["gate", "m", "--exporter", "notaurl"]) == 2
    assert "Write it like: --exporter http://" in capsys.readouterr().err


def test_a_shutdown_that_cut_a_stream_is_not_done_again_and_one_with_too_few_streams_is(monkeypatch):
    found = [Ended(streams(8)), Ended(streams(8) + streams(1, outcome="cut")), Ended(streams(STREAMS))]

    async def next_one(*_):
        return found.pop(0)

    monkeypatch.setattr(shutdown, "_streams", next_one)
    monkeypatch.setattr(shutdown.health, "answers", lambda _: PASSED)
    site = SimpleNamespace(ending=SimpleNamespace(prepare=lambda: None, restore=lambda: None), why="corral why m")
    assert only(shutdown.shutdown(site)).state is State.FAILED
    assert len(found) == 1
