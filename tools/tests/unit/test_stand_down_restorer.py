"""What a stand-down restores, and what it leaves alone.  A dictionary stands in for the API server's scales."""

from __future__ import annotations

import json
import time

import pytest

from corral.stand_down import restorer
from corral.stand_down.restorer import ConflictError, NotFoundError, restore

SCALE = "/apis/apps/v1/namespaces/immich/deployments/ml/scale"


class Scales:
    """The scales by path; *others* are replicas that another client sets, each just before an attempt to write."""

    def __init__(self, replicas, *others):
        self.present = {
            SCALE: {"metadata": {"resourceVersion": "0"}, "spec": {"replicas": replicas} if replicas else {}}
        }
        self.others = list(others)

    def get(self, path):
        if path not in self.present:
            raise NotFoundError(path)
        return json.loads(json.dumps(self.present[path]))

    def replace(self, path, one):
        if self.others:
            self._write(path, {"replicas": self.others.pop(0)})
        if one["metadata"]["resourceVersion"] != self.present[path]["metadata"]["resourceVersion"]:
            raise ConflictError(path)
        self._write(path, one["spec"])
        return self.present[path]

    def _write(self, path, spec):
        version = int(self.present[path]["metadata"]["resourceVersion"]) + 1
        self.present[path] = {"metadata": {"resourceVersion": str(version)}, "spec": dict(spec)}


def test_a_workload_without_replicas_gets_those_that_it_had():
    api = Scales(0)
    assert restore(api, SCALE, 2) == ""
    assert api.present[SCALE]["spec"] == {"replicas": 2}


@pytest.mark.parametrize("others", [(3,), (0, 0, 3)], ids=["at-the-first-attempt", "at-the-third"])
def test_a_workload_that_another_scales_at_the_same_moment_keeps_that(others):
    api = Scales(0, *others)
    assert restore(api, SCALE, 2) == "it was scaled to 3 meanwhile, and keeps that"
    assert api.present[SCALE]["spec"] == {"replicas": 3}


def test_what_another_has_restored_is_restored():
    assert restore(Scales(2), SCALE, 2) == ""


def test_a_workload_that_was_deleted_is_reported():
    assert restore(Scales(0), SCALE.replace("ml", "gone"), 2) == "it was deleted meanwhile"


class Cluster(Scales):
    """The scales and the Lease; the API server is away at first, and again while it is asked to restore."""

    def __init__(self, lease):
        super().__init__(0)
        self.present["/apis/coordination.k8s.io/v1/namespaces/immich/leases/one"] = lease
        self.asked = 0

    def get(self, path):
        self._answer()
        return super().get(path)

    def replace(self, path, one):
        self._answer()
        if path.endswith("?dryRun=All"):
            return dict(one)
        return super().replace(path, one)

    def delete(self, path):
        self._answer()
        del self.present[path]

    def _write(self, path, spec):
        if path == SCALE:
            super()._write(path, spec)

    def _answer(self):
        self.asked += 1
        if self.asked < 5 or 6 < self.asked < 20:
            raise OSError("the API server is away")


def lease(seconds, **annotations):
    scales = json.dumps([{"path": SCALE, "replicas": 2}])
    metadata = {"resourceVersion": "0", "annotations": {restorer.WORKLOADS: scales, **annotations}}
    return {"metadata": metadata, "spec": {"leaseDurationSeconds": seconds}}


@pytest.fixture
def run(monkeypatch):
    """Runs the Job's program against a cluster until it ends; the cluster."""

    def run(found):
        cluster = Cluster(found)
        monkeypatch.setattr(restorer, "InCluster", lambda: cluster)
        monkeypatch.setattr(restorer, "_ROUND_S", 0.01)
        monkeypatch.setattr(restorer.signal, "signal", lambda *_: None)
        monkeypatch.setenv("NAMESPACE", "immich")
        monkeypatch.setenv("LEASE", "one")
        restorer.main()
        return cluster

    return run


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(lease(0), id="first-pod"),
        pytest.param(lease(1, **{restorer.UNTIL: "100"}), id="replaced-pod-when-the-time-is-over"),
        pytest.param(lease(0, **{restorer.UNTIL: str(time.time() + 10**6)}), id="clock-that-jumped-back"),
    ],
)
def test_the_job_restores_though_the_api_server_is_away_at_times(run, found):
    cluster = run(found)
    assert cluster.asked > 20
    assert cluster.present == {SCALE: {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 2}}}


def test_the_job_of_a_stand_down_that_was_ended_leaves_everything_alone(run, monkeypatch):
    monkeypatch.setenv("LEASE", "gone")
    monkeypatch.setattr(Cluster, "_write", lambda *_: pytest.fail("it wrote"))
    cluster = Cluster(lease(0))
    monkeypatch.setattr(restorer, "InCluster", lambda: cluster)
    monkeypatch.setattr(restorer, "_ROUND_S", 0.01)
    monkeypatch.setattr(restorer.signal, "signal", lambda *_: None)
    monkeypatch.setenv("NAMESPACE", "immich")
    restorer.main()
    assert SCALE in cluster.present
