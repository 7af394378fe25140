"""A model in a cluster is measured by one fresh figure of its own engine, and by nothing else.

The exporter's answers are accounts of ``corral.exporter.account``, as it serves them, and llama-swap is the stub of
tests.support.stub_endpoint: an engine that is replaced in the middle of a request, two engines of a model and a sample
that stays old cannot be had from real ones when a test wants them.  tests/cluster measures with real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from corral.card.remote import Answer
from corral.engine.llama_swap import LlamaSwap
from corral.errors import CannotRun, Failed, Refused
from corral.exporter import account
from corral.exporter.account import CardAccount, CardPromise, ModelPromise, Row
from corral.exporter.driver import Card
from corral.exporter.holders import CardReading, Holder, Kind, Reading
from corral.measure import in_cluster
from corral.measure.in_cluster import ModelInCluster, NodeDriver
from corral.measure.live import ServedModel
from tests.support import seating_locks
from tests.support.stub_endpoint import completion, first_loads, replies, serve

MIB = 1 << 20
MODEL, POD, NODE = "chat", "llama-cpp/llama-swap-0", "n1"
ARGV = ("llama-server", "-m", "${STORE}/chat/model.gguf", "-c", "4096", "--port", "${PORT}")
ENTRY = seating_locks.entry(6900 * MIB, argv=ARGV)
COMMAND = "/preflight t4 -- llama-server -m /models/chat/model.gguf -c 4096 --port 5800"
PROMISES = {"t4": CardPromise(15360 * MIB, 0, {}, {MODEL: ModelPromise("main", 6900 * MIB, 6900 * MIB, None)})}


def accounts(*holders: Holder, **reading) -> tuple[CardAccount, ...]:
    card = Card("GPU-1", "Tesla T4", 15360 * MIB, 8000 * MIB)
    known = {"certain": frozenset({Kind.MODEL})} | reading
    return account.of(PROMISES, Reading((CardReading(card, holders),), **known))


def engine(mib, *pids, pods=(POD,)):
    return Holder(Kind.MODEL, MODEL, pids or (7,), None if mib is None else mib * MIB, pods)


@dataclass
class Exporter:
    """Gives its samples in turn, the last one for ever: one each second of its clock, or at *times*."""

    samples: list[tuple[CardAccount, ...]]
    node: str = NODE
    times: tuple[float, ...] = ()
    given: list[Answer] = field(default_factory=list)

    def __call__(self) -> Answer:
        number = len(self.given)
        at = self.times[min(number, len(self.times) - 1)] if self.times else 1000.0 + number
        self.given.append(Answer(at, self.node, "0" * 64, self.samples[min(number, len(self.samples) - 1)]))
        return self.given[-1]


@pytest.fixture
def stub():
    """A llama-swap with the locked files and, once it is loaded, with the locked command."""
    with serve(MODEL) as running:
        listed = {"id": MODEL, "meta": {"llamaswap": {"sha256": [one.sha256 for one in ENTRY.files]}}}
        running.acts["/v1/models"] = replies(200, {"data": [listed]})
        running.acts["/running"] = residents(COMMAND)
        body = completion("OK") | {"system_fingerprint": "b11549-0123abc"}
        running.acts[MODEL, "*"] = first_loads(replies(200, body))
        yield running


def residents(command):
    def act(exchange):
        states = exchange.stub.running.items()
        rows = [
            {"model": one, "state": state, "proxy": "http://127.0.0.1:5800", "cmd": command} for one, state in states
        ]
        exchange.reply_json(200, {"running": rows})

    return act


@pytest.fixture
def measure(stub, monkeypatch):
    """Measures the model of the stub with an exporter."""
    monkeypatch.setattr(in_cluster, "_PAUSE_S", 0.0)

    def run(exporter, *, limit_s=0.0):
        client = LlamaSwap(stub.root)
        served = ServedModel(client, MODEL, info=lambda _: None, options=["--context", "lab"])
        driver = NodeDriver(
            MODEL, "t4", POD, NODE, exporter, account="ACCOUNT", try_driver="TRY", again=served.again, limit_s=limit_s
        )
        model = seating_locks.intent()
        return ModelInCluster(client, served, driver, model, ENTRY).read(), served

    return run


def test_the_figure_is_that_of_the_first_sample_that_was_begun_after_the_largest_request(measure, stub):
    exporter = Exporter([accounts(), accounts(engine(6000)), accounts(engine(6500)), accounts(engine(6996))])
    (device, source, size, host), served = measure(exporter)
    assert (device, source, size, host) == ("Tesla T4", "nvidia-smi", 6996 * MIB, None)
    assert len(exporter.given) == 4
    assert stub.loads == [MODEL]
    assert len(stub.asked) == 2  # the first one, and the largest
    assert served.fingerprint == "b11549-0123abc"


def test_samples_that_are_no_later_than_the_largest_request_are_waited_out(measure):
    samples = [accounts(engine(size)) for size in (6000, 6000, 6000, 6001, 6002, 6996, 7000)]
    exporter = Exporter(samples, times=(1.0, 2.0, 3.0, 3.0, 2.5, 3.1))
    assert measure(exporter, limit_s=60.0)[0].gpu_bytes == 6996 * MIB
    assert len(exporter.given) == 6


def test_an_engine_that_the_exporter_does_not_know_yet_is_waited_for(measure):
    young = accounts(Holder(Kind.POD, "pod 1234", (7,), 6996 * MIB), certain=frozenset())
    exporter = Exporter([young, young, young, accounts(engine(6996))])
    assert measure(exporter, limit_s=60.0)[0].gpu_bytes == 6996 * MIB
    assert len(exporter.given) == 6


def test_a_resident_model_gets_the_largest_request_alone(measure, stub):
    stub.running[MODEL] = "ready"
    measure(Exporter([accounts(engine(6996))]))
    assert (stub.loads, len(stub.asked)) == ([], 1)


def refused(measure, exporter, kind=CannotRun):
    with pytest.raises(kind) as error:
        measure(exporter)
    return error.value.message, error.value.next_step


def test_a_sample_that_stays_as_old_as_the_load_is_named_with_its_time(measure):
    message, step = refused(measure, Exporter([accounts(engine(6996))], times=(1764081888.0,)))
    assert "no sample from after the largest request to chat" in message
    assert message.endswith("stayed that of 2025-11-25 14:44:48 UTC.")
    assert step == "ACCOUNT"


def test_without_a_figure_of_the_driver_nothing_is_loaded(measure, stub):
    silent = account.of(PROMISES, Reading(unknown="hanging", problem="nvidia-smi did not respond within 1 s."))
    message, step = refused(measure, Exporter([silent]))
    assert message == (
        "The exporter on the node n1 gets no figures from NVIDIA's driver: nvidia-smi did not respond within 1 s."
    )
    assert step == "TRY"
    assert stub.asked == []


def test_an_exporter_on_another_node_is_none_of_this_card_and_nothing_is_loaded(measure, stub):
    message, step = refused(measure, Exporter([accounts(engine(6996))], node="n2"))
    assert "No exporter reads the card of chat" in message
    assert "card_exporter = {}" in step
    assert stub.asked == []


def test_an_exporter_without_the_locked_card_is_named_with_what_it_has(measure, stub):
    others = tuple(replace(one, name="a2") for one in accounts(engine(6996)))
    message, step = refused(measure, Exporter([others]))
    assert message.endswith("it has: a2.")
    assert step == "corral apply"
    assert stub.asked == []


def test_the_sum_of_two_engines_is_no_figure(measure):
    two = accounts(engine(13992, 7, 8, pods=("llama-cpp/llama-swap-0", "llama-cpp/llama-swap-1")))
    message, step = refused(measure, Exporter([two]))
    assert "2 engines of chat (pids 7, 8, in llama-cpp/llama-swap-0 and llama-cpp/llama-swap-1)" in message
    assert "Wait until one is left" in step


def test_the_engine_of_another_pod_is_not_the_one_that_was_asked(measure):
    message, step = refused(measure, Exporter([accounts(engine(6996, pods=("llama-cpp/llama-swap-old",)))]))
    assert "is in llama-cpp/llama-swap-old, not in llama-cpp/llama-swap-0" in message
    assert step == "corral measure chat --context lab"


def test_an_engine_that_was_replaced_during_the_measurement_is_not_measured(measure):
    samples = [accounts(), accounts(engine(6996, 7)), accounts(engine(6996, 7)), accounts(engine(6000, 8))]
    message, step = refused(measure, Exporter(samples))
    assert "was loaded anew while it was measured (pid 7, then 8)" in message
    assert step == "corral measure chat --context lab"


@pytest.mark.parametrize("mib", [None, 0, -5])
def test_an_amount_that_the_driver_does_not_report_is_never_a_number(measure, mib):
    message, step = refused(measure, Exporter([accounts(engine(mib))]))
    assert "reports no amount that the engine of chat (pid 7) holds" in message
    assert step == "TRY"


def test_an_engine_that_is_not_on_the_card_takes_nothing_of_it_that_could_be_measured(measure, stub):
    message, _ = refused(measure, Exporter([accounts()]))
    assert "lists no process of chat on the card t4" in message
    assert len(stub.asked) == 1  # no largest request


def test_an_engine_whose_pod_is_not_known_is_unknown_with_the_reason_of_the_exporter(measure):
    doubtful = accounts(
        Holder(Kind.POD, "pod 1234", (7,), 6996 * MIB), certain=frozenset(), problem="The list of pods is old."
    )
    message, step = refused(measure, Exporter([doubtful]))
    assert message.endswith("is the engine of chat is not known. The list of pods is old.")
    assert step == "ACCOUNT"


def test_an_exporter_of_another_lock_does_not_know_the_model(measure):
    others = tuple(replace(one, rows=(Row("model", "other", held=1, pids=(7,)),)) for one in accounts())
    message, step = refused(measure, Exporter([others]))
    assert "does not know chat: it has another lock" in message
    assert step == "corral apply"


def test_another_command_line_than_the_locked_one_is_not_measured(measure, stub):
    stub.acts["/running"] = residents(COMMAND.replace("4096", "8192"))
    exporter = Exporter([accounts(engine(6996))])
    message, step = refused(measure, exporter, Refused)
    assert "another command line" in message
    assert "corral apply" in step
    assert len(stub.asked) == 1  # no largest request


def test_an_engine_with_another_command_line_in_the_place_of_the_locked_one_is_not_measured(measure, stub):
    def after_the_largest(exchange):
        command = COMMAND if len(exchange.stub.asked) < 2 else COMMAND.replace("4096", "8192")
        residents(command)(exchange)

    stub.acts["/running"] = after_the_largest
    assert "another command line" in refused(measure, Exporter([accounts(engine(6996))]), Refused)[0]


def test_other_files_than_the_locked_ones_are_not_measured_and_nothing_is_loaded(measure, stub):
    listed = {"id": MODEL, "meta": {"llamaswap": {"sha256": ["f" * 64]}}}
    stub.acts["/v1/models"] = replies(200, {"data": [listed]})
    assert "other files" in refused(measure, Exporter([accounts(engine(6996))]), Refused)[0]
    assert stub.asked == []


def test_a_load_that_fails_is_reported_with_the_command_for_that_cluster(measure, stub):
    stub.acts[MODEL, "*"] = replies(500, {"error": "upstream command exited prematurely"})
    message, step = refused(measure, Exporter([accounts()]), Failed)
    assert "chat could not be loaded (HTTP 500)" in message
    assert step == "corral why chat --context lab"


def test_an_answer_without_end_is_cut(measure, stub, monkeypatch):
    monkeypatch.setattr("corral.measure.live.MAX_REPLY_BYTES", 100)
    stub.acts[MODEL, "*"] = first_loads(replies(200, b" " * 101))
    assert "is larger than" in refused(measure, Exporter([accounts()]), Failed)[0]
