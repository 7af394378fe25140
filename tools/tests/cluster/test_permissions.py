"""The rights of docs/permissions: a user with these and no others does what the page names, and uses each of them.

The API server's audit log has what was used; a cluster of one's own (CLUSTER=current) may have none.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
import yaml
from kubernetes import client

from corral import paths
from tests.support.adapters import colours_on
from tests.support.cluster import images
from tests.support.cluster.homelab import homelab
from tests.support.cluster.parts import AUDITED, audit_log

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("CLUSTER") == "current", reason="the throwaway cluster's audit log; CI runs it"),
]
RIGHTS = paths.REPOSITORY / "docs" / "permissions"
NOT_LOGGED = {
    ("create", "pods/portforward"),  # what get was before Kubernetes 1.35
    ("get", "pods"),  # a part of what is granted to the exporter: no request of one's own
}


class Person:
    """A service account with the rights of *roles* and no others, and what the audit log has of it."""

    def __init__(self, cluster, name, folder):
        self.name, self._admin = name, cluster
        core = client.CoreV1Api(cluster.api)
        core.create_namespaced_service_account(AUDITED, {"metadata": {"name": name}})
        made = core.create_namespaced_service_account_token(name, AUDITED, {"spec": {"audiences": []}})
        config = json.loads(cluster.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": made.status.token}
        self.kubeconfig = folder / f"{name}.kubeconfig"
        self.kubeconfig.write_text(json.dumps(config))

    def bind(self, role, namespace=None):
        """Bind the ClusterRole *role* of the page; in the whole cluster without *namespace*."""
        rbac = client.RbacAuthorizationV1Api(self._admin.api)
        body = {
            "metadata": {"name": f"{self.name}-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": self.name, "namespace": AUDITED}],
        }
        if namespace:
            rbac.create_namespaced_role_binding(namespace, body)
        else:
            rbac.create_cluster_role_binding(body)

    def requests(self):
        """Its requests: the API server's decision, the verb, the resource, the name."""
        found = set()
        for line in audit_log(self._admin.folder).read_text().splitlines():
            event = json.loads(line)
            if event["user"]["username"] == f"system:serviceaccount:{AUDITED}:{self.name}" and "objectRef" in event:
                ref = event["objectRef"]
                resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
                decision = event["annotations"]["authorization.k8s.io/decision"]
                found.add((decision, event["verb"], resource, ref.get("name")))
        return found

    def refused(self):
        return {(verb, resource, name) for decision, verb, resource, name in self.requests() if decision != "allow"}


def unused(person, *names):
    """The rights of the roles *names* that no request of *person* needed: verb and resource."""
    used = {(verb, resource, name) for _, verb, resource, name in person.requests()}
    rules = [rule for name in names for rule in roles()[name]["rules"]]
    assert rules
    return [
        (verb, resource)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if (verb, resource) not in NOT_LOGGED
        and not any((verb, resource, name) in used for name in rule.get("resourceNames") or {one[2] for one in used})
    ]


def roles():
    documents = [one for file in RIGHTS.glob("*.yaml") for one in yaml.safe_load_all(file.read_text())]
    return {one["metadata"]["name"]: one for one in documents}


@pytest.fixture(scope="module")
def rights(cluster):
    """The roles of the page in the cluster, and the namespace of the persons."""
    client.CoreV1Api(cluster.api).create_namespace({"metadata": {"name": AUDITED}})
    for role in roles().values():
        client.RbacAuthorizationV1Api(cluster.api).create_cluster_role(role)


def leave_a_failed_pod(cluster, namespace):
    """One that Kubernetes counts among the server's, as an eviction leaves it."""
    core, label = client.CoreV1Api(cluster.api), {"app.kubernetes.io/name": "llama-swap"}
    status = {"phase": "Failed", "reason": "Evicted"}
    image = cluster.images[images.FETCH]
    pod = {"metadata": {"name": "evicted", "labels": label}, "spec": {"containers": [{"name": "a", "image": image}]}}
    pod["spec"] |= {"schedulerName": "none"}  # it is on no node
    core.create_namespaced_pod(namespace, pod)
    core.patch_namespaced_pod_status("evicted", namespace, {"status": status})


def as_person(lab, person):
    lab.cluster = replace(lab.cluster, kubeconfig=person.kubeconfig)
    lab.set(kubeconfig=str(person.kubeconfig))


