"""The ConfigMaps that pods mount: no edit, one name for each content, and a way back."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from kubernetes import client

from corral.cluster.client import connect
from corral.cluster.port_forward import forwarded
from tests.support.cluster import images
from tests.support.cluster.homelab import Watch, homelab
from tests.support.engine_process import chat, get, wait_for

pytestmark = pytest.mark.timeout(300)
NAMESPACE = "config-maps"
SERVER = "app.kubernetes.io/name=llama-swap"


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    with homelab(cluster, tmp_path_factory.mktemp("config-maps"), NAMESPACE) as lab:
        lab.apply()
        yield lab


@pytest.fixture(scope="module")
def core(lab):
    return client.CoreV1Api(lab.cluster.api)


def ours(core):
    """corral's ConfigMaps by their names without the hash."""
    found = core.list_namespaced_config_map(NAMESPACE, label_selector="app.kubernetes.io/part-of=corral").items
    by_name = {re.sub(r"-[0-9a-f]{10}$", "", one.metadata.name): one for one in found}
    assert len(by_name) == len(found), [one.metadata.name for one in found]
    return by_name


def mounted(pod):
    """The ConfigMap of the server's configuration that *pod* mounts."""
    return next(one.config_map.name for one in pod.spec.volumes if one.name == "config")


def in_the_pod(lab):
    """The configuration that the server's container has."""
    command = ("exec", "deployment/llama-swap", "-c", "llama-swap", "--", "cat", "/etc/llama-swap/config.yaml")
    return lab.run("kubectl", "-n", NAMESPACE, *command).stdout


def revisions(lab):
    """The ConfigMap of the configuration by revision, as ``kubectl rollout history`` has them."""
    sets = client.AppsV1Api(lab.cluster.api).list_namespaced_replica_set(NAMESPACE, label_selector=SERVER).items
    number = "deployment.kubernetes.io/revision"
    return {int(one.metadata.annotations[number]): mounted(one.spec.template) for one in sets}


def is_ready(lab):
    pod = lab.server_pod()
    conditions = (pod and pod.status.conditions) or ()
    return any(one.type == "Ready" and one.status == "True" for one in conditions)


def scale(lab, replicas):
    """Scale the server by hand, until so many pods of it are there."""
    body = {"spec": {"replicas": replicas}}
    client.AppsV1Api(lab.cluster.api).patch_namespaced_deployment_scale("llama-swap", NAMESPACE, body)
    wait_for(lambda: bool(lab.server_pod()) == bool(replicas), limit_s=120, what=f"{replicas} pods")


def findings(lab):
    return json.loads(lab.corral("status", "--json", code=None).stdout)["findings"]


def is_missing(lab, name):
    return any(f"waits for the ConfigMap {name}, which does not exist" in one["what"] for one in findings(lab))


def test_a_config_map_edited_by_hand_is_refused_by_the_api(lab, core):
    names = {
        "llama-swap-config",
        "llama-swap-door",
        "llama-swap-guard",
        "download-models-agent",
        "download-models-lock",
    }

    assert set(ours(core)) == names
    for one in ours(core).values():
        with pytest.raises(client.ApiException) as refused:
            core.patch_namespaced_config_map(one.metadata.name, NAMESPACE, {"data": {"x": "by hand"}})
        assert refused.value.status == 422
        assert "immutable" in refused.value.body


def test_a_config_map_deleted_by_hand_is_put_right_by_apply_and_the_pod_runs_with_the_right_content(lab, core):
    one = ours(core)["llama-swap-config"]
    scale(lab, 0)  # while a pod has it, the kubelet keeps an immutable one and asks for it no more
    core.delete_namespaced_config_map(one.metadata.name, NAMESPACE)
    scale(lab, 1)
    wait_for(lambda: is_missing(lab, one.metadata.name), limit_s=120, what="the finding")

    assert f"+ config map: {one.metadata.name}" in lab.corral("plan").stdout
    lab.corral("apply", "--yes", "--no-smoke")
    wait_for(lambda: is_ready(lab), limit_s=180, what="the pod")  # the kubelet tries again after up to two minutes

    assert ours(core)["llama-swap-config"].data == one.data
    assert mounted(lab.server_pod()) == one.metadata.name
    assert in_the_pod(lab) == one.data["config.yaml"]


def test_one_recreated_by_hand_with_another_content_is_put_right_under_the_same_name(lab, core):
    one = ours(core)["llama-swap-door"]
    bare = {"metadata": {"name": one.metadata.name, "labels": one.metadata.labels}, "data": {"guard.json": "{}"}}
    core.delete_namespaced_config_map(one.metadata.name, NAMESPACE)
    core.create_namespaced_config_map(NAMESPACE, bare)

    lab.apply()

    now = ours(core)["llama-swap-door"]
    assert (now.data, now.immutable) == (one.data, True)


