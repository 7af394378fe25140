"""LiteLLM in the cluster: its models are those of the lock, its keys those of its Secret, and its probes load nothing.

The image stands in for LiteLLM's own, with the real proxy in it.  NetworkPolicies are compared as objects by the
module's tests: this cluster enforces none.  There is no PostgreSQL: LiteLLM's client for it is a download.
"""

from __future__ import annotations

import base64
import json
from contextlib import contextmanager

import pytest
from kubernetes import client

from corral import keys
from corral.cluster.client import connect
from corral.cluster.keys import ClusterKeys
from corral.cluster.port_forward import forwarded
from tests.support.cluster import images, pods
from tests.support.cluster.homelab import homelab
from tests.support.engine_process import Stream, get, post, question

pytestmark = pytest.mark.timeout(900)
NAMESPACE = "gateway"


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    """Applied, with LiteLLM."""
    registry = cluster.images[images.DOOR].partition("/")[0]
    image = images.push(images.gateway(), registry)
    with homelab(cluster, tmp_path_factory.mktemp("gateway"), NAMESPACE, gateway={}) as lab:
        named = json.loads((lab.catalog / "images.yaml").read_text())
        (lab.catalog / "images.yaml").write_text(json.dumps(named | {"gateway": image.partition("@")[0]}))
        lab.lock()
        lab.corral("apply", "--yes", timeout=800)
        yield lab
    pods.wait_until_left(cluster, NAMESPACE)


@contextmanager
def gateway(lab):
    """The address of LiteLLM behind its Service."""
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE, "gateway") as root:
        yield root


def secret(lab):
    found = client.CoreV1Api(lab.cluster.api).read_namespaced_secret("corral-gateway", NAMESPACE)
    return {name: base64.b64decode(value).decode() for name, value in found.data.items()}


def ask(lab, model, *content, **more):
    with gateway(lab) as root:
        body = question(*(content or ("Are you there?",)), model=model, **more)
        status, text = post(f"{root}/v1/chat/completions", body, api_key=secret(lab)["master"])
    return status, json.loads(text)


def test_text_and_images_are_answered_through_its_service(lab):
    status, body = ask(lab, "tiny-text")
    assert (status, body["choices"][0]["message"]["content"]) == (200, "OK"), body
    status, body = ask(lab, "tiny-vision", "red", "blue")
    assert (status, body["choices"][0]["message"]["content"]) == (200, "red, blue"), body


def test_a_stream_through_its_service_is_whole(lab):
    with gateway(lab) as root:
        stream = Stream(root, "tiny-text", 20, api_key=secret(lab)["master"], begins=False)
        stream.join()
    assert stream.is_whole


def test_a_wrong_key_is_answered_nothing(lab):
    with gateway(lab) as root:
        assert get(f"{root}/v1/models")[0] == 401
        assert get(f"{root}/v1/models", api_key="sk-another")[0] == 400


def test_its_keys_are_in_its_secret_and_in_no_plan_and_no_state(lab):
    found = secret(lab)
    assert sorted(found) == ["door", "master", "salt"]
    store = ClusterKeys(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE)
    assert store.read().has(keys.GATEWAY, found["door"])
    state = (lab.stack / "terraform.tfstate").read_text()
    assert not [name for name, key in found.items() if key in state]
    assert "gateway" in state


def test_an_apply_without_a_change_changes_nothing(lab):
    before = secret(lab)
    assert lab.planned() == {}
    lab.corral("apply", "--yes", "--no-smoke")
    assert secret(lab) == before


def test_the_pod_is_ready_by_probes_that_load_nothing(lab):
    lab.corral("unload", "tiny-text", "--context", lab.cluster.context, code=None)
    lab.corral("unload", "tiny-vision", "--context", lab.cluster.context, code=None)
    api, label = client.CoreV1Api(lab.cluster.api), "app.kubernetes.io/name=gateway"
    (pod,) = api.list_namespaced_pod(NAMESPACE, label_selector=label).items
    api.delete_namespaced_pod(pod.metadata.name, NAMESPACE)

    def is_another_one_ready():
        found = api.list_namespaced_pod(NAMESPACE, label_selector=label).items
        statuses = {one.metadata.name: one.status.container_statuses for one in found}  # None: nothing has started
        names = [name for name, containers in statuses.items() if containers and all(one.ready for one in containers)]
        return [name for name in names if name != pod.metadata.name]

    pods.eventually(is_another_one_ready, bool, limit_s=300)
    models = json.loads(lab.corral("status", "--json", code=None).stdout)["models"]
    assert {one["model"]: one["state"] for one in models} == {"tiny-text": "unloaded", "tiny-vision": "unloaded"}


def test_a_model_that_an_apply_adds_answers_through_it_when_the_apply_ends(lab):
    assert ask(lab, "tiny-more")[0] == 400
    lab.model("tiny-more", modalities=["text"], group="text", fallback="tiny-text")
    lab.lock()
    lab.corral("apply", "--yes", "--no-smoke", timeout=800)
    status, body = ask(lab, "tiny-more")
    assert (status, body["choices"][0]["message"]["content"]) == (200, "OK"), body


def test_a_model_that_an_apply_removes_is_listed_no_more(lab):
    (lab.catalog / "models" / "tiny-more.yaml").unlink()
    lab.lock()
    lab.corral("apply", "--yes", "--no-smoke", timeout=800)
    assert ask(lab, "tiny-more")[0] == 400
    assert ask(lab, "tiny-text")[0] == 200
