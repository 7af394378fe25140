"""The keys of a cluster: one Secret, changed as a whole, of which nothing is printed that a client sends."""

from __future__ import annotations

import base64
import json

import pytest

from corral import keys
from corral.cli.main import main
from corral.cluster.client import NotFound, connect
from corral.cluster.keys import SECRET, ClusterKeys, operator_key
from corral.cluster.target import ClusterTarget
from corral.errors import CannotRun, Refused
from corral.keys import OPERATOR
from corral.terraform.guard import ClusterGuard
from tests.support import smoke_catalog
from tests.support.fake_kubernetes import fake_kubernetes

NAMESPACE = "/api/v1/namespaces/llama-cpp"
PATH = f"{NAMESPACE}/secrets/{SECRET}"


@pytest.fixture
def fake(tmp_path):
    with fake_kubernetes(tmp_path) as running:
        running.objects[NAMESPACE] = {"metadata": {"name": "llama-cpp"}}
        yield running


@pytest.fixture
def store(fake):
    return lambda: ClusterKeys(connect(fake.kubeconfig, "lab"), "llama-cpp")


def entries(fake):
    return {name: base64.b64decode(text).decode() for name, text in fake.objects[PATH]["data"].items()}


def test_the_first_key_makes_the_secret_with_a_key_of_llama_swap(fake, store):
    key = keys.ensure_operator(store())

    found = entries(fake)
    assert found["operator"] == key
    assert found["internal"] not in ("", key)
    assert keys.parse(found["keys.json"]).of.keys() == {OPERATOR}
    assert fake.objects[PATH]["metadata"]["labels"]["app.kubernetes.io/part-of"] == "corral"
    assert operator_key(connect(fake.kubeconfig, "lab"), "llama-cpp") == key


def test_only_hashes_of_a_clients_key_are_kept_and_the_key_of_llama_swap_stays(fake, store):
    operator = keys.ensure_operator(store())
    before = entries(fake)["internal"]
    first = keys.add(store(), "photos")
    second = keys.rotate(store(), "photos")
    keys.revoke(store(), "photos", only_old=True)

    found = entries(fake)
    assert found["internal"] == before
    assert found["operator"] == operator
    assert not any(key in text for key in (first, second) for text in found.values())
    assert len(keys.parse(found["keys.json"]).of["photos"]) == 1


def test_the_operators_key_is_replaced_with_its_hash(fake, store):
    keys.ensure_operator(store())
    new = keys.rotate(store(), OPERATOR)

    assert entries(fake)["operator"] == new
    assert keys.ensure_operator(store()) == new


def test_two_commands_at_a_time_lose_no_key(fake, store):
    keys.ensure_operator(store())
    late = store()
    late.read()
    keys.add(store(), "photos")

    with pytest.raises(CannotRun, match="was changed by another command at the same time"):
        late.write(keys.Keys())

    assert "photos" in keys.parse(entries(fake)["keys.json"]).of


def test_a_namespace_that_does_not_exist_is_not_made(fake, store):
    del fake.objects[NAMESPACE]

    with pytest.raises(NotFound):
        keys.ensure_operator(store())

    assert PATH not in fake.objects


def test_without_the_secret_there_is_a_command_that_makes_it(fake):
    with pytest.raises(Refused) as refused:
        operator_key(connect(fake.kubeconfig, "lab"), "llama-cpp")

    assert refused.value.next_step == (
        f"corral keys add operator --context lab --namespace llama-cpp --kubeconfig {fake.kubeconfig}"
    )


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2, "clients": {}}', '{"version": 1, "clients": {"a": ["b"]}}'])
def test_a_secret_that_corral_did_not_write_is_not_overwritten(fake, store, text):
    data = {"keys.json": base64.b64encode((text or "{").encode()).decode()}
    fake.objects[PATH] = {"metadata": {"name": SECRET, "resourceVersion": "1"}, "data": data}

    with pytest.raises(Refused, match="is not what `corral keys` writes"):
        keys.ensure_operator(store())

    assert fake.objects[PATH]["data"] == data


