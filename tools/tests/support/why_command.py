"""Sends requests to a stack of ``served``, and runs `corral why` for the reason."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import psutil

from corral.cli.main import main
from corral.engine import binaries, log_lines
from corral.engine.stack_folder import StackFolder
from corral.why import local
from tests.support.engine_process import post, question, wait_for

CLASSES = {
    "healthy", "not-in-catalog", "stack-down", "engine-missing", "file-missing", "file-damaged", "bad-argument",
    "out-of-memory", "port-in-use", "load-timeout", "crashed", "hung", "over-concurrency", "slow",
    "unknown",
}  # fmt: skip

# It stops before it listens: llama-swap ends no load whose engine has accepted the question of its health.
STOPPED = ("sh", "-c", 'kill -STOP $$; exec "$@"', "sh", str(binaries.llama_server().path))


def diagnose(capsys, *words: str) -> dict:
    """The output of `corral why` *words*; its keys, its class and its exit code are checked."""
    capsys.readouterr()
    code = main(["why", *words, "--json"])
    verdict = json.loads(capsys.readouterr().out)
    assert set(verdict) - {"answers"} == {"model", "class", "culprit", "evidence", "next"}
    assert verdict["class"] in CLASSES
    assert code == {"healthy": 0, "unknown": 3}.get(verdict["class"], 1)
    return verdict


def wait_for_evidence(monkeypatch, first_round_s: float = 20.0) -> None:
    """Let `corral why` wait for the evidence on a busy machine too, and ignore that machine's load."""
    # A probe of a busy engine takes its whole limit; what is left of the round is for its thread to be scheduled.
    for name, limit_s in {"_FIRST_ROUND_S": first_round_s, "_SECOND_ROUND_S": 6.0, "_IN_TIME_S": 3.0}.items():
        monkeypatch.setattr(local, name, limit_s)
    monkeypatch.setattr(local, "_overload", lambda: "")
    monkeypatch.setattr(local, "_slowdown", lambda: 1.0)


def send(stack, model: str) -> tuple[int, str]:
    return post(f"{stack.endpoint}/v1/chat/completions", question("Hello.", model=model))


def engine_of(stack, model: str) -> int:
    """The pid of the engine of *model*, once its preflight has become it; 0 before."""
    for one in stack.running.members():
        try:
            if psutil.Process(one.pid).environ().get("CORRAL_SEAT", "").startswith(f"{model}:"):
                return one.pid
        except psutil.Error:
            continue
    return 0


def completion(stack, model: str) -> int:
    body = {"model": model, "prompt": "Go on.", "max_tokens": 2000, "ignore_eos": True}
    return post(f"{stack.endpoint}/v1/completions", body)[0]


def in_parallel(count: int, request: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=request) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def in_flight(stack, model: str) -> int:
    return sum(one.model == model for one in stack.running.client().in_flight())


def unload(stack, model: str) -> None:
    """Unload *model*, and end its requests."""
    assert post(f"{stack.endpoint}/api/models/unload/{model}", {})[0] == 200


def fails(stack, model: str) -> None:
    """Have a load of *model* fail; llama-swap answers before it writes the end into its log, so wait for that."""
    before = _ends(stack, model)
    status, text = send(stack, model)
    assert status == 503, f"{model}: {status} {text}"
    wait_for(lambda: _ends(stack, model) > before, what=f"the end of {model} in llama-swap's log")


def _ends(stack, model: str) -> int:
    log = StackFolder(stack.state).log.read_text(errors="replace")
    return sum((event.kind, event.model) == ("ended", model) for event in log_lines.events(log))
