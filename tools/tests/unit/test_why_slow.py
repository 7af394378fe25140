"""When a model that answers is slow, and by which figures; tests/stack/test_why_slow.py has the real faults."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corral.engine.command import Command
from corral.engine.engine_process import Engine, Probe
from corral.engine.llama_swap import Exchange, InFlight, Resident
from corral.measure.engine_report import Report
from corral.why import history
from corral.why.facts import ModelFacts, StackFacts
from corral.why.history import History
from corral.why.next_steps import StepOptions
from corral.why.rules import judge
from corral.why.verdict import Reason

NOW = 1_800_000_000.0
UP = StackFacts("running", "http://127.0.0.1:8080", 1, catalog_ids=("a",), has_card=True)
COMMAND = Command(("llama-server",), "llama-server", (), 5800, limit=10, load_limit_s=300, rivals=(), sha256=())
ON_CARD, ON_HOST = Report({"Tesla T4": 5 << 30}, 1 << 20), Report({}, 5 << 30)
READY = ModelFacts(
    "a",
    "a",
    COMMAND,
    resident=Resident("a", "ready", "http://127.0.0.1:5800", 600),
    engine=Engine(7, is_stopped=False),
    probe=Probe(),
    history=History("ready", NOW - 60, load_s=2.0, loads=(NOW - 60,)),
    answered=(Exchange("a", NOW - 10, 200, 12.5, 100, 90, 7.25),),
    memory=ON_CARD,
    now=NOW,
)
GIB = 1 << 30


def verdict(facts, stack=UP):
    return judge(stack, facts, StepOptions())


def test_a_model_that_nothing_slows_is_healthy():
    assert verdict(READY).reason is Reason.HEALTHY


def test_a_model_on_the_processor_beside_a_card_is_slow_with_its_mib_and_its_speed():
    found = verdict(replace(READY, memory=ON_HOST))
    assert (found.reason, found.culprit) == (Reason.SLOW, "the processor, in place of the card")
    assert found.evidence[0] == (
        "Its engine has 5120 MiB in the host's memory and none on a card; this machine has a card."
    )
    assert found.evidence[1] == "Its last answer, 10 s ago, took 12.50 s, 7.2 tokens a second."


@pytest.mark.parametrize("memory", [None, ON_CARD])
def test_without_a_report_of_the_engine_the_processor_is_not_blamed(memory):
    assert verdict(replace(READY, memory=memory)).reason is Reason.HEALTHY


def test_on_a_machine_without_a_card_the_processor_is_not_blamed():
    assert verdict(replace(READY, memory=ON_HOST), replace(UP, has_card=False)).reason is Reason.HEALTHY


def waiting(*ages):
    return tuple(InFlight("a", NOW - age) for age in ages)


def test_a_request_that_waits_long_in_the_engines_queue_is_slow_with_the_figures():
    found = verdict(replace(READY, probe=Probe(busy=1, progresses=True), in_flight=waiting(90, 40, 5)))
    assert (found.reason, found.culprit) == (Reason.SLOW, "its queue, 2 requests")
    assert "3 requests in flight (of 10 at most), 2 of them in the engine's queue" in found.evidence[0]
    assert found.evidence[1] == "2 requests for 1 slot: the first has waited 40 s."
    assert "corral seat --what-if parallel=2 a" in found.next_steps


@pytest.mark.parametrize(
    ("busy", "ages"),
    [(1, (90,)), (1, (90, 5)), (2, (90, 80)), (0, (9, 8))],
    ids=["a long answer", "a short wait", "all at work", "slots that are not reported"],
)
def test_what_does_not_wait_long_is_not_slow(busy, ages):
    facts = replace(READY, probe=Probe(busy=busy, progresses=True), in_flight=waiting(*ages))
    assert verdict(facts).reason is Reason.HEALTHY


def test_a_load_from_a_cold_page_cache_is_slow_with_its_speed():
    load = History("ready", NOW - 30, load_s=50.0, loads=(NOW - 30,), cached=0.02, size=5_000_000_000)
    found = verdict(replace(READY, history=load))
    assert (found.reason, found.culprit) == (Reason.SLOW, "a cold page cache")
    assert found.evidence[0] == "Its last load took 50 s, and ended 30 s ago."
    assert found.evidence[1] == "2% of its 5.0 GB were in the page cache before it: 100.0 MB a second."
    assert found.next_steps[0] == "corral warm a"


def test_a_long_load_of_files_in_memory_is_slow_by_the_load_itself():
    load = History("ready", NOW - 30, load_s=50.0, loads=(NOW - 30,), cached=0.95, size=GIB)
    assert verdict(replace(READY, history=load)).culprit == "its load, 50 s"


@pytest.mark.parametrize(("load_s", "age"), [(12.0, 30), (50.0, 400)])
def test_a_short_load_and_an_old_one_explain_nothing(load_s, age):
    load = History("ready", NOW - age, load_s=load_s, loads=(NOW - age,), cached=0.0, size=GIB)
    assert verdict(replace(READY, history=load)).reason is Reason.HEALTHY


def test_models_that_unload_each_other_are_slow_by_swaps():
    shared = replace(COMMAND, rivals=("b",))
    swapped = History("ready", NOW - 10, load_s=5.0, loads=(NOW - 500, NOW - 200, NOW - 100, NOW - 10))
    found = verdict(replace(READY, command=shared, history=swapped))
    assert (found.reason, found.culprit) == (Reason.SLOW, "swaps, 3 loads")
    assert "It was loaded 3 times within 5 min 00 s; b has the same group." in found.evidence
    three = verdict(replace(READY, command=replace(COMMAND, rivals=("b", "c")), history=swapped))
    assert "It was loaded 3 times within 5 min 00 s; b, c have the same group." in three.evidence
    assert verdict(replace(READY, history=swapped)).reason is Reason.HEALTHY, "alone in its group"


def unloaded(**facts):
    return replace(READY, resident=None, engine=None, probe=None, memory=None, **facts)


@pytest.mark.parametrize("state", ["never", "ready"])  # the log may have no line of the end
def test_a_model_that_another_one_has_taken_the_place_of_has_its_swaps_too(state):
    swapped = History(state, load_s=5.0, loads=(NOW - 200, NOW - 100, NOW - 10), cached=0.5, size=1000)
    victim = unloaded(command=replace(COMMAND, rivals=("b",)), history=swapped, other_models=(("b", 1), ("c", 0)))
    found = verdict(victim)
    assert (found.reason, found.culprit) == (Reason.SLOW, "swaps, 3 loads")
    assert found.evidence[:3] == (
        "Its last load took 5.0 s, and ended 10 s ago.",
        "It is not loaded now: b took its place.",
        "It was loaded 3 times within 5 min 00 s; b has the same group.",
    )
    assert verdict(replace(victim, other_models=(("c", 0),))).reason is Reason.HEALTHY, "nothing took its place"


def test_a_model_that_was_unloaded_keeps_the_figures_of_its_long_load():
    load = History("never", load_s=50.0, loads=(NOW - 30,), cached=0.02, size=5_000_000_000)
    found = verdict(unloaded(history=load))
    assert (found.reason, found.culprit, found.next_steps[0]) == (Reason.SLOW, "a cold page cache", "corral warm a")


def test_a_load_that_has_begun_or_failed_is_not_slow():
    load = History("loading", NOW - 5, load_s=50.0, loads=(NOW - 30,))
    starting = replace(READY, resident=replace(READY.resident, state="starting"), probe=None, history=load)
    assert verdict(starting).reason is not Reason.SLOW
    assert verdict(unloaded(history=replace(load, state="failed", failures=1))).reason is not Reason.SLOW


def test_another_program_that_computes_on_the_card_is_named_while_the_stack_is_idle():
    busy = replace(UP, card_busy=97, card_users=("python3 (pid 77)",))
    found = verdict(READY, busy)
    assert (found.reason, found.culprit) == (Reason.SLOW, "another program that computes on the card, 97 %")
    assert found.evidence[:2] == (
        "The card computes 97 % of the time, and no engine of this stack has a request.",
        "Others on the card: python3 (pid 77).",
    )
    assert found.next_steps == ("corral card",)


@pytest.mark.parametrize(
    ("facts", "busy"),
    [
        (READY, 49),
        (READY, None),
        (replace(READY, in_flight=waiting(1), probe=Probe(busy=1)), 97),
        (replace(READY, other_models=(("b", 1),)), 97),
        (replace(READY, answered=()), 97),
    ],
    ids=["little", "unknown", "own request", "request of another model", "no recent answer"],
)
def test_a_card_that_may_compute_for_the_stack_itself_blames_no_one(facts, busy):
    assert verdict(facts, replace(UP, card_busy=busy)).reason is Reason.HEALTHY


LOAD = (
    "preflight: room model=a need_mib=100 free_mib=900 total_mib=1000: enough\n"
    "preflight: page-cache model=a cached_bytes={cached} size_bytes=1000: read\n"
    "2026-01-01T00:{minute:02}:20Z [INFO] <a> Health check passed on http://127.0.0.1:5800/health\n"
)


def test_the_history_has_the_seconds_of_the_last_load_its_share_of_the_page_cache_and_the_last_loads():
    before = "2026-01-01T00:{minute:02}:05Z [INFO] a line of llama-swap\n"
    log = "".join((before + LOAD).format(minute=minute, cached=cached) for minute, cached in ((1, 1000), (4, 250)))
    found = history.read(log)["a"]
    assert (found.state, found.load_s, found.cached, found.size) == ("ready", 15.0, 0.25, 1000)
    assert found.loads[1] - found.loads[0] == 180.0
    ended = "2026-01-01T00:05:00Z [WARN] group: running a exited: model unloaded\n"
    after = history.read(log + ended)["a"]
    assert (after.state, after.load_s, after.cached, after.loads) == ("never", 15.0, 0.25, found.loads)
