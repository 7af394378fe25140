"""The alerts of a card, from the exporter of a node by real Prometheus and Alertmanager, each with its runbook."""

from __future__ import annotations

import json
import threading
from urllib.parse import urlsplit

import pytest
import yaml

from corral.cluster.client import connect
from corral.cluster.port_forward import forwarded
from corral.drill.monitoring import installed, monitoring
from tests.support.cluster import watched
from tests.support.cluster.follower import Follower
from tests.support.cluster.pods import eventually
from tests.support.cluster.watched import EXPORTERS, MODEL, NAMESPACE
from tests.support.engine_process import get, post, question

UNITS = {"s": 1, "m": 60}
pytestmark = pytest.mark.timeout(420)


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    with watched.watched(cluster, tmp_path_factory.mktemp("alerts")) as lab:
        watched.install_driver(lab)
        yield lab


@pytest.fixture(scope="module")
def receiver(lab, tmp_path_factory):
    """What Alertmanager notifies, by the lab's own rules, whose durations are a tenth."""
    rules, inhibit = (lab.terraform("output", "-raw", name).stdout for name in ("alert_rules", "alert_inhibit_rules"))
    target, folder = connect(lab.cluster.kubeconfig, lab.cluster.context), tmp_path_factory.mktemp("monitoring")
    programs = installed()
    assert programs
    with (
        forwarded(target, EXPORTERS, "card-exporter", port="metrics") as address,
        monitoring(folder, urlsplit(address).netloc, faster(rules), inhibit, programs, every_s=3) as receiver,
    ):
        yield receiver


def faster(rules):
    """*rules* with every duration a tenth: their order stays."""
    document = yaml.safe_load(rules)
    for group in document["groups"]:
        for timed in (group, *group["rules"]):
            for key in {"interval", "for", "keep_firing_for"} & timed.keys():
                timed[key] = f"{int(timed[key][:-1]) * UNITS[timed[key][-1]] // 10}s"
    return yaml.safe_dump(document).replace("[32s]", "[7s]")


def notified(receiver, name, status="firing", *, after=0, limit_s=120, **labels):
    """The first notification about the alert *name* with *labels*, of those *after* so many."""
    found = receiver.first(
        lambda one: (one.name, one.status) == (name, status) and labels.items() <= one.labels.items(),
        limit_s=limit_s,
        after=after,
    )
    assert found, f"no {name} ({status}) in {receiver.all}"
    return found


def active(receiver):
    """The names of the alerts that Alertmanager has, inhibited ones included."""
    status, text = get(f"{receiver.alertmanager}/api/v2/alerts")
    assert status == 200
    return {one["labels"]["alertname"] for one in json.loads(text)}


def status_of_a_request(lab):
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE) as address:
        return post(f"{address}/v1/chat/completions", question("Are you there?", model=MODEL), api_key=lab.key())[0]


def test_the_alert_about_a_model_without_room_names_the_tenant_that_took_it(lab, receiver):
    watched.fill_card(lab)
    watched.grow_tenant(lab)
    assert status_of_a_request(lab) == 503

    model = notified(receiver, "CorralNoRoomForModel", model=MODEL)

    assert (model.labels["culprit"], model.labels["severity"]) == ("immich-ml", "critical")
    assert model.annotations["summary"].endswith(f"for the model {MODEL}; largest excess: immich-ml.")
    tenant = notified(receiver, "CorralTenantOverBudget")
    assert tenant.annotations["summary"] == "immich-ml holds 8.424GiB more of the card t4 than its budget."


