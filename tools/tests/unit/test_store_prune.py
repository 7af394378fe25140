"""Pruning in a cluster: when no Job is made.  tests/cluster/test_prune.py has the Jobs, and why they are right.

The API server is a stub, as a download that hangs, or a claim without a volume, takes minutes on a real one.
"""

from __future__ import annotations

import pytest

from corral.cluster import client, store_prune
from corral.errors import CannotRun, Refused
from tests.support.fake_kubernetes import fake_kubernetes

JOBS = "/apis/batch/v1/namespaces/llm/jobs"
CLAIMS = "/api/v1/namespaces/llm/persistentvolumeclaims"
DEPLOYMENTS = "/apis/apps/v1/namespaces/llm/deployments"
PODS = "/api/v1/namespaces/llm/pods"
SERVER = {"app.kubernetes.io/name": "llama-swap"}
IMAGE = f"python:3.13-slim@sha256:{'1' * 64}"


def download(*conditions, image=IMAGE, **metadata):
    volumes = [{"name": name, "configMap": {"name": f"{name}-1"}} for name in ("agent", "lock")]
    volumes.append({"name": "models", "persistentVolumeClaim": {"claimName": "models-1"}})
    spec = {"initContainers": [{"name": "fetch", "image": image}], "volumes": volumes}
    return {
        "metadata": {"name": "download-models", "namespace": "llm", **metadata},
        "spec": {"template": {"spec": spec}},
        "status": {"conditions": [{"type": kind, "status": "True"} for kind in conditions]},
    }


@pytest.fixture
def fake(tmp_path):
    with fake_kubernetes(tmp_path) as fake:
        fake.objects["/version"] = {"gitVersion": "v1.34.4"}
        fake.objects[JOBS] = []
        fake.objects[f"{JOBS}/download-models"] = download("Complete")
        fake.objects[f"{CLAIMS}/models-1"] = {"metadata": {"name": "models-1"}, "status": {"phase": "Bound"}}
        fake.objects[PODS] = fake.objects[DEPLOYMENTS] = []
        yield fake


def prune(fake):
    cluster = client.connect(fake.kubeconfig, "lab")
    return store_prune.prune(cluster, "llm", others=(), grace=0, delete=True, report=lambda _: None)


def is_refused(fake, message, kind=Refused):
    with pytest.raises(kind, match=message) as error:
        prune(fake)
    assert not [path for path in fake.objects if path.startswith(f"{JOBS}/prune-")]
    return error.value.next_step


def test_while_models_are_downloaded_it_is_refused(fake):
    for job in (download(), download("Suspended"), download("Complete", deletionTimestamp="2026-01-01T00:00:00Z")):
        fake.objects[f"{JOBS}/download-models"] = job
        step = is_refused(fake, "job/download-models of namespace llm runs")
        assert "get job/download-models --watch" in step


def test_where_nothing_was_applied_it_is_refused(fake):
    del fake.objects[f"{JOBS}/download-models"]
    assert "corral apply" in is_refused(fake, "There is no job/download-models in namespace llm")


@pytest.mark.parametrize(
    ("claim", "state"),
    [
        (None, "does not exist"),
        ({"metadata": {"name": "models-1"}, "status": {"phase": "Pending"}}, "is Pending"),
        ({"metadata": {"name": "models-1"}, "status": {"phase": "Lost"}}, "is Lost"),
        (
            {"metadata": {"name": "models-1", "deletionTimestamp": "2026"}, "status": {"phase": "Bound"}},
            "is being deleted",
        ),
    ],
)
def test_without_a_store_it_is_refused(fake, claim, state):
    fake.objects[f"{CLAIMS}/models-1"] = claim
    if claim is None:
        del fake.objects[f"{CLAIMS}/models-1"]
    is_refused(fake, f"The store is not there: persistentvolumeclaim/models-1 of namespace llm {state}")


def test_a_download_job_that_corral_did_not_make_is_refused(fake):
    fake.objects[f"{JOBS}/download-models"] = download("Complete", image="python:latest")
    is_refused(fake, "no container fetch whose image names a digest")
    fake.objects[f"{JOBS}/download-models"] = job = download("Complete")
    job["spec"]["template"]["spec"]["volumes"] = []
    is_refused(fake, "no volume models")


def test_a_configuration_of_the_server_that_names_no_models_prunes_nothing(fake):
    volume = {"name": "config", "configMap": {"name": "llama-swap-1"}}
    fake.objects[PODS] = [{"metadata": {"name": "llama-swap-0", "labels": SERVER}, "spec": {"volumes": [volume]}}]
    for text in ("a: [", "- models", "models: 1"):
        fake.objects["/api/v1/namespaces/llm/configmaps/llama-swap-1"] = {"data": {"config.yaml": text}}
        is_refused(fake, "configmap/llama-swap-1 of namespace llm has no models", CannotRun)


def test_a_model_in_the_configuration_of_any_pod_of_the_server_or_of_its_next_one_is_served(fake):
    def mounting(name):
        return {"volumes": [{"name": "config", "configMap": {"name": name}}]}

    fake.objects[PODS] = [
        {"metadata": {"name": name, "labels": SERVER}, "spec": mounting(name)} for name in ("old", "waits")
    ]
    fake.objects[DEPLOYMENTS] = [{"metadata": {"name": "llama-swap"}, "spec": {"template": {"spec": mounting("new")}}}]
    for name in ("old", "new"):
        text = f"models:\n  in-{name}: {{}}\n  in-both: {{}}\n"
        fake.objects[f"/api/v1/namespaces/llm/configmaps/{name}"] = {"data": {"config.yaml": text}}
    cluster = client.connect(fake.kubeconfig, "lab")
    assert store_prune.served(cluster, "llm") == {"in-both", "in-new", "in-old"}
