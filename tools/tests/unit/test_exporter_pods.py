"""The names of pods: which tenant selects one, and how long a list is used when the API server does not answer."""

from __future__ import annotations

import pytest

from corral.exporter.errors import PodsUnknown
from corral.exporter.pods import FRESH_S, USABLE_S, Pod, PodNames, Selector, _pod, tenants_of

IMMICH = Pod("1", "immich", "immich-ml-0", {"app": "immich-machine-learning", "tier": "back"})


class Server:
    """Gives one list after the other; None: no answer."""

    def __init__(self, *lists):
        self.lists, self.asked = list(lists), 0

    def pods(self):
        self.asked += 1
        found = self.lists.pop(0)
        if found is None:
            raise PodsUnknown("a test")
        return found


@pytest.fixture
def clock():
    class Clock:
        now = 1000.0

        def __call__(self):
            return self.now

    return Clock()


def test_a_list_is_used_until_it_is_old(clock):
    server = Server((IMMICH,), ())
    names = PodNames(server.pods, clock=clock)
    assert names.by_uid() == {"1": IMMICH}
    clock.now += FRESH_S - 1
    assert names.by_uid() == {"1": IMMICH}
    assert server.asked == 1
    clock.now += 1
    assert names.by_uid() == {}


def test_while_the_api_server_is_away_the_last_list_counts_for_a_while_and_then_nothing_is_known(clock):
    server = Server((IMMICH,), *[None] * 20, (IMMICH,))
    names = PodNames(server.pods, clock=clock)
    assert names.by_uid()
    assert not names.problem
    clock.now += USABLE_S - 1
    assert names.by_uid()
    assert names.problem == "a test"
    clock.now += 1
    assert names.by_uid() is None


def test_a_server_that_is_away_is_not_asked_at_every_scrape(clock):
    server = Server(None, None)
    names = PodNames(server.pods, clock=clock)
    assert [names.by_uid() for _ in range(5)] == [None] * 5
    assert server.asked == 1


def test_a_clock_that_jumps_back_makes_no_list_eternal(clock):
    """time.monotonic does not; a suspended machine's may stand still."""
    server = Server((IMMICH,), ())
    names = PodNames(server.pods, clock=clock)
    assert names.by_uid()
    clock.now += 10 * FRESH_S
    assert names.by_uid() == {}


@pytest.mark.parametrize(
    ("namespace", "labels", "selected"),
    [
        ("immich", "app=immich-machine-learning", True),
        ("immich", "app=immich-machine-learning,tier=back", True),
        ("immich", "app=immich-machine-learning,tier=front", False),
        ("immich", "app=immich", False),
        ("frigate", "app=immich-machine-learning", False),
    ],
)
def test_a_tenant_selects_by_namespace_and_all_labels(namespace, labels, selected):
    assert Selector.parse(namespace, labels).selects(IMMICH) is selected


@pytest.mark.parametrize("labels", ["", "app", "app=", "=x", "app=x,", "app=x,,b=y"])
def test_a_selector_of_another_form_is_refused(labels):
    with pytest.raises(ValueError, match="no list of labels"):
        Selector.parse("immich", labels)


def test_a_pod_that_two_tenants_select_has_both_names():
    tenants = {
        "immich-server": Selector("immich", {"tier": "back"}),
        "immich-ml": Selector("immich", {"app": "immich-machine-learning"}),
        "frigate": Selector("frigate", {}),
    }
    assert tenants_of(IMMICH, tenants) == ("immich-ml", "immich-server")


def test_a_static_pod_is_known_by_the_uid_of_its_control_group():
    listed = {"metadata": {"uid": "a", "namespace": "kube-system", "name": "etcd"}}
    assert _pod(listed, frozenset()).uid == "a"
    listed["metadata"]["annotations"] = {"kubernetes.io/config.hash": "b"}
    assert _pod(listed, frozenset()).uid == "b"


def test_of_a_pods_variables_only_those_that_are_expected_are_kept():
    """Values are often secrets: what no expectation names is not read."""
    containers = [
        {"env": [{"name": "TTL", "value": "0"}, {"name": "DB_PASSWORD", "value": "x"}]},
        {"env": [{"name": "TTL"}, {"name": "ARENA", "valueFrom": {"configMapKeyRef": {}}}]},
    ]
    listed = {"metadata": {"uid": "a", "namespace": "immich", "name": "ml"}, "spec": {"containers": containers}}
    found = _pod(listed, frozenset({"TTL", "ARENA", "OTHER"}))
    assert found.variables == {"TTL": {"0", ""}, "ARENA": {None}}
    assert _pod(listed, frozenset()).variables == {}


@pytest.mark.parametrize("order", [1, -1])
def test_a_variable_that_may_come_from_a_whole_config_map_is_not_known(order):
    own, whole = {"env": [{"name": "TTL", "value": "1"}]}, {"envFrom": [{"configMapRef": {"name": "x"}}]}
    spec = {"containers": [own, whole][::order]}
    listed = {"metadata": {"uid": "a", "namespace": "immich", "name": "ml"}, "spec": spec}
    assert _pod(listed, frozenset({"TTL", "OTHER"})).variables == {"TTL": {"1"}, "OTHER": {None}}


def test_the_variables_of_a_sidecar_count_too():
    containers = {"initContainers": [{"env": [{"name": "TTL", "value": "0"}]}], "containers": [{}]}
    listed = {"metadata": {"uid": "a", "namespace": "immich", "name": "ml"}, "spec": containers}
    assert _pod(listed, frozenset({"TTL"})).variables == {"TTL": {"0"}}


@pytest.mark.parametrize(
    ("phase", "ended"), [("Running", False), ("Pending", False), ("Failed", True), ("Succeeded", True)]
)
def test_an_evicted_pod_that_is_still_listed_has_ended(phase, ended):
    listed = {"metadata": {"uid": "a", "namespace": "immich", "name": "ml"}, "status": {"phase": phase}}
    assert _pod(listed, frozenset()).has_ended is ended


def pending(*reasons, phase="Pending", **metadata):
    """A pod as it is listed; a container that runs has no reason."""
    states = [{"state": {"waiting": {"reason": one}} if one else {"running": {}}} for one in reasons]
    status = {"phase": phase, "initContainerStatuses": states[:1], "containerStatuses": states[1:]}
    return {"metadata": {"uid": "a", "namespace": "immich", "name": "ml", **metadata}, "status": status}


@pytest.mark.parametrize(
    ("listed", "waits"),
    [
        (pending(), True),
        (pending(None, "PodInitializing"), True),
        (pending("ContainerCreating"), True),
        (pending(None, "CrashLoopBackOff", phase="Running"), True),
        (pending(None, None, phase="Running"), False),
        (pending(phase="Running"), False),
        (pending(None, "ImagePullBackOff"), False),
        (pending("ContainerCreating", "CreateContainerConfigError"), False),
        (pending("ContainerCreating", deletionTimestamp="2026-05-28T20:27:00Z"), False),
        (pending("CrashLoopBackOff", phase="Failed"), False),
    ],
)
def test_a_pod_waits_while_it_does_not_run_and_memory_may_be_the_reason(listed, waits):
    assert _pod(listed, frozenset()).waits is waits
