"""What a scrape gives: figures that are known, a series of its own for what is not, and a bounded number of them."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from corral.door import changes as door_changes
from corral.exporter import account
from corral.exporter.account import MOST_FOREIGN, OTHER, CardPromise, ModelPromise
from corral.exporter.driver import Card
from corral.exporter.errors import LlamaSwapUnknown
from corral.exporter.excesses import Excesses
from corral.exporter.holders import CardReading, Holder, Kind, Reading
from corral.exporter.llama_swap import CAUSES, Change, LlamaSwap, Request, Resident
from corral.exporter.metric_table import METRICS
from corral.exporter.metrics import Exporter, Families, Loaded, Served
from corral.exporter.probes import Result
from corral.exporter.yields import Rule, Yielded, Yields

MIB = 1 << 20
PROMISES = {
    "t4": CardPromise(
        15360 * MIB,
        512 * MIB,
        {"immich-ml": 2100 * MIB},
        {"qwen3-8b": ModelPromise("main", 7030 * MIB, 7030 * MIB, None)},
    )
}
T4 = Card("GPU-1", "Tesla T4", 15360 * MIB, 4634 * MIB)


def scrape(
    reading: Reading, since: Excesses | None = None, **options
) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Name and labels of each series, and its value."""
    registry = CollectorRegistry()
    registry.register(
        Exporter(
            seal="0" * 64,
            models=["qwen3-8b"],
            accounts=lambda: (since or Excesses()).dated(account.of(PROMISES, reading)),
            find_llama_swap=lambda: None,
            **options,
        )
    )
    text = generate_latest(registry).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def reading(holders):
    return Reading((CardReading(T4, holders),), certain=frozenset({Kind.MODEL}))


def value(found, name, **labels):
    return found.get((name, frozenset(labels.items())))


def request(number, model="qwen3-8b", **changes):
    one = Request(number, model, status=200, seconds=2.0, prompt_s=0.3, prompt_tokens=100, output_tokens=7)
    return replace(one, **changes)


def served(*lists):
    """The series after a first reading of an empty list, and then of each of *lists*."""
    one = Served(["qwen3-8b"])
    for listed in ((), *lists):
        one.take(tuple(listed))
    families = Families()
    one.write(families)
    return {
        (sample.name, *sample.labels.values()): sample.value for family in families.all() for sample in family.samples
    }


def test_the_ballooned_tenant_is_a_series_beside_its_neighbours_promise():
    found = scrape(reading((Holder(Kind.PROCESS, "python3", (1,), 10726 * MIB),)))
    assert value(found, "corral_held_bytes", card="t4", kind="process", holder="python3") == 10726 * MIB
    assert value(found, "corral_promised_bytes", card="t4", kind="tenant", holder="immich-ml") == 2100 * MIB
    assert value(found, "corral_others_held_bytes", card="t4") == 10726 * MIB
    assert value(found, "corral_others_promised_bytes", card="t4") == 2612 * MIB
    assert value(found, "corral_model_short_bytes", card="t4", model="qwen3-8b") == (7030 - 4634) * MIB


def test_a_tenant_over_its_budget_has_the_time_of_the_first_reading_that_shows_it_until_one_shows_the_end():
    times = iter((100.0, 115.0, 130.0, 145.0))
    since = Excesses(clock=lambda: next(times))
    over = reading((Holder(Kind.TENANT, "immich-ml", (1,), 10726 * MIB),))
    name, labels = (
        "corral_over_promise_since_timestamp_seconds",
        {"card": "t4", "kind": "tenant", "holder": "immich-ml"},
    )
    readings = (over, Reading(unknown="hanging"), over, reading((Holder(Kind.TENANT, "immich-ml", (1,), MIB),)))
    assert [value(scrape(one, since), name, **labels) for one in readings] == [100.0, None, 100.0, None]


def test_without_the_driver_no_series_of_what_is_held_exists_and_the_reason_does():
    found = scrape(Reading(unknown="hanging", problem="a test"))
    names = {name for name, _ in found}
    assert value(found, "corral_unknown", card="t4", reason="hanging") == 1
    absent = {"corral_held_bytes", "corral_card_used_bytes", "corral_card_free_bytes", "corral_others_held_bytes"}
    assert names & (absent | {"corral_model_short_bytes"}) == set()
    assert value(found, "corral_held_unknown", card="t4", kind="model", holder="qwen3-8b") == 1
    assert value(found, "corral_promised_bytes", card="t4", kind="model", holder="qwen3-8b") == 7030 * MIB


