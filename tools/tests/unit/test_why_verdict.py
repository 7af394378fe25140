"""From facts to a reason, where the facts are hard to produce; the rest is shown by tests/stack/test_why.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from corral.engine.llama_swap import Exchange, InFlight, Resident
from corral.engine.log_lines import End, EngineCode, EngineError, classify_engine_error
from corral.why import history
from corral.why.answer import Answer, Reason
from corral.why.command import Command
from corral.why.facts import ModelFacts, Place, StackFacts
from corral.why.files import FileFact
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


STILL = Pulse(late=0.9, moves=False)
OLD = (InFlight("a", NOW - 60),)


def test_an_engine_that_does_not_answer_hangs_though_it_is_not_stopped():
    answer = judge(UP, replace(READY, pulse=STILL, in_flight=OLD), Place())

    assert answer.reason is Reason.HUNG
    assert answer.next_steps[0] == "kill -9 7"
    assert "no answer within 0.9 s" in answer.evidence[0]


@pytest.mark.parametrize(
    ("pulse", "in_flight", "expected"),
    [
        (STILL, (InFlight("a", NOW - 2),), Reason.UNKNOWN),
        (STILL, (), Reason.UNKNOWN),
        (Pulse(late=0.9, moves=True), OLD, Reason.HEALTHY),
        (Pulse("its /health answers 503", moves=True), OLD, Reason.UNKNOWN),
        (Pulse("its /health answers 503", moves=False), OLD, Reason.HUNG),
        (Pulse(late=0.9, moves=True), OLD * 10, Reason.OVER_CONCURRENCY),
    ],
)
def test_nothing_is_killed_without_proof_that_it_does_nothing(pulse, in_flight, expected):
    answer = judge(UP, replace(READY, pulse=pulse, in_flight=in_flight), Place())

    assert answer.reason is expected
    assert ("kill -9 7" in answer.next_steps) is (expected is Reason.HUNG)


def test_a_busy_engine_tells_how_many_wait():
    answer = judge(UP, replace(READY, pulse=Pulse(busy=1), in_flight=OLD * 3), Place())

    assert "3 requests in flight (of 10 at most), 2 of them in the engine's queue" in answer.evidence[0]


def test_a_llama_swap_that_works_does_not_hang():
    busy = replace(UP, state="silent", problem="no answer", is_at_work=True)

    assert reason(READY, busy) is Reason.UNKNOWN


def test_silence_on_an_overloaded_machine_proves_nothing():
    busy = replace(UP, overload="The machine is overloaded (load 17 on 2 cores).")

    assert reason(replace(READY, pulse=STILL, in_flight=OLD), busy) is Reason.UNKNOWN
    assert reason(READY, replace(busy, state="silent", problem="no answer")) is Reason.UNKNOWN
    assert reason(READY, replace(busy, overload="", state="silent", problem="no answer")) is Reason.HUNG


@pytest.mark.parametrize(
    ("moves", "age", "expected"),
    [(False, 60, Reason.HUNG), (False, 2, Reason.HEALTHY), (True, 60, Reason.HEALTHY)],
)
def test_only_a_request_that_is_old_and_does_not_move_hangs(moves, age, expected):
    seen = replace(READY, pulse=Pulse(busy=1, moves=moves), in_flight=(InFlight("a", NOW - age),))

    assert reason(seen) is expected


@pytest.mark.parametrize("age", [30, 90])
def test_a_refusal_counts_whether_the_model_was_loaded_before_or_after_it(age):
    # A burst is refused while it has the model loaded.
    assert reason(replace(READY, refused=(Exchange("a", NOW - age, 429),))) is Reason.OVER_CONCURRENCY


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
        history=History("loading", NOW - 12, End.EXITED, "upstream command exited prematurely", failures=3),
        error=EngineError(EngineCode.BAD_ARGUMENT, "--x", line="error: invalid argument: --x"),
    )

    answer = judge(UP, seen, Place())

    assert answer.reason is Reason.BAD_ARGUMENT
    assert "It failed 3 times in a row." in answer.evidence


def test_an_engine_that_dies_for_want_of_memory_is_no_mere_crash():
    seen = replace(
        SEEN,
        history=History("failed", NOW, End.DIED, "[a] upstream exited unexpectedly", 1),
        error=EngineError(EngineCode.OUT_OF_MEMORY, line="CUDA error: out of memory"),
    )

    assert reason(seen) is Reason.OUT_OF_MEMORY


def test_what_could_not_be_seen_is_no_health():
    answer = judge(UP, replace(READY, unseen=("the log: no answer within 0.9 s",)), Place())

    assert (answer.reason, answer.evidence) == (Reason.UNKNOWN, ("the log: no answer within 0.9 s",))


def test_words_that_could_not_be_read_leave_it_unknown():
    seen = replace(SEEN, history=History("failed", NOW, End.EXITED, "upstream command exited prematurely", 1))

    assert reason(seen) is Reason.UNKNOWN


def test_a_silent_end_of_a_load_is_a_crash():
    seen = replace(
        SEEN,
        history=History("failed", NOW, End.EXITED, "upstream command exited prematurely", 1),
        error=EngineError(EngineCode.NO_ERROR),
    )

    assert reason(seen) is Reason.CRASHED


def test_a_load_whose_process_has_gone_is_explained_by_its_words():
    seen = replace(
        SEEN,
        resident=Resident("a", "starting", "http://127.0.0.1:5800", 600),
        history=History("loading", NOW - 12),
        error=EngineError(
            EngineCode.PORT_IN_USE, port=5800, line="couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 5800"
        ),
        port_holder="pid 9 (nc -l 5800)",
    )

    answer = judge(UP, seen, Place())

    assert (answer.reason, answer.culprit) == (Reason.PORT_IN_USE, "pid 9 (nc -l 5800)")


def test_commands_name_the_folders_that_are_not_the_default_ones():
    place = Place(Path("/my catalog"), Path("/srv/store"), 9000)

    answer = judge(StackFacts("none", problem="No local stack is running."), SEEN, place)

    assert answer.next_steps == ("corral up --detach --port 9000 --catalog '/my catalog' --store /srv/store",)


def test_without_a_stack_an_unknown_name_may_be_of_another_catalog():
    stack = StackFacts("none", problem="No local stack is running.", catalog=Path("/c"), catalog_is_a_guess=True)

    answer = judge(stack, replace(SEEN, id="", model="b"), Place())

    assert answer.reason is Reason.STACK_DOWN
    assert answer.evidence[:2] == ("No local stack is running.", "The catalog /c has: a.")


def test_what_a_stranger_wrote_stays_one_line():
    seen = replace(READY, port_holder="pid 9 (python -c import\nos\x1b[2J)")

    answer = judge(UP, seen, Place())

    assert answer.culprit == "pid 9 (python -c import os [2J)"
    assert not any("\n" in line for line in answer.evidence)


NO_ROOM = "preflight: no-room model=a need_mib={need} free_mib=100 total_mib=16000: …"
B_ON_CARD = "seat for=a pid=7 seat_mib={mib} model=b on_card=yes"
REST = "unattributed for=a held_mib=15836"


def out_of_memory(*held: str, need: int = 7000, others: tuple[tuple[str, int], ...] = ()) -> Answer:
    error = classify_engine_error(
        "\n".join([NO_ROOM.format(need=need), *(f"preflight: {record}: …" for record in held)])
    )
    seen = replace(
        SEEN,
        history=History("failed", NOW, End.EXITED, "exited", 1),
        error=error,
        others=others,
        members=frozenset({7}),
    )
    return judge(UP, seen, Place(Path("/c")))


def test_what_holds_most_of_a_full_card_is_named_the_largest_first():
    answer = out_of_memory(
        "holder for=a pid=6 held_mib=1 name=x",
        "holder for=a pid=8 held_mib=9000 name=immich_ml",
        B_ON_CARD.format(mib=4000),
        "unattributed for=a held_mib=2899",
    )

    assert answer.culprit == "immich_ml (pid 8, 9000 MiB), b (pid 7, seat of 4000 MiB), x (pid 6, 1 MiB)"


@pytest.mark.parametrize(
    "held",
    [
        ("holder for=a pid=7 held_mib=64 name=b", REST),
        (B_ON_CARD.format(mib=64), REST),
        (B_ON_CARD.format(mib=64), "seat for=a pid=8 seat_mib=9000 model=c on_card=no", REST),
    ],
)
def test_a_small_seat_is_not_to_blame_for_a_full_card(held):
    answer = out_of_memory(*held, others=(("b", 0),))

    assert answer.culprit == "processes that are not visible from here (15836 MiB)"
    assert answer.next_steps == ("corral seat --catalog /c", "corral status")


def test_without_a_search_for_holders_none_is_called_invisible():
    assert out_of_memory().culprit == "processes on the card (15900 MiB), for which no search was made"


def test_a_holder_whose_part_is_unknown_may_be_the_one():
    assert out_of_memory("holder for=a pid=8 name=ollama").culprit == "ollama (pid 8, an unknown part)"


def test_a_seat_that_is_larger_than_the_card_is_no_other_models_fault():
    assert out_of_memory(need=17_000).culprit == "its seat of 17000 MiB, on a card of 16000 MiB"


def test_a_model_that_holds_the_card_can_be_unloaded_and_its_requests_are_stated():
    answer = out_of_memory(B_ON_CARD.format(mib=9000), others=(("b", 2),))

    unload = "curl -X POST http://127.0.0.1:8080/api/models/unload/b"
    assert answer.next_steps == (unload, "corral seat --catalog /c", "corral status")
    assert answer.evidence[-1] == "Unloading b ends its 2 requests in flight."


def test_a_model_of_another_stack_is_not_unloaded_from_this_one():
    answer = out_of_memory("seat for=a pid=99 seat_mib=9000 model=b on_card=yes", others=(("b", 0),))

    assert answer.culprit == "b (pid 99, seat of 9000 MiB)"
    assert answer.next_steps[0] == "corral seat --catalog /c"


def test_nvidia_smi_is_advised_where_it_is_the_source():
    error = EngineError(EngineCode.OUT_OF_MEMORY, line="CUDA error: out of memory")
    seen = replace(SEEN, history=History("failed", NOW, End.DIED, "[a] upstream exited unexpectedly", 1), error=error)

    assert "nvidia-smi" not in judge(UP, seen, Place()).next_steps
    assert judge(replace(UP, has_nvidia_smi=True), seen, Place()).next_steps[0] == "nvidia-smi"


BLOB = Path("/s/a/model.gguf")
DAMAGED = replace(
    SEEN,
    history=History("failed", NOW - 30, End.EXITED, "upstream command exited prematurely", 1),
    error=EngineError(EngineCode.FILE_DAMAGED, str(BLOB), line="gguf_init_from_reader: failed to read magic"),
)


@pytest.mark.parametrize(("changed", "expected"), [(60, Reason.FILE_DAMAGED), (10, Reason.HEALTHY)])
def test_a_file_that_was_replaced_since_it_was_damaged_is_no_reason_any_more(changed, expected):
    file = FileFact(BLOB, "verified", "It has not been touched since its content was verified.", NOW - changed)

    answer = judge(UP, replace(DAMAGED, files=(file,)), Place())

    assert answer.reason is expected
    if expected is Reason.HEALTHY:
        assert "30 s ago for a reason that is gone: ask again" in answer.evidence[1]


def test_what_is_true_now_comes_before_what_ended_the_last_load():
    taken = replace(DAMAGED, files=(FileFact(BLOB, "unverified", "", NOW - 10),), port_holder="pid 9 (nc)")

    assert reason(taken) is Reason.PORT_IN_USE
    assert reason(replace(DAMAGED, files=(FileFact(BLOB, "missing", "gone"),))) is Reason.FILE_MISSING


def test_a_port_that_is_free_again_is_no_reason_any_more_where_ports_can_be_seen():
    error = EngineError(
        EngineCode.PORT_IN_USE, port=5800, line="couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 5800"
    )
    seen = replace(SEEN, history=History("failed", NOW, End.EXITED, "exited", 1), error=error)

    assert reason(seen) is Reason.PORT_IN_USE
    assert reason(replace(seen, sees_ports=True)) is Reason.HEALTHY


@pytest.mark.parametrize(
    ("why", "expected"),
    [("fork/exec /x: no such file or directory", Reason.HEALTHY), ("/x: exec format error", Reason.ENGINE_MISSING)],
)
def test_a_program_that_is_there_again_can_be_started(why, expected):
    ended = f"2026-11-21T14:55:12Z [WARN] group: running a exited: failed to start command '/x': {why}\n"
    failed = history.read(ended)["a"]

    assert reason(replace(SEEN, history=failed)) is expected


def test_a_name_with_a_space_stays_one_word():
    assert judge(UP, replace(SEEN, model="a b", id=""), Place()).reason is Reason.NOT_IN_CATALOG
