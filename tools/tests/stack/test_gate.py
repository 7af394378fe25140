"""`corral gate` on a real stack: real llama-swap and engine behind the door, real streams, and a real end."""

from __future__ import annotations

import json
import os
import signal
import socket
import xml.etree.ElementTree as ET
from functools import partial

import pytest

from corral import markdown, paths
from corral.bench import figures
from corral.bench.measuring import Question
from corral.cli.contract import DOCUMENT
from corral.cli.main import main
from corral.engine import ports, processes, restart, stack
from corral.engine.llama_swap import LlamaSwap, Resident
from corral.errors import LockStale
from corral.gate import ending, sdk
from corral.gate.box import BOXES
from corral.gate.site import Site
from corral.lock import lock as locks
from tests.support.demo_stack import demo_stack, exporter_beside
from tests.support.engine_process import chat

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]
CLOSES = "A stream that its client closes"
LATENCY = """
latency:
  - {consumer: reader, prompt_tokens: 60, answer_tokens: 8, p95_seconds: 60, requests_at_once: 2}
args: {threads: 1}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with demo_stack(tmp_path_factory.mktemp("gate"), more={"tiny-text": LATENCY}) as present:
        yield present


@pytest.fixture
def gate(running, monkeypatch, capsys):
    """Runs `corral gate tiny-text` on that stack: its exit code, its document and stderr.  The stack runs after it."""
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    monkeypatch.setattr(figures, "MOST_LAG_S", float("inf"))  # this machine may be as late as it is
    port = stack.running(running[1]).door.port

    def run(*words, model="tiny-text"):
        capsys.readouterr()  # of what started the stack
        code = main(["gate", model, "--json", "--exporter", f"http://127.0.0.1:{nothing()}", *words])
        out, err = capsys.readouterr()
        return code, {one["box"]: one for one in json.loads(out)["boxes"]} if out else {}, err

    yield run
    if stack.running(running[1]) is None:
        assert main(["up", "--detach", "--catalog", str(running[0]), "--port", str(port)]) == 0


def nothing():
    """A port at which nothing listens, and nothing will."""
    return 1


def states(boxes):
    return {name: one["state"] for name, one in boxes.items()}


def text_of(one):
    return "; ".join(line["text"] for line in one["lines"])


def test_every_box_is_ticked_by_a_measurement_and_another_lock_makes_all_that_was_kept_unknown(
    running, gate, tmp_path, monkeypatch
):
    # The tiny model has few tokens, and answers the native paths now so, now otherwise; its longest stream may be over
    # before a client on a busy machine closes it.
    by_sdk = {name: family for name, family in sdk.FAMILIES.items() if "SDK" in name}
    monkeypatch.setattr(sdk, "FAMILIES", by_sdk)
    all_of = sdk.checks_of
    monkeypatch.setattr(sdk, "checks_of", lambda family: [one for one in all_of(family) if CLOSES not in one.title])
    before = stack.running(running[1])
    words = ("--users", "2,4", "--may-end")
    files = ("--page", str(tmp_path / "gate.md"), "--junit", str(tmp_path / "gate.xml"))
    with exporter_beside() as exporter:
        code, boxes, err = gate(*words, *files, "--exporter", exporter)
    assert states(boxes) == dict.fromkeys(BOXES, "passed") | {"adapters": "not used"}, [text_of(boxes["sdk"]), err]
    assert code == 0
    assert "9 of 9 boxes are ticked: open." in err
    with_card = text_of(boxes["stack"]).removeprefix("2 at once (the budget of reader), ")
    known = (
        "without a card",
        "whether on a card is unknown",
    )  # llama-swap keeps the end of a log, maybe of other tests
    assert with_card.startswith(tuple(f"{one}, break-even not measured: llama.cpp" for one in known))
    assert "reader: p95 " in text_of(boxes["latency"])
    assert [line["text"].partition(",")[0] for line in boxes["users"]["lines"]] == ["2 users", "4 users"]
    assert "10 of 10 streams whole" in text_of(boxes["shutdown"])
    before_and_after = text_of(boxes["monitoring"]).rpartition("corral_requests_total of tiny-text: ")[2]
    counted, now = map(int, before_and_after.split(" → "))
    assert counted < now
    after = stack.running(running[1])
    assert after.pid != before.pid
    assert (after.door, after.config_sha256, after.catalog) == (before.door, before.config_sha256, before.catalog)
    page = (tmp_path / "gate.md").read_text()
    assert page.count("* [x] **") == 9
    assert "`corral gate tiny-text --only shutdown --may-end`" in page
    suite = ET.parse(tmp_path / "gate.xml").getroot().find("testsuite")
    assert (suite.get("name"), suite.get("tests"), suite.get("errors"), suite.get("failures")) == (
        "corral gate", "10", "0", "0",
    )  # fmt: skip

    code, boxes, _ = gate("--only", "health", "--max-age", "7d")
    assert code == 0
    code, boxes, err = gate("--only", "health", "--max-age", "0s")
    assert code == 1
    others = dict.fromkeys(BOXES, "unknown")
    assert states(boxes) == others | {"health": "passed"}, "what this very run measured is never too old"
    assert "ago; 0.0 s are the most" in text_of(boxes["sdk"])

    with (running[0] / "cards" / "laptop.yaml").open("a") as card:
        card.write("# another lock\n")
    assert main(["lock", "--catalog", str(running[0])]) == 0
    code, boxes, err = gate("--only", "health")
    assert code == 1
    assert states(boxes) == dict.fromkeys(BOXES, "unknown") | {"health": "passed"}
    assert "measured of another lock (" in text_of(boxes["users"])
    assert boxes["users"]["lines"][0]["next_step"].startswith("corral gate tiny-text --only users ")


def interrupted(received, original, *args, before, **words):
    """The end of the stack, with Ctrl-C as soon as it has begun."""

    def interrupt():
        before()
        os.kill(os.getpid(), signal.SIGINT)
        received.append(True)

    return original(*args, before=interrupt, **words)


def test_an_interrupt_while_the_stack_is_ended_starts_it_again_all_the_same(running, gate, monkeypatch):
    before, received = stack.running(running[1]), []
    monkeypatch.setattr(ending.stack, "stop", partial(interrupted, received, stack.stop))
    code, _, err = gate("--only", "shutdown", "--may-end")
    after = stack.running(running[1])
    assert received
    assert code == 130
    assert "corral gate: interrupted" in err
    assert after.pid != before.pid
    assert after.door == before.door
    assert chat(after.endpoint, "Are you there?", model="tiny-text")["message"]["content"] == "OK"


def test_a_stack_that_does_not_start_again_is_loud_and_names_the_command_that_starts_it(running, gate, monkeypatch):
    present, stop, taken = stack.running(running[1]), stack.stop, []

    def stop_and_take_the_port(*args, **words):
        found = stop(*args, **words)
        taken.append(socket.create_server((ports.HOST, present.door.port)))
        return found

    monkeypatch.setattr(ending.stack, "stop", stop_and_take_the_port)
    try:
        code, _, err = gate("--only", "shutdown", "--may-end")
    finally:
        for one in taken:
            one.close()
    assert taken
    assert code == 1
    assert "corral gate: The local stack was stopped for the gate, and did NOT start again: " in err
    assert f"  → {present.start_command()}" in err
    assert "corral up --detach" in err
    assert stack.running(running[1]) is None
    monkeypatch.undo()
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    assert main(present.start_command().split()[1:]) == 0
    _, boxes, _ = gate("--only", "adapters")
    assert boxes["shutdown"]["state"] == "failed"


def test_streams_that_are_cut_at_the_end_fail_the_box(running, gate, monkeypatch):
    monkeypatch.setattr(ending.stack, "stop", partial(without_waiting, stack.stop))
    code, boxes, err = gate("--only", "shutdown", "--may-end")
    assert code == 1
    assert boxes["shutdown"]["state"] == "failed", err
    assert " streams whole, the last " in text_of(boxes["shutdown"])
    assert "llama-swap did not end by itself" in text_of(boxes["shutdown"])
    assert stack.running(running[1])


def without_waiting(original, *args, **words):
    return original(*args, **words, drain_s=0.0)


def test_without_may_end_the_service_is_not_ended(running, gate):
    before = stack.running(running[1]).pid
    assert gate("--only", "shutdown")[0] == 2
    code, boxes, _ = gate("--only", "single,shutdown", "--max-age", "0s")
    assert (code, boxes) == (2, {})
    _, boxes, _ = gate("--only", "single")
    assert boxes["single"]["state"] == "passed"
    assert stack.running(running[1]).pid == before


def test_more_users_than_the_door_accepts_fail_with_the_cause_and_what_would_help(gate, monkeypatch):
    monkeypatch.setattr(Site, "question", Question(60, 600))  # so that the engine is what all wait for
    code, boxes, _ = gate("--only", "users", "--users", "40", "--seconds", "3")
    (line,) = boxes["users"]["lines"]
    assert (code, line["state"]) == (1, "failed")
    assert "requests were refused with HTTP 429; llama-swap accepts as many requests" in line["text"]
    assert "parallel: 40 in the file of tiny-text" in line["next_step"]


def test_a_promise_that_is_not_kept_as_documented_fails_by_its_name(gate, tmp_path):
    committed = DOCUMENT.read_text(encoding="utf-8")
    other = tmp_path / "other.md"
    other.write_text(committed.replace("HTTP 400, `invalid_request_error`", "HTTP 418"), encoding="utf-8")
    code, boxes, _ = gate("--only", "sdk", "--contract", str(other))
    assert (code, boxes["sdk"]["state"]) == (1, "failed")
    assert "`n=2`: two answers to one question: differs: HTTP 400" in text_of(boxes["sdk"])


def test_a_model_of_images_or_of_thoughts_is_not_ticked_by_its_few_own_promises(gate, monkeypatch):
    by_sdk = {name: family for name, family in sdk.FAMILIES.items() if "SDK" in name}
    monkeypatch.setattr(sdk, "FAMILIES", by_sdk)  # of the native paths the tiny models answer one now so, now otherwise
    all_of = sdk.checks_of
    monkeypatch.setattr(sdk, "checks_of", lambda family: [one for one in all_of(family) if CLOSES not in one.title])
    text = sum(one.of == "text" for family in by_sdk.values() for one in sdk.checks_of(family))
    _, boxes, _ = gate("--only", "sdk", model="tiny-vision")
    count = int(text_of(boxes["sdk"]).partition(" promises: ")[0])
    assert (boxes["sdk"]["state"], count) == ("passed", text - 1 + 4), text_of(boxes["sdk"])
    _, boxes, _ = gate("--only", "sdk", model="tiny-think")
    assert boxes["sdk"]["state"] == "unknown", text_of(boxes["sdk"])
    assert f"2 promises: 1 work, 1 are as api.md has them; {text} promises of text were not sent" in text_of(
        boxes["sdk"]
    )


def test_without_an_exporter_monitoring_is_unknown_with_the_command_that_starts_one(gate):
    code, boxes, _ = gate("--only", "monitoring")
    (line,) = boxes["monitoring"]["lines"]
    assert (code, line["state"], line["next_step"]) == (1, "unknown", "corral exporter")
    assert line["text"].startswith("No exporter answers at http://127.0.0.1:1")


def test_an_exporter_of_another_lock_is_not_alive(running, gate, tmp_path):
    other = tmp_path / "catalog"
    other.mkdir()
    for part in running[0].iterdir():
        (other / part.name).symlink_to(part)
    (other / "lock.json").unlink()
    present = locks.require(running[0])
    locks.write(other / "lock.json", present.model_copy(update={"sources": present.sources | {"more": "0" * 64}}))
    with exporter_beside("--catalog", str(other)) as exporter:
        _, boxes, _ = gate("--only", "monitoring", "--exporter", exporter)
    assert boxes["monitoring"]["state"] == "failed"
    assert "the exporter is of another lock" in text_of(boxes["monitoring"])


def test_another_command_line_than_the_locked_one_is_refused_and_nothing_is_kept(running, gate, monkeypatch):
    kept = running[1] / "gate" / "evidence.json"
    before = kept.read_bytes() if kept.exists() else None
    monkeypatch.setattr(LlamaSwap, "residents", lambda self: [Resident("tiny-text", "ready", "http://x:1", 0, "other")])
    code, boxes, err = gate("--only", "single")
    assert (code, boxes) == (2, {})
    assert "another command line than the lock has" in err
    assert (kept.read_bytes() if kept.exists() else None) == before


def test_a_model_that_is_not_in_the_lock_is_refused(running, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    assert main(["gate", "nothing"]) == 2
    assert "nothing is not in the lock" in capsys.readouterr().err


def test_no_stack_and_no_cluster_is_refused_and_old_reports_are_replaced(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("corral.cli.options.applied", lambda: None)
    assert old_reports_after(tmp_path, 3) == "No local stack is running, and no cluster was named or applied to."
    assert "corral up --detach" in capsys.readouterr().err


def old_reports_after(folder, code, *words):
    """Why the run, which had *code*, could not decide, as both of its reports state it in place of the old ones."""
    junit, page = folder / "gate.xml", folder / "gate.md"
    for file in (junit, page):
        file.write_text("9 of 9 boxes are ticked: open.")
    assert main(["gate", "tiny-text", *words, "--junit", str(junit), "--page", str(page)]) == code
    suite = ET.parse(junit).getroot().find("testsuite")
    assert (suite.get("name"), suite.get("tests"), suite.get("errors")) == ("corral gate", "1", "1")
    why = suite.find("testcase").find("error").get("message")
    text = page.read_text()
    assert text.startswith("# Serving gate of tiny-text: not decided.\n")
    assert markdown.cell(why) in text
    assert "ticked" not in text
    return why


def test_every_run_that_cannot_decide_replaces_old_reports_by_the_reason(running, tmp_path, monkeypatch):
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    assert old_reports_after(tmp_path, 2, "--only", "shutdown") == "The box shutdown ends the service for a moment."
    monkeypatch.setattr(Site, "require_locked", interrupt)
    assert old_reports_after(tmp_path, 130) == "it was interrupted (KeyboardInterrupt)"
    monkeypatch.setattr(locks, "require_fresh", stale)
    assert old_reports_after(tmp_path, 2) == "The lock is stale."


def interrupt(_):
    raise KeyboardInterrupt


def stale(_):
    raise LockStale("The lock is stale.")


def test_a_stack_that_is_started_again_has_the_variables_that_it_had(running, monkeypatch):
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    present = stack.running(running[1])
    again = restart.prepare(running[1], present)
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")  # of the shell of the gate
    assert stack.stop(running[1])
    started = again.start(lambda _: None)
    found = restart.prepare(running[1], started).programs.variables
    assert found["OMP_WAIT_POLICY"] == "passive"
    assert processes.is_alive(started.process)
    assert paths.state_dir() == running[1]
