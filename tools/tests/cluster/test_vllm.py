"""A model on vLLM in the cluster: its pod beside llama-swap, behind the same door, and back to llama.cpp by one key.

vLLM is a stand-in here (tests.support.cluster.vllm_stand_in): its image needs a card.  llama-swap, door and guard are
the real ones.  NetworkPolicies are compared as objects by the module's tests: this cluster enforces none.
"""

from __future__ import annotations

import base64
import json

import pytest
from kubernetes import client

from corral.cluster.client import connect
from corral.cluster.port_forward import forwarded
from tests.support.cluster import images, pods
from tests.support.cluster.homelab import homelab
from tests.support.engine_process import Stream, get, post, question

pytestmark = pytest.mark.timeout(900)
NAMESPACE, MODEL, ALIAS = "vllm", "tiny-more", "triage"
POD = f"vllm-{MODEL}"


def write_model(lab, engine):
    lab.model(
        MODEL,
        engine=engine,
        vllm={"source": {"repo": "corral/tiny-safetensors"}},
        modalities=["text"],
        aliases=[ALIAS],
        group="text",
        parallel=2,
        smoke={"prompt": "Are you there?", "expect": "OK"},
    )
    lab.lock()


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    """Applied, with a model on vLLM; `corral apply` ends with a smoke of all models."""
    image = images.push(images.vllm(), cluster.images[images.DOOR].partition("/")[0])
    with homelab(cluster, tmp_path_factory.mktemp("vllm"), NAMESPACE) as lab:
        named = json.loads((lab.catalog / "images.yaml").read_text())
        (lab.catalog / "images.yaml").write_text(json.dumps(named | {"vllm": image.partition("@")[0]}))
        write_model(lab, "vllm")
        lab.corral("apply", "--yes", timeout=800)
        yield lab
    pods.wait_until_left(cluster, NAMESPACE)


def pod_of(lab):
    api = client.CoreV1Api(lab.cluster.api)
    (found,) = api.list_namespaced_pod(NAMESPACE, label_selector=f"app.kubernetes.io/instance={POD}").items
    return found


def models(lab, endpoint):
    return [one["id"] for one in json.loads(get(f"{endpoint}/v1/models", api_key=lab.key())[1])["data"]]


def ask(lab, endpoint, name):
    status, text = post(f"{endpoint}/v1/chat/completions", question("Are you there?", model=name), api_key=lab.key())
    return status, json.loads(text)


def test_its_pod_runs_where_pod_security_enforces_restricted(cluster, lab):
    labels = client.CoreV1Api(cluster.api).read_namespace(NAMESPACE).metadata.labels
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    found = pod_of(lab)
    assert [(one.name, one.ready) for one in found.status.container_statuses] == [("vllm", True)]
    assert found.metadata.labels["corral/model"] == MODEL


def test_it_runs_the_locked_words_and_its_key_stands_in_no_object(lab):
    argv = json.loads((lab.catalog / "lock.json").read_text())["models"][MODEL]["argv"]
    command = pod_of(lab).spec.containers[0].command
    places = {"${STORE}/tiny-more": "/models/tiny-more", "${PORT}": "8000", "127.0.0.1": "0.0.0.0"}
    assert command[-len(argv) :] == [places.get(word, word) for word in argv]
    secret = client.CoreV1Api(lab.cluster.api).read_namespaced_secret("corral-keys", NAMESPACE).data["internal"]
    key, state = base64.b64decode(secret).decode(), (lab.stack / "terraform.tfstate").read_text()
    assert POD in state
    assert (key in state, [word for word in command if key in word]) == (False, [])


@pytest.mark.parametrize("name", [MODEL, ALIAS], ids=["id", "alias"])
def test_it_answers_under_its_names_at_the_address_of_all_models(lab, endpoint, name):
    status, body = ask(lab, endpoint, name)
    assert (status, body["choices"][0]["message"]["content"]) == (200, "OK"), body
    assert "timings" not in body  # which llama-server adds


def test_a_stream_of_it_is_whole(lab, endpoint):
    stream = Stream(endpoint, MODEL, 20, api_key=lab.key(), begins=False)
    stream.join()
    assert stream.is_whole


def test_the_list_of_models_has_its_id_once(lab, endpoint):
    assert models(lab, endpoint) == [MODEL, "tiny-text", "tiny-vision"]


def test_around_the_door_it_answers_nothing(lab):
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE, POD, port="http") as root:
        assert post(f"{root}/v1/chat/completions", question("Hello.", model=MODEL))[0] == 401
        assert post(f"{root}/v1/chat/completions", question("Hello.", model=MODEL), api_key=lab.key())[0] == 401


def test_status_and_why_have_the_state_of_its_pod(lab):
    found = json.loads(lab.corral("status", "--json").stdout)
    assert {one["model"]: one["state"] for one in found["models"]}[MODEL] == "ready"
    assert pod_of(lab).metadata.name in [one["name"] for one in found["pods"]]
    assert json.loads(lab.corral("why", ALIAS, "--json").stdout)["class"] == "healthy"


def test_without_its_pod_status_and_why_name_the_deployment(lab, endpoint):
    scale = ("kubectl", "-n", NAMESPACE, "scale", f"deployment/{POD}")
    assert lab.run(*scale, "--replicas=0").returncode == 0
    core, label = client.CoreV1Api(lab.cluster.api), f"app.kubernetes.io/instance={POD}"
    pods.eventually(lambda: core.list_namespaced_pod(NAMESPACE, label_selector=label).items, lambda found: not found)
    status, body = ask(lab, endpoint, MODEL)
    assert (status, body["error"]["code"]) == (503, "pod-unreachable")
    found = json.loads(lab.corral("status", "--json", code=1).stdout)
    assert [one["subject"] for one in found["findings"]] == [f"deployment/{POD}"]
    verdict = json.loads(lab.corral("why", MODEL, "--json", code=1).stdout)
    assert (verdict["class"], POD in verdict["culprit"]) == ("stack-down", True)
    assert lab.run(*verdict["next"][0].split()).returncode == 0
    pods.eventually(lambda: ask(lab, endpoint, MODEL)[0], lambda status: status == 200, limit_s=300)


def test_one_key_moves_it_back_and_its_pod_is_gone(lab):
    write_model(lab, "llama.cpp")
    lab.corral("apply", "--yes", timeout=800)
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE) as endpoint:
        status, body = ask(lab, endpoint, ALIAS)
        assert (status, "timings" in body) == (200, True)
        assert models(lab, endpoint) == [MODEL, "tiny-text", "tiny-vision"]
    names = [one.metadata.name for one in client.AppsV1Api(lab.cluster.api).list_namespaced_deployment(NAMESPACE).items]
    assert POD not in names
