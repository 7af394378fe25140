"""Where the models lie: a disk of the GPU node (Path B), a claim that exists, a StorageClass; test_apply.py has NFS."""

from __future__ import annotations

import json

import pytest
from kubernetes import client

from tests.support.cluster.homelab import homelab

pytestmark = pytest.mark.timeout(300)


def test_a_disk_of_the_node_is_mounted_there_and_the_server_cannot_write_to_it(cluster, tmp_path):
    folder = cluster.local("path-b")
    with homelab(cluster, tmp_path, "path-b", store={"local": {"node": cluster.node, "path": str(folder)}}) as lab:
        lab.apply()

        lab.corral("smoke", "tiny-text")
        [volume] = [
            one
            for one in client.CoreV1Api(cluster.api).list_persistent_volume().items
            if one.spec.claim_ref.namespace == "path-b"
        ]
        assert volume.spec.local.path == str(folder)
        assert volume.spec.persistent_volume_reclaim_policy == "Retain"
        assert (folder / "tiny-text" / "model.gguf").exists()
        assert lab.tries_to_write().count("Read-only file system") == 2


def test_a_claim_that_exists_is_used_and_outlives_the_stack(cluster, tmp_path, namespace):
    core = client.CoreV1Api(cluster.api)
    folder = cluster.local(namespace)
    node = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [cluster.node]}]}
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": f"{namespace}-own"}
    core.create_persistent_volume(
        {
            "metadata": {"name": f"{namespace}-own"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "local": {"path": str(folder)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [node]}},
            },
        }
    )
    claim = {"metadata": {"name": "mine"}, "spec": spec | {"resources": {"requests": {"storage": "1Gi"}}}}
    core.create_namespaced_persistent_volume_claim(namespace, claim)
    core.create_namespaced_secret(namespace, {"metadata": {"name": "hf-token"}, "stringData": {"token": "hf_x"}})
    with homelab(cluster, tmp_path, namespace, store={"claim": "mine"}, hf_token_secret="hf-token") as lab:
        lab.apply()
        lab.corral("smoke", "tiny-text")
        anothers = {"name": "another", "image": "another", "securityContext": {"privileged": True}}
        core.create_namespaced_pod(
            namespace, {"metadata": {"name": "another"}, "spec": {"containers": [anothers]}}, dry_run="All"
        )
        selected = [
            one.spec.pod_selector.match_labels or {}
            for one in client.NetworkingV1Api(cluster.api).list_namespaced_network_policy(namespace).items
        ]
        found = json.loads(lab.corral("destroy", "--yes", "--json").stdout)

        kubectl = f"kubectl --kubeconfig {cluster.kubeconfig} --context {cluster.context}"
        assert [(one["what"], one["remove"]) for one in found["stays"]][:-1] == [
            (
                f"persistentvolumeclaim/mine of namespace {namespace}, with the models",
                f"{kubectl} -n {namespace} delete persistentvolumeclaim/mine",
            ),
            (f"namespace/{namespace}", f"{kubectl} delete namespace/{namespace}"),
            (f"secret/corral-keys of namespace {namespace}", f"{kubectl} -n {namespace} delete secret/corral-keys"),
            (f"secret/hf-token of namespace {namespace}", f"{kubectl} -n {namespace} delete secret/hf-token"),
        ]
        assert (found["destroyed"], found["foreign"]) == (True, [])
        assert selected
        assert all({"app.kubernetes.io/part-of", "app.kubernetes.io/name"} & set(labels) for labels in selected)
        assert core.read_namespaced_persistent_volume_claim("mine", namespace).status.phase == "Bound"
        assert (folder / "tiny-text" / "model.gguf").exists()


def test_a_claim_of_a_storage_class_binds_to_a_volume_of_it_and_goes_with_the_stack(cluster, tmp_path, namespace):
    """The cluster has no provisioner: the class is of kubernetes.io/no-provisioner, and a volume of it is there."""
    core, storage = client.CoreV1Api(cluster.api), client.StorageV1Api(cluster.api)
    name, folder = f"{namespace}-fast", cluster.local(namespace)
    storage.create_storage_class(
        {
            "metadata": {"name": name},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    node = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [cluster.node]}]}
    core.create_persistent_volume(
        {
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "2Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": name,
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": str(folder)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [node]}},
            },
        }
    )
    lab_namespace = f"{namespace}-lab"
    try:
        with homelab(cluster, tmp_path, lab_namespace, store={"storage_class": name, "size": "1Gi"}) as lab:
            lab.apply()
            lab.corral("smoke", "tiny-text")
            (claim,) = core.list_namespaced_persistent_volume_claim(lab_namespace).items
            (store,) = json.loads(lab.corral("status", "--json").stdout)["stores"]
            assert (claim.status.phase, claim.spec.volume_name, claim.spec.access_modes) == (
                "Bound",
                name,
                ["ReadWriteOnce"],
            )
            assert store["place"] == f"local {folder} on {cluster.node}"
            assert lab.planned() == {}

            lab.set(store={"storage_class": name, "size": "2Gi"})
            assert "~ store: size 1Gi → 2Gi" in lab.corral("plan").stdout
            lab.set(store={"nfs": {"server": "nas.test", "path": f"/{lab_namespace}"}})
            assert f"~ store: the volume of StorageClass {name} goes" in lab.corral("plan").stdout
            lab.set(store={"storage_class": name, "size": "1Gi"})
            lab.destroy()
        assert core.read_persistent_volume(name).status.phase == "Released"
        assert (folder / "tiny-text" / "model.gguf").exists(), "its reclaimPolicy is Retain"
    finally:
        core.delete_persistent_volume(name)
        storage.delete_storage_class(name)
