"""The exporter on a node: real pids of real pods, joined with their tenants.

The node has no card: a stand-in for nvidia-smi lists the processes that a card would have, as the node counts them.
"""

from __future__ import annotations

import json
import shlex

import pytest
from kubernetes import client
from prometheus_client.parser import text_string_to_metric_families

from corral.cluster.client import connect
from corral.cluster.port_forward import forwarded
from tests.support.cluster import pods
from tests.support.cluster.homelab import CARD, homelab
from tests.support.engine_process import get

pytestmark = pytest.mark.timeout(420)
NAMESPACE, EXPORTERS, TENANTS = "watched", "watched-exporter", "watched-tenants"
MIB = 1 << 20
STAND_IN = """#!/usr/bin/python3
import pathlib, sys

table, full = [], False
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        words = (process / "cmdline").read_bytes().split(b"\\0")
    except OSError:
        continue
    held = 10726 if b"balloon" in words else 3000 if b"--alias" in words else 0
    full |= held == 10726
    if held:
        table.append(f"GPU-1, Tesla T4, {process.name}, {held}, {words[0].decode()}")
if sys.argv[1].startswith("--query-gpu="):
    table = [f"GPU-1, 15360, {1 if full else 9000}, Tesla T4"]
else:
    table.append("GPU-1, Tesla T4, 4194300, 34, /gone")
print(*table, sep="\\n")
"""
FULL = "CORRAL_VRAM_SOURCE=echo 1, 15360"
"""What the preflight reads in the server's pod, which has no nvidia-smi here."""


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    with homelab(cluster, tmp_path_factory.mktemp("watched"), NAMESPACE) as lab:
        card = {"vram_mib": 15360, "reserve_mib": 512, "compute_capability": "7.5", "node": cluster.node}
        tenants = {
            "immich-ml": {"budget_mib": 2100, "namespace": TENANTS, "selector": "app=immich-machine-learning"},
            "frigate": {"budget_mib": 2300, "namespace": TENANTS, "selector": "app=frigate"},
        }
        (lab.catalog / "cards" / f"{CARD}.yaml").write_text(json.dumps(card | {"tenants": tenants}))
        lab.lock()
        lab.set(card_exporter={"namespace": EXPORTERS})
        lab.corral("apply", "--yes", "--no-smoke")
        try:
            yield lab
        finally:
            for namespace in (EXPORTERS, TENANTS):
                pods.leave(cluster, namespace)


@pytest.fixture(scope="module")
def tenant(lab):
    """A pod of the tenant immich-ml, which runs."""
    core = client.CoreV1Api(lab.cluster.api)
    core.create_namespace({"metadata": {"name": TENANTS}})
    command = ("python3", "-c", "import time; time.sleep(3600)", "balloon")
    image = lab.cluster.images["fetch"]
    core.create_namespaced_pod(TENANTS, pods.pod("ml-0", image, *command, labels={"app": "immich-machine-learning"}))
    pods.eventually(lambda: core.read_namespaced_pod("ml-0", TENANTS).status.phase, lambda phase: phase == "Running")