@pytest.fixture(scope="module")
def lab(cluster, rights, tmp_path_factory):
    """A stack in a namespace that an administrator has made, and its operator."""
    folder = tmp_path_factory.mktemp("permitted")
    with homelab(cluster, folder, "permitted", create_namespace=False) as lab:
        client.CoreV1Api(cluster.api).create_namespace({"metadata": {"name": lab.namespace}})
        lab.operator = Person(cluster, "operator", folder)
        lab.operator.bind("corral-operator", lab.namespace)
        lab.operator.bind("corral-operator-volumes")
        lab.reader = Person(cluster, "reader", folder)
        lab.reader.bind("corral-reader", lab.namespace)
        lab.reader.bind("corral-reader-cluster")
        as_person(lab, lab.operator)
        lab.colours = colours_on(lab.hub, folder, ("red", "green"))
        lab.model("tiny-text", modalities=["text"], group="text", adapters=lab.colours)
        lab.lock()
        yield lab


def test_an_operator_of_one_namespace_plans_applies_and_smokes(lab):
    lab.corral("plan")
    lab.corral("apply", "--yes")

    assert json.loads(lab.corral("status", "--json").stdout)["findings"] == []
    lab.corral("smoke", "--context", lab.cluster.context)
    assert lab.corral("adopt", "--json").stdout.strip() == "[]"


def test_a_reader_gets_the_same_findings_and_no_key(lab):
    as_person(lab, lab.reader)
    try:
        status = json.loads(lab.corral("status", "--json", code=1).stdout)
        refused = lab.corral("keys", "list", "--context", lab.cluster.context, code=2)
    finally:
        as_person(lab, lab.operator)

    assert status["findings"] == []
    assert "the user may not create pods/portforward" in status["models_unseen"]
    assert 'cannot get resource "secrets"' in refused.stderr
    assert unused(lab.reader, "corral-reader", "corral-reader-cluster") == []
    assert ("get", "secrets", "corral-keys") in lab.reader.refused()


def test_an_operator_changes_mends_and_removes_it_with_each_of_these_rights(lab, cluster):
    where = ("--context", lab.cluster.context)
    leave_a_failed_pod(cluster, lab.namespace)
    (lab.catalog / "clients.yaml").write_text("clients: {desk: {requests: 2}}\n")
    lab.model("tiny-text", modalities=["text"], group="text", context=1024, adapters=lab.colours)
    lab.lock()
    lab.set(labels={"team": "home"})
    lab.corral("apply", "--yes", "--no-smoke")
    lab.corral("keys", "add", "desk", *where)
    lab.corral("keys", "revoke", "desk", *where)
    lab.corral("adapters", "swap", "tiny-text:colour", "green", *where)
    lab.corral("adapters", "rollback", "tiny-text:colour", *where)
    lab.corral("prune", *where)
    destroyed = lab.corral("destroy", "--yes")

    assert "configmap/corral-adapters of namespace permitted" in destroyed.stdout + destroyed.stderr
    assert unused(lab.operator, "corral-operator", "corral-operator-volumes") == []
    assert lab.operator.refused() == {
        ("list", "namespaces", None),  # of exporters, which an operator of one namespace has none of
        ("get", "secrets", "corral-monitor"),  # an exporter's, which a destroy would name as what stays
    }


def test_an_operator_of_the_cluster_has_the_namespaces_made_and_the_exporter_beside_them(cluster, rights, tmp_path):
    person = Person(cluster, "cluster-operator", tmp_path)
    person.bind("corral-operator")
    person.bind("corral-cluster-operator")
    exporter = {"namespace": "permitted-exporter"}
    with homelab(cluster, tmp_path / "lab", "permitted-whole", card_exporter=exporter) as lab:
        as_person(lab, person)
        lab.corral("apply", "--yes")
        lab.corral("card", "--context", lab.cluster.context, code=1)  # there is no driver here
        lab.corral("keys", "rotate", "operator", "--context", lab.cluster.context, "--namespace", lab.namespace)
        lab.set(labels={"team": "home"})
        lab.corral("apply", "--yes", "--no-smoke")
        lab.corral("destroy", "--yes")

    assert unused(person, "corral-cluster-operator") == []
    destroyed_with_the_namespace = {resource for verb, resource, _ in person.refused() if verb == "list"}
    assert len(person.refused()) == len(destroyed_with_the_namespace), "no more than what a destroy lists to warn of"
    assert {"secrets", "ingresses"} <= destroyed_with_the_namespace
