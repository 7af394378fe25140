"""The cluster of the tests: a throwaway one of their own, unless CLUSTER is current or kept."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest
from kubernetes import client
from xdist.scheduler import LoadScopeScheduling

from corral.cluster.client import connect
from corral.cluster.port_forward import forwarded
from corral.errors import CorralError, Refused
from tests.support.cluster import current, pods, throwaway
from tests.support.cluster.evidence import evidence
from tests.support.cluster.place import Place

# Seven workers side by side (tools/dev/test_cluster.sh), each with a seventh of the time: most of it they wait.
GROUPS = (
    {"test_apply", "test_findings", "test_stand_down", "test_store_kinds"},
    {"test_config_maps", "test_door", "test_download_job", "test_new_revision"},
    {"test_drill_alert", "test_engine_image", "test_faults", "test_gitops", "test_harness", "test_state_backend"},
    {"test_card_exporter", "test_runbooks"},
    {"test_adopt", "test_alerts", "test_deployment_options", "test_prune"},
    {"test_alerts_about_serving", "test_destroy", "test_gateway", "test_permissions", "test_several_cards"},
    {
        "test_alert_rules",
        "test_dashboards",
        "test_dra",
        "test_manifests",
        "test_store_exporter",
        "test_vllm",
        "test_yields",
    },
)


class _ByGroup(LoadScopeScheduling):
    def _split_scope(self, nodeid):
        file = Path(nodeid.partition("::")[0]).stem
        for group, files in enumerate(GROUPS):
            if file in files:
                return str(group)
        raise pytest.UsageError(f"{file} is in none of the GROUPS of tests/cluster/conftest.py: add it to one.")


def pytest_configure(config):
    """Keep the order of the files: what one apply leaves, the next test of the file begins with."""
    config.option.randomly_reorganize = False


def pytest_xdist_make_scheduler(config, log):
    """Keep each group on one worker."""
    return _ByGroup(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """With a failure comes the state of its cluster, which is gone soon after."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and cluster is not None:
        report.sections.append((f"cluster {cluster.context}", evidence(cluster)))
    return report


def _begin():
    match os.environ.get("CLUSTER", ""):
        case "":
            return throwaway.up(keep=False)
        case "current":
            return current.connect()
        case "kept":
            if found := throwaway.kept():
                return found[-1]
            raise Refused("CLUSTER=kept, but none runs.", next_step="python -m tests.support.cluster up")
        case other:
            raise Refused(f"CLUSTER={other} is none of: current, kept, or nothing.")


@pytest.fixture(scope="session")
def cluster():
    """See ``tests.support.cluster.cluster.Cluster``; the same for all tests."""
    try:
        found = _begin()
    except CorralError as error:
        why = f"{error.message} {error.next_step}".strip()
        if "PYTEST_XDIST_WORKER" in os.environ:  # there, an exit is an internal error without a message
            pytest.fail(why, pytrace=False)
        pytest.exit(why, returncode=1)
    yield found
    found.api.close()
    if not os.environ.get("CLUSTER"):
        throwaway.down(Place(int(found.folder.name)))


@pytest.fixture
def endpoint(lab):
    """Where the server of the module's lab answers."""
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), lab.namespace) as address:
        yield address


@pytest.fixture
def namespace(cluster):
    """The name of a fresh namespace, which is on its way out when the test ends."""
    name = f"test-{secrets.token_hex(3)}"
    core = client.CoreV1Api(cluster.api)
    core.create_namespace({"metadata": {"name": name}})
    yield name
    pods.leave(cluster, name)
