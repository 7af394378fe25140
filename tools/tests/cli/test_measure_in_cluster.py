"""`corral measure --context`: what it writes, and what it refuses before it loads anything.

The API server is the one of tests.support.fake_kubernetes, the llama-swap in its pod that of
tests.support.stub_endpoint, and the exporter serves an account of its own; tests/cluster has the same on real ones.
"""

from __future__ import annotations

import json
import shlex

import pytest
from prometheus_client.registry import Collector

from corral.catalog import ledger
from corral.cli.main import main
from corral.exporter.account import CardAccount, Row
from corral.exporter.driver import Card
from corral.exporter.server import serving
from corral.lock import lock as locks
from corral.terraform import homelab
from tests.support.fake_kubernetes import fake_kubernetes
from tests.support.locked_catalog import SMALLEST_INTENT, write_catalog
from tests.support.stub_endpoint import completion, first_loads, replies, serve

MIB = 1 << 20
MODEL, EXPORTERS = "tiny", "watch"
ROW = Row("model", MODEL, held=104 * MIB, pids=(7,), pods=("llama-cpp/llama-swap-0",))


class NoMetrics(Collector):
    def collect(self):
        return []


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    monkeypatch.setattr(homelab, "STACK", tmp_path / "stack")
    return write_catalog(tmp_path / "catalog", {MODEL: SMALLEST_INTENT})


@pytest.fixture
def stub(catalog):
    entry = locks.read(catalog / "lock.json").models[MODEL]
    command = shlex.join(entry.argv).replace("'${STORE}", "'/models").replace("'${PORT}'", "5800")

    def residents(exchange):
        rows = [
            {"model": one, "state": state, "proxy": "http://127.0.0.1:5800", "cmd": command}
            for one, state in exchange.stub.running.items()
        ]
        exchange.reply_json(200, {"running": rows})

    with serve(MODEL) as running:
        listed = {"id": MODEL, "meta": {"llamaswap": {"sha256": [one.sha256 for one in entry.files]}}}
        running.acts["/v1/models"] = replies(200, {"data": [listed]})
        running.acts["/running"] = residents
        body = completion("OK") | {"system_fingerprint": "b11549-0123abc"}
        running.acts[MODEL, "*"] = first_loads(replies(200, body))
        yield running


@pytest.fixture
def fake(tmp_path, stub, monkeypatch):
    with fake_kubernetes(tmp_path) as running:
        running.pod(port=stub.port)
        running.objects["/api/v1/namespaces/llama-cpp/pods"][0]["spec"]["nodeName"] = "n1"
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig))
        yield running


@pytest.fixture
def exporter(fake):
    """The exporter of the card's node, in the fake cluster; its samples are a second apart."""
    account = CardAccount("laptop", 8192 * MIB, Card("GPU-1", "Tesla T4", 8192 * MIB, None), "", "", (ROW,))
    asked = []

    def cards():
        asked.append(None)
        return {"at": float(len(asked)), "node": "n1", "seal": "0" * 64, "cards": [account.as_json()]}

    with serving(("127.0.0.1", 0), NoMetrics(), cards) as server:
        labels = {"app.kubernetes.io/name": "card-exporter", "app.kubernetes.io/instance": "llama-cpp"}
        namespace = {"metadata": {"name": EXPORTERS, "labels": labels}}
        base = f"/api/v1/namespaces/{EXPORTERS}"
        ports = [{"name": "metrics", "containerPort": 9460}]
        fake.objects |= {
            "/api/v1/namespaces": [namespace],
            base: namespace,
            f"{base}/services": [
                {
                    "metadata": {"name": "card-exporter", "namespace": EXPORTERS},
                    "spec": {"selector": labels, "ports": [{"port": 9460, "targetPort": "metrics"}]},
                }
            ],
            f"{base}/pods": [
                {
                    "metadata": {"name": "card-exporter-0", "namespace": EXPORTERS, "labels": labels},
                    "spec": {"nodeName": "n1", "containers": [{"name": "card-exporter", "ports": ports}]},
                    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
                }
            ],
        }
        fake.ports["card-exporter-0"] = server.server_port
        yield asked


def measure(catalog, capsys, *words):
    code = main(["measure", "--catalog", str(catalog), "--context", "lab", *words])
    return code, *capsys.readouterr()


def test_the_record_has_the_drivers_figure_card_and_build_and_is_in_the_lock(catalog, stub, exporter, capsys):
    code, out, messages = measure(catalog, capsys, MODEL, "--json")
    assert code == 0, messages
    (shown,) = json.loads(out)["measurements"]
    (one,) = ledger.read(catalog).measurements
    assert (one.device, one.source, one.engine, one.gpu_bytes) == (
        "Tesla T4",
        "nvidia-smi",
        "b11549-0123abc",
        104 * MIB,
    )
    assert (one.predicted_gpu_bytes, shown["deviation"]) == (100 * MIB, 0.04)
    assert locks.read(catalog / "lock.json").models[MODEL].measured.gpu_bytes == 104 * MIB
    assert stub.loads == [MODEL]
    assert len(exporter) == 4  # before the load, after it, after the largest request, and a later one


def test_a_dry_run_writes_nothing(catalog, exporter, capsys):
    code, _, messages = measure(catalog, capsys, "--dry-run")
    assert (code, ledger.path_of(catalog).exists()) == (0, False)
    assert "unchanged (--dry-run)" in messages


def test_the_exporter_of_another_node_is_not_read(catalog, stub, fake, exporter, capsys):
    fake.objects[f"/api/v1/namespaces/{EXPORTERS}/pods"][0]["spec"]["nodeName"] = "n2"
    code, _, messages = measure(catalog, capsys, MODEL)
    assert (code, exporter, stub.asked) == (3, [], [])
    assert "No pod of the Service card-exporter in node n1 is ready: it has no pod there." in messages


def test_without_an_exporter_nothing_is_loaded_and_the_variable_that_deploys_it_is_named(catalog, stub, fake, capsys):
    code, out, messages = measure(catalog, capsys, MODEL)
    assert (code, out, stub.asked) == (3, "", [])
    assert "has no exporter" in messages
    assert messages.endswith("→ Write card_exporter = {} into terraform.tfvars, then run: corral apply\n")


def test_a_user_who_may_not_list_namespaces_gets_the_command_that_asks_for_that_right(catalog, stub, fake, capsys):
    fake.refuse["/api/v1/namespaces"] = 403
    code, _, messages = measure(catalog, capsys, MODEL)
    assert (code, stub.asked) == (2, [])
    assert "The exporter is found by the labels of namespaces." in messages
    assert messages.endswith("→ kubectl --context lab auth can-i list namespaces\n")


@pytest.mark.parametrize("words", [["--source", "engine-report"], ["--check"]])
def test_what_a_cluster_cannot_give_is_refused_before_it_is_asked(catalog, stub, fake, capsys, words):
    code, _, messages = measure(catalog, capsys, *words)
    assert code == 2
    assert "Leave out --source" in messages or "--check compares all" in messages
    assert (fake.paths, stub.paths) == ([], [])


def test_a_lock_that_was_edited_is_refused_before_anything_is_loaded(catalog, stub, exporter, capsys):
    text = (catalog / "lock.json").read_text()
    (catalog / "lock.json").write_text(text.replace('"512"', '"1024"'))
    code, _, messages = measure(catalog, capsys, MODEL)
    assert (code, stub.asked) == (2, [])
    assert "lock.json was edited or merged after" in messages
