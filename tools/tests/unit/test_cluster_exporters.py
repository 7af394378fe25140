"""The keys of the exporters of a cluster: one for each, in its own namespace, and their hashes beside the clients'."""

from __future__ import annotations

import base64

import pytest

from corral import keys
from corral.cli.main import main
from corral.cluster import exporters
from corral.cluster.client import connect
from corral.cluster.keys import ClusterKeys
from corral.cluster.target import ClusterTarget
from corral.errors import CannotRun, Refused
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


def entry(fake, place, name):
    return base64.b64decode(fake.objects[path(place)]["data"][name]).decode()


def key_of(fake, place):
    return entry(fake, place, "key")


def operators_in(fake, place):
    """The clients that open the page of the exporter in *place*, and their hashes."""
    return keys.parse(entry(fake, place, "keys.json")).of


def operators_at_the_door(fake):
    return {OPERATOR: ClusterKeys(connect(fake.kubeconfig, "lab"), "llama-cpp").read().of[OPERATOR]}


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


def test_its_page_opens_for_the_operator_and_for_no_client(fake):
    keys.add(ClusterKeys(connect(fake.kubeconfig, "lab"), "llama-cpp"), "photos")
    give(fake)
    assert operators_in(fake, "watch") == operators_at_the_door(fake)
    assert fake.objects[path("watch")]["data"].keys() == {"key", "keys.json"}
    version = fake.objects[path("watch")]["metadata"]["resourceVersion"]
    give(fake)
    assert fake.objects[path("watch")]["metadata"]["resourceVersion"] == version


def test_an_exporter_of_before_gets_the_operators_hashes_beside_its_key(fake):
    give(fake)
    key = key_of(fake, "watch")
    del fake.objects[path("watch")]["data"]["keys.json"]
    give(fake)
    assert (key_of(fake, "watch"), operators_in(fake, "watch")) == (key, operators_at_the_door(fake))


def run(fake, *words):
    return main(["keys", *words, "--context", "lab", "--kubeconfig", str(fake.kubeconfig), "--namespace", "llama-cpp"])


def test_a_rotation_reaches_the_exporters_page_with_its_begin_and_its_end(fake):
    give(fake)
    key, (old,) = key_of(fake, "watch"), operators_in(fake, "watch")[OPERATOR]
    assert run(fake, "rotate", "operator") == 0
    assert operators_in(fake, "watch")[OPERATOR][0] == old
    assert len(operators_in(fake, "watch")[OPERATOR]) == 2
    assert run(fake, "revoke", "operator", "--old") == 0
    assert operators_in(fake, "watch") == operators_at_the_door(fake)
    assert old not in operators_in(fake, "watch")[OPERATOR]
    assert key_of(fake, "watch") == key
    assert path("elsewhere") not in fake.objects


@pytest.mark.parametrize("where", ["/api/v1/namespaces", path("watch")])
def test_a_change_that_does_not_reach_the_page_is_an_error_with_the_command_that_brings_it_there(fake, capsys, where):
    give(fake)
    fake.refuse[where] = 403
    assert run(fake, "rotate", "operator") == 2
    error = capsys.readouterr().err
    assert "The front door has the change; an exporter's page or the gateway may not have it." in error
    assert "→ corral apply" in error
    fake.refuse.clear()
    give(fake)
    assert operators_in(fake, "watch") == operators_at_the_door(fake)


def test_the_page_belongs_to_the_operator_of_the_engines_that_its_namespace_names(fake):
    cluster = connect(fake.kubeconfig, "lab")
    for name, of in (("watch", "llama-cpp"), ("elsewhere", "other")):
        fake.objects[f"/api/v1/namespaces/{name}"] = namespace(name, of)
        assert exporters.engines_of(cluster, name) == of
    with pytest.raises(CannotRun, match="The namespace llama-cpp is none of an exporter") as error:
        exporters.engines_of(cluster, "llama-cpp")
    assert error.value.next_step.endswith("get namespaces -l app.kubernetes.io/name=card-exporter")


def test_an_exporter_has_its_keys_while_the_apply_that_made_its_namespace_still_waits(fake, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig))
    guard = ClusterGuard(ClusterTarget(None, "lab", "llama-cpp"))
    guard.inspect(())
    assert path("watch") not in fake.objects
    guard.inspect(("kubernetes_job_v1",))
    assert operators_in(fake, "watch") == operators_at_the_door(fake)
