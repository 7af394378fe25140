"""From facts to a verdict, where the facts are hard to produce; tests/stack/test_why.py covers the rest."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from corral.cluster.target import ClusterTarget
from corral.engine.command import Command
from corral.engine.engine_process import Engine, Probe
from corral.engine.llama_swap import Exchange, InFlight, Resident
from corral.engine.log_lines import End, EngineCode, EngineError, classify_engine_error
from corral.why import history
from corral.why.facts import ModelFacts, StackFacts
from corral.why.files import FileFact
from corral.why.history import History
from corral.why.next_steps import Action, StepOptions, commands
from corral.why.rules import judge
from corral.why.verdict import Reason, Verdict

NOW = 1_800_000_000.0
UP = StackFacts("running", "http://127.0.0.1:8080", 1, catalog_ids=("a",))
COMMAND = Command(("llama-server",), "llama-server", (), 5800, limit=10, load_limit_s=300, rivals=(), sha256=())
UNLOADED = ModelFacts("a", "a", COMMAND, now=NOW)
READY = replace(
    UNLOADED,
    resident=Resident("a", "ready", "http://127.0.0.1:5800", 600),
    engine=Engine(7, is_stopped=False),
    probe=Probe(),
    history=History("ready", NOW - 60),
)


def reason(facts: ModelFacts, stack: StackFacts = UP) -> Reason:
    return judge(stack, facts, StepOptions()).reason


IDLE = Probe(late_s=0.9, progresses=False)
OLD = (InFlight("a", NOW - 60),)


def test_an_engine_that_does_not_respond_hangs_though_it_is_not_stopped():
    verdict = judge(UP, replace(READY, probe=IDLE, in_flight=OLD), StepOptions())

    assert verdict.reason is Reason.HUNG
    assert verdict.next_steps[0] == "kill -9 7"
    assert "no response within 0.9 s" in verdict.evidence[0]


@pytest.mark.parametrize(
    ("probe", "in_flight", "expected"),
    [
        (IDLE, (InFlight("a", NOW - 2),), Reason.UNKNOWN),
        (IDLE, (), Reason.UNKNOWN),
        (Probe(late_s=0.9, progresses=True), OLD, Reason.HEALTHY),
        (Probe("its /health has the status 503", progresses=True), OLD, Reason.UNKNOWN),
        (Probe("its /health has the status 503", progresses=False), OLD, Reason.HUNG),
        (Probe(late_s=0.9, progresses=True), OLD * 10, Reason.OVER_CONCURRENCY),
    ],
)
def test_nothing_is_killed_without_proof_that_it_does_nothing(probe, in_flight, expected):
    verdict = judge(UP, replace(READY, probe=probe, in_flight=in_flight), StepOptions())

    assert verdict.reason is expected
    assert ("kill -9 7" in verdict.next_steps) is (expected is Reason.HUNG)


def test_a_busy_engine_has_the_number_of_waiting_requests():
    verdict = judge(UP, replace(READY, probe=Probe(busy=1), in_flight=OLD * 3), StepOptions())

    assert "3 requests in flight (of 10 at most), 2 of them in the engine's queue" in verdict.evidence[0]


def test_a_llama_swap_that_works_does_not_hang():
    busy = replace(UP, state="unresponsive", problem="no response", used_cpu=True)

    assert reason(READY, busy) is Reason.UNKNOWN


def test_silence_on_an_overloaded_machine_proves_nothing():
    busy = replace(UP, overload="The machine is overloaded (load 17 on 2 cores).")

    assert reason(replace(READY, probe=IDLE, in_flight=OLD), busy) is Reason.UNKNOWN
    assert reason(READY, replace(busy, state="unresponsive", problem="no response")) is Reason.UNKNOWN
    assert reason(READY, replace(busy, overload="", state="unresponsive", problem="no response")) is Reason.HUNG


@pytest.mark.parametrize(
    ("progresses", "age", "expected"),
    [(False, 60, Reason.HUNG), (False, 2, Reason.HEALTHY), (True, 60, Reason.HEALTHY)],
)
def test_only_a_request_that_is_old_and_does_not_progress_hangs(progresses, age, expected):
    facts = replace(READY, probe=Probe(busy=1, progresses=progresses), in_flight=(InFlight("a", NOW - age),))

    assert reason(facts) is expected


@pytest.mark.parametrize("age", [30, 90])
def test_a_refusal_counts_whether_the_model_was_loaded_before_or_after_it(age):
    # A burst is refused while it has the model loaded.
    assert reason(replace(READY, refused=(Exchange("a", NOW - age, 429),))) is Reason.OVER_CONCURRENCY


def test_an_old_refusal_explains_nothing():
    facts = replace(READY, history=History("ready", NOW - 9000), refused=(Exchange("a", NOW - 400, 429),))

    assert reason(facts) is Reason.HEALTHY


def test_as_many_requests_as_the_limit_leave_no_room_for_one_more():
    assert reason(replace(READY, in_flight=tuple(InFlight("a", NOW - 1) for _ in range(10)))) is Reason.OVER_CONCURRENCY
    assert reason(replace(READY, in_flight=tuple(InFlight("a", NOW - 1) for _ in range(9)))) is Reason.HEALTHY


def test_the_next_step_after_a_refusal_shows_what_one_more_at_a_time_would_take():
    command = replace(READY.command, words=("llama-server", "-np", "3"))
    verdict = judge(UP, replace(READY, command=command, refused=(Exchange("a", NOW - 30, 429),)), StepOptions())
    assert verdict.next_steps == ("corral status", "corral seat --what-if parallel=4 a")


def test_a_first_load_under_way_is_healthy_and_its_evidence_has_the_limit():
    facts = replace(
        UNLOADED,
        resident=Resident("a", "starting", "http://127.0.0.1:5800", 600),
        engine=Engine(7, is_stopped=False),
        history=History("loading", NOW - 12),
    )

    verdict = judge(UP, facts, StepOptions())

    assert verdict.reason is Reason.HEALTHY
    assert verdict.evidence[0] == "It is starting for 12 s, of 300 s at most."


def test_a_load_after_failures_is_judged_by_the_last_failure():
    facts = replace(
        UNLOADED,
        resident=Resident("a", "starting", "http://127.0.0.1:5800", 600),
        engine=Engine(7, is_stopped=False),
        history=History("loading", NOW - 12, End.EXITED, "upstream command exited prematurely", failures=3),
        error=EngineError(EngineCode.BAD_ARGUMENT, "--x", line="error: invalid argument: --x"),
    )

    verdict = judge(UP, facts, StepOptions())

    assert verdict.reason is Reason.BAD_ARGUMENT
    assert "It failed 3 times in a row." in verdict.evidence


def test_an_engine_that_dies_for_want_of_memory_is_no_mere_crash():
    facts = replace(
        UNLOADED,
        history=History("failed", NOW, End.DIED, "[a] upstream exited unexpectedly", 1),
        error=EngineError(EngineCode.OUT_OF_MEMORY, line="CUDA error: out of memory"),
    )

    assert reason(facts) is Reason.OUT_OF_MEMORY


def test_missing_evidence_is_no_health():
    verdict = judge(UP, replace(READY, missing_evidence=("the log: no response within 0.9 s",)), StepOptions())

    assert (verdict.reason, verdict.evidence) == (Reason.UNKNOWN, ("the log: no response within 0.9 s",))


def test_a_log_that_could_not_be_read_leaves_it_unknown():
    facts = replace(UNLOADED, history=History("failed", NOW, End.EXITED, "upstream command exited prematurely", 1))

    assert reason(facts) is Reason.UNKNOWN


def test_a_silent_end_of_a_load_is_a_crash():
    facts = replace(
        UNLOADED,
        history=History("failed", NOW, End.EXITED, "upstream command exited prematurely", 1),
        error=EngineError(EngineCode.NO_ERROR),
    )

    assert reason(facts) is Reason.CRASHED


def test_a_load_whose_process_has_ended_is_explained_by_its_log():
    facts = replace(
        UNLOADED,
        resident=Resident("a", "starting", "http://127.0.0.1:5800", 600),
        history=History("loading", NOW - 12),
        error=EngineError(
            EngineCode.PORT_IN_USE, port=5800, line="couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 5800"
        ),
        port_holder="pid 9 (nc -l 5800)",
    )

    verdict = judge(UP, facts, StepOptions())

    assert (verdict.reason, verdict.culprit) == (Reason.PORT_IN_USE, "pid 9 (nc -l 5800)")


def test_commands_name_the_folders_that_are_not_the_default_ones():
    options = StepOptions(Path("/my catalog"), Path("/srv/store"))

    verdict = judge(UP, replace(UNLOADED, files=(FileFact(Path("/x.gguf"), "missing", "gone"),)), options)

    assert verdict.next_steps[0] == "corral fetch a --catalog '/my catalog' --store /srv/store"


@pytest.mark.parametrize("cluster", [None, ClusterTarget(Path("/my config"), "lab", "ns", "swap")])
@pytest.mark.parametrize("action", get_args(Action))
def test_every_action_has_commands_for_a_local_stack_and_for_a_cluster(action, cluster):
    options = StepOptions(Path("/my catalog"), cluster=cluster)

    steps = commands(options, UP, action, model="a", engine_port=5800, parallel=2)

    assert steps
    for program, *arguments in map(shlex.split, steps):
        assert cluster is None or program in ("corral", "kubectl")
        assert program != "kubectl" or arguments[:6] == [
            "--kubeconfig", "/my config", "--context", "lab", "-n", "ns",
        ]  # fmt: skip


def test_without_a_stack_an_unknown_name_may_be_of_another_catalog():
    stack = StackFacts(
        "absent", problem="No local stack is running.", catalog=Path("/c"), catalog_ids=("a",), catalog_is_assumed=True
    )

    verdict = judge(stack, replace(UNLOADED, id="", name="b"), StepOptions())

    assert verdict.reason is Reason.STACK_DOWN
    assert verdict.evidence[:2] == ("No local stack is running.", "The catalog /c has: a.")


def test_a_foreign_command_line_stays_one_line():
    facts = replace(READY, port_holder="pid 9 (python -c import\nos\x1b[2J)")

    verdict = judge(UP, facts, StepOptions())

    assert verdict.culprit == "pid 9 (python -c import os [2J)"
    assert not any("\n" in line for line in verdict.evidence)


NO_ROOM = "preflight: no-room model=a need_mib={need} free_mib=100 total_mib=16000: …"
B_ON_CARD = "seat for=a pid=7 seat_mib={mib} model=b on_card=yes"
REST = "unattributed for=a held_mib=15836"


def out_of_memory(*held: str, need: int = 7000, others: tuple[tuple[str, int], ...] = ()) -> Verdict:
    error = classify_engine_error(
        "\n".join([NO_ROOM.format(need=need), *(f"preflight: {record}: …" for record in held)])
    )
    facts = replace(
        UNLOADED,
        history=History("failed", NOW, End.EXITED, "exited", 1),
        error=error,
        other_models=others,
        stack_pids=frozenset({7}),
    )
    return judge(UP, facts, StepOptions(Path("/c")))


def test_what_holds_most_of_a_full_card_is_named_the_largest_first():
    verdict = out_of_memory(
        "holder for=a pid=6 held_mib=1 name=x",
        "holder for=a pid=8 held_mib=9000 name=immich_ml",
        B_ON_CARD.format(mib=4000),
        "unattributed for=a held_mib=2899",
    )

    assert verdict.culprit == "immich_ml (pid 8, 9000 MiB), b (pid 7, seat of 4000 MiB), x (pid 6, 1 MiB)"


@pytest.mark.parametrize(
    "held",
    [
        ("holder for=a pid=7 held_mib=64 name=b", REST),
        (B_ON_CARD.format(mib=64), REST),
        (B_ON_CARD.format(mib=64), "seat for=a pid=8 seat_mib=9000 model=c on_card=no", REST),
    ],
)
def test_a_small_seat_is_not_to_blame_for_a_full_card(held):
    verdict = out_of_memory(*held, others=(("b", 0),))

    assert verdict.culprit == "processes that are not visible from here (15836 MiB)"
    assert verdict.next_steps == ("corral seat --catalog /c", "corral status")


def test_without_a_search_for_holders_none_is_called_invisible():
    assert out_of_memory().culprit == "processes on the card (15900 MiB), for which no search was made"


def test_a_holder_whose_part_is_unknown_may_be_the_one():
    assert out_of_memory("holder for=a pid=8 name=ollama").culprit == "ollama (pid 8, an unknown part)"


def test_a_seat_that_is_larger_than_the_card_is_no_other_models_fault():
    assert out_of_memory(need=17_000).culprit == "its seat of 17000 MiB, on a card of 16000 MiB"


def test_a_model_that_holds_the_card_can_be_unloaded_and_its_requests_are_stated():
    verdict = out_of_memory(B_ON_CARD.format(mib=9000), others=(("b", 2),))

    unload = "curl -X POST http://127.0.0.1:8080/api/models/unload/b"
    assert verdict.next_steps == (unload, "corral seat --catalog /c", "corral status")
    assert verdict.evidence[-1] == "Unloading b ends its 2 requests in flight."


def test_a_model_of_another_stack_is_not_unloaded_from_this_one():
    verdict = out_of_memory("seat for=a pid=99 seat_mib=9000 model=b on_card=yes", others=(("b", 0),))

    assert verdict.culprit == "b (pid 99, seat of 9000 MiB)"
    assert verdict.next_steps[0] == "corral seat --catalog /c"


def test_the_account_of_the_card_is_advised_where_there_is_a_driver():
    error = EngineError(EngineCode.OUT_OF_MEMORY, line="CUDA error: out of memory")
    facts = replace(
        UNLOADED, history=History("failed", NOW, End.DIED, "[a] upstream exited unexpectedly", 1), error=error
    )

    assert "corral card" not in judge(UP, facts, StepOptions()).next_steps
    assert judge(replace(UP, has_nvidia_smi=True), facts, StepOptions()).next_steps[0] == "corral card"


def test_a_model_that_took_more_than_its_seat_is_to_be_measured_and_the_larger_seat_applied():
    error = EngineError(EngineCode.OUT_OF_MEMORY, line="CUDA error: out of memory")
    facts = replace(UNLOADED, history=History("failed", NOW, End.EXITED, "exited prematurely", 1), error=error)

    steps = judge(UP, facts, StepOptions()).next_steps
    assert steps[:2] == ("corral measure a", "corral up --detach")


@pytest.mark.parametrize(("line", "is_silent"), [("", True), ("init: initializing", False)])
def test_an_engine_that_ended_without_a_word_may_be_no_llama_server(line, is_silent):
    error = EngineError(EngineCode.NO_ERROR, line=line)
    facts = replace(UNLOADED, history=History("failed", NOW, End.EXITED, "exited prematurely", 1), error=error)

    verdict = judge(UP, facts, StepOptions())

    other = "It printed nothing at all: llama-server ends so, too, if it is no llama-server."
    assert (other in verdict.evidence, verdict.next_steps[0] == "corral engine") == (is_silent, is_silent)


BLOB = Path("/s/a/model.gguf")
DAMAGED = replace(
    UNLOADED,
    history=History("failed", NOW - 30, End.EXITED, "upstream command exited prematurely", 1),
    error=EngineError(EngineCode.FILE_DAMAGED, str(BLOB), line="gguf_init_from_reader: failed to read magic"),
)


@pytest.mark.parametrize(("changed", "expected"), [(60, Reason.FILE_DAMAGED), (10, Reason.HEALTHY)])
def test_a_file_that_was_replaced_since_it_was_damaged_is_no_reason_any_more(changed, expected):
    file = FileFact(BLOB, "verified", "It has not been touched since its content was verified.", NOW - changed)

    verdict = judge(UP, replace(DAMAGED, files=(file,)), StepOptions())

    assert verdict.reason is expected
    if expected is Reason.HEALTHY:
        assert "30 s ago for a reason that no longer holds" in verdict.evidence[1]


def test_what_is_true_now_comes_before_what_ended_the_last_load():
    taken = replace(DAMAGED, files=(FileFact(BLOB, "unverified", "", NOW - 10),), port_holder="pid 9 (nc)")

    assert reason(taken) is Reason.PORT_IN_USE
    assert reason(replace(DAMAGED, files=(FileFact(BLOB, "missing", "gone"),))) is Reason.FILE_MISSING


def test_a_port_that_is_free_again_is_no_reason_any_more_where_ports_are_visible():
    error = EngineError(
        EngineCode.PORT_IN_USE, port=5800, line="couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 5800"
    )
    facts = replace(UNLOADED, history=History("failed", NOW, End.EXITED, "exited", 1), error=error)

    assert reason(facts) is Reason.PORT_IN_USE
    assert reason(replace(facts, can_see_ports=True)) is Reason.HEALTHY


@pytest.mark.parametrize(
    ("why", "expected"),
    [("fork/exec /x: no such file or directory", Reason.HEALTHY), ("/x: exec format error", Reason.ENGINE_MISSING)],
)
def test_a_program_that_is_there_again_can_be_started(why, expected):
    ended = f"2026-11-21T14:55:12Z [WARN] group: running a exited: failed to start command '/x': {why}\n"
    failed = history.read(ended)["a"]

    assert reason(replace(UNLOADED, history=failed)) is expected


def test_a_name_with_a_space_stays_one_word():
    assert judge(UP, replace(UNLOADED, name="a b", id=""), StepOptions()).reason is Reason.NOT_IN_CATALOG


def test_a_load_that_began_and_has_no_process_is_not_healthy():
    """llama-swap answers a failed request before it writes the end of the load into its log."""
    verdict = judge(UP, replace(UNLOADED, history=History("loading", NOW - 1)), StepOptions())

    assert verdict.reason is Reason.UNKNOWN
    assert "corral why" in " ".join(verdict.next_steps)
