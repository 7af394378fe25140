"""`corral exporter` beside a real stack: real llama-swap, real engines, a real scrape over HTTP."""

from __future__ import annotations

import itertools
import json
import os
import signal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from corral import keys, paths
from corral.agent import store_metrics
from corral.card import local
from corral.cli import exporter as command
from corral.cli.main import main
from corral.engine import stack
from corral.exporter import llama_swap
from corral.exporter.errors import LlamaSwapUnknown
from corral.exporter.llama_swap import LlamaSwap
from corral.exporter.metric_table import METRICS
from corral.exporter.probes import Probes
from corral.exporter.yields import Yields
from corral.keys import LocalKeys
from corral.lock import lock as locks
from tests.support.demo_stack import demo_stack, exporter_beside, pid_of
from tests.support.engine_process import chat, get, stop, wait_for
from tests.support.fake_nvidia_smi import UUID, install

pytestmark = [pytest.mark.timeout(240), pytest.mark.long]
SCRAPES = 200
TTL_S = 4


SMALL = "prompt_tokens: 1000, answer_tokens: 100"
BUDGETS = f"""
latency:
- {{consumer: quick, {SMALL}, p95_seconds: 300}}
- {{consumer: slow, {SMALL}, p95_seconds: 0.000001}}
- {{consumer: tiny, prompt_tokens: 1, answer_tokens: 100, p95_seconds: 300}}
- {{consumer: warm, {SMALL}, p95_seconds: 300, cold: excluded}}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A stack: tiny-text is unloaded after TTL_S idle seconds, tiny-vision has latency budgets, the card yields."""
    more = {"tiny-text": f"ttl: {TTL_S}\n", "tiny-vision": BUDGETS}
    rule = "yield: {floor_mib: 1000, idle_seconds: 1}\n"
    with demo_stack(tmp_path_factory.mktemp("exporter"), more=more, card=rule) as present:
        yield present


@pytest.fixture
def exporter(running, monkeypatch):
    """The address of an exporter beside that stack."""
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    with exporter_beside() as address:
        yield f"{address}/metrics"


def test_its_page_is_open_while_the_stack_requires_no_key_whatever_keys_there_are(running, monkeypatch):
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    store = LocalKeys(running[1])
    keys.add(store, "photos")  # for a stack with keys, before or after
    try:
        with exporter_beside() as address:
            assert get(f"{address}/")[0] == 200
            assert "the operator's key" not in get(f"{address}/card.json")[1]
    finally:
        store.file.unlink()


def scrape(address):
    """Each series by its name and the values of its labels, in the order of their names."""
    status, text = get(address)
    assert status == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape_with_llama_swap(address):
    """The first scrape that llama-swap has answered in time for."""
    return wait_for(lambda: (found := scrape(address))["corral_llama_swap_up",] == 1 and found, what="llama-swap")


def test_two_hundred_scrapes_load_no_model_and_keep_none_loaded(running, exporter):
    client = stack.running(paths.state_dir()).client()
    others = {one.model for one in client.residents()} - {"tiny-text"}
    exchanges = len(client.exchanges())
    chat(stack.running(paths.state_dir()).endpoint, "Hello.", model="tiny-text")
    wait_for(lambda: len(client.exchanges()) == exchanges + 1, what="the request in llama-swap's list")

    # If a scrape kept the model loaded, it would never be unloaded.
    wait_for(lambda: not is_ready(scrape(exporter)), what="the end of the model's ttl")
    for _ in range(SCRAPES):
        found = scrape_with_llama_swap(exporter)

    assert not is_ready(found)
    assert {one.model for one in client.residents()} == others
    assert len(client.exchanges()) == exchanges + 1


def is_ready(found) -> bool:
    return found["corral_llama_swap_up",] == 0 or ("corral_model_state", "tiny-text", "ready") in found


