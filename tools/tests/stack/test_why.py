"""`corral why`: every class produced by a real fault, with the real llama-swap and the embedded engine.

One stack serves a model for each fault, which no other test touches.  The load that takes too long is one that is
stopped: the real engine cannot be made to load slowly, and llama-swap's shortest time limit is 15 s, so it runs beside
the other tests.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from corral.cli.main import main
from corral.demo import tiny_gguf
from corral.engine import binaries
from corral.engine.stack_folder import StackFolder
from corral.exporter.llama_swap import LlamaSwap
from tests.support.engine_process import chat, stop, unanswered, wait_for
from tests.support.served import Served, served
from tests.support.why_command import CLASSES, STOPPED, diagnose, engine_of, fails, send, wait_for_evidence

pytestmark = pytest.mark.timeout(120)

LITTLE_MEMORY = ["sh", "-c", 'ulimit -v 1000000; exec "$@"', "sh", str(binaries.llama_server().path)]
MARKED = re.compile(r'^@produces\("([a-z-]+)"\)$', re.MULTILINE)
produces = pytest.mark.produces


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    folder = tmp_path_factory.mktemp("why")
    text, think, slow = (folder / f"{name}.gguf" for name in ("text", "think", "slow"))
    tiny_gguf.write_text(text)
    tiny_gguf.write_text(think, thinking=True)
    tiny_gguf.write_text(slow, n_ff=80_000)
    models = {
        "good": Served(text),
        "idle": Served(text),
        "gone": Served(text),
        "gone-unloaded": Served(text),
        "cut": Served(text),
        "mended": Served(text),
        "scratched": Served(text),
        "overwritten": Served(think),
        "flagged": Served(text, more=["--no-mmap"]),
        "greedy": Served(text, need_mib=12_000),
        "huge": Served(text, need_mib=1_000_000),
        "swollen": Served(text, engine=LITTLE_MEMORY, more=["-c", "6000000"]),
        "unported": Served(text),
        "sleeper": Served(text),
        "too-slow": Served(text, engine=STOPPED),
        "victim": Served(slow),
        "no-engine": Served(text, engine=["/nowhere/llama-server"]),
        "odd": Served(text, engine=["sh", "-c", "echo the engine has its own idea >&2; exit 3", "sh"]),
    }
    run = folder / "run"
    run.mkdir()
    # So large that no other engine of this machine can be blamed for it.
    with served(run, models, card="echo 9000, 900000") as running:
        yield running


@pytest.fixture(scope="module")
def too_slow(stack):
    """A load that cannot end in time; the status and the body of its request once it is over."""
    responses: list[tuple[int, str]] = []
    request = threading.Thread(target=lambda: responses.append(send(stack, "too-slow")))
    request.start()
    yield lambda: (request.join(), *responses)[1]
    request.join()


@pytest.fixture(autouse=True)
def at_the_stack(stack, too_slow, monkeypatch, tmp_path):
    monkeypatch.setenv("CORRAL_STATE", str(stack.state))
    monkeypatch.chdir(tmp_path)  # no catalog here: the one that the stack was started with counts
    wait_for_evidence(monkeypatch)


@pytest.fixture
def why(capsys, request):
    """Run `corral why`; the test fails unless the classes of its mark ``produces`` are among the results."""
    classes: set[str] = set()

    def run(*words: str) -> dict:
        verdict = diagnose(capsys, *words)
        classes.add(verdict["class"])
        return verdict

    yield run
    assert {one for mark in request.node.iter_markers("produces") for one in mark.args} <= classes


@produces("hung")
def test_a_load_that_hangs_is_hung_while_it_does(stack, why):
    load = threading.Thread(target=send, args=(stack, "sleeper"))
    load.start()
    engine = wait_for(lambda: engine_of(stack, "sleeper"), what="the start of the engine")
    stop(engine)

    verdict = why("sleeper")

    os.kill(engine, signal.SIGCONT)
    load.join()
    assert verdict["class"] == "hung"
    assert "SIGSTOP" in verdict["evidence"][0]
    assert verdict["next"][0].startswith("kill -CONT ")


@produces("healthy")
def test_a_model_that_answers_is_healthy(stack, why):
    chat(stack.endpoint, "Hello.", model="good")

    verdict = why("good")

    assert (verdict["class"], verdict["culprit"]) == ("healthy", None)
    assert "loaded and responds" in verdict["evidence"][0]


def test_a_model_without_a_request_is_healthy(why):
    verdict = why("idle")

    assert verdict["class"] == "healthy"
    assert "not loaded" in verdict["evidence"][0]


def test_an_alias_is_its_model(stack, why):
    chat(stack.endpoint, "Hello.", model="good")

    assert why("good-alias")["class"] == "healthy"


@produces("not-in-catalog")
def test_an_unknown_name_is_not_in_the_catalog(stack, why):
    verdict = why("goood")

    assert verdict["class"] == "not-in-catalog"
    assert verdict["next"][0] == f"corral why good --catalog {stack.catalog}"


def test_a_model_that_was_added_after_the_start_is_not_served(stack, why):
    added = stack.catalog / "models" / "late.yaml"
    added.write_text((stack.catalog / "models" / "good.yaml").read_text().replace("good", "late"))
    try:
        verdict = why("late")
    finally:
        added.unlink()

    assert verdict["class"] == "not-in-catalog"
    assert "running stack" in verdict["culprit"]
    assert verdict["next"] == [stack.running.start_command()]


def test_a_missing_file_is_found_before_a_request_for_the_model(stack, why):
    stack.weights("gone-unloaded").resolve().unlink()

    verdict = why("gone-unloaded")

    assert verdict["class"] == "file-missing"
    assert verdict["culprit"].endswith("gone-unloaded/model.gguf")
    assert verdict["next"][0].startswith("corral fetch gone-unloaded ")


@produces("file-missing")
def test_a_missing_file_is_the_reason_of_a_failed_load(stack, why):
    stack.weights("gone").resolve().unlink()
    fails(stack, "gone")

    verdict = why("gone")

    assert verdict["class"] == "file-missing"
    assert "No such file" in verdict["evidence"][0]


@produces("file-damaged")
def test_a_file_that_was_cut_short_is_damaged(stack, why):
    path = stack.weights("cut").resolve()
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[: len(whole) // 2])
    fails(stack, "cut")

    verdict = why("cut")

    assert verdict["class"] == "file-damaged"
    assert any("the lock requires" in line for line in verdict["evidence"])
    assert verdict["next"][0].startswith("corral verify cut ")


def test_a_file_that_was_put_back_is_damaged_no_more(stack, why):
    path = stack.weights("mended").resolve()
    path.unlink()
    path.write_bytes(b"")
    fails(stack, "mended")
    failed_at = time.time()
    wait_for(lambda: time.time() >= failed_at + 1, what="the next second, as far as llama-swap's log tells them apart")
    path.write_bytes(stack.weights("idle").read_bytes())
    assert main(["verify", "mended", "--catalog", str(stack.catalog), "--store", str(stack.store)]) == 0

    verdict = why("mended")

    assert verdict["class"] == "healthy"
    assert "for a reason that no longer holds: send the request again" in verdict["evidence"][1]
    assert any("has not been modified since its content was verified" in line for line in verdict["evidence"])
    chat(stack.endpoint, "Hello.", model="mended")


def test_a_file_with_another_content_of_the_same_size_is_damaged_by_the_engines_log(stack, why):
    path = stack.weights("scratched").resolve()
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(b"????" + whole[4:])
    fails(stack, "scratched")

    verdict = why("scratched")

    assert verdict["class"] == "file-damaged"
    assert verdict["culprit"].endswith("scratched/model.gguf")
    assert "magic" in verdict["evidence"][0]
    assert any("was not read" in line for line in verdict["evidence"])


def test_a_file_that_was_written_to_after_it_was_verified_is_damaged_though_the_model_answers(stack, why):
    chat(stack.endpoint, "Hello.", model="overwritten")
    path = stack.weights("overwritten").resolve()
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))  # what writing does

    verdict = why("overwritten")

    assert verdict["class"] == "file-damaged"
    assert "was modified" in verdict["evidence"][0]


@produces("bad-argument")
def test_an_argument_that_the_engine_does_not_accept_is_named(stack, why):
    fails(stack, "flagged")

    verdict = why("flagged")

    assert (verdict["class"], verdict["culprit"]) == ("bad-argument", "--no-mmap"), verdict


@produces("out-of-memory")
def test_a_load_that_the_preflight_refused_is_out_of_memory_and_blames_no_small_seat(stack, why):
    chat(stack.endpoint, "Hello.", model="good")
    fails(stack, "greedy")

    verdict = why("greedy")

    assert verdict["class"] == "out-of-memory"
    assert "greedy needs 12000 MiB, 9000 MiB of 900000 MiB are free" in verdict["evidence"][0]
    assert f"good (pid {engine_of(stack, 'good')}, seat of 64 MiB" in verdict["evidence"][0]
    assert verdict["culprit"].startswith("processes that are not visible from here (")
    assert verdict["next"] == [f"corral seat --catalog {stack.catalog}", "corral status"]


def test_a_seat_that_no_card_has_is_its_own_fault(stack, why):
    fails(stack, "huge")

    assert why("huge")["culprit"] == "its seat of 1000000 MiB, on a card of 900000 MiB"


def test_an_engine_that_gets_no_memory_is_out_of_memory(stack, why):
    fails(stack, "swollen")

    verdict = why("swollen")

    assert verdict["class"] == "out-of-memory"
    assert "memory" in verdict["culprit"]


@produces("port-in-use")
def test_a_port_that_another_process_holds_is_in_use(stack, why):
    with socket.socket() as other:
        other.bind(("127.0.0.1", stack.ports["unported"]))
        other.listen()
        before = why("unported")
        assert before["class"] == "port-in-use", before  # before any request
        # The socket accepts and never responds, and llama-swap may wait for it without end.
        request = threading.Thread(target=send, args=(stack, "unported"))
        request.start()
        log = StackFolder(stack.state)
        wait_for(lambda: "couldn't bind" in log.log_tail(1000), what="the end of the engine")

        verdict = wait_for(
            lambda: (found := why("unported"))["evidence"][0].startswith("The engine's log: ") and found, what="its log"
        )
    request.join()

    assert verdict["class"] == "port-in-use"
    assert f"pid {os.getpid()}" in verdict["culprit"]
    assert "couldn't bind" in verdict["evidence"][0]


@produces("crashed")
def test_an_engine_that_is_killed_while_it_answers_has_crashed_until_it_is_loaded_again(stack, why):
    stream, engine = unanswered(stack.running, "victim", 400)
    os.kill(engine, signal.SIGKILL)
    stream.join()
    wait_for(
        lambda: "<victim> upstream process exited unexpectedly" in StackFolder(stack.state).log_tail(200),
        what="the notice of it",
    )

    verdict = why("victim")

    assert verdict["class"] == "crashed"
    assert "victim" in verdict["culprit"]
    assert not stream.is_whole
    chat(stack.endpoint, "Hello.", model="victim")
    again = why("victim")
    assert again["class"] == "healthy"
    assert any(
        "upstream process exited unexpectedly" in line and "was loaded again" in line for line in again["evidence"]
    )


@produces("engine-missing")
def test_an_engine_that_is_not_there_is_missing(stack, why):
    assert why("no-engine")["class"] == "engine-missing"  # before any request
    fails(stack, "no-engine")

    verdict = why("no-engine")

    assert (verdict["class"], verdict["culprit"]) == ("engine-missing", "/nowhere/llama-server")


@produces("unknown")
def test_an_end_that_nothing_explains_is_unknown_and_quotes_the_engine(stack, why):
    # The real engine gives a known reason for everything that it can be made to refuse: a script stands in.
    fails(stack, "odd")

    verdict = why("odd")

    assert (verdict["class"], verdict["culprit"]) == ("unknown", None)
    assert "its own idea" in verdict["evidence"][0]


def test_without_a_model_the_worst_is_first_and_all_are_listed(stack, why):
    fails(stack, "flagged")

    verdict = why()

    classes = {one["model"]: one["class"] for one in verdict["answers"]}
    assert verdict["answers"][0] == {key: value for key, value in verdict.items() if key != "answers"}
    assert len(classes) == 18
    assert (classes["flagged"], classes["idle"]) == ("bad-argument", "healthy")


def test_without_json_it_prints_a_sentence_and_commands(stack, capsys):
    fails(stack, "flagged")
    capsys.readouterr()

    assert main(["why", "flagged"]) == 1

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "flagged: the engine does not accept an argument (--no-mmap)."
    assert any(line.startswith("  → corral lock") for line in lines)


@pytest.mark.parametrize("harm", ["edited", "missing"])
def test_without_a_usable_lock_no_model_is_healthy_and_bad_files_are_found_all_the_same(stack, why, harm):
    path = stack.catalog / "lock.json"
    whole = path.read_text()
    path.write_text(whole.replace('"size": ', '"size": 1', 1)) if harm == "edited" else path.unlink()
    weights = stack.weights("gone-unloaded")
    hidden = weights.rename(weights.with_name("hidden"))
    try:
        idle, gone = why("idle"), why("gone-unloaded")
    finally:
        path.write_text(whole)
        hidden.rename(weights)

    assert (idle["class"], gone["class"]) == ("unknown", "file-missing")
    assert ("its seal does not match" if harm == "edited" else "There is no lock") in idle["evidence"][0]
    assert idle["next"][0].startswith("corral lock")
    assert not any("no entry" in line for line in idle["evidence"])
    assert why("idle")["class"] == "healthy"


def test_a_llama_swap_that_is_stopped_hangs(stack, why, monkeypatch):
    wait_for_evidence(monkeypatch, first_round_s=3)  # it never responds
    stop(stack.running.pid)
    try:
        verdict = why("good")
    finally:
        os.kill(stack.running.pid, signal.SIGCONT)

    assert verdict["class"] == "hung"
    assert verdict["next"] == [f"kill -CONT {stack.running.pid}"]


@produces("load-timeout")
def test_a_load_that_took_too_long_is_named_with_the_limit(stack, too_slow, why):
    assert too_slow()[0] == 503
    client = stack.running.client()
    requests = LlamaSwap(client.endpoint, client.headers).requests()
    assert {one.load_failure for one in requests if one.model == "too-slow"} == {"timeout"}

    verdict = why("too-slow")

    assert verdict["class"] == "load-timeout"
    assert "15 s" in verdict["culprit"]
    assert any(step.startswith("corral warm too-slow ") for step in verdict["next"])


def test_every_class_is_produced_by_a_test():
    found = {one for test in Path(__file__).parent.glob("test_why*.py") for one in MARKED.findall(test.read_text())}

    assert found == CLASSES