def test_a_process_without_a_figure_is_unknown_and_not_0():
    found = scrape(reading((Holder(Kind.HIDDEN, "pid 7", (7,), None),)))
    labels = {"card": "t4", "kind": "hidden", "holder": "pid 7"}
    assert value(found, "corral_held_unknown", **labels) == 1
    assert value(found, "corral_held_bytes", **labels) is None


def test_without_llama_swap_it_is_down_and_the_card_is_known_all_the_same():
    found = scrape(reading(()))
    assert value(found, "corral_llama_swap_up") == 0
    assert value(found, "corral_card_free_bytes", card="t4") == 4634 * MIB


def test_a_thousand_pods_are_as_many_series_as_the_largest_and_the_rest():
    pods = tuple(Holder(Kind.POD, f"pod {at}", (at,), (2000 - at) * MIB) for at in range(1000))
    found = scrape(reading(pods))
    held = {
        labels: size
        for (name, labels), size in found.items()
        if name == "corral_held_bytes" and ("kind", "pod") in labels
    }
    assert len(held) == MOST_FOREIGN + 1
    assert sum(held.values()) == sum(pod.held for pod in pods)
    assert value(found, "corral_held_bytes", card="t4", kind="pod", holder=OTHER) == sum(
        pod.held for pod in pods[MOST_FOREIGN:]
    )


def test_what_is_left_out_is_unknown_where_one_of_it_is():
    pods = [Holder(Kind.POD, f"pod {at}", (at,), 1) for at in range(MOST_FOREIGN)]
    rest = [Holder(Kind.POD, "a", (1,), 5), Holder(Kind.POD, "b", (2,), None)]
    found = scrape(reading((*pods, *rest)))
    assert value(found, "corral_held_unknown", card="t4", kind="pod", holder=OTHER) == 1


def test_a_request_counts_once_however_often_it_is_listed():
    found = served([request(1), request(2)], [request(1), request(2), request(3)], [])
    assert found["corral_requests_total", "qwen3-8b", "200"] == 3
    assert found["corral_output_tokens_total", "qwen3-8b"] == 21
    assert found["corral_request_duration_seconds_count", "qwen3-8b"] == 3
    assert found["corral_request_duration_seconds_sum", "qwen3-8b"] == 6.0
    assert found["corral_missed_requests_total",] == 0


def test_a_probe_without_an_answer_is_a_failure_and_has_no_time():
    class Client:
        def residents(self):
            states = {"qwen3-8b": "ready", "strange": "ready", "again": "starting"}
            return tuple(Resident(model, state, "") for model, state in states.items())

        def requests(self):
            return ()

        changes = requests

        def engine(self, _resident):
            return {}

    registry = CollectorRegistry()
    # Two of them are not loaded any more; the last round was before that.
    results = {"qwen3-8b": Result(0.5, 100.0), "strange": Result(None, 200.0)}
    results |= {model: Result(None, 300.0) for model in ("again", "unloaded")}
    registry.register(
        Exporter(seal="", models=["qwen3-8b"], accounts=tuple, find_llama_swap=Client, probes=lambda: results)
    )
    families = text_string_to_metric_families(generate_latest(registry).decode())
    found = {(one.name, one.labels.get("model")): one.value for family in families for one in family.samples}
    assert (found["corral_probe_success", "qwen3-8b"], found["corral_probe_seconds", "qwen3-8b"]) == (1, 0.5)
    assert (found["corral_probe_success", OTHER], found["corral_probe_timestamp_seconds", OTHER]) == (0, 200)
    assert ("corral_probe_seconds", OTHER) not in found
    assert 300.0 not in found.values()