def test_requests_states_and_durations_are_those_of_the_stack(running, exporter):
    present = stack.running(paths.state_dir())
    assert ("corral_requests_total", "200", "tiny-text") not in scrape_with_llama_swap(exporter)
    chat(present.endpoint, "Hello.", model="tiny-text")
    found = wait_for(
        lambda: (one := scrape(exporter)).get(("corral_requests_total", "200", "tiny-text"), 0) and one,
        what="the request in llama-swap's list",
    )
    assert found["corral_requests_total", "200", "tiny-text"] == 1
    assert found["corral_request_duration_seconds_count", "tiny-text"] == 1
    assert found["corral_output_tokens_total", "tiny-text"] > 0
    assert found["corral_lock_info", json.loads((running[0] / "lock.json").read_text())["seal"]] == 1
    if ("corral_model_state", "tiny-text", "ready") in found:  # it may have been unloaded since
        assert found["corral_engine_up", "tiny-text"] == 1
        assert found["corral_engine_requests", "tiny-text", "busy"] == 0
    names = {name for name, *_ in found}
    known = {one.series for one in METRICS.values()} | {
        f"{one.name}{suffix}" for one in METRICS.values() for suffix in ("_bucket", "_sum", "_count")
    }
    of_the_store = {one.name for one in store_metrics.METRICS}
    assert names <= known | of_the_store


def test_a_load_is_counted_with_its_seconds_and_its_end_with_the_cause(running, exporter):
    present = stack.running(paths.state_dir())
    for one in present.client().residents():
        present.client().unload(one.model)
    series = ("corral_loads_total", "tiny-text"), ("corral_unloads_total", "idle", "tiny-text")
    wait_for(lambda: series[0] in scrape(exporter), what="the exporter follows llama-swap")
    before = scrape(exporter)
    chat(present.endpoint, "Hello.", model="tiny-text")
    found = wait_for(
        lambda: (one := scrape(exporter)).get(series[1]) == before[series[1]] + 1 and one, what="the end of its ttl"
    )
    assert found[series[0]] == before[series[0]] + 1
    counts = [value for key, value in found.items() if key[0] == "corral_load_seconds_count" and "tiny-text" in key]
    assert sum(counts) == found[series[0]]


def test_the_store_has_every_model_of_the_lock(running, exporter):
    found = wait_for(lambda: (one := scrape(exporter))["corral_store_up", "local"] == 1 and one, what="the store")
    models = json.loads((running[0] / "lock.json").read_text())["models"]
    assert models
    for model in models:
        assert found["corral_store_model_state", model, "ready", "local"] == 1
        cached, size = (
            found[name, model, "local"] for name in ("corral_store_model_cached_bytes", "corral_store_model_bytes")
        )
        assert 0 < cached <= size


def test_a_request_counts_for_the_budgets_that_it_fits_and_where_it_is_cold_for_those_that_allow_it(running, exporter):
    present = stack.running(paths.state_dir())
    name, model = "corral_latency_budget_requests_total", "tiny-vision"

    def counts(found):
        return {one: found[name, "laptop", one, model] for one in ("quick", "slow", "tiny", "warm")}

    present.client().unload(model)
    assert set(counts(scrape_with_llama_swap(exporter)).values()) == {0}
    chat(present.endpoint, "red", "Hello.", model=model)  # which loads it
    found = wait_for(lambda: counts(one := scrape(exporter))["quick"] and one, what="the request in llama-swap's list")
    assert counts(found) == {"quick": 1, "slow": 1, "tiny": 0, "warm": 0}
    slow = {one: found["corral_latency_budget_slow_requests_total", "laptop", one, model] for one in ("quick", "slow")}
    assert slow == {"quick": 0, "slow": 1}


def test_a_warm_request_counts_for_a_budget_without_cold_ones(running, exporter):
    present = stack.running(paths.state_dir())
    warm = ("corral_latency_budget_requests_total", "laptop", "warm", "tiny-vision")

    def is_counted():
        chat(present.endpoint, "red", "Hello.", model="tiny-vision")
        return scrape(exporter)[warm]

    wait_for(is_counted, what="a request that is known to be warm")


def test_the_timeline_has_a_load_that_the_exporter_recorded(running, exporter, capsys):
    chat(stack.running(paths.state_dir()).endpoint, "Hello.", model="tiny-vision")

    def printed():
        main(["timeline", "--catalog", str(running[0]), "--since", "10m"])
        return capsys.readouterr().out

    text = wait_for(lambda: "tiny-vision is loaded" in (found := printed()) and found, what="the next sample")
    assert "the exporter has started" in text
    assert "what is held on laptop is unknown: There is no nvidia-smi on PATH." in text


