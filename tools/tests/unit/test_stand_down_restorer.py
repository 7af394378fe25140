"""What a stand-down restores, and what it leaves alone.  A dictionary stands in for the API server's scales."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest

from corral.stand_down import restorer
from corral.stand_down.restorer import ConflictError, NotFoundError, notes_of, restore

SCALE = "/apis/apps/v1/namespaces/immich/deployments/ml/scale"
OTHER = SCALE.replace("/ml/", "/other/")


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


def test_a_workload_that_another_scales_at_the_same_moment_is_not_overwritten():
    api = Scales(0, 3)
    with pytest.raises(ConflictError):
        restore(api, SCALE, 2)
    assert restore(api, SCALE, 2) == "it was scaled to 3 meanwhile, and keeps that"
    assert api.present[SCALE]["spec"] == {"replicas": 3}


def test_what_another_has_restored_is_reported_but_not_what_an_attempt_without_an_answer_has():
    assert restore(Scales(2), SCALE, 2) == "it was scaled to 2 again before the end"
    assert restore(Scales(2), SCALE, 2, may_have_written=True) == ""


def test_a_workload_that_was_deleted_is_reported():
    assert restore(Scales(0), SCALE.replace("ml", "gone"), 2) == "it was deleted meanwhile"


LEASE = "/apis/coordination.k8s.io/v1/namespaces/immich/leases/one"


class Cluster(Scales):
    """The scales and the Lease; *away* are the requests, by number, that get no answer, and *lost* those that are
    carried out all the same.
    """

    def __init__(self, lease, *, replicas=2, away=(), lost=(), then=None):
        super().__init__(replicas)
        self.present[LEASE] = lease
        self.asked, self.away, self.lost, self.then = 0, away, lost, then or {}
        self.history, self.restored = [], {}

    def get(self, path):
        return self._answer(super().get, path)

    def replace(self, path, one):
        return self._answer(self._replace, path, one)

    def _replace(self, path, one):
        if path.endswith("?dryRun=All"):
            return dict(one)
        if path != LEASE:
            super().replace(path, one)
            self.history.append(one["spec"]["replicas"])
            return one
        self._require_unchanged(one)
        self.restored = json.loads(notes_of(one).get(restorer.RESTORED, "{}")) or self.restored
        self.present[LEASE] = json.loads(json.dumps(one))
        self.change_lease()
        return self.present[LEASE]

    def delete(self, path, one):
        assert (path, one["metadata"]["uid"]) == (LEASE, "uid-1")
        self._answer(self._delete, one)

    def _delete(self, one):
        self._require_unchanged(one)
        del self.present[LEASE]

    def _require_unchanged(self, one):
        if LEASE not in self.present:
            raise NotFoundError(LEASE)
        if one["metadata"]["resourceVersion"] != self.present[LEASE]["metadata"]["resourceVersion"]:
            raise ConflictError(LEASE)

    def change_lease(self, **notes):
        if LEASE in self.present:
            metadata = self.present[LEASE]["metadata"]
            metadata["annotations"] |= {f"corral/{name}": text for name, text in notes.items()}
            metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    def _answer(self, act, *words):
        self.asked += 1
        if change := self.then.get(self.asked):
            change(self)
        if self.asked in self.away:
            raise OSError("the API server is away")
        found = act(*words)
        if self.asked in self.lost:
            raise OSError("the answer was lost")
        return found


def lease(seconds, **notes):
    scales = json.dumps([{"path": SCALE, "replicas": 2}])
    annotations = {restorer.WORKLOADS: scales, **{f"corral/{name}": text for name, text in notes.items()}}
    metadata = {"uid": "uid-1", "resourceVersion": "0", "annotations": annotations}
    begun = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"metadata": metadata, "spec": {"leaseDurationSeconds": seconds, "acquireTime": begun}}


def of_two(seconds):
    """A cluster with a second workload, which is scaled after the first."""
    found = lease(seconds)
    scales = [{"path": path, "replicas": 2} for path in (SCALE, OTHER)]
    found["metadata"]["annotations"][restorer.WORKLOADS] = json.dumps(scales)
    cluster = Cluster(found)
    cluster.present[OTHER] = {"metadata": {"resourceVersion": "0"}, "spec": {"replicas": 2}}
    return cluster


class Clock:
    """Time that passes only while the Job sleeps, so that a stand-down lasts as many of its rounds on any machine."""

    def __init__(self):
        self.now = time.time()

    def time(self):
        return self.now

    monotonic = time

    def sleep(self, seconds):
        self.now += max(seconds, 1e-4)


@pytest.fixture
def run(monkeypatch):
    """Runs the Job's program in a cluster until it ends; the cluster."""
    monkeypatch.setattr(restorer, "time", Clock())
    monkeypatch.setattr(restorer, "_ROUND_S", 0.001)
    monkeypatch.setattr(restorer, "_READ_S", 0.0)
    monkeypatch.setattr(restorer.signal, "signal", lambda *_: None)
    for name, value in {"NAMESPACE": "immich", "LEASE": "one", "UID": "uid-1"}.items():
        monkeypatch.setenv(name, value)

    def run(cluster):
        monkeypatch.setattr(restorer, "InCluster", lambda: cluster)
        restorer.main()
        return cluster

    return run


