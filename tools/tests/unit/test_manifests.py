"""Manifests of a plan: what Kubernetes has no field for is refused, and a folder with another kustomization is left.

What a real plan becomes, and that Kubernetes finds no difference, is in tests/cluster/test_gitops.py.
"""

from __future__ import annotations

import pytest
import yaml

from corral.errors import Refused
from corral.terraform import manifests

METADATA = [{"name": "a", "namespace": "llm", "labels": {"b": "c"}, "annotations": None}]


def plan(kind, unknown=None, **values):
    change = {"actions": ["create"], "after": {"metadata": METADATA, **values}, "after_unknown": unknown or {}}
    return {"resource_changes": [{"address": f"{kind}.a", "type": kind, "change": change}]}


def manifest(kind, unknown=None, **values):
    [found] = manifests.of_plan(plan(kind, unknown, **values))
    return found


def service(**spec):
    return manifest("kubernetes_service_v1", spec=[{"port": [{"port": 80, "target_port": "http"}], **spec}])


def test_blocks_become_objects_and_lists_and_what_is_not_set_is_left_out():
    found = service(
        cluster_ip=None, external_ips=[], type="ClusterIP", session_affinity="", wait_for_load_balancer=True
    )

    assert found.document == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a", "namespace": "llm", "labels": {"b": "c"}},
        "spec": {"ports": [{"port": 80, "targetPort": "http"}], "type": "ClusterIP"},
    }
    assert found.file == "service-llm-a.yaml"


def test_a_mode_is_octal_and_a_port_is_a_number_where_it_is_one():
    pod = {"volume": [{"name": "v", "config_map": [{"name": "c", "default_mode": "0440"}]}]}
    found = manifest("kubernetes_deployment_v1", spec=[{"replicas": "1", "template": [{"spec": [pod]}]}])
    volume = {"name": "v", "configMap": {"name": "c", "defaultMode": 0o440}}
    assert found.document["spec"] == {"replicas": 1, "template": {"spec": {"volumes": [volume]}}}

    rule = {"ports": [{"port": "8080", "protocol": "TCP"}]}
    policy = manifest(
        "kubernetes_network_policy_v1", spec=[{"pod_selector": [{"match_labels": None}], "egress": [rule]}]
    )
    assert policy.document["spec"] == {"podSelector": {}, "egress": [{"ports": [{"port": 8080, "protocol": "TCP"}]}]}


def test_no_class_of_storage_is_not_the_clusters_default():
    spec = [{"storage_class_name": "", "volume_name": "v"}]
    found = manifest("kubernetes_persistent_volume_claim_v1", spec=spec).document["spec"]
    assert found == {"storageClassName": "", "volumeName": "v"}


def test_a_set_is_in_the_order_in_which_the_provider_writes_it():
    options = ["hard", "nconnect=8", "noatime", "rsize=1048576", "wsize=1048576"]
    found = manifest("kubernetes_persistent_volume_v1", spec=[{"mount_options": options}]).document["spec"]

    assert found["mountOptions"] == ["wsize=1048576", "rsize=1048576", "noatime", "nconnect=8", "hard"]  # of 3.2.1


def test_labels_of_a_namespace_that_exists_are_labels_alone():
    metadata = [{"name": "llm"}]
    values = {"metadata": metadata, "api_version": "v1", "kind": "Namespace", "labels": {"a": "b"}}
    change = {"actions": ["create"], "after": values, "after_unknown": {"id": True}}
    labels = {"address": "kubernetes_labels.a", "type": "kubernetes_labels", "change": change}
    [found] = manifests.of_plan({"resource_changes": [labels]})
    assert found.document == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "llm", "labels": {"a": "b"}},
    }


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"color": "red"}, r"\.spec\.color has no manifest: Kubernetes has no such field"),
        ({"session_affinity_config": [{}, {}]}, r"\.session_affinity_config has no manifest: 2 blocks are one object"),
    ],
)
def test_what_kubernetes_does_not_know_is_refused(spec, why):
    with pytest.raises(Refused, match=why):
        service(**spec)


def test_a_type_that_corral_does_not_know_is_refused():
    with pytest.raises(Refused, match="kubernetes_secret_v1 is none of the types"):
        manifest("kubernetes_secret_v1")


def test_what_only_an_apply_knows_is_refused_where_it_is_not_the_servers_own():
    unknown = {"spec": [{"port": [{"node_port": True}], "cluster_ip": True}]}
    assert manifest("kubernetes_service_v1", unknown, spec=[{"type": "ClusterIP"}]).kind == "Service"
    with pytest.raises(Refused, match=r"spec\.selector_of_mine is known only after an apply"):
        manifest("kubernetes_service_v1", {"spec": [{"selector_of_mine": True}]}, spec=[{}])
    with pytest.raises(Refused, match=r"metadata\.name is known only after an apply"):
        manifest("kubernetes_service_v1", {"metadata": [{"name": True}]}, spec=[{}])


def test_files_of_objects_that_went_are_removed_and_others_stay(tmp_path):
    folder = tmp_path / "manifests"
    first, second = service(), manifest("kubernetes_service_account_v1")
    manifests.write(folder, manifests.changes(folder, [first, second]))
    (folder / "mine.yaml").write_text("kind: ConfigMap\n")
    assert manifests.changes(folder, [first, second]) == {}

    changed = manifests.changes(folder, [first])
    assert {name for name, text in changed.items() if text is None} == {second.file}
    manifests.write(folder, changed)

    assert {one.name for one in folder.iterdir()} == {first.file, "kustomization.yaml", "mine.yaml"}
    assert yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"] == [first.file]


def test_a_kustomization_of_ones_own_is_not_replaced(tmp_path):
    (tmp_path / "kustomization.yaml").write_text("resources: [mine.yaml]\n")
    with pytest.raises(Refused, match="was not written by corral") as refused:
        manifests.changes(tmp_path, [service()])
    assert "resources: [FOLDER]" in refused.value.next_step


def test_only_names_of_files_in_the_folder_are_removed(tmp_path):
    folder = tmp_path / "manifests"
    manifests.write(folder, manifests.changes(folder, [service()]))
    kustomization = folder / "kustomization.yaml"
    kustomization.write_text(kustomization.read_text().replace("service-llm-a.yaml", "../service-llm-a.yaml"))

    assert None not in manifests.changes(folder, [manifest("kubernetes_service_account_v1")]).values()


def test_a_text_of_several_lines_stands_as_it_is(tmp_path):
    found = manifest("kubernetes_config_map_v1", data={"run.sh": "#!/bin/sh\necho 1\n"}, immutable=True)
    text = manifests.changes(tmp_path, [found])[found.file]
    assert "  run.sh: |\n    #!/bin/sh\n    echo 1\n" in text
    assert text.startswith("# Written by corral render --manifests")