def kubectl(lab, *words):
    done = lab.run("kubectl", "-n", EXPORTERS, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def exporter(lab):
    """The exporter with the stand-in, and with the node's own pids for the driver's."""
    rollout = ("rollout", "status", "daemonset/card-exporter", "--timeout=120s")
    kubectl(lab, *rollout)
    number = kubectl(lab, "exec", "daemonset/card-exporter", "--", "stat", "-L", "-c", "%i", "/proc/self/ns/pid")
    lab.set(card_exporter={"namespace": EXPORTERS, "driver_pid_namespace": int(number)})
    lab.apply()
    core, apps = client.CoreV1Api(lab.cluster.api), client.AppsV1Api(lab.cluster.api)
    core.create_namespaced_config_map(EXPORTERS, {"metadata": {"name": "stand-in"}, "data": {"nvidia-smi": STAND_IN}})
    change = {
        "containers": [
            {
                "name": "card-exporter",
                "env": [{"name": "PATH", "value": "/stand-in:/usr/local/bin:/usr/bin:/bin"}],
                "volumeMounts": [{"name": "stand-in", "mountPath": "/stand-in"}],
            }
        ],
        "volumes": [{"name": "stand-in", "configMap": {"name": "stand-in", "defaultMode": 0o555}}],
    }
    apps.patch_namespaced_daemon_set("card-exporter", EXPORTERS, {"spec": {"template": {"spec": change}}})
    kubectl(lab, *rollout)


def card(lab):
    """The exit code of `corral card`, and the holders by name."""
    done = lab.corral("card", "--context", lab.cluster.context, "--json", code=None)
    (found,) = json.loads(done.stdout)["cards"]
    return done.returncode, {one["name"]: one for one in found["holders"]}


def test_without_a_driver_the_exporter_runs_and_nothing_that_is_held_is_known(lab):
    kubectl(lab, "rollout", "status", "daemonset/card-exporter", "--timeout=120s")
    code, holders = card(lab)
    assert code == 1
    assert {one["held"] for one in holders.values()} == {None}


def test_the_tenant_that_took_the_card_is_named_with_what_it_holds_beyond_its_budget(lab, tenant, exporter):
    lab.corral("smoke", "tiny-text", "--context", lab.cluster.context, "--namespace", NAMESPACE)
    code, holders = pods.eventually(
        lambda: card(lab), lambda found: found[1]["tiny-text"]["held"] and found[1]["immich-ml"]["held"], limit_s=120
    )
    assert code == 1
    assert holders["immich-ml"]["kind"] == "tenant"
    assert (holders["immich-ml"]["held"], holders["immich-ml"]["over"]) == (10726 * MIB, (10726 - 2100) * MIB)
    assert (holders["tiny-text"]["kind"], holders["tiny-text"]["held"]) == ("model", 3000 * MIB)
    assert (holders["frigate"]["held"], holders["tiny-vision"]["held"]) == (0, 0)
    assert holders["pid 4194300"]["kind"] == "hidden"
    done = lab.corral("card", "--context", lab.cluster.context, "--namespace", EXPORTERS, code=1)
    assert "immich-ml" in done.stdout
    assert "8,626 MiB over its promise since " in done.stdout
    assert f"in {TENANTS}/ml-0" in done.stdout


def test_prometheus_gets_the_same(lab, tenant, exporter):
    def held():
        status, text = get(f"{address}/metrics")
        assert status == 200
        return {
            one.labels["holder"]: one.value
            for family in text_string_to_metric_families(text)
            for one in family.samples
            if one.name == "corral_held_bytes"
        }

    target = connect(lab.cluster.kubeconfig, lab.cluster.context)
    with forwarded(target, EXPORTERS, "card-exporter", port="metrics") as address:
        found = pods.eventually(held, lambda found: found.get("immich-ml"))
    assert found["immich-ml"] == 10726 * MIB
    assert found["frigate"] == 0


def test_it_may_list_pods_and_read_nothing_else(lab):
    account = f"system:serviceaccount:{EXPORTERS}:card-exporter"
    may = {
        what: lab.run("kubectl", "auth", "can-i", *what.split(), "--all-namespaces", f"--as={account}").stdout.strip()
        for what in ("list pods", "get pods", "list secrets", "get secrets", "delete pods", "create pods/exec")
    }
    assert [what for what, answer in may.items() if answer == "yes"] == ["list pods", "get pods"]


def why(lab):
    """The verdict of `corral why` on the model."""
    words = ("why", "tiny-text", "--context", lab.cluster.context, "--namespace", NAMESPACE, "--json")
    return json.loads(lab.corral(*words, code=None).stdout)


def test_why_names_the_tenant_with_its_pod_until_its_command_has_ended_that(lab, tenant, exporter):
    before = lab.server_pod().metadata.name
    server = ("kubectl", "-n", NAMESPACE)
    assert lab.run(*server, "set", "env", "deployment/llama-swap", "-c", "llama-swap", FULL).returncode == 0
    pods.eventually(lab.server_pod, lambda pod: pod and pod.metadata.name != before, limit_s=120)
    lab.run(*server, "rollout", "status", "deployment/llama-swap", "--timeout=120s")
    lab.corral("smoke", "tiny-text", "--context", lab.cluster.context, "--namespace", NAMESPACE, code=1)

    verdict = why(lab)

    assert (verdict["class"], verdict["culprit"]) == ("out-of-memory", "immich-ml, 8626 MiB over its promise")
    assert verdict["evidence"][0].startswith("immich-ml holds 10726 MiB of the card now, and was promised 2100, first")
    assert verdict["evidence"][0].endswith(f" ago, in {TENANTS}/ml-0.")
    account, end, smoke = verdict["next"]
    assert f" --namespace {EXPORTERS} " in account
    assert "immich-ml" in lab.corral(*shlex.split(account)[1:], code=1).stdout
    assert smoke.startswith("corral smoke tiny-text ")
    done = lab.run(*shlex.split(end))
    assert done.returncode == 0, done.stderr
    healthy = pods.eventually(lambda: why(lab), lambda verdict: verdict["class"] == "healthy")
    assert "for a reason that no longer holds: send the request again." in " ".join(healthy["evidence"])


def test_without_the_exporter_every_model_answers(lab, exporter):
    lab.run(
        "kubectl", "-n", NAMESPACE, "set", "env", "deployment/llama-swap", "-c", "llama-swap", "CORRAL_VRAM_SOURCE-"
    )
    lab.run("kubectl", "-n", NAMESPACE, "rollout", "status", "deployment/llama-swap", "--timeout=120s")
    kubectl(lab, "delete", "daemonset/card-exporter", "--wait=true")
    lab.corral("smoke", "--context", lab.cluster.context, "--namespace", NAMESPACE)
    done = lab.corral("card", "--context", lab.cluster.context, "--namespace", EXPORTERS, code=3)
    assert "No pod of the Service card-exporter" in done.stderr