def test_models_that_the_lock_does_not_have_share_one_series_of_each_kind():
    """Prometheus refuses an answer that has a series twice."""
    engines = {"a": None, "b": {"requests_processing": 2.0}, "c": {"requests_processing": 3.0}}

    class Client:
        def residents(self):
            return tuple(Resident(model, "ready", "") for model in engines)

        def requests(self):
            return ()

        changes = requests

        def engine(self, resident):
            if engines[resident.model] is None:
                raise LlamaSwapUnknown("a test")
            return engines[resident.model]

    results = {"a": Result(0.5, 100.0), "b": Result(None, 200.0), "c": Result(0.7, 300.0)}
    exporter = Exporter(seal="", models=(), accounts=tuple, find_llama_swap=Client, probes=lambda: results)
    samples = [sample for family in exporter.collect() for sample in family.samples]
    found = [(one.name, *one.labels.values(), one.value) for one in samples if one.labels.get("model") == OTHER]
    assert sorted(found) == [
        ("corral_engine_requests", OTHER, "busy", 5.0),
        ("corral_engine_up", OTHER, 0),
        ("corral_model_state", OTHER, "ready", 1),
        ("corral_probe_success", OTHER, 0),
        ("corral_probe_timestamp_seconds", OTHER, 200.0),
    ]


def test_a_load_that_failed_is_counted_from_0_on_by_its_reason():
    before, after = served([]), served([request(1, status=500, load_failure="timeout"), request(2, status=500)])
    assert {before["corral_failed_loads_total", "qwen3-8b", one] for one in ("timeout", "process-ended")} == {0}
    assert after["corral_failed_loads_total", "qwen3-8b", "timeout"] == 1
    assert after["corral_failed_loads_total", "qwen3-8b", "process-ended"] == 0


def test_how_often_a_model_has_yielded_is_counted_from_0_on_by_its_reason():
    yields = Yields({"t4": Rule(1, 60)}, promises=PROMISES, accounts=tuple, find_door=lambda: None)
    yields._add(Yielded("t4", "qwen3-8b", "tenant-waits", "immich-ml", 1, 2, 61.0))
    found = scrape(Reading(unknown="hanging"), yields=yields.counts)
    labels = {"card": "t4", "model": "qwen3-8b"}
    assert value(found, "corral_yields_total", reason="tenant-waits", **labels) == 1
    assert value(found, "corral_yields_total", reason="free-below-floor", **labels) == 0


def test_requests_before_the_exporter_do_not_count():
    """A restart of it must not look like a burst."""
    one = Served(["qwen3-8b"])
    one.take((request(1), request(2)))
    families = Families()
    one.write(families)
    counted = {family.name: [one.value for one in family.samples] for family in families.all()}
    assert counted == {"corral_failed_loads": [0, 0], "corral_missed_requests": [0], "corral_requests": [0]}
    assert {sample.value for family in families.all() for sample in family.samples} == {0}


def test_the_buckets_of_a_histogram_add_up():
    found = served([request(1, seconds=0.25), request(2, seconds=4.0), request(3, seconds=1000.0)])
    buckets = {
        labels[1]: count for (name, *labels), count in found.items() if name == "corral_request_duration_seconds_bucket"
    }
    assert (buckets["0.25"], buckets["2.5"], buckets["5.0"], buckets["300.0"], buckets["+Inf"]) == (1, 1, 2, 2, 3)


@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize("empty", [True, False], ids=["read-empty", "between-two-scrapes"])
def test_a_llama_swap_that_begins_again_is_counted_on(count, empty):
    before = [request(at, at="before") for at in range(1, 4)]
    after = [request(at, at="after") for at in range(1, count + 1)]
    found = served(before, *([[]] if empty else []), after)
    assert found["corral_requests_total", "qwen3-8b", "200"] == 3 + count
    assert found["corral_missed_requests_total",] == 0


def test_while_llama_swap_is_unknown_nothing_is_counted_and_nothing_forgotten():
    """An exporter that starts before its key is there, or whose llama-swap is away for a moment."""

    class Client:
        def residents(self):
            return ()

        def requests(self):
            return (request(1, at="a"), request(2, at="b"))

        def changes(self):
            raise LlamaSwapUnknown("a test")

    clients = iter((None, Client(), None, Client()))
    exporter = Exporter(seal="", models=["qwen3-8b"], accounts=tuple, find_llama_swap=lambda: next(clients))
    for _ in range(4):
        counted = {family.name: [one.value for one in family.samples] for family in exporter.collect()}
    assert counted["corral_requests"] == [0]
    assert not {"corral_loads", "corral_unloads", "corral_missed_changes"} & counted.keys()


