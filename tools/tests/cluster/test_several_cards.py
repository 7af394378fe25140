"""Two cards in two nodes: one catalog, a llama-swap for each card, one Service, and one of the nodes drained.

NetworkPolicies are compared as objects by the module's tests: this cluster enforces none.
"""

from __future__ import annotations

import json
import threading
import urllib.request

import pytest
from kubernetes import client

from corral.cluster.client import connect
from corral.cluster.port_forward import forwarded
from corral.cluster.snapshot import is_ready
from corral.demo.hub import RepoContent
from tests.support.adapters import write_answering
from tests.support.cluster import pods
from tests.support.cluster.homelab import CARD, homelab
from tests.support.cluster.second_node import second_node
from tests.support.engine_process import authorization, get, post, question

pytestmark = pytest.mark.timeout(420)
NAMESPACE, EXPORTERS, OTHER = "cards", "cards-exporter", "p40"  # by name before the usual card, and so the first
MODELS = {"tiny-adapted": OTHER, "tiny-text": CARD, "tiny-slow": OTHER, "tiny-vision": OTHER}
SERVICES = {OTHER: "llama-swap-first", CARD: f"llama-swap-{CARD}"}


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cards")
    exporter = {"namespace": EXPORTERS, "records": str(folder / "corral" / "records")}
    with second_node(cluster) as node:
        try:
            with homelab(cluster, folder, NAMESPACE, card_exporter=exporter) as lab:
                card = {"vram_mib": 24576, "compute_capability": "6.1", "node": node}
                (lab.catalog / "cards" / f"{OTHER}.yaml").write_text(json.dumps(card))
                lab.model("tiny-vision", card=OTHER, modalities=["text", "image"], image_max_tokens=64)
                lab.model("tiny-slow", card=OTHER, modalities=["text"], group="slow")
                extras(lab, folder)
                lab.lock()
                lab.corral("apply", "--yes", "--no-smoke")  # with the keys of the exporter, too
                yield lab
        finally:
            pods.leave(cluster, EXPORTERS)
            for namespace in (NAMESPACE, EXPORTERS):
                pods.wait_until_left(cluster, namespace)


def extras(lab, folder):
    """A model with a draft and an adapter, with which it answers red: a pod starts when the store has every file."""
    write_answering(folder / "red.gguf", "red")
    lab.hub.repositories.add("corral/red-GGUF", RepoContent({"red.gguf": folder / "red.gguf"}))
    lab.model(
        "tiny-adapted",
        source={"repo": "corral/tiny-text-GGUF", "quant": "F16"},
        card=OTHER,
        modalities=["text"],
        group="adapted",
        draft={"source": {"repo": "corral/tiny-more-GGUF", "quant": "F16"}},
        adapters=[{"source": {"repo": "corral/red-GGUF", "file": "red.gguf"}, "scale": 1.25}],
    )


def reached(lab, service="llama-swap"):
    return forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE, service)


def pod_of(lab, card):
    labels = f"app.kubernetes.io/name=llama-swap,corral/card={card}"
    found = client.CoreV1Api(lab.cluster.api).list_namespaced_pod(NAMESPACE, label_selector=labels).items
    return min(found, key=lambda one: one.metadata.deletion_timestamp is not None)


def test_each_card_has_a_pod_on_its_node_and_its_models_alone(lab):
    nodes = json.loads(lab.terraform("output", "-json", "nodes").stdout)
    assert {card: pod_of(lab, card).spec.node_name for card in SERVICES} == nodes == {CARD: "gpu-1", OTHER: "gpu-2"}


def ask(root, lab, model):
    """The status of an answer of *model*, and the code where it is an error."""
    asked = question("red", model=model) if model == "tiny-vision" else question("Hello.", model=model)
    status, text = post(f"{root}/v1/chat/completions", asked, api_key=lab.key())
    return status, (json.loads(text).get("error") or {}).get("code")


def drain(lab, node):
    done = lab.run("kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
    assert done.returncode == 0, done.stderr


def wait_until_ready(lab, card):
    pods.eventually(lambda: pod_of(lab, card), lambda pod: is_ready(lab.cluster.api.sanitize_for_serialization(pod)))


@pytest.mark.parametrize("card", SERVICES)
def test_all_models_answer_from_the_pod_of_either_card(lab, card):
    with reached(lab, SERVICES[card]) as root:
        assert {model: ask(root, lab, model) for model in MODELS} == dict.fromkeys(MODELS, (200, None))
        status, text = get(f"{root}/v1/models", api_key=lab.key())
    assert (status, [one["id"] for one in json.loads(text)["data"]]) == (200, sorted(MODELS))


def test_a_model_with_a_draft_and_an_adapter_answers_as_adapted(lab):
    with reached(lab) as root:
        status, text = post(f"{root}/v1/chat/completions", question("Hello.", model="tiny-adapted"), api_key=lab.key())
    answer = json.loads(text)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "red")
    assert answer["timings"]["draft_n"] > 0


