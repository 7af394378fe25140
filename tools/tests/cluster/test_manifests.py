"""What Terraform places in the cluster, judged by others: Pod Security, checkov, the schemas of three minors."""

from __future__ import annotations

import json
import os
import subprocess
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
import yaml
from kubernetes import client

from tests.support.cluster import images
from tests.support.cluster.homelab import homelab

pytestmark = pytest.mark.timeout(300)
NAMESPACE = "judged"
MINORS = ("1.32", "1.33", "1.34")
KINDS = (
    "deployment,job,service,configmap,serviceaccount,networkpolicy,poddisruptionbudget,persistentvolumeclaim,ingress"
)
EXPOSED = {
    "hostname": "llm.home.arpa",
    "from_namespace": "ingress-nginx",
    "ingress_class": "nginx",
    "tls_secret": "llm-tls",
}
WRITTEN_BY_THE_CLUSTER = ("creationTimestamp", "resourceVersion", "uid", "generation", "managedFields", "finalizers")


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    opened = {"allowed_namespaces": ["litellm"], "expose": EXPOSED}
    with homelab(cluster, tmp_path_factory.mktemp("judged"), NAMESPACE, **opened) as lab:
        lab.name_images(
            **{"llama-swap": images.LLAMA_SWAP_ALONE, "llama-server": images.LLAMA_SERVER}
        )  # the larger pod
        lab.lock()
        lab.apply()
        yield lab


