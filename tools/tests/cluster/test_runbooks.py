"""The runbooks of the cluster, followed word for word in the state that they are for, until all is well again."""

from __future__ import annotations

import pytest
from kubernetes import client

from corral.cluster.client import connect
from corral.cluster.port_forward import forwarded
from tests.support.cluster.cluster import SLICES
from tests.support.cluster.follower import STORE, Follower
from tests.support.cluster.homelab import homelab
from tests.support.cluster.pods import eventually, leave_failed
from tests.support.engine_process import post, question
from tests.support.faulty_hub import Status

pytestmark = pytest.mark.timeout(600)
NAMESPACE = "llama-cpp"  # so the runbooks have it
MODEL = "qwen3-8b"
NOWHERE = f"sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    store = {"nfs": {"server": "nas.test", "path": STORE}}
    with homelab(cluster, tmp_path_factory.mktemp("runbooks"), NAMESPACE, store=store) as lab:
        source = {"repo": "corral/tiny-text-GGUF", "quant": "F16"}
        lab.model(MODEL, source=source, modalities=["text"], group="text")
        (lab.catalog / "models" / "tiny-text.yaml").unlink()
        lab.lock()
        yield lab


def answer_status(lab, model):
    """The HTTP status of a request for *model*, which is loaded for it."""
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE) as address:
        key = lab.key()
        post(f"{address}/api/models/unload/{model}", {}, api_key=key)
        return post(f"{address}/v1/chat/completions", question("Are you there?", model=model), api_key=key)[0]


def test_download_job_failed(lab):
    lab.hub.faults.append(Status(status=401, times=None))
    plain = lab.terraform("apply", "-auto-approve", "-input=false", "-no-color", code=1)
    assert "corral status" in plain.stderr
    assert "docs/runbooks/download-job-failed.md" in plain.stderr
    operator = Follower(lab, "download-job-failed")

    printed = operator.does("Diagnosis", status=1)
    assert operator.next_headings(printed) == ["#the-hub-refuses-access"]
    assert "401" in printed["corral status"]
    operator.does("The hub refuses access")
    lab.set(hf_token_secret="hf-token")
    lab.hub.faults.clear()
    operator.does("The store is full")
    operator.does("The file is gone from the hub")
    operator.does("The store is missing")
    operator.does("Mitigation")
    operator.does("Verify")

    operator.assert_all_is_done()


def test_pod_not_ready(lab):
    pods = client.CoreV1Api(lab.cluster.api)
    operator = Follower(lab, "pod-not-ready")

    lab.cluster.set_gpus(0)
    pods.delete_collection_namespaced_pod(NAMESPACE, label_selector="app.kubernetes.io/name=llama-swap")
    eventually(lambda: lab.corral("status", code=None).stdout, lambda text: "nvidia.com/gpu" in text)
    printed = operator.does("Diagnosis", status=1)
    assert operator.next_headings(printed) == ["#no-free-slice-of-the-card"]
    holders = operator.does("No free slice of the card")
    assert any("llama-swap" in text for text in holders.values())

    pods.delete_namespaced_secret("corral-keys", NAMESPACE)
    lab.cluster.set_gpus(SLICES)
    text = eventually(lambda: lab.corral("status", code=None).stdout, lambda text: "waits for the Secret" in text)
    assert operator.book.targets(text) == ["#the-keys-are-missing"]
    operator.does("The keys are missing")

    leave_failed(lab.cluster, lab.server_pod())
    lab.lose_image("llama-swap", NOWHERE)
    text = lab.corral("apply", "--yes", code=1).stderr
    assert operator.book.targets(text) == ["#the-image-cannot-be-pulled"]
    operator.does("The image cannot be pulled")

    operator.does("The configuration is missing")  # test_config_maps.py has the pod that waits for it
    operator.does("A failed pod is left")
    operator.does("The store does not mount")
    operator.does("The runtime class is missing")
    operator.does("The node is unavailable")
    operator.does("Verify")
    operator.assert_all_is_done()


def test_model_fails_to_load(lab):
    operator = Follower(lab, "model-fails-to-load")
    file = (lab.store / MODEL / "model.gguf").resolve()
    whole = file.read_bytes()

    file.unlink()
    assert answer_status(lab, MODEL) >= 500
    printed = operator.does("Diagnosis", why=1, status=1)
    assert operator.next_headings(printed) == ["#a-file-is-missing-or-damaged"]
    operator.does("A file is missing or damaged")
    assert (lab.store / MODEL / "model.gguf").read_bytes() == whole

    operator.does("The image and the lock do not belong together")
    operator.does("Verify")
    operator.assert_all_is_done()