def test_one_recreated_by_hand_that_no_apply_can_correct_is_named_with_the_way_out(lab, core):
    one = ours(core)["llama-swap-door"]
    metadata = {"name": one.metadata.name, "labels": one.metadata.labels}
    core.delete_namespaced_config_map(one.metadata.name, NAMESPACE)
    core.create_namespaced_config_map(
        NAMESPACE, {"metadata": metadata, "data": {"guard.json": "{}"}, "immutable": True}
    )

    refused = lab.corral("apply", "--yes", "--no-smoke", code=2)
    assert f"The ConfigMap {one.metadata.name} was made by hand" in refused.stderr
    command, _, then = refused.stderr.partition("→ ")[2].partition("; then: ")
    assert then.startswith("corral apply")
    assert lab.run("sh", "-c", command).returncode == 0
    lab.apply()

    assert ours(core)["llama-swap-door"].data == one.data


def test_an_apply_that_changes_a_models_ttl_replaces_the_pod_exactly_once(lab, core):
    before, old = ours(core), lab.server_pod()
    first = max(revisions(lab))
    lab.model("tiny-text", modalities=["text"], group="text", ttl=77)
    lab.lock()

    def pods():
        found = core.list_namespaced_pod(NAMESPACE, label_selector=SERVER).items
        return {one.metadata.uid for one in found}

    with Watch(pods) as watch:
        lab.apply()

    after, new = ours(core), lab.server_pod()
    found = set().union(*watch.answers)
    assert found == {old.metadata.uid, new.metadata.uid}
    assert new.metadata.uid != old.metadata.uid
    assert {name for name in after if after[name].metadata.name != before[name].metadata.name} == {"llama-swap-config"}
    assert mounted(new) == after["llama-swap-config"].metadata.name
    assert '"ttl": 77' in in_the_pod(lab)
    assert revisions(lab) == {first: mounted(old), first + 1: mounted(new)}
    assert "No changes." in lab.terraform("plan", "-input=false", "-no-color").stdout


def test_an_undone_rollout_waits_for_a_config_map_that_is_gone_and_apply_is_the_way_out(lab, core):
    right, first = mounted(lab.server_pod()), max(revisions(lab)) - 1
    before = revisions(lab)[first]
    assert lab.run("kubectl", "-n", NAMESPACE, "rollout", "undo", "deployment/llama-swap").returncode == 0
    wait_for(lambda: is_missing(lab, before), limit_s=120, what="the finding")

    assert [one["next_step"] for one in findings(lab) if before in one["what"]] == ["corral apply"]
    lab.corral("apply", "--yes", "--no-smoke")

    assert is_ready(lab)
    assert mounted(lab.server_pod()) == right


def test_going_back_after_an_apply_that_failed_makes_nothing_that_is_there_already(lab, core):
    before = ours(core)["llama-swap-config"].metadata.name
    file = lab.catalog / "lock.json"
    good = file.read_text()
    lab.model("tiny-text", modalities=["text"], group="text", ttl=78)
    lab.lock()
    lab.lose_image(images.LLAMA_SWAP, "sha256:" + "9" * 64)
    lab.corral("apply", "--yes", "--no-smoke", code=1)
    names = {one.metadata.name for one in core.list_namespaced_config_map(NAMESPACE).items}
    assert before in names
    assert len([name for name in names if name.startswith("llama-swap-config-")]) == 2

    lab.model("tiny-text", modalities=["text"], group="text", ttl=77)
    file.write_text(good)
    lab.corral("apply", "--yes", "--no-smoke")

    assert is_ready(lab)
    assert mounted(lab.server_pod()) == ours(core)["llama-swap-config"].metadata.name == before


def test_models_of_a_group_that_fit_are_a_set_of_the_configuration_and_run_together(lab):
    source = {"repo": "corral/tiny-text-GGUF", "quant": "F16"}
    lab.model("tiny-beside", source=source, modalities=["text"], group="text")
    lab.lock()
    lab.corral("apply", "--yes", "--no-smoke")

    router = yaml.safe_load(in_the_pod(lab))["routing"]["router"]
    assert router == {
        "use": "matrix",
        "settings": {
            "matrix": {
                "vars": {"m0": "tiny-beside", "m1": "tiny-text", "m2": "tiny-vision"},
                "sets": {"_all": "+text & +vision", "text": "m0 & m1", "vision": "m2"},
            }
        },
    }
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE) as address:
        for model in ("tiny-text", "tiny-beside", "tiny-vision"):
            chat(address, "Are you there?", model=model, api_key=lab.key())
        answer = json.loads(get(f"{address}/running", api_key=lab.key())[1])
    assert sorted(one["model"] for one in answer["running"]) == ["tiny-beside", "tiny-text", "tiny-vision"]
    assert "text 156 (tiny-beside + tiny-text)" in " ".join(lab.corral("status").stdout.split())
