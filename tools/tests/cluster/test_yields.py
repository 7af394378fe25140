"""A model that is idle yields to a tenant: from the exporter of a node, by the door, to a webhook, with its runbook."""

from __future__ import annotations

import json

import pytest

from tests.support.cluster import watched
from tests.support.cluster.alerting import notified, receiving
from tests.support.cluster.follower import Follower
from tests.support.cluster.pods import eventually
from tests.support.cluster.watched import MODEL, TENANTS

pytestmark = pytest.mark.timeout(420)


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    rule = {"yield": {"floor_mib": 1024, "idle_seconds": 1}}
    with watched.watched(cluster, tmp_path_factory.mktemp("yields"), **rule) as lab:
        watched.install_driver(lab)
        yield lab


@pytest.fixture(scope="module")
def receiver(lab, tmp_path_factory):
    with receiving(lab, tmp_path_factory.mktemp("monitoring")) as receiver:
        yield receiver


def events(lab):
    found = json.loads(lab.corral("timeline", "--since", "10m", "--json").stdout)["events"]
    return [(one["name"], one["reason"]) for one in found if one["event"] == "model-yielded"]


def test_an_idle_model_is_unloaded_for_a_tenant_that_takes_the_card_and_the_runbook_explains_it(lab, receiver):
    lab.corral("smoke", MODEL)
    assert events(lab) == []  # there is room
    before = len(receiver.all)

    watched.grow_tenant(lab)

    eventually(lambda: events(lab), lambda found: found == [(MODEL, "free-below-floor")], limit_s=120)
    notified(receiver, "CorralModelYielded", model=MODEL, after=before)
    operator = Follower(lab, "model-yielded")
    printed = operator.does("Diagnosis", card=1)  # the tenant is beyond its budget
    assert f"{MODEL}, idle for " in printed["corral timeline --since 30m"]
    assert any(f"/engine-yield/{MODEL}" in text for text in printed.values())
    assert "ml-0" in operator.does("Mitigation")[f"kubectl -n {TENANTS} get pods"]
    watched.mount_driver(lab)  # which the apply has taken away
    lab.run("kubectl", "-n", TENANTS, "delete", "pod/ml-0", "--wait=true")
    operator.does("Verify")
    operator.assert_all_is_done()
