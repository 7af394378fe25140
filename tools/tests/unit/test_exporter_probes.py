"""The deep probe: what a round keeps of the one before, and what it is silent about."""

from __future__ import annotations

from corral.exporter.errors import LlamaSwapUnknown
from corral.exporter.llama_swap import Resident
from corral.exporter.probes import Probes


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


def rounds(*clients):
    """The results after a round with each of *clients*."""
    listed = iter(clients)
    probes = Probes(lambda: next(listed))
    for _ in clients:
        probes.run()
    return probes


def test_every_loaded_model_is_asked_once_and_one_that_loads_is_not():
    client = Client(chat=0.1, vision=LlamaSwapUnknown("a test"))
    assert seconds(rounds(client)) == {"chat": 0.1, "vision": None}
    assert client.asked == ["chat", "vision"]


def test_a_model_that_serves_others_keeps_its_last_result_and_has_none_before():
    assert seconds(rounds(Client(chat=None))) == {}
    assert seconds(rounds(Client(chat=0.1), Client(chat=None))) == {"chat": 0.1}


def test_a_model_that_is_not_loaded_any_more_has_no_result():
    assert seconds(rounds(Client(chat=LlamaSwapUnknown("a test")), Client())) == {}
    assert seconds(rounds(Client(chat=0.1), None)) == {}


def test_while_llama_swap_is_unknown_the_last_results_stay():
    class Silent(Client):
        def residents(self):
            raise LlamaSwapUnknown("a test")

    assert seconds(rounds(Client(chat=0.1), Silent())) == {"chat": 0.1}
