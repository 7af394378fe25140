"""docs/deployment-options.md on a cluster: most options in one apply, and what others may change beside Terraform."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from kubernetes import client

from tests.support.cluster import pods
from tests.support.cluster.homelab import Homelab, homelab
from tests.support.engine_process import post, question

pytestmark = pytest.mark.timeout(420)
NAMESPACE, EXPORTERS = "options", "options-exporter"
DEPLOYMENT = 'module.llama_swap["first"].kubernetes_deployment_v1.llama_swap'
GPU = "nvidia.com/gpu.shared"  # renamed, as the device plugin does with shares
_environment = Homelab.environment.fget
OPTIONS = {
    "gpu_resource": GPU,
    "image_pull_secrets": ["registry"],
    "labels": {"team": "home"},
    "annotations": {"example.org/owner": "ops"},
    "tolerations": [
        {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists", "effect": "NoExecute", "seconds": 300},
    ],
    "priority_class": "options",
    "concurrency": 50,
    "cpu": {"request": "300m", "limit": "3"},
    "timeouts": {"load_seconds": 400, "drain_seconds": 20, "download_minutes": 90, "rollout_minutes": 10},
}


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    exporter = {"namespace": EXPORTERS, "records": str(folder / "corral" / "records")}
    with homelab(cluster, folder, NAMESPACE, card_exporter=exporter, **OPTIONS) as lab:
        pods.wait_until_left(cluster, EXPORTERS)
        cluster.set_gpus(2, GPU)
        classes = client.SchedulingV1Api(cluster.api)
        classes.create_priority_class({"metadata": {"name": "options"}, "value": 1000, "preemptionPolicy": "Never"})
        try:
            lab.apply()
            yield lab
        finally:
            cluster.set_gpus(0, GPU)
            classes.delete_priority_class("options")
            if cluster.is_throwaway:
                pods.leave(cluster, EXPORTERS)
                for kind in ("clusterrole", "clusterrolebinding"):
                    lab.run("kubectl", "delete", kind, f"{EXPORTERS}-card-exporter", "--ignore-not-found")


def kubectl(lab, *words):
    done = lab.run("kubectl", "-n", NAMESPACE, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def deployment(lab):
    return client.AppsV1Api(lab.cluster.api).read_namespaced_deployment("llama-swap", NAMESPACE)


def all_pods(lab):
    """A pod of each workload, by the workload's name."""
    core = client.CoreV1Api(lab.cluster.api)

    def read():
        found = [pod for namespace in (NAMESPACE, EXPORTERS) for pod in core.list_namespaced_pod(namespace).items]
        return {pod.metadata.labels["app.kubernetes.io/name"]: pod for pod in found}

    wanted = {"llama-swap", "download-models", "store-exporter", "card-exporter"}
    return pods.eventually(read, lambda found: set(found) == wanted)


def test_a_model_answers_with_the_options_and_a_second_plan_has_no_changes(lab):
    lab.corral("smoke", "tiny-text")

    assert lab.planned() == {}


def test_without_the_variable_the_files_of_kubeconfig_count_for_terraform_and_for_corral(lab, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "contexts": [], "clusters": [], "users": []}))
    named, lab.variables["kubeconfig"] = lab.variables["kubeconfig"], None
    lab.set()
    try:
        for name in ("KUBE_CONFIG_PATH", "KUBE_CONFIG_PATHS"):  # of a shell that leads Terraform alone elsewhere
            monkeypatch.setenv(name, str(other))
        several = f"{other}:{tmp_path}/missing:{lab.cluster.kubeconfig}"
        monkeypatch.setattr(Homelab, "environment", property(lambda _: _environment(lab) | {"KUBECONFIG": several}))
        assert "No changes." in lab.corral("plan").stdout
        assert json.loads(lab.corral("status", "--json", code=None).stdout)["namespace"] == NAMESPACE
    finally:
        monkeypatch.undo()
        lab.set(kubeconfig=named)