def test_an_exporter_that_dies_is_an_alert_and_not_the_end_of_the_others(lab, receiver):
    notified(receiver, "CorralTenantOverBudget")
    before = len(receiver.all)
    watched.kubectl(lab, "delete", "daemonset/card-exporter", "--wait=true")
    notified(receiver, "CorralExporterMissing", "firing", after=before)
    eventually(lambda: active(receiver), {"CorralExporterMissing"}.__eq__)
    ended = {one.name for one in receiver.all[before:] if one.status == "resolved"}
    assert not ended & {"CorralTenantOverBudget", "CorralNoRoomForModel"}
    operator = Follower(lab, "exporter-missing")

    operator.does("Diagnosis")
    operator.does("Mitigation")

    watched.mount_driver(lab)
    notified(receiver, "CorralExporterMissing", "resolved", after=before)
    operator.does("Verify", card=1)  # the tenant is as it was
    operator.assert_all_is_done()


def test_the_runbooks_about_room_lead_to_a_model_that_answers(lab, receiver):
    watched.fill_card(lab)
    assert status_of_a_request(lab) == 503
    model, tenant = Follower(lab, "no-room-for-model"), Follower(lab, "tenant-over-budget")

    printed = model.does("Diagnosis", card=1, why=1)
    verdict = printed[f"corral why {MODEL}"]
    assert "immich-ml, 8626 MiB over its promise" in verdict, verdict
    assert "immich-ml holds 10,726 MiB, 8,626 more than the 2,100 promised" in printed["corral timeline --since 1h"]
    assert "in immich/ml-0" in tenant.does("Diagnosis", card=1)["corral card"]
    tenant.does("Mitigation")
    before = len(receiver.all)
    watched.empty_card(lab)

    model.does("Verify")
    tenant.does("Verify")
    for alert in ("CorralTenantOverBudget", "CorralNoRoomForModel"):
        notified(receiver, alert, "resolved", after=before)
    model.assert_all_is_done()
    tenant.assert_all_is_done()


def test_a_driver_that_is_gone_is_an_alert_until_the_runbook_has_brought_it_back(lab, receiver):
    before = len(receiver.all)
    watched.lose_driver(lab)
    notified(receiver, "CorralDriverSilent", after=before)
    operator = Follower(lab, "driver-silent")

    printed = operator.does("Diagnosis", card=1)
    assert "There is no nvidia-smi on PATH." in printed["corral card"]
    assert any("exit code 127" in text for text in printed.values())
    watched.mount_driver(lab)
    operator.does("Mitigation")

    operator.does("Verify")
    operator.assert_all_is_done()
    notified(receiver, "CorralDriverSilent", "resolved", after=before)


def test_a_holder_that_is_unknown_is_an_alert_until_the_exporter_may_list_pods_again(lab, receiver):
    lab.corral("smoke", MODEL)  # a process of a pod is on the card
    before = len(receiver.all)
    watched.kubectl(lab, "delete", "clusterrolebinding/corral-exporter-card-exporter")
    watched.kubectl(lab, "rollout", "restart", "daemonset/card-exporter")
    watched.wait_for_exporter(lab)
    notified(receiver, "CorralHolderUnknown", holder="immich-ml", after=before)
    operator = Follower(lab, "holder-unknown")

    printed = operator.does("Diagnosis")
    assert "gave no list of the pods" in printed["corral card"]
    operator.does("Mitigation")
    watched.mount_driver(lab)

    operator.does("Verify")
    operator.assert_all_is_done()
    notified(receiver, "CorralHolderUnknown", "resolved", holder="immich-ml", after=before)


def test_a_tenant_that_is_not_set_as_expected_is_an_alert_until_the_runbook_has_set_it(lab, receiver):
    watched.start_frigate(lab)
    before = len(receiver.all)
    watched.deploy_tenant(lab, MACHINE_LEARNING_MODEL_TTL="0")
    notified(receiver, "CorralExpectationBroken", holder="immich-ml", after=before)
    operator = Follower(lab, "expectation-broken")
    finding = "MACHINE_LEARNING_MODEL_TTL is '0', and must be >0."

    printed = operator.does("Diagnosis", status=1)
    assert f"tenant/immich-ml: does not keep to what cards/t4.yaml expects: {finding}" in printed["corral status"]
    operator.does("Mitigation")
    notified(receiver, "CorralExpectationBroken", "resolved", holder="immich-ml", after=before)

    operator.does("Verify")
    operator.assert_all_is_done()


