"""What a destroy leaves, by a plan as the provider gives it; a stub of the API server refuses what a test names."""

from __future__ import annotations

import pytest

from corral.cluster import client
from corral.terraform import homelab, remains
from tests.support.fake_kubernetes import fake_kubernetes
from tests.support.tiny_stack import write_stack

STATE = remains.Remaining("the state", "why", "rm it")


def removed(kind, **before):
    name = before.pop("name")
    metadata = [{"name": name, "namespace": before.pop("namespace", None)}]
    change = {"actions": ["delete"], "before": {"metadata": metadata, **before}}
    return {"type": kind, "name": "x", "address": f"{kind}.{name}", "mode": "managed", "change": change}


NFS = [{"persistent_volume_source": [{"nfs": [{"server": "nas", "path": "/srv/my models"}], "local": []}]}]
VOLUME = removed("kubernetes_persistent_volume_v1", name="models", spec=NFS)


@pytest.fixture
def fake(tmp_path):
    """A namespace with a Deployment of the stack and one of another owner, and a kind that the user may not read."""
    with fake_kubernetes(tmp_path) as fake:
        listable = {"namespaced": True, "verbs": ["get", "list"]}
        apps = {"name": "apps", "preferredVersion": {"groupVersion": "apps/v1"}}
        gone = {"name": "gone.io", "preferredVersion": {"groupVersion": "gone.io/v1"}}
        objects = {
            "/version": {"gitVersion": "v1.34.4"},
            "/apis": {"groups": [apps, gone]},
            "/api/v1": {"resources": [{"name": "secrets"} | listable, {"name": "pods/log"} | listable | {"verbs": []}]},
            "/apis/apps/v1": {"resources": [{"name": "deployments"} | listable]},
            "/api/v1/namespaces/llm/secrets": [],
            "/apis/apps/v1/namespaces/llm/deployments": [
                {"metadata": {"name": "llama-swap"}},
                {"metadata": {"name": "other"}},
                {"metadata": {"name": "corrals", "labels": {"app.kubernetes.io/managed-by": "corral"}}},
                {"metadata": {"name": "owned", "ownerReferences": [{"uid": "1"}]}},
            ],
        }
        fake.objects.update(objects)
        yield fake


def test_the_models_on_an_export_stay_with_the_command_that_removes_them():
    found = remains.of_destroy({"resource_changes": [VOLUME]}, None, STATE)
    assert [(one.what, one.remove) for one in found.stays] == [
        ("the models in nas:/srv/my models", "on nas: find '/srv/my models' -mindepth 1 -delete"),
        ("the state", "rm it"),
    ]


def test_what_others_have_in_a_namespace_that_goes_is_named_and_so_is_what_cannot_be_read(fake):
    fake.refuse["/api/v1/namespaces/llm/secrets"] = 403
    fake.refuse["/apis/gone.io/v1"] = 503
    document = {
        "resource_changes": [
            removed("kubernetes_namespace_v1", name="llm"),
            removed("kubernetes_deployment_v1", name="llama-swap", namespace="llm"),
        ]
    }
    found = remains.of_destroy(document, client.connect(fake.kubeconfig, "lab"), STATE)
    others, unread = found.warnings()
    assert others == ("namespace llm is removed with all in it, also what is not corral's: deployments.apps/other")
    assert unread.startswith("what else is in namespace llm is not known: /apis/gone.io/v1: The API server")
    assert "; secrets: The API server" in unread
    assert found.as_json()["foreign"] == [{"namespace": "llm", "kind": "deployments.apps", "name": "other"}]


def test_a_state_in_postgresql_is_named_with_its_schema(tmp_path):
    stack = write_stack(tmp_path / "stack")
    (stack / ".terraform").mkdir()
    (stack / ".terraform" / "terraform.tfstate").write_text('{"backend": {"type": "pg", "config": {}}}')
    (stack / "backend_override.tf").write_text('terraform {\n  backend "pg" {\n    schema_name = "llama-cpp"\n  }\n}\n')
    found = homelab.Homelab(stack).state()
    assert found.what == "Terraform's state in PostgreSQL, schema llama-cpp"
    assert found.remove == """psql "$PG_CONN_STR" -c 'DROP SCHEMA "llama-cpp" CASCADE'"""
