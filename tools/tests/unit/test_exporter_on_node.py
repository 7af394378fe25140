"""``python3 -m exporter``: the program of a machine with a card, from its bare files and one wheel, as deployed."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from prometheus_client.parser import text_string_to_metric_families

from corral import exporter as package
from corral import keys, paths
from corral.exporter import driver
from corral.exporter.__main__ import NodeCards, main
from corral.exporter.config import read_config
from corral.exporter.errors import Misconfigured, PodsUnknown
from corral.exporter.pods import Pod
from corral.exporter.yields import Rule
from corral.keys import LocalKeys
from corral.timeline import recording
from tests.support.engine_process import authorization, wait_for
from tests.support.fake_nvidia_smi import UUID, install, install_script

MIB = 1 << 20
WHEEL = next((paths.REPOSITORY / "terraform" / "modules" / "card-exporter").glob("*.whl"))
CONFIG = {
    "version": 1,
    "listen": {"host": "127.0.0.1", "port": 0},
    "operator_keys": "/nowhere/keys.json",
    "engines": {"namespace": "llama-cpp", "selector": "app.kubernetes.io/name=llama-swap"},
    "door": {"port": 8080, "host": "llama-swap.llama-cpp.svc", "key_file": "/nowhere/key"},
    "records": "/nowhere/records",
    "alertmanager": None,
    "driver_pid_namespace": None,
    "seal": "0" * 64,
    "cards": {
        "t4": {
            "vram_bytes": 15360 * MIB,
            "reserve_bytes": 512 * MIB,
            "yield": {"floor_bytes": 1024 * MIB, "idle_seconds": 60},
            "tenants": {
                "immich-ml": {
                    "budget_bytes": 2100 * MIB,
                    "namespace": "immich",
                    "selector": "app=ml",
                    "unit": None,
                    "expects": {"TTL": ">0"},
                }
            },
            "models": {
                "chat": {
                    "group": "main",
                    "seat_bytes": 7030 * MIB,
                    "predicted_bytes": 7030 * MIB,
                    "measured_bytes": None,
                    "latency": [
                        {
                            "consumer": "desk",
                            "prompt_tokens": 800,
                            "answer_tokens": 120,
                            "p95_seconds": 4.5,
                            "cold": "excluded",
                        }
                    ],
                }
            },
        }
    },
}


@pytest.fixture
def started(tmp_path):
    """Starts the program, which waits for the driver without haste where that answers; gives its address."""
    code, processes = tmp_path / "code", []
    (code / "exporter").mkdir(parents=True)
    for file in Path(package.__file__).parent.iterdir():
        if file.suffix in (".py", ".html"):
            shutil.copy(file, code / "exporter")
    config = tmp_path / "config.json"
    store = LocalKeys(tmp_path / "state")
    changed = {
        "driver_pid_namespace": driver.pid_namespace(),
        "records": str(tmp_path / "records"),
        "operator_keys": str(store.file),
    }

    def start(*, hanging=False, of=CONFIG):
        config.write_text(json.dumps(of | changed))
        text = Path(driver.__file__).read_text()
        assert text.count("\nLIMIT_S = 1.0\n") == 1
        unhurried = text.replace("\nLIMIT_S = 1.0\n", "\nLIMIT_S = 60.0\n")
        (code / "exporter" / "driver.py").write_text(text if hanging else unhurried)
        process = subprocess.Popen(
            [sys.executable, "-S", "-s", "-W", "error", "-m", "exporter", str(config)],
            cwd=code,
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(WHEEL)}
            | ({"NODE_NAME": "node"} if of is CONFIG else {}),
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return f"http://127.0.0.1:{process.stdout.readline().split()[-1]}"

    start.key = keys.ensure_operator(store)
    start.kill = lambda: (processes[-1].kill(), processes.pop().communicate())
    yield start
    for process in processes:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        process.stdout.close()


def get(address, path, key=""):
    try:
        request = urllib.request.Request(f"{address}{path}", headers=authorization(key))
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def series(address):
    families = text_string_to_metric_families(get(address, "/metrics")[1])
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_it_runs_on_a_bare_python_and_tells_programs_and_prometheus_the_same(started, tmp_path):
    install(tmp_path, f"{UUID}, Tesla T4, {os.getpid()}, 10726, /usr/bin/python3\n")
    address = started()
    found = series(address)
    (card,) = json.loads(get(address, "/card.json", started.key)[1])["cards"]
    (process,) = [one for one in card["holders"] if one["kind"] == "process"]
    assert process["held"] == 10726 * MIB
    assert found["corral_held_bytes", "t4", "python3", "process"] == 10726 * MIB
    assert found["corral_card_used_bytes", "t4"] == card["driver"]["used"] == 13150 * MIB
    assert found["corral_llama_swap_up",] == 0  # without a key none is read
    assert found["corral_latency_budget_seconds", "t4", "desk", "chat"] == 4.5


def on_host(**changed):
    """CONFIG as it is on a machine without Kubernetes."""
    config = copy.deepcopy(CONFIG) | {"engines": {"units": ["llama-swap.service"]}, "door": None} | changed
    pods = {"namespace": None, "selector": None, "expects": {}}
    config["cards"]["t4"]["tenants"]["immich-ml"] |= pods | {"unit": "immich-ml.service"}
    return config


def test_without_kubernetes_it_serves_the_card_and_no_series_of_llama_swap_pods_or_yields(started, tmp_path):
    install(tmp_path, f"{UUID}, Tesla T4, {os.getpid()}, 10726, /usr/bin/python3\n")
    found = series(address := started(of=on_host()))
    (stranger,) = [
        value
        for name, *labels, value in ((*key, value) for key, value in found.items())
        if name == "corral_held_bytes" and "process" in labels
    ]
    assert stranger == 10726 * MIB
    assert found["corral_held_bytes", "t4", "immich-ml", "tenant"] == 0
    assert found["corral_held_bytes", "t4", "chat", "model"] == 0
    assert {name for name, *_ in found} == {
        *("corral_lock_info", "corral_card_memory_bytes", "corral_card_used_bytes", "corral_card_free_bytes"),
        *("corral_promised_bytes", "corral_predicted_bytes", "corral_held_bytes", "corral_others_held_bytes"),
        *("corral_others_promised_bytes", "corral_model_short_bytes", "corral_scrape_seconds"),
    }
    recorded, *_ = wait_for(
        lambda: recording.read(get(address, "/records?since=0", started.key)[1].encode().splitlines()).moments,
        what="a sample",
    )
    assert recorded.models == "not-read"


def test_a_check_reads_the_configuration_and_serves_nothing(tmp_path, capsys):
    for config, code in ((on_host(), 0), (on_host(version=2), 2)):
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert main(["--check", str(tmp_path / "config.json")]) == code
    assert "version 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"engines": None}, "TypeError"),
        ({"engines": {"units": ["a.service"], "namespace": "b"}}, "'namespace'"),
        ({"engines": {"units": [""]}}, "'' is no text"),
        ({"door": CONFIG["door"]}, "a door is of engines in pods"),
    ],
)
def test_a_configuration_that_is_neither_of_a_cluster_nor_of_a_host_is_refused(tmp_path, changed, reason):
    (tmp_path / "config.json").write_text(json.dumps(on_host(**changed)))
    with pytest.raises(Misconfigured, match=reason):
        read_config(tmp_path / "config.json")


def test_what_it_recorded_is_served_and_survives_a_kill(started, tmp_path):
    install(tmp_path, f"{UUID}, Tesla T4, {os.getpid()}, 10726, /usr/bin/python3\n")

    def moments(address, starts):
        def found():
            return recording.read(get(address, "/records?since=0", started.key)[1].encode().splitlines()).moments

        return wait_for(
            lambda: (every := found()) and sum(one.is_start for one in every) == starts and every, what="a sample"
        )

    (first,) = moments(address := started(), 1)
    for wrong in ("/records", "/records?since=now"):
        assert get(address, wrong, started.key)[0] == 400
    assert get(address, f"/records?since={first.at + 60:.0f}", started.key)[1].count("\n") == 2
    started.kill()
    address = started()
    again = moments(address, 2)
    assert [row.held for one in again for row in one.accounts[0].rows if row.kind == "process"] == [10726 * MIB] * 2


def test_its_page_is_the_operators_and_names_the_command_that_prints_the_key(started, tmp_path):
    install(tmp_path, "")
    address = started()
    for path in ("/", "/card.json", "/records?since=0"):
        assert get(address, path, started.key)[0] == 200
        status, text = get(address, path)
        assert status == 401
        command = "kubectl -n llama-cpp get secret corral-keys -o jsonpath='{.data.operator}' | base64 -d\n"
        assert text.endswith(f"This prints it: {command}")


def test_without_the_api_server_the_card_is_known_and_no_tenant_holds_0(started, tmp_path):
    install(tmp_path, "")
    found = series(started())
    assert found["corral_held_unknown", "t4", "immich-ml", "tenant"] == 1
    assert found["corral_card_free_bytes", "t4"] == 2210 * MIB


def test_a_tenant_has_the_number_of_its_pods_on_the_node(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setenv("PATH", str(tmp_path))
    pods = (
        Pod("1", "immich", "ml-0", {"app": "ml"}),
        Pod("2", "immich", "db-0", {}),
        Pod("3", "x", "ml", {"app": "ml"}),
    )

    def selected(listed):
        monkeypatch.setattr("corral.exporter.pods.ApiServer.pods", lambda _: listed())
        (account,) = NodeCards(read_config(tmp_path / "config.json"), "node").accounts()
        return {row.name: row.selected for row in account.rows}

    def unknown():
        raise PodsUnknown("a test")

    assert selected(lambda: pods) == {"chat": None, "immich-ml": 1, "reserve": None}
    assert selected(lambda: pods[1:])["immich-ml"] == 0
    assert selected(lambda: (replace(pods[0], has_ended=True),))["immich-ml"] == 0
    assert selected(unknown)["immich-ml"] is None


@pytest.mark.parametrize(
    ("named", "selected"),
    [
        ({"namespace": "immich"}, 2),
        ({"selector": "app=ml"}, 2),
        ({"namespace": "immich", "selector": "app=ml"}, 1),
        ({}, None),
        ({"unit": "ml.service"}, None),
    ],
)
def test_a_tenant_without_a_namespace_has_pods_of_any_and_one_without_a_selector_all_of_its_own(
    tmp_path, monkeypatch, named, selected
):
    config = copy.deepcopy(CONFIG)
    config["cards"]["t4"]["tenants"]["immich-ml"] |= {"namespace": None, "selector": None, "expects": {}} | named
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("PATH", str(tmp_path))
    pods = (Pod("1", "immich", "ml", {"app": "ml"}), Pod("2", "immich", "db", {}), Pod("3", "x", "ml", {"app": "ml"}))
    monkeypatch.setattr("corral.exporter.pods.ApiServer.pods", lambda _: pods)
    (account,) = NodeCards(read_config(tmp_path / "config.json"), "node").accounts()
    assert [row.selected for row in account.rows if row.kind == "tenant"] == [selected]


ENGINE = Pod("9", "llama-cpp", "llama-swap-0", {"app.kubernetes.io/name": "llama-swap"}, ip="10.0.0.9")


@pytest.mark.parametrize(
    ("pod", "key", "endpoint"),
    [
        (ENGINE, "a-key\n", "http://10.0.0.9:8080"),
        (replace(ENGINE, ip="fd00::9"), "a-key", "http://[fd00::9]:8080"),
        (replace(ENGINE, ip=""), "a-key", None),
        (replace(ENGINE, has_ended=True), "a-key", None),
        (replace(ENGINE, namespace="other"), "a-key", None),
        (ENGINE, "", None),
        (ENGINE, None, None),
    ],
)
def test_llama_swap_is_read_by_the_door_of_its_pod_where_there_is_a_key(tmp_path, monkeypatch, pod, key, endpoint):
    door = CONFIG["door"] | {"key_file": str(tmp_path / "key")}
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"door": door}))
    if key is not None:
        (tmp_path / "key").write_text(key)
    monkeypatch.setattr("corral.exporter.pods.ApiServer.pods", lambda _: (pod,))
    found = NodeCards(read_config(tmp_path / "config.json"), "node").find_llama_swap()
    assert (found.endpoint if found else None) == endpoint
    if found:
        assert found.headers == {"Host": "llama-swap.llama-cpp.svc", "Authorization": "Bearer a-key"}


@pytest.mark.parametrize(
    ("values", "breaks"),
    [({"TTL": frozenset({"600"})}, ()), ({"TTL": frozenset({"0"})}, ("TTL is '0', and must be >0",))],
)
def test_a_tenant_has_what_its_pods_break_of_its_cards_expectations(tmp_path, monkeypatch, values, breaks):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setenv("PATH", str(tmp_path))
    pods = tuple(Pod(uid, "immich", f"ml-{uid}", {"app": "ml"}, values) for uid in "12")
    monkeypatch.setattr("corral.exporter.pods.ApiServer.pods", lambda _: pods)
    (account,) = NodeCards(read_config(tmp_path / "config.json"), "node").accounts()
    assert {row.name: row.breaks for row in account.rows} == {"chat": (), "immich-ml": breaks, "reserve": ()}


def test_a_card_yields_by_its_rule_and_one_without_never(tmp_path):
    cards = CONFIG["cards"] | {"other": CONFIG["cards"]["t4"] | {"yield": None}}
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"cards": cards}))
    assert read_config(tmp_path / "config.json").yields == {"t4": Rule(1024 * MIB, 60)}


def test_a_tenant_has_the_pods_that_wait_and_by_an_old_list_that_is_unknown(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setenv("PATH", str(tmp_path))
    listing = Mock(return_value=[Pod(uid, "immich", f"ml-{uid}", {"app": "ml"}, waits=uid != "1") for uid in "123"])
    monkeypatch.setattr("corral.exporter.pods.ApiServer.pods", listing)
    cards = NodeCards(read_config(tmp_path / "config.json"), "node")
    assert [row.waiting for row in cards.accounts()[0].rows if row.kind == "tenant"] == [2]
    monkeypatch.setattr("corral.exporter.pods.FRESH_S", 0.0)
    listing.side_effect = PodsUnknown("a test")
    (tenant,) = [row for row in cards.accounts()[0].rows if row.kind == "tenant"]
    assert (tenant.selected, tenant.waiting) == (3, None)


def test_a_driver_that_hangs_costs_about_a_second_and_the_rest_answers(started, tmp_path):
    install_script(tmp_path, "exec sleep 600\n")
    address = started(hanging=True)
    assert series(address)["corral_unknown", "t4", "hanging"] == 1
    assert get(address, "/health") == (200, "OK\n")
    assert get(address, "/metric")[0] == 404


def test_a_crowd_is_turned_away(started, tmp_path):
    waiting = tmp_path / "waiting"
    install_script(tmp_path, f"echo x >>{waiting}; exec sleep 600\n")
    address, statuses = started(hanging=True), []
    crowd = [threading.Thread(target=lambda: statuses.append(get(address, "/metrics")[0])) for _ in range(40)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    assert set(statuses) == {200, 503}
    assert get(address, "/metrics")[0] == 200


def cards_with_budget(**changes):
    """The cards of CONFIG, with *changes* of the one latency budget."""
    cards = copy.deepcopy(CONFIG["cards"])
    cards["t4"]["models"]["chat"]["latency"][0] |= changes
    return {"cards": cards}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"version": 2}, "version 2"),
        ({"more": 1}, "'more'"),
        ({"seal": None, "cards": {"t4": {}}}, "vram_bytes"),
        ({"listen": {"host": "", "port": "9460"}}, "'9460'"),
        ({"engines": {"namespace": "a", "selector": "b"}}, "no list of labels"),
        ({"door": None}, "AttributeError"),
        ({"door": {"port": 8080}}, "'host', 'key_file'"),
        ({"door": CONFIG["door"] | {"port": "8080"}}, "'8080'"),
        ({"alertmanager": "ftp://x"}, "'ftp://x'"),
        ({"alertmanager": "http://x:9093/?a"}, "no URL as http://host:port"),
        ({"operator_keys": None}, "None is no text"),
        ({"operator_keys": ""}, "'' is no text"),
        ({"driver_pid_namespace": -1}, "-1"),
        ({"driver_pid_namespace": True}, "True"),
        ({"cards": []}, "AttributeError"),
        (cards_with_budget(cold="no"), "cold 'no'"),
        (cards_with_budget(p95_seconds=0), "0 is no time of more than 0 seconds"),
        (cards_with_budget(p95_seconds=float("nan")), "nan is no time"),
        (cards_with_budget(p95_seconds="4.5"), "'4.5' is no time"),
        (cards_with_budget(answer_tokens=1.5), "1.5 is no whole number"),
        (cards_with_budget(p99_seconds=1), "'p99_seconds'"),
        ({"cards": {"t4": CONFIG["cards"]["t4"] | {"yield": {"floor_bytes": 1}}}}, "'idle_seconds'"),
        ({"cards": {"t4": CONFIG["cards"]["t4"] | {"yield": {"floor_bytes": 1, "idle_seconds": "60"}}}}, "'60'"),
    ],
)
def test_a_configuration_that_breaks_a_rule_is_refused(tmp_path, changed, reason):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | changed))
    with pytest.raises(Misconfigured, match=reason):
        read_config(tmp_path / "config.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00"])
def test_what_is_no_configuration_at_all_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(Misconfigured, match="is no configuration"):
        read_config(tmp_path / "config.json")


def test_the_wheel_is_the_one_that_is_pinned():
    digest = hashlib.sha256(WHEEL.read_bytes()).hexdigest()
    assert f"--hash=sha256:{digest}" in (paths.REPOSITORY / "tools" / "requirements.lock").read_text()