@pytest.fixture(scope="module")
def manifests(lab):
    """Every object of the stack, as one would write it: without what the cluster adds; kind and name to object."""
    found = json.loads(lab.run("kubectl", "-n", NAMESPACE, "get", KINDS, "-o", "json").stdout)["items"]
    ours = [one for one in found if one["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "corral"]
    for one in ours:
        one.pop("status", None)
        for key in WRITTEN_BY_THE_CLUSTER:
            one["metadata"].pop(key, None)
        one["metadata"].pop("annotations", None)
        if one["kind"] == "Service":
            for key in ("clusterIP", "clusterIPs"):
                one["spec"].pop(key, None)
    return {(one["kind"], one["metadata"]["name"]): one for one in ours}


@pytest.fixture(scope="module")
def folder(manifests, tmp_path_factory):
    folder = tmp_path_factory.mktemp("manifests")
    for (kind, name), one in manifests.items():
        (folder / f"{kind.lower()}-{name}.yaml").write_text(yaml.safe_dump(one))
    return folder


def judge(name: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run one of the programs that judge manifests; tools/dev/manifest_tools.sh brings them."""
    tools = os.environ.get("CORRAL_MANIFEST_TOOLS")
    assert tools, "run it by make test-cluster, which brings checkov and kubernetes-validate"
    return subprocess.run([Path(tools) / name, *words], capture_output=True, text=True, check=False, timeout=240)


def test_there_is_everything_that_the_stack_is_made_of(manifests):
    assert {kind for kind, _ in manifests} == {
        *("Deployment", "Job", "Service", "ConfigMap", "ServiceAccount", "NetworkPolicy", "PodDisruptionBudget"),
        *("PersistentVolumeClaim", "Ingress"),
    }


def test_the_pods_run_where_pod_security_enforces_restricted(cluster, lab):
    core = client.CoreV1Api(cluster.api)
    labels = core.read_namespace(NAMESPACE).metadata.labels
    pods = core.list_namespaced_pod(NAMESPACE, label_selector="app.kubernetes.io/part-of=corral").items

    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {one.status.phase for one in pods} == {"Running", "Succeeded"}


def test_a_pod_that_is_not_restricted_is_refused_in_the_same_namespace(cluster, lab):
    bad = {"metadata": {"name": "bad"}, "spec": {"containers": [{"name": "bad", "image": "bad:1"}]}}
    with pytest.raises(client.ApiException) as refused:
        client.CoreV1Api(cluster.api).create_namespaced_pod(NAMESPACE, bad)
    assert "violates PodSecurity" in refused.value.body


def test_checkov_fails_nothing_and_skips_nothing(folder):
    done = judge("checkov", "--directory", folder, "--framework", "kubernetes", "--skip-download", "--output", "json")
    result = json.loads(done.stdout)
    failed = [f"{one['check_id']} {one['check_name']}: {one['resource']}" for one in result["results"]["failed_checks"]]

    assert failed == []
    assert result["summary"]["skipped"] == 0
    assert result["summary"]["passed"] > 80


@pytest.mark.parametrize("minor", MINORS)
def test_the_manifests_are_strictly_valid_for_three_minors(folder, minor):
    files = sorted(folder.glob("*.yaml"))
    done = judge("kubernetes-validate", "--strict", "--kubernetes-version", minor, *files)

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(files) > 8


def test_strict_validation_would_have_found_a_key_that_does_not_exist(folder, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text((folder / "deployment-llama-swap.yaml").read_text().replace("replicas:", "replicsa:"))

    assert judge("kubernetes-validate", "--strict", "--kubernetes-version", MINORS[-1], bad).returncode != 0


# Kubernetes' own rules of NetworkPolicy, as far as ours use them: selected pods are isolated in the directions that
# some policy names, and may do what any policy allows.  https://kubernetes.io/docs/concepts/services-networking/network-policies/
def allowed(policies, *, direction, labels, peer, port, protocol="TCP"):
    """Whether *peer* (namespace and labels, or an address) may be reached from, or reach, a pod with *labels*."""
    key, side = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
    chosen = [one["spec"] for one in policies if selects(one["spec"]["podSelector"], labels)]
    if not any(direction in one["policyTypes"] for one in chosen):
        return True
    return any(
        (not rule.get(side) or any(is_peer(one, peer) for one in rule[side]))
        and (not rule.get("ports") or any(is_port(one, port, protocol) for one in rule["ports"]))
        for one in chosen
        if direction in one["policyTypes"]
        for rule in one.get(key) or ()
    )


def selects(selector, labels):
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    for one in selector.get("matchExpressions", ()):
        assert one["operator"] == "In"
        if labels.get(one["key"]) not in one["values"]:
            return False
    return all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())


def is_peer(rule, peer):
    if "ipBlock" in rule:
        block = rule["ipBlock"]
        return "address" in peer and (
            ip_address(peer["address"]) in ip_network(block["cidr"])
            and not any(ip_address(peer["address"]) in ip_network(one) for one in block.get("except", ()))
        )
    if "address" in peer:
        return False
    in_namespace = (
        selects(rule["namespaceSelector"], peer["namespace"])
        if "namespaceSelector" in rule
        else peer.get("ours", False)
    )
    return in_namespace and ("podSelector" not in rule or selects(rule["podSelector"], peer.get("labels", {})))


def is_port(rule, port, protocol):
    if rule.get("protocol", "TCP") != protocol:
        return False
    return "port" not in rule or rule["port"] == port or rule["port"] <= port <= rule.get("endPort", rule["port"])


LITELLM = {"namespace": {"kubernetes.io/metadata.name": "litellm"}, "labels": {"app": "litellm"}}
CONTROLLER = {"namespace": {"kubernetes.io/metadata.name": "ingress-nginx"}, "labels": {"app": "ingress-nginx"}}
STRANGER = {"namespace": {"kubernetes.io/metadata.name": "default"}, "labels": {"app": "litellm"}}
NEIGHBOUR = {"namespace": {"kubernetes.io/metadata.name": NAMESPACE}, "labels": {"app": "x"}, "ours": True}
DNS = {"namespace": {"kubernetes.io/metadata.name": "kube-system"}, "labels": {"k8s-app": "kube-dns"}}
INTERNET, METADATA = {"address": "18.164.174.55"}, {"address": "169.254.169.254"}
PRIVATE = {"address": "192.168.1.1"}


@pytest.mark.parametrize(
    ("who", "direction", "peer", "port", "protocol", "may"),
    [
        ("llama-swap", "Ingress", LITELLM, 8080, "TCP", True),
        ("llama-swap", "Ingress", CONTROLLER, 8080, "TCP", True),
        ("llama-swap", "Ingress", LITELLM, 8082, "TCP", False),
        ("llama-swap", "Ingress", LITELLM, 5800, "TCP", False),
        ("llama-swap", "Ingress", STRANGER, 8080, "TCP", False),
        ("llama-swap", "Ingress", INTERNET, 8080, "TCP", False),
        ("llama-swap", "Egress", INTERNET, 443, "TCP", False),
        ("llama-swap", "Egress", METADATA, 80, "TCP", False),
        ("llama-swap", "Egress", DNS, 53, "UDP", False),
        ("llama-swap", "Egress", NEIGHBOUR, 8080, "TCP", False),
        ("download-models", "Ingress", LITELLM, 8080, "TCP", False),
        ("download-models", "Egress", INTERNET, 443, "TCP", True),
        ("download-models", "Egress", DNS, 53, "UDP", True),
        ("download-models", "Egress", INTERNET, 22, "TCP", False),
        ("download-models", "Egress", METADATA, 443, "TCP", False),
        ("download-models", "Egress", METADATA, 80, "TCP", False),
        ("download-models", "Egress", PRIVATE, 443, "TCP", False),
        ("download-models", "Egress", NEIGHBOUR, 443, "TCP", False),
        ("anything-else", "Ingress", LITELLM, 8080, "TCP", False),
        ("anything-else", "Egress", INTERNET, 443, "TCP", False),
    ],
)
def test_the_network_policies_allow_these_flows_and_no_others(manifests, who, direction, peer, port, protocol, may):
    policies = [one for (kind, _), one in manifests.items() if kind == "NetworkPolicy"]
    templates = [
        one["spec"]["template"]["metadata"]["labels"]
        for (kind, _), one in manifests.items()
        if kind in {"Deployment", "Job"}
    ]
    labels = next((one for one in templates if one["app.kubernetes.io/name"] == who), {"app.kubernetes.io/name": who})

    assert len(policies) >= 3
    assert allowed(policies, direction=direction, labels=labels, peer=peer, port=port, protocol=protocol) == may