def test_with_the_variable_a_kubeconfig_of_the_shell_that_is_missing_is_not_in_the_way(lab, tmp_path, monkeypatch):
    missing = str(tmp_path / "missing")
    monkeypatch.setattr(Homelab, "environment", property(lambda _: _environment(lab) | {"KUBECONFIG": missing}))

    assert "No changes." in lab.corral("plan").stdout
    lab.corral("render", "--manifests", tmp_path / "manifests")


def test_every_pod_is_pulled_with_the_secret(lab):
    for name, pod in all_pods(lab).items():
        assert [one.name for one in pod.spec.image_pull_secrets] == ["registry"], name


def test_every_object_and_pod_has_the_labels_and_annotations(lab):
    made = json.loads(lab.terraform("show", "-json").stdout)["values"]["root_module"]
    objects = [
        one["values"]["metadata"][0]
        for one in _resources(made)
        if one["type"].startswith("kubernetes_") and one["values"]
    ]
    assert len(objects) > 20
    for metadata in objects:
        assert metadata["labels"]["team"] == "home", metadata["name"]
        assert metadata["labels"]["app.kubernetes.io/part-of"] == "corral", metadata["name"]
        assert metadata["annotations"]["example.org/owner"] == "ops", metadata["name"]
    for name, pod in all_pods(lab).items():
        assert (pod.metadata.labels["team"], pod.metadata.annotations["example.org/owner"]) == ("home", "ops"), name


def _resources(module):
    yield from module.get("resources", ())
    for child in module.get("child_modules", ()):
        yield from _resources(child)


def test_every_pod_tolerates_the_taints_that_are_named(lab):
    for name, pod in all_pods(lab).items():
        found = {(one.key, one.operator, one.value, one.effect, one.toleration_seconds) for one in pod.spec.tolerations}
        assert ("dedicated", "Equal", "gpu", "NoSchedule", None) in found, name
        assert ("spot", "Exists", None, "NoExecute", 300) in found, name


def test_the_card_is_asked_for_by_the_name_of_the_cluster_and_status_knows_it(lab):
    (limits,) = (one.resources.limits for one in all_pods(lab)["llama-swap"].spec.containers)
    assert {name for name in limits if "/" in name} == {GPU}

    lab.cluster.set_gpus(0, GPU)
    kubectl(lab, "rollout", "restart", "deployment/llama-swap")
    pods.eventually(
        lambda: lab.corral("status", code=None).stdout, lambda text: f"waits for {GPU}" in " ".join(text.split())
    )
    lab.cluster.set_gpus(2, GPU)
    kubectl(lab, "rollout", "status", "deployment/llama-swap", "--timeout=120s")


def test_all_pods_tolerate_a_node_that_is_reserved_by_either_name(lab):
    for name, pod in all_pods(lab).items():
        assert {GPU, "nvidia.com/gpu"} <= {one.key for one in pod.spec.tolerations}, name


def test_fifty_users_who_ask_at_once_all_get_an_answer(lab, endpoint):
    key, together = lab.key(), threading.Barrier(OPTIONS["concurrency"])
    asked = question("Go on.", model="tiny-text", ignore_eos=True, max_tokens=100)

    def ask(_):
        together.wait(60)
        return post(f"{endpoint}/v1/chat/completions", asked, api_key=key)[0]

    with ThreadPoolExecutor(OPTIONS["concurrency"]) as users:
        assert Counter(users.map(ask, range(OPTIONS["concurrency"]))) == {200: OPTIONS["concurrency"]}


def test_the_server_alone_has_the_priority_class(lab):
    found = {name: (pod.spec.priority_class_name, pod.spec.priority) for name, pod in all_pods(lab).items()}

    assert found.pop("llama-swap") == ("options", 1000)
    assert set(found.values()) == {(None, 0)}


