"""`corral render --manifests`: kubectl alone makes of them what Terraform makes, and finds no difference afterwards."""

from __future__ import annotations

import json

import pytest
import yaml
from kubernetes import client

from tests.support.cluster.homelab import homelab

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    with homelab(
        cluster, tmp_path_factory.mktemp("gitops"), "gitops", card_exporter={"namespace": "gitops-card"}
    ) as lab:
        yield lab


@pytest.fixture(scope="module")
def manifests(lab):
    folder = lab.clone / "manifests"
    lab.corral("render", "--manifests", folder)
    return folder


def kubectl(lab, *words, code=0):
    done = lab.run("kubectl", "--context", lab.cluster.context, *words)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def generations(lab):
    """The generation of each workload, and the server's pod."""
    apps = client.AppsV1Api(lab.cluster.api)
    found = {one.metadata.name: one.metadata.generation for one in apps.list_namespaced_deployment(lab.namespace).items}
    return found, lab.server_pod().metadata.uid


def test_kubectl_alone_makes_of_them_a_stack_that_answers(lab, manifests):
    kubectl(lab, "apply", "--server-side", "-k", manifests)
    where = ("--context", lab.cluster.context, "--namespace", lab.namespace)
    lab.corral("keys", "add", "operator", *where)
    kubectl(lab, "-n", lab.namespace, "rollout", "status", "deployment/llama-swap", "--timeout=180s")

    exporter = client.CoreV1Api(lab.cluster.api).read_namespaced_secret("corral-monitor", "gitops-card")
    assert exporter.data["key"], "without a key of its own the exporter gets no answer of llama-swap"
    smoked = json.loads(lab.corral("smoke", *where, "--json").stdout)
    assert smoked["passed"]


def test_terraform_takes_it_over_and_has_nothing_to_change(lab, manifests):
    before = generations(lab)

    lab.corral("adopt", "--yes")

    assert lab.planned() == {}
    assert generations(lab) == before


def test_a_server_side_apply_beside_terraform_changes_nothing(lab, manifests):
    before = generations(lab)

    assert kubectl(lab, "diff", "--server-side", "-k", manifests).stdout == ""
    kubectl(lab, "apply", "--server-side", "-k", manifests)

    assert generations(lab) == before
    assert lab.planned() == {}
    document = yaml.safe_load((manifests / f"deployment-{lab.namespace}-llama-swap.yaml").read_text())
    document["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] += 1
    (lab.clone / "other.yaml").write_text(yaml.safe_dump(document))
    assert (
        "terminationGracePeriodSeconds"
        in kubectl(lab, "diff", "--server-side", "--force-conflicts", "-f", lab.clone / "other.yaml", code=1).stdout
    )


def test_a_server_side_apply_of_what_terraform_made_finds_no_difference_and_no_conflict(lab, manifests):
    lab.corral("destroy", "--yes")
    lab.apply()
    before = generations(lab)

    assert kubectl(lab, "diff", "--server-side", "-k", manifests).stdout == ""
    kubectl(lab, "apply", "--server-side", "-k", manifests)

    assert generations(lab) == before
    assert lab.planned() == {}


def test_every_object_of_the_plan_has_a_file_and_the_next_run_finds_what_is_stale(lab, manifests):
    listed = yaml.safe_load((manifests / "kustomization.yaml").read_text())["resources"]
    made = [one for one in lab.terraform("state", "list").stdout.split() if "terraform_data." not in one]
    assert len(listed) == len(made) > 20

    assert lab.corral("render", "--manifests", manifests, "--check").stdout == ""
    lab.set(card_exporter=None)
    stale = lab.corral("render", "--manifests", manifests, "--check", code=1).stdout
    assert "daemonset-gitops-card-card-exporter.yaml is stale" in stale
    lab.corral("render", "--manifests", manifests)
    assert not list(manifests.glob("*card-exporter*"))
    assert not list(lab.stack.parent.glob(".corral-*"))
