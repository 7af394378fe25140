"""The engine in an image of its own, beside llama-swap's; test_apply.py has the one image with both."""

from __future__ import annotations

import json

import pytest
from kubernetes import client

from tests.support.cluster import images
from tests.support.cluster.homelab import homelab
from tests.support.engine_process import chat

pytestmark = pytest.mark.timeout(300)
NAMESPACE = "two-images"
NOWHERE = f"sha256:{'0' * 64}"
COPY = "copy-llama-swap"


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    with homelab(cluster, tmp_path_factory.mktemp("two-images"), NAMESPACE) as lab:
        lab.name_images(**{"llama-swap": images.LLAMA_SWAP_ALONE, "llama-server": images.LLAMA_SERVER})
        lab.lock()
        lab.corral("apply", "--yes", "--no-smoke")
        yield lab


def in_server(lab, script):
    """The output of the shell *script* in the container of the engine."""
    return lab.run("kubectl", "-n", NAMESPACE, "exec", "deployment/llama-swap", "--", "sh", "-c", script).stdout


def test_the_engine_of_its_own_image_answers_through_the_service(lab, endpoint):
    assert chat(endpoint, "Are you there?", model="tiny-text", api_key=lab.key())["message"]["content"] == "OK"

    pod, both = lab.server_pod(), lab.cluster.images
    (server,) = pod.spec.containers
    copies = next(one for one in pod.spec.init_containers if one.name == COPY)
    assert (server.image, copies.image) == (both[images.LLAMA_SERVER], both[images.LLAMA_SWAP_ALONE])
    assert in_server(lab, "ls /app /opt/llama-swap").split() == [
        "/app:",
        "llama-server",
        "/opt/llama-swap:",
        "llama-swap",
    ]


def test_every_model_is_smoked(lab):
    assert json.loads(lab.corral("smoke", "--json").stdout)["passed"]


def test_the_container_of_the_engine_is_no_root_and_cannot_change_llama_swap(lab):
    assert in_server(lab, "id -u; touch /opt/llama-swap/x 2>&1; id -u").splitlines() == [
        "10001",
        "touch: cannot touch '/opt/llama-swap/x': Read-only file system",
        "10001",
    ]


def test_an_engine_whose_image_listens_on_every_address_listens_on_loopback(lab, endpoint):
    chat(endpoint, "Are you there?", model="tiny-text", api_key=lab.key())

    # State 0A listens; an address is in hexadecimal, its bytes from the last to the first.
    listening = {
        words[1].partition(":")[0]
        for line in in_server(lab, "printenv LLAMA_ARG_HOST; cat /proc/net/tcp").splitlines()
        if len(words := line.split()) > 3 and words[3] == "0A" and int(words[1].partition(":")[2], 16) != 8080
    }
    assert in_server(lab, "printenv LLAMA_ARG_HOST") == "0.0.0.0\n"
    assert listening == {"0100007F"}


def test_status_finds_nothing_wrong_and_a_second_plan_has_no_changes(lab):
    assert json.loads(lab.corral("status", "--json").stdout)["findings"] == []
    assert "No changes." in lab.corral("plan").stdout


def test_an_image_of_llama_swap_that_the_registry_does_not_have_is_named_and_the_next_command_mends_it(lab):
    lab.lose_image("llama-swap", NOWHERE)
    refused = lab.corral("apply", "--yes", "--no-smoke", code=1)
    (finding,) = json.loads(lab.corral("status", "--json", code=1).stdout)["findings"]

    assert (
        f"cannot get the image {lab.cluster.images[images.LLAMA_SWAP_ALONE].partition('@')[0]}@{NOWHERE}: "
        in finding["what"]
    )
    assert (finding["next_step"], finding["is_stuck"]) == ("corral lock --upgrade llama-swap", True)
    assert refused.stderr.rstrip().endswith("→ corral lock --upgrade llama-swap")

    lab.corral("lock", "--upgrade", "llama-swap")
    lab.corral("apply", "--yes")
    assert (
        client.AppsV1Api(lab.cluster.api).read_namespaced_deployment("llama-swap", NAMESPACE).status.ready_replicas == 1
    )
