"""The exporter on a node: real pids of real pods, joined with their tenants."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from kubernetes import client
from prometheus_client.parser import text_string_to_metric_families

from corral import paths
from corral.catalog import catalog as catalogs
from corral.catalog import ledger
from corral.cluster.client import connect
from corral.cluster.port_forward import forwarded
from corral.lock import lock as locks
from tests.support.cluster import pods
from tests.support.cluster.watched import (
    EXPORTERS,
    MIB,
    MODEL,
    NAMESPACE,
    TENANTS,
    deploy_tenant,
    empty_card,
    fill_card,
    grow_tenant,
    install_driver,
    kubectl,
    wait_for_exporter,
    watched,
)
from tests.support.engine_process import get, post

HELD = "corral_held_bytes"
pytestmark = pytest.mark.timeout(420)


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    with watched(cluster, tmp_path_factory.mktemp("watched")) as lab:
        yield lab


@pytest.fixture(scope="module")
def tenant(lab):
    """A pod of the tenant immich-ml that has taken the card."""
    grow_tenant(lab)


@pytest.fixture(scope="module")
def exporter(lab):
    """The exporter with a driver."""
    install_driver(lab)


def card(lab):
    """The exit code of `corral card`, and the holders by name."""
    done = lab.corral("card", "--context", lab.cluster.context, "--json", code=None)
    (found,) = json.loads(done.stdout)["cards"]
    return done.returncode, {one["name"]: one for one in found["holders"]}


def test_without_a_driver_the_exporter_runs_and_nothing_that_is_held_is_known(lab):
    wait_for_exporter(lab)
    code, holders = card(lab)
    assert code == 1
    assert {one["held"] for one in holders.values()} == {None}


def measure(lab, *words, code=0):
    """What `corral measure` prints of the model through the Service."""
    return lab.corral("measure", MODEL, "--context", lab.cluster.context, *words, code=code)


def test_without_a_driver_no_model_is_measured_and_none_is_loaded(lab):
    done = measure(lab, code=3)
    assert (
        f"The exporter on the node {lab.cluster.node} gets no figures from NVIDIA's driver: There is no" in done.stderr
    )
    assert "-n corral-exporter exec daemonset/card-exporter -- nvidia-smi" in done.stderr
    assert "is not loaded" not in done.stderr
    assert not ledger.path_of(lab.catalog).exists()


def test_a_model_is_measured_through_the_service_by_the_driver_of_its_node(lab, exporter):
    path = lab.catalog / "lock.json"
    before = path.read_text()
    try:
        (shown,) = json.loads(measure(lab, "--reload", "--json").stdout)["measurements"]
        (one,) = ledger.read(lab.catalog).measurements
        locked = locks.require_fresh(catalogs.load(lab.catalog)).models[MODEL]
    finally:
        ledger.path_of(lab.catalog).unlink(missing_ok=True)
        path.write_text(before)
    assert (one.model, one.argv_sha256) == (MODEL, ledger.argv_sha256(locked.argv))
    assert (one.device, one.source, one.gpu_bytes) == ("Tesla T4", "nvidia-smi", 100 * MIB)
    assert (one.predicted_gpu_bytes, shown["gpu_bytes"]) == (locked.predicted.gpu_bytes, one.gpu_bytes)
    assert re.fullmatch("b[0-9]+-.*|unknown", one.engine)
    assert (locked.measured.gpu_bytes, locked.measured.engine) == (one.gpu_bytes, one.engine)
    assert locked.measured.date == one.date


def test_the_tenant_that_took_the_card_is_named_with_what_it_holds_beyond_its_budget(lab, tenant, exporter):
    lab.corral("smoke", MODEL, "--context", lab.cluster.context, "--namespace", NAMESPACE)
    code, holders = pods.eventually(
        lambda: card(lab), lambda found: found[1][MODEL]["held"] and found[1]["immich-ml"]["held"], limit_s=120
    )
    assert code == 1
    assert holders["immich-ml"]["kind"] == "tenant"
    assert (holders["immich-ml"]["held"], holders["immich-ml"]["over"]) == (10726 * MIB, (10726 - 2100) * MIB)
    assert (holders[MODEL]["kind"], holders[MODEL]["held"]) == ("model", 100 * MIB)
    assert (holders["frigate"]["held"], holders["tiny-vision"]["held"]) == (0, 0)
    assert holders["pid 4194300"]["kind"] == "hidden"
    status = lab.corral("status", code=1).stdout
    assert "tenant/immich-ml: holds 10726 MiB of the card t4, and was promised 2100 MiB." in status
    assert "tenant/frigate: has no pod on the node of t4" in status
    done = lab.corral("card", "--context", lab.cluster.context, "--namespace", EXPORTERS, code=1)
    assert "immich-ml" in done.stdout
    assert "8,626 MiB over its promise since " in done.stdout
    assert f"in {TENANTS}/ml-0" in done.stdout


def series(address):
    """Name and values of the labels of each series, and its value."""
    status, text = get(f"{address}/metrics")
    assert status == 200
    families = text_string_to_metric_families(text)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_prometheus_gets_the_same(lab, tenant, exporter):
    target = connect(lab.cluster.kubeconfig, lab.cluster.context)
    with forwarded(target, EXPORTERS, "card-exporter", port="metrics") as address:
        found = pods.eventually(lambda: series(address), lambda found: found.get((HELD, "t4", "immich-ml", "tenant")))
    assert found[HELD, "t4", "immich-ml", "tenant"] == 10726 * MIB
    assert found[HELD, "t4", "frigate", "tenant"] == 0


def test_its_page_is_the_operators_alone_also_when_the_key_is_another(lab, tenant, exporter):
    target = connect(lab.cluster.kubeconfig, lab.cluster.context)
    where = ("--context", lab.cluster.context, "--namespace", NAMESPACE)
    old = lab.key()
    with forwarded(target, EXPORTERS, "card-exporter", port="metrics") as address:

        def statuses(key):
            return {get(f"{address}{path}", api_key=key)[0] for path in ("/", "/card.json", "/records?since=0")}

        status, text = get(f"{address}/card.json")
        assert (status, get(f"{address}/metrics")[0]) == (401, 200)
        printed = lab.run("sh", "-c", text.partition("This prints it: ")[2])
        assert printed.stdout == old
        assert (statuses(old), statuses("x")) == ({200}, {401})
        lab.corral("keys", "rotate", "operator", *where)
        pods.eventually(lambda: statuses(lab.key()), lambda found: found == {200}, limit_s=180)
        assert statuses(old) == {200}
        lab.corral("keys", "revoke", "operator", "--old", *where)
        pods.eventually(lambda: statuses(old), lambda found: found == {401}, limit_s=180)
        assert statuses(lab.key()) == {200}
    assert card(lab)[0] == 1


def test_it_may_list_pods_and_read_nothing_else(lab):
    account = f"system:serviceaccount:{EXPORTERS}:card-exporter"
    may = {
        what: lab.run("kubectl", "auth", "can-i", *what.split(), "--all-namespaces", f"--as={account}").stdout.strip()
        for what in ("list pods", "get pods", "list secrets", "get secrets", "delete pods", "create pods/exec")
    }
    assert [what for what, answer in may.items() if answer == "yes"] == ["list pods", "get pods"]


def why(lab):
    """The verdict of `corral why` on the model."""
    words = ("why", MODEL, "--context", lab.cluster.context, "--namespace", NAMESPACE, "--json")
    return json.loads(lab.corral(*words, code=None).stdout)


def test_why_names_the_tenant_with_its_pod_until_its_command_has_ended_that(lab, tenant, exporter):
    fill_card(lab)
    lab.corral("smoke", MODEL, "--context", lab.cluster.context, "--namespace", NAMESPACE, code=1)

    verdict = why(lab)

    assert (verdict["class"], verdict["culprit"]) == ("out-of-memory", "immich-ml, 8626 MiB over its promise")
    assert verdict["evidence"][0].startswith("immich-ml holds 10726 MiB of the card now, and was promised 2100, first")
    assert verdict["evidence"][0].endswith(f" ago, in {TENANTS}/ml-0.")
    account, end, smoke = verdict["next"]
    assert f" --namespace {EXPORTERS} " in account
    assert "immich-ml" in lab.corral(*shlex.split(account)[1:], code=1).stdout
    assert smoke.startswith(f"corral smoke {MODEL} ")
    done = lab.run(*shlex.split(end))
    assert done.returncode == 0, done.stderr
    healthy = pods.eventually(lambda: why(lab), lambda verdict: verdict["class"] == "healthy")
    assert "for a reason that no longer holds: send the request again." in " ".join(healthy["evidence"])


def test_the_timeline_has_what_happened_before_the_exporters_pod_was_another(lab, tenant, exporter):
    kubectl(lab, "rollout", "restart", "daemonset/card-exporter")
    wait_for_exporter(lab)

    def events():
        words = ("timeline", "--since", "1h", "--context", lab.cluster.context, "--json")
        return [one["text"] for one in json.loads(lab.corral(*words).stdout)["events"]]

    found = pods.eventually(events, lambda found: found.count("the exporter has started") > 2)
    over = found.index("immich-ml holds 10,726 MiB, 8,626 more than the 2,100 promised")
    assert "the exporter has started" in found[over:]
    path = lab.corral("timeline", "--context", lab.cluster.context, "--post-mortem", "immich-ml took the card").stdout
    text = Path(path.strip()).read_text()
    assert "immich-ml holds 10,726 MiB, 8,626 more than the 2,100 promised" in text


def test_it_reads_llama_swap_through_the_door_and_loads_no_model(lab, exporter):
    empty_card(lab)
    target = connect(lab.cluster.kubeconfig, lab.cluster.context)
    with forwarded(target, EXPORTERS, "card-exporter", port="metrics") as metrics, forwarded(target, NAMESPACE) as door:
        # The guard has the monitor's key when the kubelet brings the changed Secret.
        pods.eventually(lambda: series(metrics), lambda found: found.get(("corral_llama_swap_up",)) == 1, limit_s=180)
        lab.corral("smoke", MODEL, "--context", lab.cluster.context, "--namespace", NAMESPACE)
        answered = ("corral_requests_total", "200", MODEL)  # llama-swap lists a request a moment after its answer
        found = pods.eventually(lambda: series(metrics), lambda found: found.get(answered, 0) > 0)
        assert found["corral_model_state", MODEL, "ready"] == found["corral_engine_up", MODEL] == 1
        assert found["corral_engine_requests", MODEL, "busy"] == 0
        probed = ("corral_probe_success", MODEL)  # in the next round, half a minute later at most
        pods.eventually(lambda: series(metrics), lambda found: found.get(probed) == 1, limit_s=120)

        ended = ("corral_unloads_total", "requested", MODEL)
        before = pods.eventually(lambda: series(metrics), lambda found: ended in found)[ended]
        assert post(f"{door}/api/models/unload/{MODEL}", {}, api_key=lab.key())[0] == 200
        pods.eventually(lambda: series(metrics), lambda found: found[ended] == before + 1)
        for _ in range(20):
            states = [name for name in series(metrics) if name[0] == "corral_model_state"]
        assert states == []
    document = json.loads(lab.corral("keys", "list", "--json", "--context", lab.cluster.context).stdout)
    assert document["monitor"] == {"keys": 1}


def bench(lab, title, *before):
    """The document of a benchmark through the Service, by a command that begins with the words *before*."""
    words = ("--users", "1,2", "--requests", "20", "--prompt-tokens", "60", "--answer-tokens", "8")
    where = ("--context", lab.cluster.context)
    kept = ("--report", title, "--save", lab.clone / f"{title}.json.gz")
    done = lab.corral(*before, "bench", MODEL, *where, *words, *kept, code=None)
    if done.returncode != 4 and "ended with exit code 4" not in done.stderr:  # other clusters made the client late
        assert done.returncode == 0, done.stderr
    (document,) = (lab.clone / "docs" / "benchmarks").glob(f"*-{title}.md")
    return document.read_text()


def test_the_report_of_a_benchmark_through_the_service_has_what_held_the_card(lab, exporter):
    text = bench(lab, "service")
    assert f"| {MODEL} | 2 users | 20 | 0 |" in text
    assert re.search(rf"^\| {MODEL} \| (0|100) \| 100 \| 100 \|$", text, re.MULTILINE), text
    assert "| card t4 | Tesla T4 |" in text


def test_a_benchmark_is_compared_with_one_while_the_tenant_beside_it_was_stood_down(lab, exporter, request):
    """By one command; a tenant that computes, and holds most of the card by the stand-in."""
    apps = client.AppsV1Api(lab.cluster.api)
    computes = "import signal, sys; signal.signal(15, lambda *_: sys.exit())\nwhile True: pass"
    deploy_tenant(lab, "python3", "-c", computes, "balloon", MACHINE_LEARNING_MODEL_TTL="600")
    request.addfinalizer(lambda: apps.delete_namespaced_deployment("immich-machine-learning", TENANTS))
    pods.eventually(lambda: card(lab)[1]["immich-ml"]["held"], lambda held: held == 10726 * MIB, limit_s=120)

    beside = bench(lab, "beside")
    away = ("stand-down", "--context", lab.cluster.context, "immich-ml", "--")
    alone = bench(lab, "alone", *away, Path(sys.executable).with_name("corral"))

    assert "| immich-ml | 10,726 | 10,726 | 10,726 |" in beside
    assert re.search(rf"^\| {MODEL} \| (0|100) \| 100 \| 100 \|$", alone, re.MULTILINE), alone
    assert re.findall(r"^\| immich-ml \| .* \| (\S+) \|$", alone, re.MULTILINE) in ([], ["0"]), alone
    compared = lab.corral("bench", "--compare", "beside.json.gz", "alone.json.gz", code=None)
    if compared.returncode == 4:  # other clusters made the client of a run late, and such a run is not compared
        assert "A run is invalid" in compared.stderr
    else:
        assert compared.returncode in (0, 1), compared.stderr  # 1: a figure is worse
        assert "E2E" in compared.stdout
    assert apps.read_namespaced_deployment("immich-machine-learning", TENANTS).spec.replicas == 1


def test_the_gate_through_the_service_ends_the_pod_with_ten_whole_streams_and_has_another(lab, exporter, tmp_path):
    target = connect(lab.cluster.kubeconfig, lab.cluster.context)
    with forwarded(target, EXPORTERS, "card-exporter", port="metrics") as address:
        # The guard has the monitor's key when the kubelet brings the changed Secret.
        pods.eventually(lambda: series(address), lambda found: found.get(("corral_llama_swap_up",)) == 1, limit_s=180)
    before = lab.server_pod().metadata.uid
    files = ("--page", tmp_path / "gate.md", "--contract", paths.REPOSITORY / "docs" / "api.md")
    words = ("--context", lab.cluster.context, "--users", "1,2", "--seconds", "2", "--may-end", "--json")
    done = lab.corral("gate", MODEL, *words, *files, code=1)  # it has no latency budget
    boxes = {one["box"]: one for one in json.loads(done.stdout)["boxes"]}
    states = {name: one["state"] for name, one in boxes.items()}
    if states["sdk"] == "failed":  # the tiny model has few tokens: tests/stack/test_gate.py
        text = boxes["sdk"]["lines"][0]["text"]
        few = r"[123] of \d+ promises are not as documented: (`POST /completion`|A stream that its client closes)"
        assert re.match(few, text)
        states["sdk"] = "passed"
    lines = [line["text"] for line in boxes["users"]["lines"]]
    assert [line.partition(",")[0] for line in lines] == ["1 user", "2 users"]
    late = any("the run is invalid: this process was late" in line for line in lines)  # by other clusters
    assert states == dict.fromkeys(boxes, "passed") | {
        "latency": "unknown",
        "users": "unknown" if late else "passed",
        "adapters": "not used",
    }, done.stderr
    assert "10 of 10 streams whole" in boxes["shutdown"]["lines"][0]["text"]
    assert lab.server_pod().metadata.uid != before
    assert f"| served at | {lab.cluster.context}/{NAMESPACE} |" in (tmp_path / "gate.md").read_text()
    again = f"corral gate {MODEL} --only shutdown --may-end --context {lab.cluster.context} --namespace {NAMESPACE} "
    assert boxes["shutdown"]["command"].startswith(again)  # and the kubeconfig


def test_without_the_exporter_every_model_answers(lab, exporter):
    kubectl(lab, "delete", "daemonset/card-exporter", "--wait=true")
    lab.corral("smoke", "--context", lab.cluster.context, "--namespace", NAMESPACE)
    done = lab.corral("card", "--context", lab.cluster.context, "--namespace", EXPORTERS, code=3)
    assert "No pod of the Service card-exporter" in done.stderr
