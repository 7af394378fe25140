"""The deep probe: what a round keeps of the one before, and what it is silent about."""

from __future__ import annotations

import inspect
import itertools
import threading
import time

import pytest

from corral.exporter import probes as module
from corral.exporter.errors import LlamaSwapUnknown
from corral.exporter.llama_swap import LlamaSwap, Resident
from corral.exporter.probes import EVERY_S, Probes
from tests.support.guard_process import stub_llama_swap


class Client:
    """A llama-swap whose models give these answers: seconds, None for one that serves others, an error."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def residents(self):
        return (*(Resident(model, "ready", "") for model in self.answers), Resident("loading", "starting", ""))

    def probe(self, resident):
        self.asked.append(resident.model)
        if isinstance(answer := self.answers[resident.model], Exception):
            raise answer
        return answer


def seconds(probes):
    return {model: one.seconds for model, one in probes.results.items()}


def rounds(*clients, apart=EVERY_S, dates=None):
    """The results after a round with each of *clients*, so many seconds *apart*; *dates*: what the machine's clock has.

    It is read after each answer.
    """
    listed, now, dates = iter(clients), [0.0], iter(dates or itertools.repeat(0.0))
    probes = Probes(lambda: next(listed), clock=lambda: now[0], now=lambda: next(dates))
    for _ in clients:
        probes.run()
        now[0] += apart
    return probes


def test_every_loaded_model_is_asked_once_and_one_that_loads_is_not():
    client = Client(chat=0.1, vision=LlamaSwapUnknown("a test"))
    assert seconds(rounds(client)) == {"chat": 0.1, "vision": None}
    assert client.asked == ["chat", "vision"]


def test_a_model_that_serves_others_keeps_its_last_result_and_has_none_before():
    assert seconds(rounds(Client(chat=None))) == {}
    assert seconds(rounds(Client(chat=0.1), Client(chat=None))) == {"chat": 0.1}


def test_an_engine_that_serves_others_since_it_failed_does_not_keep_its_failure():
    assert seconds(rounds(Client(chat=LlamaSwapUnknown("a test")), Client(chat=None))) == {}


def test_a_model_that_is_not_loaded_any_more_has_no_result():
    assert seconds(rounds(Client(chat=LlamaSwapUnknown("a test")), Client())) == {}
    assert seconds(rounds(Client(chat=0.1), None)) == {}


def test_while_llama_swap_is_unknown_the_last_results_stay():
    class Silent(Client):
        def residents(self):
            raise LlamaSwapUnknown("a test")

    assert seconds(rounds(Client(chat=0.1), Silent())) == {"chat": 0.1}


def test_a_round_that_fails_leaves_no_result_that_looks_fresh():
    clients = iter([Client(chat=0.1), Client(chat=0.1, vision=RuntimeError("a test"))])
    probes = Probes(lambda: next(clients))
    probes.run()
    assert seconds(probes) == {"chat": 0.1}
    with pytest.raises(RuntimeError, match="a test"):
        probes.run()
    assert seconds(probes) == {}


def test_an_answer_counts_for_five_minutes_and_its_absence_for_one_round():
    well, hung = Client(chat=0.1), Client(chat=LlamaSwapUnknown("a test"))
    assert seconds(rounds(well, hung, apart=EVERY_S - 1)) == {"chat": 0.1}
    assert hung.asked == []
    assert seconds(rounds(hung, well, apart=1)) == {"chat": 0.1}


def test_a_clock_that_is_set_delays_no_probe_and_is_only_the_date_of_an_answer():
    probes = rounds(Client(chat=0.1), Client(chat=0.2), dates=[7200.0, 3600.0])
    assert (seconds(probes), probes.results["chat"].at) == ({"chat": 0.2}, 3600.0)
    assert inspect.signature(Probes).parameters["clock"].default is time.monotonic


def test_rounds_go_on_until_the_end(monkeypatch):
    monkeypatch.setattr(module, "ROUND_S", 0.0)
    asked = threading.Semaphore(0)

    def find():
        asked.release()

    with Probes(find).running():
        assert all(asked.acquire(timeout=60) for _ in range(3))


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        ("200 OK", '{"completion_tokens": 4, "seconds": 0.25}', 0.25),
        ("409 Conflict", '{"error": {"code": "engine-busy"}}', None),
        ("404 Not Found", '{"error": {"code": "not-loaded"}}', None),
        ("502 Bad Gateway", "{}", LlamaSwapUnknown),
        ("200 OK", "{}", LlamaSwapUnknown),
        ("200 OK", "nothing", LlamaSwapUnknown),
        ("200 OK", '{"seconds": null}', LlamaSwapUnknown),
        ("200 OK", "[]", LlamaSwapUnknown),
    ],
)
def test_the_guards_answer_is_seconds_or_none_and_anything_else_a_failure(status, body, found):
    with stub_llama_swap() as stub:
        stub.answer("/engine-probe/chat", f"HTTP/1.1 {status}\r\n\r\n{body}".encode())
        client = LlamaSwap(f"http://127.0.0.1:{stub.port}", {}, is_door=True)
        if found is LlamaSwapUnknown:
            with pytest.raises(LlamaSwapUnknown):
                client.probe(Resident("chat", "ready", ""))
        else:
            assert client.probe(Resident("chat", "ready", "")) == found
