"""Which alerts fire, and which do not, by promtool: the module's rules with their real durations.

The series are what the exporter serves for accounts that are computed as always; only time is not real.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import subprocess
from collections import defaultdict
from dataclasses import replace

import pytest
import yaml

from corral.drill.alert_rules import render_rules
from corral.drill.monitoring import installed, monitoring
from corral.exporter import account
from corral.exporter.account import CardPromise, ModelPromise
from corral.exporter.alertmanager import Alert, Alertmanager
from corral.exporter.driver import Card
from corral.exporter.errors import AlertsUnknown
from corral.exporter.holders import CardReading, Holder, Kind, Reading
from corral.exporter.metrics import Exporter
from tests.support.cluster.pods import eventually
from tests.support.engine_process import get, post

MIB = 1 << 20
TICK_S = 15
SEAL = "0" * 64
SEATS = {"chat": 6996, "vision": 5300, "embed": 900}
GROUPS = {"chat": "main", "vision": "main", "embed": "side"}
PROMISE = CardPromise(
    15360 * MIB,
    512 * MIB,
    {"immich-ml": 2100 * MIB, "frigate": 2300 * MIB},
    {name: ModelPromise(GROUPS[name], mib * MIB, mib * MIB, None) for name, mib in SEATS.items()},
)
CERTAIN = frozenset({Kind.MODEL, Kind.TENANT})
PROMISED_MIB = {name: size // MIB for name, size in PROMISE.tenants.items()}
QUIET = {"immich-ml": 2000, "frigate": 2200}


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    """The module's rules and inhibit rules, as YAML."""
    return render_rules(["t4"], tmp_path_factory.mktemp("alerts") / "module", SEAL, ["llama-cpp"])


@pytest.fixture(scope="module")
def rules(pack, tmp_path_factory):
    """The rules as a file."""
    file = tmp_path_factory.mktemp("rules") / "rules.yml"
    file.write_text(pack[0])
    return file


def reading(tenants=QUIET, models=(), *, free=None, others=(), certain=CERTAIN):
    """A reading where *tenants* and *others* hold so many MiB, and *models* their seats; *free* MiB: what is left."""
    held = {(Kind.TENANT, name): mib for name, mib in tenants.items()}
    held |= {(Kind.MODEL, name): SEATS[name] for name in models}
    held |= {(Kind.POD, name): mib for name, mib in others}
    holders = tuple(Holder(kind, name, (1,), None if mib is None else mib * MIB) for (kind, name), mib in held.items())
    free = 15360 - 300 - sum(mib or 0 for mib in held.values()) if free is None else free
    return Reading((CardReading(Card("GPU-1", "Tesla T4", 15360 * MIB, free * MIB), holders),), certain=certain)


def none_at(times):
    """No alert at any of *times*."""
    return {at: {} for at in times}


STORE_UP = {"series": 'corral_store_up{store="llama-cpp"}', "values": "1x240"}
SILENT = Reading(unknown="hanging", problem="a test")


def series_of(timeline):
    """promtool's input for a *timeline* of readings, TICK_S apart; None is an exporter that does not answer."""
    found = defaultdict(lambda: ["_"] * len(timeline))
    now = []
    exporter = Exporter(
        seal=SEAL, models=SEATS, accounts=lambda: account.of({"t4": PROMISE}, now[-1]), find_llama_swap=None
    )
    for at, one in enumerate(timeline):
        if one is None:
            continue
        now.append(one)
        for family in exporter.collect():
            for sample in family.samples:
                labels = ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}"][at] = f"{sample.value:.0f}"
    for values in found.values():  # Prometheus marks what an answer no longer has as stale
        for at in range(1, len(values)):
            if values[at] == "_" and values[at - 1] not in ("_", "stale"):
                values[at] = "stale"
    return [{"series": name, "values": " ".join(values)} for name, values in found.items()]


@pytest.fixture
def alerts(rules, tmp_path):
    """Checks the alerts over a timeline: {seconds: {alert: [labels beside severity]}}; no other alert may fire then."""

    def check(timeline, expected, *more):
        reports_a_store = any(one["series"].startswith("corral_store_up") for one in more)
        promtool(tmp_path, _document(rules, timeline, expected, more if reports_a_store else (STORE_UP, *more)))

    return check


