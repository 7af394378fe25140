"""Objects that a plan would make and the cluster has: which, by what path, and whose they are."""

from __future__ import annotations

import re

import pytest

from corral import paths
from corral.cluster.client import NotFound
from corral.errors import Refused
from corral.terraform import adoption
from corral.terraform.adoption import Planned, blocks, existing, to_make

OURS = {"app.kubernetes.io/part-of": "corral"}
DEPLOYMENT = Planned(
    'module.llama_swap["first"].kubernetes_deployment_v1.llama_swap', "kubernetes_deployment_v1", "llm", "swap"
)
NAMESPACE = Planned("kubernetes_namespace_v1.llama_cpp[0]", "kubernetes_namespace_v1", "", "llm")


class Cluster:
    """Has these objects: path to labels."""

    def __init__(self, **objects):
        self.objects = {path.replace("__", "/"): labels for path, labels in objects.items()}

    def get(self, path):
        if path not in self.objects:
            raise NotFound(path)
        return {"metadata": {"labels": self.objects[path]}}


def change(address, kind, actions, **metadata):
    after = {"metadata": [metadata]} if metadata else None
    return {"address": address, "type": kind, "change": {"actions": actions, "after": after}}


def test_what_a_plan_makes_is_what_may_be_there():
    document = {
        "resource_changes": [
            change(DEPLOYMENT.address, DEPLOYMENT.type, ["create"], name="swap", namespace="llm"),
            change(NAMESPACE.address, NAMESPACE.type, ["create"], name="llm"),
            change("kubernetes_service_v1.a", "kubernetes_service_v1", ["update"], name="a", namespace="llm"),
            change("kubernetes_config_map_v1.a", "kubernetes_config_map_v1", ["create"]),
            change("terraform_data.a", "terraform_data", ["create"], name="a"),
            change("kubernetes_labels.a", "kubernetes_labels", ["create"], name="a"),
        ]
    }

    assert list(to_make(document)) == [DEPLOYMENT, NAMESPACE]


def test_only_what_the_cluster_has_is_adopted():
    cluster = Cluster(**{DEPLOYMENT.path: OURS})

    assert list(existing(cluster, [DEPLOYMENT, NAMESPACE])) == [DEPLOYMENT]
    assert DEPLOYMENT.path == "/apis/apps/v1/namespaces/llm/deployments/swap"
    assert NAMESPACE.path == "/api/v1/namespaces/llm"


@pytest.mark.parametrize("labels", [None, {}, {"app.kubernetes.io/part-of": "immich"}])
def test_what_has_another_owner_is_refused_by_name(labels):
    cluster = Cluster(**{DEPLOYMENT.path: OURS, NAMESPACE.path: labels})

    with pytest.raises(Refused, match=r"so not corral's: namespace llm\. Nothing was adopted"):
        existing(cluster, [DEPLOYMENT, NAMESPACE])


def test_an_import_block_names_address_and_object():
    assert blocks([DEPLOYMENT, NAMESPACE]) == (
        f'import {{\n  to = {DEPLOYMENT.address}\n  id = "llm/swap"\n}}\n\n'
        f'import {{\n  to = {NAMESPACE.address}\n  id = "llm"\n}}\n'
    )


def test_every_type_of_object_that_the_stack_makes_can_be_adopted():
    made = {
        kind
        for file in (paths.REPOSITORY / "terraform").rglob("*.tf")
        for kind in re.findall(r'(?m)^resource "(kubernetes_\w+)"', file.read_text())
    }

    assert made - adoption.PATHS.keys() == {"kubernetes_labels"}
    assert adoption.PATHS.keys() <= made
