"""A state that was lost: what the cluster has is named, adopted, and nothing that is served notices."""

from __future__ import annotations

import json

import pytest
from kubernetes import client

from tests.support.cluster.homelab import homelab

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    with homelab(cluster, tmp_path_factory.mktemp("adopt"), "adopt") as lab:
        lab.apply()
        yield lab


def lose_the_state(lab):
    for file in lab.stack.glob("terraform.tfstate*"):
        file.unlink()


def test_after_a_lost_state_adopt_takes_every_object_and_the_pod_stays(lab):
    before = lab.server_pod().metadata.uid
    lose_the_state(lab)

    failed = lab.corral("apply", "--yes", "--no-smoke", code=2)
    assert "The cluster has objects that Terraform's state lacks" in failed.stderr
    assert "→ corral adopt, docs/runbooks/state-lost-or-behind.md" in failed.stderr
    listed = json.loads(lab.corral("adopt", "--json").stdout)
    assert f"{lab.namespace}/llama-swap" in [one["id"] for one in listed]

    adopted = lab.corral("adopt", "--yes")
    assert f"= deployment {lab.namespace}/llama-swap" in adopted.stdout
    words, _, _ = adopted.stdout.partition("\nTerraform ")
    assert "\nNo object changes: the state takes them in as they are.\n" in words
    assert "~ " not in words
    assert f"Adopted {len(listed)} objects" in adopted.stderr
    assert lab.planned() == {}
    assert lab.server_pod().metadata.uid == before
    assert not list(lab.stack.glob("corral-adopt*"))
    assert "Nothing is to adopt" in lab.corral("adopt", "--yes").stderr


def test_a_state_that_is_behind_gets_only_what_it_lacks(lab):
    lab.terraform("state", "rm", 'module.llama_swap["first"].kubernetes_service_v1.llama_swap')

    adopted = lab.corral("adopt", "--yes")

    assert [line for line in adopted.stdout.splitlines() if line.startswith("= ")] == [
        f"= service {lab.namespace}/llama-swap"
    ]
    assert lab.planned() == {}


def test_what_differs_from_the_catalog_is_announced_and_what_does_not_is_not(lab):
    lab.run("kubectl", "-n", lab.namespace, "label", "service/llama-swap", "app.kubernetes.io/managed-by-")
    lab.run("kubectl", "-n", lab.namespace, "scale", "deployment/llama-swap", "--replicas=0")
    lose_the_state(lab)

    words, _, _ = lab.corral("adopt", "--yes").stdout.partition("\nTerraform ")

    changed = [line for line in words.splitlines() if line.startswith(("~ ", "+ ", "- "))]
    label = "labels.app.kubernetes.io/managed-by none → terraform"
    assert changed == ["~ deployment llama-swap: replicas 0 → 1", f"~ service llama-swap: {label}"], words
    assert lab.planned() == {}


def test_what_has_a_name_of_the_stack_and_is_not_corrals_is_refused_and_stays(lab):
    api = client.CoreV1Api(lab.cluster.api)
    lab.terraform("state", "rm", 'module.llama_swap["first"].kubernetes_service_account_v1.llama_swap')
    foreign = {"metadata": {"labels": {"app.kubernetes.io/part-of": "immich"}}}
    api.patch_namespaced_service_account("llama-swap", lab.namespace, foreign)

    refused = lab.corral("adopt", "--yes", code=2)

    assert f"so not corral's: service account {lab.namespace}/llama-swap. Nothing was adopted." in refused.stderr
    ours = {"metadata": {"labels": {"app.kubernetes.io/part-of": "corral"}}}
    api.patch_namespaced_service_account("llama-swap", lab.namespace, ours)
    lab.corral("adopt", "--yes")
    assert lab.planned() == {}
