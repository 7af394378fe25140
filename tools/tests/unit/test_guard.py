"""What an apply does to the cluster when Terraform is to stop, with the real client and an API server that notes it."""

from __future__ import annotations

import dataclasses
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from kubernetes.client import ApiClient, Configuration

from corral.cluster import collect, diagnosis
from corral.cluster.finding import Cause, Finding
from corral.cluster.job_rules import ENDED_FOR
from corral.cluster.target import ClusterTarget
from corral.errors import CannotRun
from corral.terraform.guard import ClusterGuard

JOBS, DEPLOYMENTS = "/apis/batch/v1/namespaces/llm/jobs", "/apis/apps/v1/namespaces/llm/deployments"
PODS, FAILED = "/api/v1/namespaces/llm/pods", "fieldSelector=status.phase%3DFailed&labelSelector=a%3Db"
BOTH = {"kubernetes_job_v1", "kubernetes_deployment_v1"}


def job(name, *, condition=None, deadline=10800):
    conditions = [{"type": condition, "status": "True"}] if condition else []
    spec = {"activeDeadlineSeconds": deadline, "template": {"spec": {"containers": [{"name": "fetch"}]}}}
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}}


def deployment(name, deadline=600):
    pod = {"spec": {"containers": [{"name": "llama-swap"}]}}
    return {
        "metadata": {"name": name},
        "spec": {"progressDeadlineSeconds": deadline, "selector": {"matchLabels": {"a": "b"}}, "template": pod},
    }


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        path, _, query = self.path.partition("?")
        assert query == (FAILED if path == PODS else "labelSelector=app.kubernetes.io/part-of%3Dcorral")
        self._answer({"items": self.server.objects[path]})

    def do_DELETE(self):
        self.server.deleted.append(self.path)
        self._answer({"status": "Success"})

    def do_PATCH(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.patched.append((self.path, body))
        self._answer(job("x") if "jobs" in self.path else deployment("x"), status=self.server.status)

    def _answer(self, body, status=200):
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@pytest.fixture
def api():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.objects, server.patched, server.status = {JOBS: [], DEPLOYMENTS: [], PODS: []}, [], 200
        server.deleted = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def guard(api):
    found = ClusterGuard(ClusterTarget(None, None, "llm"))
    with ApiClient(Configuration(host=f"http://127.0.0.1:{api.server_address[1]}")) as client:
        found._cluster = SimpleNamespace(api=client)
        found._has_keys = True  # tests/unit/test_cluster_keys.py
        yield found
        client.rest_client.pool_manager.clear()


@pytest.fixture(autouse=True)
def without_exporters(monkeypatch):
    """Their keys are those of test_cluster_exporters.py."""
    for method in ("give_monitor_keys", "give_gateway_keys"):
        monkeypatch.setattr(ClusterGuard, method, lambda _self: None)


def test_an_unfinished_download_is_called_late(api, guard):
    api.objects[JOBS] = [job("download-models"), job("old", condition="Complete"), job("bad", condition="Failed")]

    guard.end({"kubernetes_job_v1"})

    change = {"metadata": {"annotations": {ENDED_FOR: "null"}}, "spec": {"activeDeadlineSeconds": 1}}
    assert api.patched == [(f"{JOBS}/download-models", change)]


def test_a_download_that_is_ended_keeps_the_reason_for_a_later_status(monkeypatch, api, guard):
    stuck = Finding("pod/download-models-x", "waits for a Secret.", "", "kubectl", is_stuck=True, cause=Cause.NODE)
    slow = dataclasses.replace(stuck, what="is slow.", is_stuck=False)
    monkeypatch.setattr(collect, "collect", lambda _cluster, _namespace: None)
    monkeypatch.setattr(diagnosis, "findings", lambda _snapshot: (slow, stuck))
    api.objects[JOBS] = [job("download-models")]

    guard.inspect({"kubernetes_job_v1"})
    guard.end({"kubernetes_job_v1"})

    [(_, change)] = api.patched
    assert json.loads(change["metadata"]["annotations"][ENDED_FOR]) == stuck.as_json()


def test_a_server_that_does_not_come_up_is_called_late_and_stays(api, guard):
    api.objects[DEPLOYMENTS] = [deployment("llama-swap")]

    guard.end(BOTH)

    assert api.patched == [(f"{DEPLOYMENTS}/llama-swap", {"spec": {"progressDeadlineSeconds": 1}})]


def test_a_server_that_was_late_before_is_given_time_without_end_until_terraform_sets_it(monkeypatch, api, guard):
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    api.objects[DEPLOYMENTS] = [deployment("llama-swap") | {"status": {"conditions": [late]}}]
    monkeypatch.setattr("corral.terraform.guard._LATE_LIMIT_S", 0.0)  # an API server may be that slow

    guard.begin({"kubernetes_config_map_v1"})
    assert api.patched == []
    guard.begin(BOTH)

    assert api.patched[0] == (f"{DEPLOYMENTS}/llama-swap", {"spec": {"progressDeadlineSeconds": 2147483647}})


def test_a_server_that_was_not_late_is_left_alone(api, guard):
    api.objects[DEPLOYMENTS] = [deployment("llama-swap")]

    guard.begin(BOTH)

    assert api.patched == []


def test_a_failed_pod_of_a_server_that_is_changed_is_deleted_before(api, guard):
    api.objects |= {DEPLOYMENTS: [deployment("llama-swap")], PODS: [{"metadata": {"name": "llama-swap-x"}}]}

    guard.begin({"kubernetes_config_map_v1"})
    assert api.deleted == []
    guard.begin(BOTH)

    assert api.deleted == [f"{PODS}?{FAILED}"]


def test_where_no_pod_has_failed_nothing_is_deleted(api, guard):
    api.objects[DEPLOYMENTS] = [deployment("llama-swap")]

    guard.begin(BOTH)

    assert api.deleted == []


def test_what_terraform_does_not_wait_for_is_left_alone(api, guard):
    api.objects |= {JOBS: [job("download-models")], DEPLOYMENTS: [deployment("llama-swap")]}

    guard.end({"kubernetes_config_map_v1"})

    assert api.patched == []


def test_nothing_is_ended_twice(api, guard):
    api.objects |= {JOBS: [job("download-models", deadline=1)], DEPLOYMENTS: [deployment("llama-swap", deadline=1)]}

    guard.end(BOTH)

    assert api.patched == []


def test_a_cluster_that_does_not_allow_it_is_reported(api, guard):
    api.objects[JOBS] = [job("download-models")]
    api.status = 403

    with pytest.raises(CannotRun, match=r"The cluster does not end what is waited for: Forbidden\."):
        guard.end(BOTH)


def test_a_cluster_that_is_away_is_reported():
    away = ClusterGuard(ClusterTarget(None, None, "llm"))
    configuration = Configuration(host="http://127.0.0.1:1")
    configuration.retries = False
    with ApiClient(configuration) as client:
        away._cluster = SimpleNamespace(api=client)
        with pytest.raises(CannotRun, match="The cluster does not answer"):
            away.end(BOTH)


@dataclass(frozen=True)
class Found:
    subject: str
    is_stuck: bool = False


@pytest.mark.parametrize(
    ("kinds", "found_subjects"),
    [
        ({"kubernetes_job_v1"}, ["pod/download-models-x", "job/download-models", "persistentvolumeclaim/models"]),
        ({"kubernetes_deployment_v1"}, ["pod/llama-swap-x", "deployment/llama-swap", "persistentvolumeclaim/models"]),
        ({"kubernetes_persistent_volume_claim_v1"}, ["persistentvolumeclaim/models"]),
        (set(), []),
    ],
    ids=["job", "deployment", "claim", "nothing"],
)
def test_what_is_wrong_with_something_else_is_for_this_apply_to_mend(monkeypatch, kinds, found_subjects):
    """A server that was broken before must not end the download before it."""
    subjects = [
        "pod/llama-swap-x",
        "pod/download-models-x",
        "job/download-models",
        "deployment/llama-swap",
        "persistentvolumeclaim/models",
    ]
    monkeypatch.setattr(collect, "collect", lambda _cluster, _namespace: None)
    monkeypatch.setattr(diagnosis, "findings", lambda _snapshot: tuple(map(Found, subjects)))
    found = ClusterGuard(ClusterTarget(None, None, "llm"))
    found._has_keys = True
    found._cluster = SimpleNamespace()

    assert [one.subject for one in found.inspect(kinds)] == found_subjects
