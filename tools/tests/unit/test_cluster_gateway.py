"""The keys of the stack's LiteLLM: made where there is one, kept where they are valid, and known to the door."""

from __future__ import annotations

import base64

import pytest

from corral import keys
from corral.cluster import gateway
from corral.cluster.client import connect
from corral.cluster.keys import ClusterKeys
from corral.errors import Refused
from tests.support.fake_kubernetes import fake_kubernetes

DEPLOYMENT = "/apis/apps/v1/namespaces/llama-cpp/deployments/gateway"
SECRET = "/api/v1/namespaces/llama-cpp/secrets/corral-gateway"


@pytest.fixture
def fake(tmp_path):
    with fake_kubernetes(tmp_path) as running:
        running.objects["/api/v1/namespaces/llama-cpp"] = {"metadata": {"name": "llama-cpp"}}
        running.objects[DEPLOYMENT] = {"metadata": {"name": "gateway"}}
        keys.ensure_operator(store(running))
        yield running


def store(fake):
    return ClusterKeys(connect(fake.kubeconfig, "lab"), "llama-cpp")


def give(fake):
    """Give the keys; the entries of the Secret after it."""
    gateway.give_keys(connect(fake.kubeconfig, "lab"), "llama-cpp")
    found = fake.objects[SECRET]["data"]
    return {name: base64.b64decode(value).decode() for name, value in found.items()}


def test_its_keys_are_made_and_the_door_knows_its_own(fake):
    made = give(fake)
    assert sorted(made) == ["door", "master", "salt"]
    assert store(fake).read().has(keys.GATEWAY, made["door"])
    assert made["master"].startswith("sk-")  # LiteLLM takes no other
    assert len(set(made.values())) == 3
    assert keys.OPERATOR in store(fake).read().of


def test_keys_that_are_valid_stay(fake):
    made = give(fake)
    assert give(fake) == made


def test_a_key_that_the_door_does_not_know_is_replaced_and_the_others_stay(fake):
    made = give(fake)
    keys.revoke(store(fake), keys.GATEWAY, only_old=False)
    again = give(fake)
    assert again["door"] != made["door"]
    assert {name: again[name] for name in ("master", "salt")} == {name: made[name] for name in ("master", "salt")}
    assert store(fake).read().has(keys.GATEWAY, again["door"])
    assert not store(fake).read().has(keys.GATEWAY, made["door"])


def test_a_master_key_that_was_deleted_is_made_again_and_the_salt_stays(fake):
    made = give(fake)
    del fake.objects[SECRET]["data"]["master"]
    again = give(fake)
    assert again["master"].startswith("sk-")
    assert (again["salt"], again["door"]) == (made["salt"], made["door"])


def test_without_a_gateway_nothing_is_made(fake):
    del fake.objects[DEPLOYMENT]
    gateway.give_keys(connect(fake.kubeconfig, "lab"), "llama-cpp")
    assert SECRET not in fake.objects
    assert keys.GATEWAY not in store(fake).read().of


def test_a_catalogs_client_may_not_have_its_name():
    from corral.catalog.clients import Clients

    with pytest.raises(ValueError, match="must not name gateway"):
        Clients.model_validate({"clients": {"gateway": {"requests": 1}}})


def test_its_key_is_given_to_no_other(fake, capsys):
    from corral.cli.main import main

    words = ["keys", "add", "gateway", "--context", "lab", "--kubeconfig", str(fake.kubeconfig)]
    assert main([*words, "--namespace", "llama-cpp"]) == Refused.exit_code
    assert "The key of gateway is the gateway's: it is made where that reads it." in capsys.readouterr().err