def test_a_priority_class_that_is_missing_is_named_and_the_next_apply_takes_it_back(lab):
    missing = {"spec": {"template": {"spec": {"priorityClassName": "missing"}}}}
    kubectl(lab, "patch", "deployment/llama-swap", "--type=merge", f"--patch={json.dumps(missing)}")
    pods.eventually(
        lambda: lab.corral("status", code=None).stdout,
        lambda text: "no PriorityClass with name missing was found" in " ".join(text.split()),
    )

    lab.apply()
    assert deployment(lab).spec.template.spec.priority_class_name == "options"


def test_cores_and_times_are_the_operators(lab):
    found = deployment(lab)
    container = found.spec.template.spec.containers[0]
    job = client.BatchV1Api(lab.cluster.api).read_namespaced_job("download-models", NAMESPACE)

    assert (container.resources.requests["cpu"], container.resources.limits["cpu"]) == ("300m", "3")
    assert (found.spec.progress_deadline_seconds, job.spec.active_deadline_seconds) == (600, 5400)
    assert found.spec.template.spec.termination_grace_period_seconds == 70
    (config,) = (
        one.data["config.yaml"]
        for one in client.CoreV1Api(lab.cluster.api).list_namespaced_config_map(NAMESPACE).items
        if "config.yaml" in (one.data or {})
    )
    assert yaml.safe_load(config)["healthCheckTimeout"] == 400


def test_after_a_rollout_restart_a_plan_has_no_changes(lab):
    kubectl(lab, "rollout", "restart", "deployment/llama-swap", "deployment/store-exporter")
    assert lab.run("kubectl", "-n", EXPORTERS, "rollout", "restart", "daemonset/card-exporter").returncode == 0

    assert "kubectl.kubernetes.io/restartedAt" in deployment(lab).spec.template.metadata.annotations
    assert lab.planned() == {}


def test_labels_and_annotations_of_others_stay_and_are_not_planned_away(lab):
    for kind in ("deployment/llama-swap", "service/llama-swap", "job/download-models", f"namespace/{NAMESPACE}"):
        kubectl(lab, "label", kind, "argocd.argoproj.io/instance=home")
        kubectl(lab, "annotate", kind, "example.org/owner=ops")

    assert lab.planned() == {}


def test_secrets_that_the_cluster_adds_to_a_service_account_stay(lab):
    own = json.dumps({"imagePullSecrets": [{"name": "pulled"}], "secrets": [{"name": "pulled"}]})
    kubectl(lab, "patch", "serviceaccount/llama-swap", "--type=merge", f"--patch={own}")

    assert lab.planned() == {}


def test_a_label_of_corral_and_a_change_of_the_pod_are_planned_back(lab):
    kubectl(lab, "label", "service/llama-swap", "app.kubernetes.io/part-of=other", "--overwrite")
    foreign = {"spec": {"template": {"metadata": {"annotations": {"example.org/added": "x"}}}}}
    kubectl(lab, "patch", "deployment/llama-swap", "--type=merge", f"--patch={json.dumps(foreign)}")
    kubectl(lab, "set", "env", "deployment/llama-swap", "ADDED=x")

    assert lab.planned() == {
        DEPLOYMENT: ["update"],
        'module.llama_swap["first"].kubernetes_service_v1.llama_swap': ["update"],
    }
    lab.apply()
    found = deployment(lab)
    assert lab.planned() == {}
    assert set(found.spec.template.metadata.annotations) == {"kubectl.kubernetes.io/restartedAt", "example.org/owner"}
    assert found.metadata.labels["argocd.argoproj.io/instance"] == "home"
    assert "ADDED" not in {one.name for one in found.spec.template.spec.containers[0].env}


def test_the_last_pull_secret_is_removed_by_hand(lab):
    lab.set(image_pull_secrets=[])
    assert lab.planned() == {}, "the provider could not do it; if it can now, docs/deployment-options.md need not ask"

    patch = json.dumps([{"op": "remove", "path": "/spec/template/spec/imagePullSecrets"}])
    kubectl(lab, "patch", "deployment/llama-swap", "--type=json", f"--patch={patch}")

    assert deployment(lab).spec.template.spec.image_pull_secrets is None
    assert lab.planned() == {}