def test_requests_that_left_the_list_unread_are_counted_as_missed():
    found = served([request(1)], [request(11)])
    assert found["corral_missed_requests_total",] == 9
    assert found["corral_requests_total", "qwen3-8b", "200"] == 2


def test_a_model_that_the_lock_does_not_have_is_no_label():
    found = served([request(at, model=f"{at}") for at in range(1, 1000)])
    counted = {labels[0] for (name, *labels), value in found.items() if name == "corral_requests_total" and value}
    assert counted == {OTHER}


def test_a_refused_request_is_no_duration():
    found = served([request(1, status=429, prompt_s=None)])
    assert found["corral_requests_total", "qwen3-8b", "429"] == 1
    assert not [name for name, *_ in found if name.startswith("corral_request_duration")]


def loaded(*lists):
    """The series of ``Loaded`` after a first reading of an empty list, and then of each of *lists*."""
    one = Loaded(["qwen3-8b"])
    for listed in ((), *lists):
        one.take(tuple(listed))
    families = Families()
    one.write(families)
    return {
        (sample.name, *sample.labels.values()): sample.value for family in families.all() for sample in family.samples
    }


def test_loads_and_unloads_are_counted_from_0_on_and_those_of_strangers_together():
    before = loaded()
    assert before["corral_loads_total", "qwen3-8b"] == 0
    assert {before["corral_unloads_total", "qwen3-8b", cause] for cause in CAUSES} == {0}
    first = Change(1, 10.0, "qwen3-8b", 2.0, "cold")
    found = loaded([first], [first, Change(2, 11.0, "qwen3-8b", cause="idle"), Change(3, 12.0, "strange", None)])
    assert found["corral_loads_total", "qwen3-8b"] == found["corral_loads_total", OTHER] == 1
    assert found["corral_unloads_total", "qwen3-8b", "idle"] == 1
    counts = {key: value for key, value in found.items() if key[0] == "corral_load_seconds_count"}
    assert counts == {("corral_load_seconds_count", "qwen3-8b", "cold"): 1}  # of the other, the seconds are unknown
    assert found["corral_load_seconds_sum", "qwen3-8b", "cold"] == 2


def test_a_guard_that_begins_again_is_counted_on_and_what_was_not_read_in_time_is_missed():
    found = loaded([Change(1, 10.0, "qwen3-8b")], [Change(1, 20.0, "qwen3-8b")], [Change(5, 30.0, "qwen3-8b")])
    assert found["corral_loads_total", "qwen3-8b"] == 3
    assert found["corral_missed_changes_total",] == 3


def followed(*listed):
    return LlamaSwap("http://127.0.0.1:1", {}, followed=lambda: [asdict(one) for one in listed])


@pytest.mark.parametrize(
    ("cached", "page_cache"),
    [
        (1.0, "warm"),
        (0.9, "warm"),
        (0.89, "partial"),
        (0.1, "partial"),
        (0.09, "cold"),
        (0.0, "cold"),
        (None, "unknown"),
    ],
)
def test_the_share_in_the_page_cache_has_a_name(cached, page_cache):
    (found,) = followed(door_changes.Change(1, 10.0, "a", "loaded", seconds=2.0, cached=cached)).changes()
    assert found == Change(1, 10.0, "a", 2.0, page_cache)


def test_a_cause_of_the_guard_is_one_of_the_exporter_and_no_other_is_believed():
    assert set(get_args(door_changes.Cause)) == set(CAUSES)
    assert followed(door_changes.Change(1, 10.0, "a", "unloaded", cause="died")).changes()[0].cause == "died"
    for one in (door_changes.Change(1, 10.0, "a", "unloaded", cause="bored"), door_changes.Change(1, 1.0, "a", "lost")):
        with pytest.raises(LlamaSwapUnknown):
            followed(one).changes()


def test_what_is_not_followed_is_unknown():
    with pytest.raises(LlamaSwapUnknown):
        LlamaSwap("http://127.0.0.1:1", {}).changes()


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_metric_has_a_conventional_name_and_a_sentence(metric):
    assert re.fullmatch(r"corral(_[a-z]+)+", metric.name)
    assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket", "_mib", "_ms"))
    assert metric.help.endswith(".")
    assert len(set(metric.labels)) == len(metric.labels)
    assert not {"le", "job", "instance"} & set(metric.labels)
