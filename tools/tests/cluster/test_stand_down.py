"""`corral stand-down` of a tenant with real workloads: it comes back, whatever ends meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from kubernetes import client

from corral.cluster.client import connect
from corral.errors import CannotRun, Refused
from corral.stand_down import lifecycle, manifests
from corral.stand_down.workloads import Tenant
from tests.support.cluster import pods
from tests.support.cluster.homelab import CARD, homelab
from tests.support.engine_process import wait_for

pytestmark = pytest.mark.timeout(300)

NAMESPACE, APP = "photos", "immich-machine-learning"
TENANT = Tenant("immich-ml", NAMESPACE, f"app={APP}")
_SLEEP = "import signal, time; signal.signal(15, lambda *_: exit()); time.sleep(3600)"


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    """A locked catalog whose card has the tenant, and its Deployment of two pods beside another one; never applied."""
    with homelab(cluster, tmp_path_factory.mktemp("stand-down"), "stand-down") as lab:
        tenants = {TENANT.name: {"budget_mib": 2100, "namespace": NAMESPACE, "selector": TENANT.selector}}
        tenants["host-process"] = {"budget_mib": 100}
        card = {"vram_mib": 15360, "reserve_mib": 512, "compute_capability": "7.5", "node": cluster.node}
        (lab.catalog / "cards" / f"{CARD}.yaml").write_text(json.dumps(card | {"tenants": tenants}))
        lab.lock()
        pods.wait_until_left(cluster, NAMESPACE)
        client.CoreV1Api(cluster.api).create_namespace({"metadata": {"name": NAMESPACE}})
        for name, app, replicas in (("ml", APP, 2), ("other", "other", 1)):
            deploy(lab, name, app, replicas)
        try:
            yield lab
        finally:
            pods.leave(cluster, NAMESPACE)


@pytest.fixture(autouse=True)
def as_before(lab):
    """Each test begins with two replicas, and without a stand-down."""
    with suppress(Refused):
        lifecycle.end(connect(lab.cluster.kubeconfig, lab.cluster.context), TENANT)
    scale(lab, 2)
    wait_until_nothing_is_left(lab)


def deploy(lab, name, app, replicas):
    one = pods.pod(name, lab.cluster.images["fetch"], "python3", "-c", _SLEEP, labels={"app": app})
    spec = one["spec"] | {"restartPolicy": "Always"}
    template = {"metadata": {"labels": {"app": app}}, "spec": spec}
    deployment = {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template},
    }
    apps(lab).create_namespaced_deployment(NAMESPACE, deployment)


def apps(lab):
    return client.AppsV1Api(lab.cluster.api)


def scale(lab, replicas):
    apps(lab).patch_namespaced_deployment_scale("ml", NAMESPACE, {"spec": {"replicas": replicas}})
    pods.eventually(lambda: running(lab), lambda count: count == replicas)


def replicas(lab, name="ml"):
    return apps(lab).read_namespaced_deployment(name, NAMESPACE).spec.replicas


def running(lab):
    found = client.CoreV1Api(lab.cluster.api).list_namespaced_pod(NAMESPACE, label_selector=TENANT.selector).items
    return sum(one.status.phase == "Running" and one.metadata.deletion_timestamp is None for one in found)


def left(lab):
    """The names of what is left of stand-downs."""
    ours = "app.kubernetes.io/name=corral-stand-down"
    core, rights = client.CoreV1Api(lab.cluster.api), client.RbacAuthorizationV1Api(lab.cluster.api)
    lists = (
        client.CoordinationV1Api(lab.cluster.api).list_namespaced_lease,
        client.BatchV1Api(lab.cluster.api).list_namespaced_job,
        core.list_namespaced_service_account,
        rights.list_namespaced_role,
        rights.list_namespaced_role_binding,
        core.list_namespaced_pod,
    )
    return [one.metadata.name for listed in lists for one in listed(NAMESPACE, label_selector=ours).items]


def wait_until_restored(lab):
    pods.eventually(lambda: replicas(lab), lambda count: count == 2)


def wait_until_nothing_is_left(lab):
    pods.eventually(lambda: left(lab), lambda names: names == [])


def stand_down(lab, *words, code=0):
    return lab.corral("stand-down", "--context", lab.cluster.context, *words, code=code)


def begin(lab, *words):
    """`corral stand-down` in the background, once its command runs; the process."""
    began = lab.clone / "began"
    began.unlink(missing_ok=True)
    corral = [Path(sys.executable).with_name("corral"), "stand-down", "--context", lab.cluster.context, TENANT.name]
    command = [*corral, *words, "--", "sh", "-c", f"touch {began}; exec sleep 600"]
    process = subprocess.Popen(command, cwd=lab.clone, env=lab.environment, start_new_session=True)
    wait_for(began.exists, what="the command")
    return process


def test_while_a_command_runs_the_tenant_has_no_pod_and_then_as_many_as_before(lab):
    count = f"kubectl -n {NAMESPACE} get pods -l {TENANT.selector} -o name | wc -l"
    done = stand_down(lab, TENANT.name, "--", "sh", "-c", f"{count}; exit 7", code=1)
    assert done.stdout.strip() == "0"
    assert "exit code 7" in done.stderr
    assert replicas(lab) == 2
    assert replicas(lab, "other") == 1


def test_on_a_node_that_is_reserved_by_any_name_the_job_tolerates_what_the_tenant_does(lab):
    core, taint = client.CoreV1Api(lab.cluster.api), "example.com/shared-card=present:NoSchedule"
    toleration = {"key": "example.com/shared-card", "operator": "Exists", "effect": "NoSchedule"}
    template = {"spec": {"template": {"spec": {"tolerations": [toleration]}}}}
    apps(lab).patch_namespaced_deployment("ml", NAMESPACE, template)
    selected = {"label_selector": TENANT.selector}
    pods.eventually(
        lambda: core.list_namespaced_pod(NAMESPACE, **selected).items,
        lambda found: (
            len(found) == 2 and all(toleration["key"] in {each.key for each in one.spec.tolerations} for one in found)
        ),
    )
    try:
        assert lab.run("kubectl", "taint", "node", lab.cluster.node, taint).returncode == 0
        stand_down(lab, TENANT.name, "--", "true")
    finally:
        lab.run("kubectl", "taint", "node", lab.cluster.node, f"{taint}-")
    wait_until_restored(lab)


def test_nothing_is_left_of_a_stand_down_that_has_ended(lab):
    stand_down(lab, TENANT.name, "--", "true")
    wait_until_nothing_is_left(lab)


def test_who_stood_a_tenant_down_is_listed_and_a_second_time_is_refused(lab):
    stand_down(lab, TENANT.name, "--for", "10m")
    (found,) = json.loads(stand_down(lab, "--json").stdout)
    assert (found["tenant"], found["workloads"]) == (
        TENANT.name,
        [{"kind": "deployments", "name": "ml", "replicas": 2}],
    )
    assert 500 < found["until"] - time.time() <= 600

    refused = stand_down(lab, TENANT.name, code=2).stderr

    assert found["holder"] in refused
    assert f"corral stand-down {TENANT.name} --end" in refused
    assert "2 replicas again" in stand_down(lab, TENANT.name, "--end").stderr
    assert replicas(lab) == 2


def test_a_killed_corral_changes_nothing_the_job_restores_in_time(lab):
    process = begin(lab, "--for", "20s")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert replicas(lab) == 0
    wait_until_restored(lab)
    wait_until_nothing_is_left(lab)


@pytest.mark.skipif(os.environ.get("CLUSTER") == "current", reason="only a throwaway one may stop; CI runs it")
def test_an_api_server_that_is_away_when_the_time_is_over_delays_it_and_no_more(lab):
    server, cluster = api_server(lab), connect(lab.cluster.kubeconfig, lab.cluster.context)
    until = lifecycle.begin(cluster, TENANT, 20, lab.cluster.images["fetch"], lambda _: None).until
    server.suspend()  # at once: two commands could take longer than the time
    try:
        wait_for(lambda: time.time() > until + 12, what="the end of the time")  # a request takes 10 s at most
    finally:
        server.resume()
    wait_until_restored(lab)
    wait_until_nothing_is_left(lab)


def api_server(lab):
    children = psutil.Process(int((lab.cluster.folder / "pid").read_text())).children(recursive=True)
    (found,) = [one for one in children if one.name() == "kube-apiserver"]
    return found


def test_a_pod_of_the_job_that_ends_is_replaced_and_restores_in_time(lab):
    stand_down(lab, TENANT.name, "--for", "20s")
    ours = "app.kubernetes.io/name=corral-stand-down"
    core = client.CoreV1Api(lab.cluster.api)
    core.delete_collection_namespaced_pod(NAMESPACE, label_selector=ours, grace_period_seconds=0)
    wait_until_restored(lab)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_command_and_restores_immediately(lab, number):
    process = begin(lab, "--for", "10m")
    (command,) = psutil.Process(process.pid).children()
    process.send_signal(number)
    assert process.wait(60) == 130
    assert not command.is_running()
    assert replicas(lab) == 2


def test_without_its_job_a_stand_down_is_ended_by_the_command(lab):
    stand_down(lab, TENANT.name, "--for", "10m")
    name = manifests.name(TENANT.name)
    client.BatchV1Api(lab.cluster.api).delete_namespaced_job(name, NAMESPACE, propagation_policy="Background")
    assert "2 replicas again" in stand_down(lab, TENANT.name, "--end").stderr
    assert replicas(lab) == 2


def test_a_tenant_that_was_back_before_the_command_ended_is_reported(lab):
    again = f"kubectl -n {NAMESPACE} scale deployment/ml --replicas=2".split()
    assert "scaled to 2 again before the end" in stand_down(lab, TENANT.name, "--", *again, code=1).stderr


def test_a_time_in_which_the_pods_may_not_even_end_is_refused(lab):
    grace = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 30}}}}
    apps(lab).patch_namespaced_deployment("ml", NAMESPACE, grace)
    core = client.CoreV1Api(lab.cluster.api)
    pods.eventually(
        lambda: {
            one.spec.termination_grace_period_seconds
            for one in core.list_namespaced_pod(NAMESPACE, label_selector=TENANT.selector).items
        },
        lambda found: found == {30},
    )
    refused = stand_down(lab, TENANT.name, "--for", "40s", code=2).stderr
    grace["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0
    apps(lab).patch_namespaced_deployment("ml", NAMESPACE, grace)
    assert "may take 30 s to end" in refused
    assert f"corral stand-down {TENANT.name} --for 50s --context {lab.cluster.context}" in refused


def test_a_workload_that_was_scaled_meanwhile_keeps_that_and_it_is_reported(lab):
    done = stand_down(
        lab, TENANT.name, "--", *f"kubectl -n {NAMESPACE} scale deployment/ml --replicas=3".split(), code=1
    )
    assert "scaled to 3 meanwhile" in done.stderr
    assert replicas(lab) == 3


def test_a_command_that_takes_too_long_is_ended_before_the_tenant_returns(lab):
    done = stand_down(lab, TENANT.name, "--for", "20s", "--", "sleep", "600", code=1)
    assert "The time is over: ending sleep 600" in done.stderr
    assert replicas(lab) == 2


def test_the_job_may_scale_the_workloads_of_the_tenant_and_no_other(lab):
    stand_down(lab, TENANT.name, "--for", "10m")
    account = f"--as=system:serviceaccount:{NAMESPACE}:{manifests.name(TENANT.name)}"

    def may(verb, what):
        words = ("auth", "can-i", verb, *what.split(), account)
        return lab.run("kubectl", "-n", NAMESPACE, *words).stdout.strip() == "yes"

    assert may("update", "deployments/ml --subresource=scale")
    assert may("delete", f"leases/{manifests.name(TENANT.name)}")
    for what in ("deployments/other --subresource=scale", "deployments/ml", "pods", "secrets", "leases/other"):
        for verb in ("get", "update", "delete", "create"):
            assert not may(verb, what), (verb, what)
    stand_down(lab, TENANT.name, "--end")


def test_without_a_job_that_is_ready_nothing_is_scaled_down(lab, monkeypatch):
    monkeypatch.setattr(lifecycle, "READY_LIMIT_S", 8.0)
    cluster = connect(lab.cluster.kubeconfig, lab.cluster.context)
    name, _, digest = lab.cluster.images["fetch"].partition("@")
    image = f"{name}@{digest[:-4]}0000"
    with pytest.raises(CannotRun, match=r"is not ready after 8 s: .*Nothing was scaled down"):
        lifecycle.begin(cluster, TENANT, 600, image, lambda _: None)
    assert replicas(lab) == 2
    assert running(lab) == 2


def test_what_cannot_be_stood_down_is_refused_with_the_reason(lab):
    assert "has no namespace and selector" in stand_down(lab, "host-process", code=2).stderr
    assert (
        "No card has a tenant photoprism; those that can be stood down: immich-ml"
        in stand_down(lab, "photoprism", code=2).stderr
    )
    assert "is not stood down" in stand_down(lab, TENANT.name, "--end", code=2).stderr
    scale(lab, 0)
    assert "has no replicas" in stand_down(lab, TENANT.name, code=2).stderr