def signal_engine(lab, name):
    """Send the engine of the model the signal *name*."""
    command = f"kill -{name} $(grep -la -e '[/]models/{MODEL}' /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3)"
    done = lab.run("kubectl", "-n", NAMESPACE, "exec", "deployment/llama-swap", "--", "sh", "-c", command)
    assert done.returncode == 0, done.stderr


def test_an_engine_that_hangs_is_an_alert_until_the_runbook_has_ended_it(lab, receiver):
    lab.corral("smoke", MODEL)
    before = len(receiver.all)
    signal_engine(lab, "STOP")
    notified(receiver, "CorralEngineHung", model=MODEL, after=before)
    operator = Follower(lab, "engine-hung")

    printed = operator.does("Diagnosis", why=3, status=1)
    assert "engine" in printed[f"corral why {MODEL}"]
    operator.does("Mitigation")

    operator.does("Verify")
    notified(receiver, "CorralEngineHung", "resolved", model=MODEL, after=before)
    operator.assert_all_is_done()


def test_requests_that_are_refused_are_an_alert_whose_runbook_names_the_limit(lab, receiver):
    lab.corral("smoke", MODEL)
    before = len(receiver.all)
    signal_engine(lab, "STOP")  # so that as many as it accepts stay under way
    statuses, key = [], lab.key()
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE) as address:
        hello = question("Are you there?", model=MODEL)
        url = f"{address}/v1/chat/completions"
        crowd = [threading.Thread(target=lambda: statuses.append(post(url, hello, api_key=key)[0])) for _ in range(12)]
        for one in crowd:
            one.start()
        refused = eventually(lambda: tuple(statuses), lambda found: len(found) == 2)
        signal_engine(lab, "CONT")
        for one in crowd:
            one.join()
    assert refused == (429, 429)
    assert sorted(statuses) == [200] * 10 + [429] * 2
    notified(receiver, "CorralQueueFull", model=MODEL, after=before)
    queue, thrash = Follower(lab, "queue-full"), Follower(lab, "thrash")

    printed = queue.does("Diagnosis", why=1)
    assert "more than 10 requests at a time" in printed[f"corral why {MODEL}"]
    assert any('"status": 429' in text or '"status":429' in text for text in printed.values())
    queue.does("Mitigation")
    queue.does("Verify")
    notified(receiver, "CorralQueueFull", "resolved", model=MODEL, after=before, limit_s=240)
    queue.assert_all_is_done()

    # Loads are too short here for its alert, which promtool tests; its commands are typed all the same.
    assert "status 429" in thrash.does("Diagnosis")["corral timeline --since 30m"]
    thrash.does("Mitigation")
    thrash.does("Verify")
    thrash.assert_all_is_done()
    watched.mount_driver(lab)  # which the applies of both have taken away


def test_an_exporter_without_a_valid_key_is_an_alert_until_the_runbook_has_made_one(lab, receiver):
    # The first key of the lab may not have reached the guard yet.
    eventually(lambda: active(receiver), lambda names: "CorralLlamaSwapSilent" not in names, limit_s=200)
    before = len(receiver.all)
    watched.kubectl(lab, "delete", "secret/corral-monitor")
    watched.kubectl(lab, "rollout", "restart", "daemonset/card-exporter")
    watched.wait_for_exporter(lab)
    notified(receiver, "CorralLlamaSwapSilent", card="t4", after=before)
    operator = Follower(lab, "llama-swap-silent")

    operator.does("Diagnosis")
    operator.does("Mitigation")
    watched.mount_driver(lab)

    notified(receiver, "CorralLlamaSwapSilent", "resolved", card="t4", after=before, limit_s=200)
    operator.does("Verify")
    operator.assert_all_is_done()
