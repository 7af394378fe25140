"""The alerts about the memory of a card: from the exporter of a node to a webhook, each with its runbook."""

from __future__ import annotations

import pytest

from tests.support.cluster import watched
from tests.support.cluster.alerting import active, notified, receiving, statuses_of_requests
from tests.support.cluster.follower import Follower
from tests.support.cluster.pods import eventually
from tests.support.cluster.watched import MODEL

pytestmark = pytest.mark.timeout(420)


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    with watched.watched(cluster, tmp_path_factory.mktemp("alerts")) as lab:
        watched.install_driver(lab)
        yield lab


@pytest.fixture(scope="module")
def receiver(lab, tmp_path_factory):
    with receiving(lab, tmp_path_factory.mktemp("monitoring")) as receiver:
        yield receiver


def test_the_alert_about_a_model_without_room_names_the_tenant_that_took_it(lab, receiver):
    watched.fill_card(lab)
    watched.grow_tenant(lab)
    assert statuses_of_requests(lab, 1) == [503]

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
    assert statuses_of_requests(lab, 1) == [503]
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