def test_a_user_who_may_not_read_it_gets_the_reason(fake, store):
    fake.refuse[PATH] = 403

    with pytest.raises(Refused, match="forbidden"):
        keys.ensure_operator(store())


def test_a_next_step_names_the_same_cluster(fake, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig))
    catalog = smoke_catalog.write(tmp_path / "catalog", {"text": {}})
    (catalog / "clients.yaml").write_text(json.dumps({"clients": {"photos": {"requests": 2}}}))
    words = ["--context", "lab", "--namespace", "llama-cpp", "--catalog", str(catalog)]

    assert main(["keys", "rotate", "photos", *words]) == 2
    assert "→ corral keys add photos --context lab --namespace llama-cpp" in capsys.readouterr().err
    assert main(["keys", "add", "photos", *words]) == 0
    assert capsys.readouterr().out.startswith("corral-")
    assert main(["keys", "rotate", "photos", *words]) == 0
    assert "corral keys revoke photos --old --context lab --namespace llama-cpp" in capsys.readouterr().err
    assert main(["keys", "revoke", "photos", "--old", *words]) == 0
    assert "within two minutes" in capsys.readouterr().err
    assert main(["keys", "list", "--json", *words]) == 0
    assert [(one["name"], one["keys"]) for one in json.loads(capsys.readouterr().out)["clients"]] == [("photos", 1)]


def test_an_apply_makes_them_when_its_namespace_is_there_and_never_anew(fake, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig))
    target = ClusterTarget(None, "lab", "llama-cpp")
    namespace = fake.objects.pop(NAMESPACE)

    ClusterGuard(target).inspect({"kubernetes_deployment_v1"})
    assert PATH not in fake.objects
    fake.objects[NAMESPACE] = namespace
    ClusterGuard(target).inspect({"kubernetes_deployment_v1"})
    before = entries(fake)
    ClusterGuard(target).give_keys()

    assert keys.parse(before["keys.json"]).of.keys() == {OPERATOR}
    assert entries(fake) == before


@pytest.mark.parametrize("json_too", [[], ["--json"]], ids=["text", "json"])
def test_a_key_that_could_not_be_printed_is_not_in_the_secret(fake, store, monkeypatch, tmp_path, json_too):
    monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig))
    catalog = smoke_catalog.write(tmp_path / "catalog", {"text": {}})
    (catalog / "clients.yaml").write_text(json.dumps({"clients": {"photos": {"requests": 2}}}))
    keys.add(store(), "photos")
    before = entries(fake)

    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        words = ["--context", "lab", "--namespace", "llama-cpp", "--catalog", str(catalog), *json_too]
        assert main(["keys", "rotate", "photos", *words]) == 3

    assert entries(fake) == before


def test_a_printed_key_that_was_not_stored_must_not_be_used(fake, store):
    keys.ensure_operator(store())

    with pytest.raises(CannotRun, match=r"at the same time\. The key that was printed may not be valid") as refused:
        keys.add(store(), "photos", lambda _key: keys.rotate(store(), OPERATOR))

    assert refused.value.next_step == "Run the same command again"
    assert keys.parse(entries(fake)["keys.json"]).of.keys() == {OPERATOR}


def test_a_client_that_is_to_be_added_reaches_the_cluster_by_the_named_commands(fake, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig))
    catalog = smoke_catalog.write(tmp_path / "catalog", {"text": {}})

    assert main(["keys", "add", "tv", "--context", "lab", "--namespace", "llama-cpp", "--catalog", str(catalog)]) == 2

    commands = f"corral lock --catalog {catalog} && corral apply --catalog {catalog}"
    assert f"→ Add it to {catalog}/clients.yaml, then: {commands}\n" in capsys.readouterr().err