def is_as_before(cluster):
    scales = [one["spec"] for path, one in cluster.present.items() if path != LEASE]
    return LEASE not in cluster.present and all(spec == {"replicas": 2} for spec in scales)


def test_the_job_scales_down_and_up(run):
    cluster = run(Cluster(lease(0.2)))
    assert cluster.history == [0, 2]
    assert cluster.restored == {SCALE: ""}
    assert is_as_before(cluster)


ALL = range(1, 26)


@pytest.mark.parametrize("number", ALL)
@pytest.mark.parametrize("how", ["away", "lost"])
def test_whichever_request_gets_no_answer_the_tenant_is_as_before(run, how, number):
    cluster = run(Cluster(lease(0.1), **{how: (number, number + 1)}))
    assert is_as_before(cluster)
    assert cluster.history.count(0) >= 1


def ask_for_the_end(cluster):
    cluster.change_lease(end="now")


class Killed(BaseException):
    """The pod of the Job is gone, and another takes its place."""


def kill(_):
    raise Killed


@pytest.mark.parametrize("asked", range(1, 18))
def test_whenever_the_end_is_asked_for_and_another_pod_takes_the_place_all_is_as_before(run, asked):
    for killed in range(asked + 1, asked + 20):
        cluster = of_two(0.1)
        cluster.then = {asked: ask_for_the_end, killed: kill}
        try:
            run(cluster)
        except Killed:
            run(cluster)
        assert is_as_before(cluster), (asked, killed)


@pytest.mark.parametrize("number", ALL)
def test_whenever_a_workload_is_deleted_the_others_are_as_before(run, number):
    def delete(cluster):
        cluster.present.pop(OTHER, None)

    cluster = of_two(0.1)
    cluster.then = {number: delete}
    assert is_as_before(run(cluster))


def test_a_pod_that_was_held_up_until_all_was_over_takes_nothing_down(run):
    cluster = Cluster(lease(5))
    replace = cluster._replace

    def end_all(path, one):
        if path == SCALE and one["spec"]["replicas"] == 0:
            cluster.present.pop(LEASE, None)
        return replace(path, one)

    cluster._replace = end_all
    run(cluster)
    assert cluster.history == [0, 2]
    assert is_as_before(cluster)


def test_a_job_that_starts_long_after_its_command_takes_nothing_down(run):
    found = lease(5)
    found["spec"]["acquireTime"] = "2026-01-01T00:00:00.000000Z"
    cluster = run(Cluster(found))
    assert cluster.history == []
    assert is_as_before(cluster)


@pytest.mark.parametrize("number", ALL)
def test_whenever_another_command_asks_for_the_end_the_tenant_is_as_before(run, number):
    assert is_as_before(run(Cluster(lease(0.1), then={number: ask_for_the_end})))


@pytest.mark.parametrize("number", ALL)
def test_whenever_another_pod_takes_the_place_the_tenant_is_as_before(run, number):
    cluster = Cluster(lease(0.1), then={number: kill})
    try:
        run(cluster)
    except Killed:
        if LEASE in cluster.present:  # else it was just over
            run(cluster)
    assert is_as_before(cluster)


def test_a_clock_that_jumped_back_does_not_make_the_time_longer(run):
    state = {"until": str(time.time() + 10**6), "scaled": json.dumps([SCALE]), "state": "down"}
    assert is_as_before(run(Cluster(lease(0, **state), replicas=0)))


def test_a_pod_that_comes_when_the_time_is_over_scales_nothing_down(run):
    cluster = run(Cluster(lease(1, until="100")))
    assert cluster.history == []
    assert cluster.restored == {}
    assert is_as_before(cluster)


def test_a_workload_that_was_scaled_before_the_job_began_is_left_alone(run):
    cluster = run(Cluster(lease(5), replicas=3))
    assert cluster.history == []
    assert cluster.present[SCALE]["spec"] == {"replicas": 3}


def test_a_workload_that_cannot_be_restored_does_not_keep_the_others_down(run):
    class Forbidding(Cluster):
        def _replace(self, path, one):
            if path == OTHER and path in self.present and one["spec"]["replicas"] and self.asked < 60:
                raise OSError("403")
            return super()._replace(path, one)

    found = lease(0.1)
    found["metadata"]["annotations"][restorer.WORKLOADS] = json.dumps(
        [{"path": path, "replicas": 2} for path in (OTHER, SCALE)]
    )
    cluster = Forbidding(found)
    cluster.present[OTHER] = {"metadata": {"resourceVersion": "0"}, "spec": {"replicas": 2}}
    run(cluster)
    assert cluster.restored == {OTHER: "", SCALE: ""}
    assert is_as_before(cluster)


@pytest.mark.parametrize("present", [None, "uid-2"])
def test_the_job_of_a_stand_down_that_was_ended_leaves_everything_alone(run, present):
    cluster = Cluster(lease(5), replicas=0)
    if present:
        cluster.present[LEASE]["metadata"]["uid"] = present
    else:
        del cluster.present[LEASE]
    run(cluster)
    assert cluster.history == []
    assert (LEASE in cluster.present) == bool(present)