def test_status_shows_the_seat_of_a_model_and_the_figures_of_its_last_request(lab):
    asked = question("Go on.", model="tiny-slow", ignore_eos=True, max_tokens=20)
    with reached(lab) as root:
        assert post(f"{root}/v1/chat/completions", asked, api_key=lab.key())[0] == 200
    status = json.loads(lab.corral("status", "--json", code=None).stdout)
    (found,) = [one for one in status["models"] if one["model"] == "tiny-slow"]
    last = found["requests"][0]
    assert (last["status"], last["output_tokens"]) == (200, 20)
    assert last["seconds"] > 0 < last["tokens_per_second"]
    shown = lab.corral("status", code=None).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("model") and "tiny-slow" in line]
    assert f"seat {found['seat_mib']:,} MiB, last request " in line
    assert f"{last['tokens_per_second']:,.1f} tokens/s" in line


def test_the_commands_name_the_card_of_each_model(lab):
    status = json.loads(lab.corral("status", "--json", code=None).stdout)
    assert {one["model"]: one["card"] for one in status["models"]} == MODELS
    assert {one["card"]: one["node"] for one in status["pods"]} == {CARD: "gpu-1", OTHER: "gpu-2"}

    verdicts = json.loads(lab.corral("why", "--json", code=None).stdout)["answers"]
    assert {one["model"]: one["evidence"][0] for one in verdicts} == {
        model: f"The model is on card {card}." for model, card in MODELS.items()
    }
    smoke = json.loads(lab.corral("smoke", "--json").stdout)
    assert smoke["passed"], smoke

    def cards():
        done = lab.corral("card", "--context", lab.cluster.context, "--json", code=None)
        return [one["card"] for one in json.loads(done.stdout)["cards"]] if done.stdout else done.stderr

    pods.eventually(cards, lambda found: found == [CARD, OTHER], limit_s=150.0)  # the kubelets bring the keys


def test_the_commands_know_what_either_card_has_loaded_whichever_pod_they_reach(lab):
    """Of two models on two cards one is on another card than the pod that answers."""
    models = ("tiny-text", "tiny-vision")
    assert {MODELS[model] for model in models} == {CARD, OTHER}
    for model in models:
        lab.corral("load", model)
    smoke = json.loads(lab.corral("smoke", *models, "--resident-only", "--json").stdout)
    assert {one["model"] for one in smoke["checks"] if one["status"] == "passed"} >= set(models)
    assert [one for one in smoke["checks"] if one["status"] != "passed"] == []

    lab.corral("golden", "record", *models)
    lab.corral("golden", "check", *models)
    assert "is unloaded" in lab.corral("unload", "tiny-text").stdout
    assert "is unloaded" in lab.corral("unload", "tiny-vision").stdout


@pytest.mark.parametrize("model", ["tiny-text", "tiny-vision"])
def test_the_gate_ends_the_pod_of_the_models_card_and_asks_the_exporter_of_its_node(lab, model):
    def state(box, *words):
        done = lab.corral("gate", model, "--only", box, *words, "--json", code=None)
        (found,) = [one for one in json.loads(done.stdout)["boxes"] if one["box"] == box]
        return found["state"], str(found["lines"])

    def is_passed(found):
        return found[0] == "passed"

    uids = {card: pod_of(lab, card).metadata.uid for card in SERVICES}
    assert is_passed(found := state("shutdown", "--may-end")), found
    assert [card for card in SERVICES if pod_of(lab, card).metadata.uid != uids[card]] == [MODELS[model]]
    # The exporter reads the new pod once it has its name, and the monitor's key once the kubelet brings it.
    pods.eventually(lambda: state("monitoring"), is_passed, limit_s=180.0)


def test_a_drained_door_ends_what_it_passed_on_and_the_other_cards_models_answer(lab):
    begun, text = threading.Event(), []

    def stream(root):
        body = question("Go on.", model="tiny-slow", stream=True, ignore_eos=True, max_tokens=400)
        headers = {"Content-Type": "application/json"} | authorization(lab.key())
        request = urllib.request.Request(f"{root}/v1/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            for line in answer:
                text.append(line)
                begun.set()

    with reached(lab, SERVICES[CARD]) as root:
        streaming = threading.Thread(target=stream, args=(root,))
        streaming.start()
        assert begun.wait(60)
        drain(lab, lab.cluster.node)
        streaming.join()
    assert [line for line in text if line.strip()][-1] == b"data: [DONE]\n"

    with reached(lab) as root:
        assert {model: ask(root, lab, model) for model in MODELS} == {
            "tiny-adapted": (200, None),
            "tiny-slow": (200, None),
            "tiny-vision": (200, None),
            "tiny-text": (503, "card-unreachable"),
        }
    status = json.loads(lab.corral("status", "--json", code=1).stdout)
    assert [one["model"] for one in status["models"] if one["state"] == "unreachable"] == ["tiny-text"]
    verdict = json.loads(lab.corral("why", "tiny-text", "--json", code=None).stdout)
    assert (verdict["class"], verdict["evidence"][0]) == ("stack-down", f"The model is on card {CARD}.")
    assert "gpu-1" in str(verdict)


def test_after_the_drain_both_cards_answer_again(lab):
    assert lab.run("kubectl", "uncordon", lab.cluster.node).returncode == 0
    wait_until_ready(lab, CARD)
    with reached(lab, SERVICES[OTHER]) as root:  # ready before every node's Service knows it
        pods.eventually(lambda: ask(root, lab, "tiny-text"), lambda answer: answer == (200, None))
    for service in SERVICES.values():
        with reached(lab, service) as root:
            assert {model: ask(root, lab, model) for model in MODELS} == dict.fromkeys(MODELS, (200, None))