def promtool(folder, document):
    """The tests of *document* pass."""
    (folder / "tests.yml").write_text(json.dumps(document))
    done = subprocess.run(
        ["promtool", "test", "rules", folder / "tests.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"[:6000]


def _document(rules, timeline, expected, more):
    pack = {rule["alert"]: rule for rule in yaml.safe_load(rules.read_text())["groups"][0]["rules"]}
    assert len(pack) == 18
    return {
        "rule_files": [str(rules)],
        "evaluation_interval": f"{TICK_S}s",
        "tests": [
            {
                "interval": f"{TICK_S}s",
                "input_series": [*series_of(timeline), *more],
                "alert_rule_test": [
                    {
                        "eval_time": f"{at}s",
                        "alertname": name,
                        "exp_alerts": [
                            {"exp_labels": pack[name]["labels"] | one[0], "exp_annotations": _filled(pack[name], one)}
                            for one in firing.get(name, ())
                        ],
                    }
                    for at, firing in expected.items()
                    for name in pack
                ],
            }
        ],
    }


def _filled(rule, one):
    """The annotations of *rule* for labels and a value in words."""
    labels, value = one
    words = {f"{{{{ $labels.{name} }}}}": text for name, text in labels.items()} | {
        "{{ $value | humanize1024 }}": value,
        "{{ $value | humanizePercentage }}": value,
    }
    known = "|".join(map(re.escape, words))
    return {
        key: re.sub(rf"{known}|{{{{ \$labels\.\w+ }}}}", lambda found: words.get(found[0], ""), text)
        for key, text in rule["annotations"].items()
    }


BALLOON = reading({"immich-ml": 10726, "frigate": 2200})
OVER = ({"card": "t4", "holder": "immich-ml"}, "8.424Gi")
NO_CHAT = ({"card": "t4", "model": "chat", "culprit": "immich-ml"}, "4.748Gi")
NO_VISION = ({"card": "t4", "model": "vision", "culprit": "immich-ml"}, "3.092Gi")


def test_the_incident_names_the_tenant_after_one_more_reading_and_ends_three_minutes_after_it(alerts):
    """2026-06-02: immich-ml of 2.1 GB held 10.7 GB, and every load failed for five hours."""
    timeline = [reading()] * 4 + [BALLOON] * 20 + [reading()] * 20
    firing = {"CorralTenantOverBudget": [OVER], "CorralNoRoomForModel": [NO_CHAT, NO_VISION]}
    tenant = {"CorralTenantOverBudget": [OVER]}
    alerts(timeline, {45: {}, 60: {}, 75: tenant, 90: firing, 345: firing, 510: firing, 570: {}})


def test_a_pod_that_no_card_names_is_the_culprit_when_it_has_more_than_the_reserve(alerts):
    model = {"card": "t4", "model": "chat", "culprit": "jobs/train-0"}
    timeline = [reading(others=[("jobs/train-0", 5500)])] * 6
    alerts(timeline, {75: {"CorralNoRoomForModel": [(model, "1.598Gi")]}})


def test_the_culprit_is_the_first_holder_by_the_ranking_of_corral_why(rules, tmp_path):
    generator = random.Random(16)
    culprits, tests = set(), []
    for _ in range(60):
        tenants = {name: generator.randrange(2 * mib) for name, mib in PROMISED_MIB.items()}
        if is_unknown := generator.random() < 0.3:  # then a pod may be a tenant's
            tenants["frigate"] = None
        most = generator.choice((1200, 9000))
        sizes = sorted((generator.randrange(most) for _ in range(generator.choice((0, 2, 30)))), reverse=True)
        pods = [(f"jobs/train-{at}", mib) for at, mib in enumerate(sizes)]  # the largest first, as a reading has them
        now = reading(tenants, others=pods, free=generator.randrange(9000))
        (card,) = account.of({"t4": PROMISE}, now)
        culprit = card.excesses[0].name if card.excesses else "unknown"
        culprits.add((culprit.partition("-")[0], is_unknown))
        short = [
            {"labels": f'{{model="{row.name}",culprit="{culprit}"}}', "value": 1} for row in card.rows if row.short
        ]
        alert = 'count by (model, culprit) (ALERTS{alertname="CorralNoRoomForModel", alertstate="firing"})'
        expected = [{"expr": alert, "eval_time": "75s", "exp_samples": short}]
        tests.append(
            {"interval": f"{TICK_S}s", "input_series": series_of([now] * 6), "promql_expr_test": expected},
        )
    known = {(name, False) for name in ("immich", "frigate", "jobs/train", "unknown")}
    assert culprits == known | {(name, True) for name in ("immich", "jobs/train", "unknown")}
    promtool(tmp_path, {"rule_files": [str(rules)], "evaluation_interval": f"{TICK_S}s", "tests": tests})


def test_without_an_excess_the_culprit_is_unknown(alerts):
    model = {"card": "t4", "model": "chat", "culprit": "unknown"}
    timeline = [reading(free=5400)] * 6
    alerts(timeline, {75: {"CorralNoRoomForModel": [(model, "1.559Gi")]}})


def test_a_tenant_within_its_budget_and_a_model_that_its_group_makes_room_for_are_no_alert(alerts):
    alerts([reading({"immich-ml": 2100, "frigate": 2300}, ["chat", "embed"])] * 40, none_at(range(0, 600, 60)))


def test_a_driver_that_hangs_is_an_alert_after_a_minute_and_the_holders_are_not(alerts):
    timeline = [reading()] * 2 + [SILENT] * 40 + [reading()] * 20
    firing = {"CorralDriverSilent": [({"card": "t4"}, "")]}
    alerts(timeline, {75: {}, 90: firing, 600: firing, 840: {}})


def test_a_driver_whose_fault_changes_all_the_time_is_one_alert(alerts):
    faults = [replace(SILENT, unknown=code) for code in ("hanging", "failed")] * 20
    alerts(faults, {45: {}, 60: {"CorralDriverSilent": [({"card": "t4"}, "")]}})


def test_two_tenants_that_take_turns_as_the_largest_do_not_keep_an_alert_from_firing(alerts):
    turns = [reading({"immich-ml": 6900 + at % 2 * 200, "frigate": 7200}, free=960) for at in range(40)]
    culprits = ("immich-ml", "frigate")  # 4800 or 5000 beyond its budget; 4900
    over = [
        ({"card": "t4", "holder": name}, value) for name, value in zip(culprits, ("4.883Gi", "4.785Gi"), strict=True)
    ]
    models = (("chat", "5.895Gi"), ("vision", "4.238Gi"))
    short = [({"card": "t4", "model": name, "culprit": one}, value) for name, value in models for one in culprits]
    alerts(turns, {105: {"CorralTenantOverBudget": over, "CorralNoRoomForModel": short}})


def test_an_alert_outlives_a_driver_that_falls_silent_until_that_is_an_alert_too(alerts):
    timeline = [BALLOON] * 6 + [SILENT] * 20
    before = {"CorralTenantOverBudget": [OVER], "CorralNoRoomForModel": [NO_CHAT, NO_VISION]}
    silent = {"CorralDriverSilent": [({"card": "t4"}, "")]}
    alerts(timeline, {135: before, 150: before | silent, 240: before | silent, 300: silent})


def test_a_holder_without_a_figure_is_an_alert_after_two_minutes(alerts):
    firing = {"CorralHolderUnknown": [({"card": "t4", "kind": "tenant", "holder": "frigate"}, "")]}
    timeline = [reading(QUIET | {"frigate": None})] * 25 + [reading()] * 20
    alerts(timeline, {105: {}, 120: firing, 360: firing, 600: {}})


def test_alerts_outlive_their_holders_until_it_is_an_alert_that_these_are_unknown(alerts):
    """The API server gives no list of pods: no tenant's and no model's memory is known any more."""
    before = {"CorralTenantOverBudget": [OVER], "CorralNoRoomForModel": [NO_CHAT, NO_VISION]}
    names = [("tenant", name, {}) for name in ("immich-ml", "frigate")]
    names += [("model", name, {"model": name}) for name in SEATS]
    unknown = [({"card": "t4", "kind": kind, "holder": name} | more, "") for kind, name, more in names]
    blind = reading({}, others=[("pod 1", 10726)], free=1, certain=frozenset())
    alerts([BALLOON] * 6 + [blind] * 20, {195: before, 210: before | {"CorralHolderUnknown": unknown}})


def test_of_a_card_that_is_not_the_catalogs_there_is_no_alert(alerts):
    """A laptop with `corral exporter`, scraped by the same Prometheus: it never knows what a tenant holds."""
    names = ("corral_unknown", "corral_held_unknown", "corral_model_short_bytes", "corral_tenant_expectations_broken")
    labels = 'card="laptop",kind="tenant",holder="desktop",model="chat",tenant="desktop"'
    more = [{"series": f"{name}{{{labels}}}", "values": "1x60"} for name in names]
    alerts([reading()] * 60, none_at(range(0, 900, 60)), *more)


def test_a_tenant_that_is_not_set_as_its_card_expects_is_an_alert_after_five_minutes(alerts):
    series = {"series": 'corral_tenant_expectations_broken{card="t4",tenant="immich-ml"}', "values": "1x25 0x20"}
    firing = {"CorralExpectationBroken": [({"card": "t4", "holder": "immich-ml"}, "")]}
    alerts([reading()] * 47, {285: {}, 300: firing, 375: firing, 600: {}}, series)


def test_a_load_that_fails_is_an_alert_for_five_minutes(alerts):
    failed = {"model": "chat", "reason": "process-ended"}
    labels = ",".join(f'{name}="{value}"' for name, value in failed.items())
    series = {"series": f"corral_failed_loads_total{{{labels}}}", "values": "0x8 1x40"}
    other = {"series": 'corral_failed_loads_total{model="vision",reason="timeout"}', "values": "3x50"}
    firing = {"CorralLoadsFail": [({"card": "t4"} | failed, "")]}
    alerts([reading()] * 50, {180: {}, 195: firing, 420: firing, 450: {}}, series, other)


def test_a_load_that_fails_elsewhere_is_no_alert_of_this_card(alerts):
    """A laptop with `corral exporter`, and a model of the same name."""
    labels = 'model="chat",reason="timeout",instance="laptop:9460"'
    series = {"series": f"corral_failed_loads_total{{{labels}}}", "values": "0x8 9x40"}
    other = {"series": 'corral_llama_swap_up{instance="laptop:9460"}', "values": "0x50"}
    alerts([reading()] * 50, none_at(range(0, 750, 60)), series, other)


def test_requests_that_are_refused_for_three_minutes_are_an_alert_and_one_burst_is_none(alerts):
    def refused(model, values):
        return {"series": f'corral_requests_total{{model="{model}",code="429"}}', "values": values}

    more = (refused("chat", "0x4 1+1x20 21x20"), refused("vision", "0x4 30x40"), refused("embed", "0x4 1x6 2x40"))
    firing = {"CorralQueueFull": [({"card": "t4", "model": "chat"}, "")]}
    alerts([reading()] * 45, {240: {}, 255: firing, 390: firing, 480: {}}, *more)


def yielded(values, *, card="t4", instance="node:9460", reason="tenant-waits"):
    labels = f'card="{card}",model="chat",reason="{reason}",instance="{instance}"'
    return {"series": f"corral_yields_total{{{labels}}}", "values": values}


def test_a_model_that_yielded_is_an_alert_for_ten_minutes_with_its_reason_and_its_count_alone_is_none(alerts):
    more = (
        yielded("0x8 1x60"),
        yielded("7x68", reason="free-below-floor"),
        yielded("0x8 1x60", card="laptop", instance="laptop:9460"),
    )
    firing = {"CorralModelYielded": [({"card": "t4", "model": "chat", "reason": "tenant-waits"}, "")]}
    alerts([reading()] * 68, {120: {}, 135: firing, 720: firing, 750: {}, 900: {}}, *more)


def test_an_exporter_that_begins_anew_is_no_model_that_yielded(alerts):
    more = (yielded("3x30 _x30", instance="old:9460"), yielded("_x32 0x30", instance="new:9460"))
    alerts([reading()] * 60, none_at(range(0, 900, 60)), *more)


GIB = 1 << 30


def of_store(name, values, **labels):
    """A series of the store's exporter."""
    text = ",".join(f'{key}="{value}"' for key, value in ({"store": "llama-cpp"} | labels).items())
    return {"series": f"corral_store_{name}{{{text}}}", "values": values}


def test_a_store_with_less_room_than_its_largest_model_is_an_alert_after_a_quarter_of_an_hour(alerts):
    sizes = [of_store("model_bytes", f"{gib * GIB}x200", model=name) for name, gib in (("chat", 5), ("embed", 1))]
    room = of_store("free_bytes", f"{5 * GIB}x9 {4 * GIB}x69 {5 * GIB}x40")
    firing = {"CorralStoreFilling": [({"store": "llama-cpp"}, "4Gi")]}
    alerts([reading()] * 120, {135: {}, 1035: {}, 1050: firing, 1350: firing, 1410: {}}, room, *sizes)


@pytest.mark.parametrize("state", ["unverified", "outdated", "missing"])
def test_a_model_that_is_not_as_the_lock_names_it_is_an_alert_after_ten_minutes(alerts, state):
    labels = {"model": "chat", "state": state}
    more = (
        of_store("model_state", f"1x60 {'_ ' * 20}", **labels),
        of_store("model_state", "1x80", model="embed", state="ready"),
        of_store("downloads", "0x80"),
    )
    firing = {"CorralModelNotInStore": [({"store": "llama-cpp"} | labels, "")]}
    alerts([reading()] * 80, {585: {}, 600: firing, 885: firing}, *more)


def test_a_model_that_is_being_downloaded_is_no_alert(alerts):
    more = (
        of_store("model_state", "1x80", model="chat", state="missing"),
        of_store("downloads", "1x80"),
        of_store("downloads", "0x80", store="other"),
    )
    alerts([reading()] * 80, none_at(range(0, 1200, 60)), *more)


def cold(model, cached, requests):
    """The series of a *model* of 100 bytes, *cached* of them in memory, and *requests* for it."""
    return (
        of_store("model_bytes", "100x300", model=model),
        of_store("model_cached_bytes", f"{cached}x300", model=model),
        {"series": f'corral_requests_total{{model="{model}",code="200"}}', "values": requests},
    )


def test_a_model_that_is_asked_for_and_is_not_in_memory_is_an_alert_after_an_hour(alerts):
    more = (*cold("chat", 40, "0x10 3x290"), *cold("vision", 60, "0x10 3x290"), *cold("embed", 40, "3x300"))
    firing = {"CorralPageCacheCold": [({"store": "llama-cpp", "model": "chat"}, "40%")]}
    room = of_store("free_bytes", "1000x300")
    alerts([reading()] * 280, {3750: {}, 3780: firing, 4185: firing}, room, of_store("up", "1x300"), *more)


def test_a_store_that_cannot_be_read_is_an_alert_after_three_minutes(alerts):
    firing = {"CorralStoreSilent": [({"store": "llama-cpp"}, "")]}
    alerts([reading()] * 40, {165: {}, 180: firing, 285: firing, 315: {}}, of_store("up", "0x20 1x20"))


def test_an_exporter_of_a_store_that_is_missing_is_the_same_alert_and_a_new_pod_is_none(alerts):
    firing = {"CorralStoreSilent": [({"store": "llama-cpp"}, "")]}
    gap, other = "_ " * 8, of_store("up", "1x100", store="other")
    more = of_store("up", f"1x4 stale {gap} 1x4 stale {'_ ' * 40}")
    alerts([reading()] * 60, {195: {}, 255: {}, 450: {}, 465: firing, 600: firing}, more, other)


def behind(values):
    """An exporter of the card, and one of the store, that have had another lock at *values*."""
    labels = f'instance="10.0.0.7:9460",seal="{"1" * 64}"'
    card = {"series": 'corral_card_memory_bytes{card="t4",instance="10.0.0.7:9460"}', "values": "1x240"}
    return (
        card,
        {"series": f"corral_lock_info{{{labels}}}", "values": values},
        of_store("lock_info", values, seal="1" * 64),
    )


def test_an_exporter_of_another_lock_is_an_alert_after_a_quarter_of_an_hour_and_ends_with_the_apply(alerts):
    own = of_store("lock_info", f"{'_ ' * 90} 1x60", seal=SEAL)
    firing = {"CorralLockBehind": [({"card": "t4"}, ""), ({"store": "llama-cpp"}, "")]}
    timeline = [reading()] * 150
    alerts(
        timeline, {885: {}, 900: firing, 1500: firing, 1560: {}}, *behind("1x90 stale"), own, of_store("up", "1x150")
    )


def test_an_apply_that_takes_ten_minutes_and_a_lock_of_elsewhere_are_no_alert(alerts):
    elsewhere = (
        {"series": f'corral_lock_info{{instance="laptop:9460",seal="{"2" * 64}"}}', "values": "1x240"},
        of_store("lock_info", "1x240", store="other", seal="2" * 64),
    )
    alerts([reading()] * 120, none_at(range(0, 1800, 60)), *behind("1x40 stale"), *elsewhere)


UP = {"series": "corral_llama_swap_up", "values": "1x240"}


def starting(model, values):
    """The series of a *model* that is being loaded, whose end Prometheus marks as stale."""
    return {"series": f'corral_model_state{{model="{model}",state="starting"}}', "values": f"{values} stale"}


def test_models_that_are_loaded_for_most_of_ten_minutes_and_take_turns_are_an_alert(alerts):
    turns = starting("chat", " ".join(["1 1 stale _"] * 12)), starting("vision", " ".join(["_ _ 1 stale"] * 12))
    first, later = ({"CorralThrash": [({"card": "t4"}, value)]} for value in ("75%", "75.61%"))
    alerts([reading()] * 100, {270: {}, 285: first, 600: later, 1200: {}}, UP, *turns)


def test_one_model_that_takes_long_to_load_is_no_thrash(alerts):
    alerts([reading()] * 60, none_at(range(0, 900, 60)), UP, starting("chat", "1x60"), starting("vision", "1"))


def test_models_that_are_loaded_once_after_a_start_are_no_thrash(alerts):
    models = starting("chat", "1x7"), starting("embed", "_x8 1x6")
    alerts([reading()] * 60, none_at(range(0, 900, TICK_S)), UP | {"values": "1x60"}, *models)


def test_models_of_another_card_are_no_thrash_of_this_one(alerts):
    turns = " ".join(["1 1 stale _"] * 12)
    elsewhere = [starting(name, turns) for name in ("other", "another")]
    promised = [
        {"series": f'corral_promised_bytes{{card="a10",kind="model",holder="{name}"}}', "values": "1x100"}
        for name in ("other", "another")
    ]
    alerts([reading()] * 60, none_at(range(0, 900, 60)), UP, *elsewhere, *promised)


@pytest.mark.parametrize("name", ["corral_engine_up", "corral_probe_success"])
def test_an_engine_that_does_not_answer_is_an_alert_after_two_minutes(alerts, name):
    series = [
        {"series": f'{one}{{model="chat"}}', "values": "1x4 0x4 1x4 0x10 1x10" if one == name else "1x40"}
        for one in ("corral_engine_up", "corral_probe_success")
    ]
    elsewhere = {"series": f'{name}{{model="chat",instance="laptop:9460"}}', "values": "0x40"}
    firing = {"CorralEngineHung": [({"card": "t4", "model": "chat"}, "")]}
    timeline = [reading()] * 40
    alerts(timeline, {195: {}, 330: {}, 345: firing, 375: firing, 390: {}}, *series, elsewhere)


def test_a_llama_swap_that_does_not_answer_is_an_alert_after_five_minutes(alerts):
    series = {"series": "corral_llama_swap_up", "values": "1x4 0x15 1x2 0x25 1x10"}
    firing = {"CorralLlamaSwapSilent": [({"card": "t4"}, "")]}
    alerts([reading()] * 60, {300: {}, 645: {}, 660: firing, 735: firing, 750: {}}, series)


def test_an_exporter_that_dies_is_an_alert_after_a_minute_before_the_others_end(alerts):
    missing = {"CorralExporterMissing": [({"card": "t4"}, "")]}
    before = {"CorralTenantOverBudget": [OVER], "CorralNoRoomForModel": [NO_CHAT, NO_VISION]}
    timeline = [BALLOON] * 6 + [None] * 20 + [reading()] * 20
    alerts(timeline, {135: before, 150: before | missing, 240: before | missing, 300: missing, 420: {}})


def test_a_card_that_was_never_reported_is_missing(alerts):
    alerts([None] * 10, {45: {}, 60: {"CorralExporterMissing": [({"card": "t4"}, "")]}})


@pytest.mark.parametrize("seed", range(3))
def test_an_hour_with_a_hundred_swaps_is_no_alert(alerts, seed):
    """A reading may fall between the end of an engine and the moment when the driver has its memory back."""
    generator = random.Random(seed)
    swaps = set(generator.sample(range(240), 100))
    loaded, timeline = "chat", []
    for at in range(240):
        tenants = {name: mib - generator.randrange(300) for name, mib in PROMISED_MIB.items()}
        side = ["embed"] if generator.random() < 0.5 else []
        if at in swaps and at - 1 not in swaps and generator.random() < 0.5:
            free = 15360 - 300 - sum(tenants.values()) - SEATS[loaded] - sum(SEATS[one] for one in side)
            timeline.append(reading(tenants, side, free=free))  # its process is gone, its memory is not
        else:
            timeline.append(reading(tenants, [loaded, *side]))
        if at in swaps:
            loaded = "vision" if loaded == "chat" else "chat"
    assert len(swaps) == 100
    states = {name: ["stale"] * 240 for name in ("chat", "vision")}
    for at in swaps:
        if generator.random() < 0.4:  # a load of 6 s, and a reading every 15 s
            states["vision" if at % 2 else "chat"][at] = "1"
    loads = [starting(name, " ".join(values)) for name, values in states.items()]
    asked = [generator.randrange(4) for _ in range(240)]
    slow = [sum(generator.random() < 0.05 for _ in range(count)) for count in asked]
    alerts(timeline, none_at(range(0, 3600, TICK_S)), UP, *loads, *budget(asked, slow))


DESK = {"card": "t4", "model": "chat", "consumer": "desk"}


def budget(asked, slow, *, ticks=0, **labels):
    """The series of a latency budget: at each tick so many requests more, and slow ones; then none until *ticks*."""
    text = ",".join(f'{key}="{value}"' for key, value in (DESK | labels).items())
    return tuple(
        {
            "series": f"corral_latency_budget_{name}_total{{{text}}}",
            "values": " ".join(map(str, itertools.accumulate((0, *counts, *[0] * (ticks - len(counts)))))),
        }
        for name, counts in (("requests", asked), ("slow_requests", slow))
    )


def burnt(share):
    return {"CorralLatencyBudgetBurnt": [(DESK, share)]}


def test_a_budget_is_burnt_when_most_requests_of_an_hour_are_slow_until_they_are_not_any_more(alerts):
    """After three hours in time: slow for 32 minutes, which are half of the last five until 2:30 after their end."""
    series = budget([1] * 920, [0] * 720 + [1] * 130, ticks=920)
    first, last = burnt("50.42%"), burnt("54.17%")
    steps = {720: {}, 840: {}, 841: first, 859: last, 899: last, 900: {}, 920: {}}
    alerts([reading()] * 920, {at * TICK_S: one for at, one in steps.items()}, of_store("up", "1x920"), *series)


def test_a_budget_is_burnt_when_a_quarter_of_six_hours_is_slow(alerts):
    slow = [0, 0, 0, 1] * 200
    more = budget([1] * 800, slow), budget([1] * 800, [0, 0, 0, 0, 0, 1] * 134, consumer="other")
    up = of_store("up", "1x900")
    alerts([reading()] * 800, {420: {}, 480: burnt("25%"), 11400: burnt("25%")}, up, *more[0], *more[1])


@pytest.mark.parametrize(
    ("asked", "slow"),
    [
        ([1, 1, 1], [1, 0, 0]),
        ([1] * 9, [1] * 9),
        ([1] * 220, [0, 0, 0, 0, 1] * 44),
        ([0] * 240, [0] * 240),
    ],
    ids=["one-of-three", "nine", "a-fifth", "none"],
)
def test_few_requests_or_few_slow_ones_burn_no_budget(alerts, asked, slow):
    alerts([reading()] * 240, none_at(range(0, 3600, 60)), *budget(asked, slow, ticks=240))


def test_a_budget_of_another_card_is_no_alert_of_this_one(alerts):
    more = budget([1] * 200, [1] * 200, card="a10")
    alerts([reading()] * 200, none_at(range(0, 3000, 60)), *more)


def test_requests_before_and_after_a_restart_of_the_exporter_are_counted_together(alerts):
    """Six before it, and four after it: its pod has another address then."""
    before, after = budget([1] * 6, [1] * 6, instance="a"), budget([1] * 4, [1] * 4, ticks=28, instance="b")
    for one in before:
        one["values"] += " stale"
    for one in after:
        one["values"] = f"_x7 {one['values']}"
    alerts([reading()] * 36, {150: {}, 165: burnt("100%")}, *before, *after)


MISSING, SILENT_DRIVER, UNKNOWN = "CorralExporterMissing", "CorralDriverSilent", "CorralHolderUnknown"
TARGETS = {
    "over": {"alertname": "CorralTenantOverBudget", "holder": "immich-ml"},
    "expectation": {"alertname": "CorralExpectationBroken", "holder": "immich-ml"},
    "room": {"alertname": "CorralNoRoomForModel", "model": "chat", "culprit": "immich-ml"},
    "unknown": {"alertname": UNKNOWN, "kind": "tenant", "holder": "frigate"},
    "loads": {"alertname": "CorralLoadsFail", "model": "vision", "reason": "timeout"},
    "hung": {"alertname": "CorralEngineHung", "model": "chat"},
    "latency": {"alertname": "CorralLatencyBudgetBurnt", "model": "embed", "consumer": "desk"},
    "foreign": {"alertname": "NodeDown"},
}
ABOUT_STORES = {
    name: {"alertname": "CorralStoreFilling", "store": store}
    for name, store in (("filling", "llama-cpp"), ("elsewhere", "other"))
} | {"behind": {"alertname": "CorralLockBehind", "store": "llama-cpp"}}
ALSO = {"exporter": {"driver": {"alertname": SILENT_DRIVER}}, "store": ABOUT_STORES}
INHIBITED = {
    "nothing": ({"alertname": "NodeDown"}, set()),
    "exporter": (
        {"alertname": MISSING},
        {"over", "expectation", "room", "unknown", "loads", "hung", "driver", "latency"},
    ),
    "room": ({"alertname": "CorralNoRoomForModel", "model": "vision", "culprit": "frigate"}, {"loads"}),
    "lacking": ({"alertname": "CorralNoRoomForModel", "model": "embed", "culprit": "frigate"}, {"latency"}),
    "queue": ({"alertname": "CorralQueueFull", "model": "embed"}, {"latency"}),
    "engine": ({"alertname": "CorralEngineHung", "model": "embed"}, {"latency"}),
    "another": ({"alertname": "CorralQueueFull", "model": "vision"}, set()),
    "thrash": ({"alertname": "CorralThrash"}, {"latency"}),
    "driver": ({"alertname": SILENT_DRIVER}, {"over", "room", "unknown"}),
    "store": ({"alertname": "CorralStoreSilent", "store": "llama-cpp"}, {"filling", "behind"}),
    "tenant": ({"alertname": UNKNOWN, "kind": "tenant", "holder": "immich-ml"}, {"over", "expectation"}),
    "neighbour": ({"alertname": UNKNOWN, "kind": "tenant", "holder": "frigate"}, set()),
    "model": ({"alertname": UNKNOWN, "kind": "model", "holder": "chat", "model": "chat"}, {"room"}),
    "namesake": ({"alertname": UNKNOWN, "kind": "model", "holder": "immich-ml", "model": "immich-ml"}, set()),
}


def test_an_alert_that_explains_others_inhibits_them_on_its_card_and_no_more(pack, tmp_path):
    """A real Alertmanager gets every alert of TARGETS beside each of INHIBITED, on a card of its own."""
    with monitoring(tmp_path, ["127.0.0.1:1"], "groups: []", pack[1], installed(), every_s=60) as receiver:
        alerts = f"{receiver.alertmanager}/api/v2/alerts"

        def send(*labels):
            assert post(alerts, [{"labels": one} for one in labels])[0] == 200

        def suppressed(card):
            found = [one for one in json.loads(get(alerts)[1]) if one["labels"]["card"] == card]
            return {
                one["labels"]["target"] for one in found if one["status"]["inhibitedBy"] and "target" in one["labels"]
            }

        eventually(lambda: get(alerts)[0], (200).__eq__)
        # The inhibitor takes alerts in their order: when it knows the last one, it knows all.
        send(
            *({"card": card} | source for card, (source, _) in INHIBITED.items()),
            {"card": "last", "alertname": MISSING},
        )
        cards = (*INHIBITED, "elsewhere", "last")
        send(
            *(
                {"card": card, "target": key} | labels
                for card in cards
                for key, labels in (TARGETS | ALSO.get(card, {})).items()
            )
        )
        eventually(lambda: suppressed("last"), lambda found: "over" in found)

        assert {card: suppressed(card) for card in INHIBITED} == {card: names for card, (_, names) in INHIBITED.items()}
        assert suppressed("elsewhere") == set()


def test_the_recorder_reads_the_alerts_that_fire_and_are_not_inhibited(pack, tmp_path):
    """A real Alertmanager has an alert, one that it inhibits, and one that is not corral's."""
    with monitoring(tmp_path, ["127.0.0.1:1"], "groups: []", pack[1], installed(), every_s=60) as receiver:
        alerts = f"{receiver.alertmanager}/api/v2/alerts"
        eventually(lambda: get(alerts)[0], (200).__eq__)
        room = {"alertname": "CorralNoRoomForModel", "model": "chat", "culprit": "immich-ml", "more": "x"}
        loads = {"alertname": "CorralLoadsFail", "model": "chat", "reason": "timeout"}
        for labels in (room, loads, {"alertname": "NodeDown"}):
            assert post(alerts, [{"labels": {"card": "t4"} | labels}])[0] == 200
        found = eventually(Alertmanager(receiver.alertmanager).firing, lambda found: len(found) == 1)
    assert found == (Alert("CorralNoRoomForModel", {"card": "t4", "model": "chat", "culprit": "immich-ml"}),)
    with pytest.raises(AlertsUnknown, match="gave no list of alerts"):
        Alertmanager(receiver.alertmanager).firing()
