"""From facts to a reason, where the facts are hard to produce; the rest is shown by tests/stack/test_why.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from corral.engine.llama_swap import Exchange, InFlight, Resident
from corral.why.answer import Reason
from corral.why.command import Command
from corral.why.engine_words import Said
from corral.why.facts import ModelFacts, Place, StackFacts
from corral.why.history import History
from corral.why.process import Engine, Pulse
from corral.why.verdict import judge

NOW = 1_800_000_000.0
UP = StackFacts("answers", "http://127.0.0.1:8080", 1)
COMMAND = Command(("llama-server",), "llama-server", (), 5800, limit=10, load_limit_s=300, rivals=(), sha256=())
SEEN = ModelFacts("a", "a", ("a",), COMMAND, now=NOW)
READY = replace(
    SEEN,
    resident=Resident("a", "ready", "http://127.0.0.1:5800", 600),
    engine=Engine(7, is_stopped=False),
    pulse=Pulse(),
    history=History("ready", NOW - 60),
)


def reason(seen: ModelFacts, stack: StackFacts = UP) -> Reason:
    return judge(stack, seen, Place()).reason


def test_an_engine_that_does_not_answer_hangs_though_it_is_not_stopped():
    seen = replace(READY, pulse=Pulse("it does not answer at http://127.0.0.1:5800 within 0.9 s (ReadTimeout)"))

    answer = judge(UP, seen, Place())

    assert answer.reason is Reason.HUNG
    assert answer.next_steps[0] == "kill -9 7"


def test_silence_on_an_overloaded_machine_proves_nothing():
    busy = replace(UP, overload="The machine is overloaded (load 17 on 2 cores).")

    assert reason(replace(READY, pulse=Pulse("it does not answer")), busy) is Reason.UNKNOWN
    assert reason(READY, replace(busy, state="silent", problem="no answer")) is Reason.UNKNOWN
    assert reason(READY, replace(busy, overload="", state="silent", problem="no answer")) is Reason.HUNG


@pytest.mark.parametrize(
    ("moves", "age", "expected"),
    [(False, 60, Reason.HUNG), (False, 2, Reason.HEALTHY), (True, 60, Reason.HEALTHY)],
)
def test_only_a_request_that_is_old_and_does_not_move_hangs(moves, age, expected):
    seen = replace(READY, pulse=Pulse(busy=1, moves=moves), in_flight=(InFlight("a", NOW - age),))

    assert reason(seen) is expected


@pytest.mark.parametrize(("age", "expected"), [(30, Reason.OVER_CONCURRENCY), (90, Reason.HEALTHY)])
def test_a_refusal_from_before_the_last_load_explains_nothing(age, expected):
    assert reason(replace(READY, refused=(Exchange("a", NOW - age, 429),))) is expected


def test_an_old_refusal_explains_nothing():
    seen = replace(READY, history=History("ready", NOW - 9000), refused=(Exchange("a", NOW - 400, 429),))

    assert reason(seen) is Reason.HEALTHY


def test_as_many_requests_as_the_limit_leave_no_room_for_one_more():
    assert reason(replace(READY, in_flight=tuple(InFlight("a", NOW - 1) for _ in range(10)))) is Reason.OVER_CONCURRENCY
    assert reason(replace(READY, in_flight=tuple(InFlight("a", NOW - 1) for _ in range(9)))) is Reason.HEALTHY


def test_a_first_load_under_way_is_healthy_and_says_how_long_it_may_take():
    seen = replace(
        SEEN,
        resident=Resident("a", "starting", "http://127.0.0.1:5800", 600),
        engine=Engine(7, is_stopped=False),
        history=History("loading", NOW - 12),
    )

    answer = judge(UP, seen, Place())

    assert answer.reason is Reason.HEALTHY
    assert answer.evidence[0] == "It is starting since 12 s, of 300 s at most."


def test_a_load_after_failures_is_judged_by_the_last_failure():
    seen = replace(
        SEEN,
        resident=Resident("a", "starting", "http://127.0.0.1:5800", 600),
        engine=Engine(7, is_stopped=False),
        history=History("loading", NOW - 12, "exited", "upstream command exited prematurely", failures=3),
        said=Said(Reason.BAD_ARGUMENT, "--x", "error: invalid argument: --x"),
    )

    answer = judge(UP, seen, Place())

    assert answer.reason is Reason.BAD_ARGUMENT
    assert "It failed 3 times in a row." in answer.evidence


def test_an_engine_that_dies_for_want_of_memory_is_no_mere_crash():
    seen = replace(
        SEEN,
        history=History("failed", NOW, "died", "[a] upstream exited unexpectedly", 1),
        said=Said(Reason.OUT_OF_MEMORY, "CUDA", "CUDA error: out of memory"),
    )

    assert reason(seen) is Reason.OUT_OF_MEMORY


def test_what_could_not_be_seen_is_no_health():
    answer = judge(UP, replace(READY, unseen=("the log: no answer within 0.9 s",)), Place())

    assert (answer.reason, answer.evidence) == (Reason.UNKNOWN, ("the log: no answer within 0.9 s",))


def test_words_that_could_not_be_read_leave_it_unknown():
    seen = replace(SEEN, history=History("failed", NOW, "exited", "upstream command exited prematurely", 1))

    assert reason(seen) is Reason.UNKNOWN


def test_a_silent_end_of_a_load_is_a_crash():
    seen = replace(
        SEEN,
        history=History("failed", NOW, "exited", "upstream command exited prematurely", 1),
        said=Said(Reason.UNKNOWN, line="preflight: room for a: it needs 1 MiB"),
    )

    assert reason(seen) is Reason.CRASHED


def test_a_load_whose_process_has_gone_is_explained_by_its_words():
    seen = replace(
        SEEN,
        resident=Resident("a", "starting", "http://127.0.0.1:5800", 600),
        history=History("loading", NOW - 12),
        said=Said(Reason.PORT_IN_USE, "5800", "couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 5800"),
        port_holder="pid 9 (nc -l 5800)",
    )

    answer = judge(UP, seen, Place())

    assert (answer.reason, answer.culprit) == (Reason.PORT_IN_USE, "pid 9 (nc -l 5800)")


def test_commands_name_the_folders_that_are_not_the_default_ones():
    place = Place(Path("/my catalog"), Path("/srv/store"))

    answer = judge(StackFacts("none", problem="No local stack is running."), SEEN, place)

    assert answer.next_steps == ("corral up --detach --catalog '/my catalog' --store /srv/store",)


def test_a_name_with_a_space_stays_one_word():
    assert judge(UP, replace(SEEN, model="a b", id=""), Place()).reason is Reason.NOT_IN_CATALOG
