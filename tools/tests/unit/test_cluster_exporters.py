"""The keys of the exporters of a cluster: one for each, in its own namespace, and their hashes beside the clients'."""

from __future__ import annotations

import base64

import pytest

from corral import keys
from corral.cluster import exporters
from corral.cluster.client import connect
from corral.cluster.keys import ClusterKeys
from corral.cluster.target import ClusterTarget
from corral.errors import Refused
from corral.keys import MONITOR, OPERATOR
from corral.terraform.guard import ClusterGuard
from tests.support.fake_kubernetes import fake_kubernetes


def namespace(name, of):
    labels = {"app.kubernetes.io/name": "card-exporter", "app.kubernetes.io/instance": of}
    return {"metadata": {"name": name, "labels": labels}}


@pytest.fixture
def fake(tmp_path):
    with fake_kubernetes(tmp_path) as running:
        for name in ("llama-cpp", "watch", "watch-2", "elsewhere"):
            running.objects[f"/api/v1/namespaces/{name}"] = {"metadata": {"name": name}}
        running.objects["/api/v1/namespaces"] = [namespace("watch", "llama-cpp"), namespace("elsewhere", "other")]
        keys.ensure_operator(ClusterKeys(connect(running.kubeconfig, "lab"), "llama-cpp"))
        yield running


def path(place):
    return f"/api/v1/namespaces/{place}/secrets/corral-monitor"


def key_of(fake, place):
    return base64.b64decode(fake.objects[path(place)]["data"]["key"]).decode()


def give(fake):
    """Give the keys; those that the guard has after it."""
    cluster = connect(fake.kubeconfig, "lab")
    exporters.give_keys(cluster, "llama-cpp")
    return ClusterKeys(cluster, "llama-cpp").read()


def test_the_exporter_gets_a_key_that_the_guard_knows_and_it_stays(fake):
    found = give(fake)
    key = key_of(fake, "watch")
    assert (len(found.of[MONITOR]), found.has(MONITOR, key)) == (1, True)
    assert found.of.keys() == {MONITOR, OPERATOR}
    assert path("elsewhere") not in fake.objects
    assert (give(fake), key_of(fake, "watch")) == (found, key)


def test_another_exporter_gets_a_key_of_its_own_beside_the_first(fake):
    give(fake)
    first = key_of(fake, "watch")
    fake.objects["/api/v1/namespaces"].append(namespace("watch-2", "llama-cpp"))
    found = give(fake)
    assert (key_of(fake, "watch"), len(found.of[MONITOR])) == (first, 2)
    assert found.has(MONITOR, first)
    assert found.has(MONITOR, key_of(fake, "watch-2"))


@pytest.mark.parametrize(
    "data", [{}, {"key": "%%"}, {"key": ""}, {"key": base64.b64encode(b"a-strangers-key").decode()}]
)
def test_a_key_that_the_guard_does_not_know_is_replaced(fake, data):
    fake.objects[path("watch")] = {"metadata": {"name": "corral-monitor", "resourceVersion": "1"}, "data": data}
    assert give(fake).has(MONITOR, key_of(fake, "watch"))


def test_a_key_that_was_revoked_is_replaced(fake):
    give(fake)
    before = key_of(fake, "watch")
    keys.revoke(ClusterKeys(connect(fake.kubeconfig, "lab"), "llama-cpp"), MONITOR, only_old=False)
    assert give(fake).has(MONITOR, key_of(fake, "watch"))
    assert key_of(fake, "watch") != before


def test_without_an_exporter_nothing_is_made(fake):
    fake.objects["/api/v1/namespaces"] = []
    assert give(fake).of.keys() == {OPERATOR}


def test_a_secret_that_may_not_be_read_ends_an_apply_with_the_reason(fake, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig))
    fake.refuse[path("watch")] = 403
    with pytest.raises(Refused, match="forbidden"):
        ClusterGuard(ClusterTarget(None, "lab", "llama-cpp")).give_monitor_keys()


def test_a_user_who_may_not_list_namespaces_gives_no_key(fake):
    fake.refuse["/api/v1/namespaces"] = 403
    assert give(fake).of.keys() == {OPERATOR}
    assert path("watch") not in fake.objects