def test_an_engine_that_is_stopped_is_down_and_the_scrape_has_all_the_rest(running, exporter):
    present = stack.running(paths.state_dir())
    chat(present.endpoint, "Hello.", model="tiny-vision")
    engine = pid_of("tiny-vision")
    stop(engine)
    try:
        found = scrape_with_llama_swap(exporter)
    finally:
        os.kill(engine, signal.SIGCONT)
    assert found["corral_engine_up", "tiny-vision"] == 0
    assert found["corral_card_memory_bytes", "laptop"] == 4096 << 20


def test_a_probe_is_a_real_answer_that_llama_swap_does_not_notice(running, monkeypatch):
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    present = stack.running(paths.state_dir())
    chat(present.endpoint, "Hello.", model="tiny-vision")
    client = present.client()
    exchanges = wait_for(lambda: len(client.exchanges()), what="the request in llama-swap's list")
    probes = Probes(lambda: LlamaSwap(client.endpoint, client.headers))

    probes.run()

    assert probes.results["tiny-vision"].seconds > 0
    assert len(client.exchanges()) == exchanges


def test_a_model_that_serves_others_is_not_probed_and_one_that_is_stopped_fails(running, monkeypatch):
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    monkeypatch.setattr(llama_swap, "PROBE_LIMIT_S", 1.0)
    monkeypatch.setattr(llama_swap, "LIMIT_S", 20.0)
    present = stack.running(paths.state_dir())
    chat(present.endpoint, "Hello.", model="tiny-vision")
    client = LlamaSwap(present.client().endpoint, present.client().headers)
    (resident,) = [one for one in client.residents() if one.model == "tiny-vision"]

    # What the engine reports just before it is stopped: it is idle.
    figures = client.engine(resident)
    monkeypatch.setattr(LlamaSwap, "engine", lambda _self, _resident: figures)
    stop(pid_of("tiny-vision"))
    try:
        with pytest.raises(LlamaSwapUnknown, match="The engine of tiny-vision gave no answer"):
            client.probe(resident)
    finally:
        os.kill(pid_of("tiny-vision"), signal.SIGCONT)
    monkeypatch.setattr(LlamaSwap, "engine", lambda _self, _resident: figures | {"requests_processing": 1.0})
    assert client.probe(resident) is None


def test_an_idle_model_yields_through_the_door_of_the_stack_while_the_driver_has_too_little(
    running, monkeypatch, tmp_path
):
    catalog, state = running
    monkeypatch.setenv("CORRAL_STATE", str(state))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    endpoint, lock = stack.running(state).endpoint, locks.require(catalog)
    chat(endpoint, "Hello.", model="tiny-vision")
    hours = itertools.count()

    def driver(free):
        install(
            tmp_path,
            f"{UUID}, Tesla T4, {pid_of('tiny-vision')}, 158, llama-server\n",
            cards=f"{UUID}, 4096, {free}, Tesla T4\n",
        )

    yields = Yields(
        local.rules(lock),
        promises=local.promises(lock),
        accounts=lambda: local.read(lock, state),
        find_door=lambda: command._door(state),
        clock=lambda: next(hours) * 3600.0,  # an hour passes at each look
    )
    for free in (1000, 999):
        assert yields.take() == ()
        driver(free)
        yields.run()

    (one,) = yields.take()
    assert (one.card, one.model, one.reason, one.free) == ("laptop", "tiny-vision", "free-below-floor", 999 << 20)
    assert one.idle_s >= 3600
    assert "tiny-vision" not in [one.model for one in stack.running(state).client().residents()]
    chat(endpoint, "Hello.", model="tiny-vision")


def test_a_port_that_is_taken_is_refused_with_the_next_command(running, exporter, capsys):
    port = exporter.split(":")[2].partition("/")[0]
    assert main(["exporter", "--port", port]) == 3
    assert "corral exporter --port N" in capsys.readouterr().err
