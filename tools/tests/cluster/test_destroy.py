"""`corral destroy`: what is named before, what goes, and what stays with the command that removes it."""

from __future__ import annotations

import json

import pytest
from kubernetes import client

from tests.support.cluster.homelab import homelab

pytestmark = pytest.mark.timeout(300)
EXPORTER = "destroyed-exporter"


@pytest.fixture(scope="module")
def folder(cluster):
    return cluster.local("destroyed")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return tmp_path_factory.mktemp("node") / "corral" / "records"


@pytest.fixture(scope="module")
def lab(cluster, folder, records, tmp_path_factory):
    """With an exporter, objects of another owner in its namespace, and a lock that is gone after the apply."""
    store = {"local": {"node": cluster.node, "path": str(folder)}}
    exporter = {"namespace": EXPORTER, "records": str(records)}
    made = tmp_path_factory.mktemp("destroyed")
    with homelab(cluster, made, "destroyed", store=store, card_exporter=exporter) as lab:
        lab.apply()
        core = client.CoreV1Api(cluster.api)
        core.create_namespaced_secret(lab.namespace, {"metadata": {"name": "mine"}})
        core.create_namespaced_persistent_volume_claim(
            lab.namespace,
            {
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            },
        )
        pod = {"metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
        spec = {"replicas": 0, "selector": {"matchLabels": {"app": "other"}}, "template": pod}
        client.AppsV1Api(cluster.api).create_namespaced_deployment(
            lab.namespace, {"metadata": {"name": "other"}, "spec": spec}
        )
        (lab.catalog / "lock.json").unlink()
        yield lab


def namespaces(lab):
    return {one.metadata.name for one in client.CoreV1Api(lab.cluster.api).list_namespace().items}


def files(folder):
    return {path: path.stat().st_size for path in folder.rglob("*.gguf")}


def test_json_names_what_others_have_in_the_namespace_and_changes_nothing(lab, folder, records):
    found = json.loads(lab.corral("destroy", "--json").stdout)

    assert [(one["namespace"], one["kind"], one["name"]) for one in found["foreign"]] == [
        ("destroyed", "deployments.apps", "other"),
        ("destroyed", "persistentvolumeclaims", "data"),
        ("destroyed", "secrets", "mine"),
    ]
    assert found["unread"] == []
    node = lab.cluster.node
    assert [(one["what"], one["remove"]) for one in found["stays"]] == [
        (f"the models in {folder} on node {node}", f"on node {node}: find {folder} -mindepth 1 -delete"),
        (f"the exporter's records in {records} on node {node}", f"on node {node}: rm -r {records}"),
        (f"Terraform's state {lab.stack}/terraform.tfstate", f"rm {lab.stack}/terraform.tfstate*"),
    ]
    assert found["destroyed"] is False
    assert {"destroyed", EXPORTER} <= namespaces(lab)


def test_without_a_lock_all_goes_but_what_was_named(lab, folder, records):
    before = files(folder)

    done = lab.corral("destroy", "--yes")

    assert "- namespace: " in done.stdout
    assert (
        "warning: namespace destroyed is removed with all in it, also what is not corral's: "
        "deployments.apps/other, persistentvolumeclaims/data, secrets/mine\n"
    ) in done.stderr
    *_, last = done.stderr.partition("Destroyed.\n")
    assert f"stays: the models in {folder} on node {lab.cluster.node}: the volume has the reclaim policy Retain" in last
    assert f"  → on node {lab.cluster.node}: rm -r {records}\n" in last
    assert files(folder) == before != {}
    assert not {"destroyed", EXPORTER} & namespaces(lab)
    volumes = client.CoreV1Api(lab.cluster.api).list_persistent_volume().items
    assert [one.metadata.name for one in volumes if "destroyed" in one.metadata.name] == []
    assert lab.corral("destroy", "--yes").stdout.startswith("No changes.\n")
