"""The cluster of the tests: a throwaway one of their own, unless CLUSTER=current or CLUSTER=kept says otherwise."""

from __future__ import annotations

import os
import secrets

import pytest
from kubernetes import client

from corral.errors import CorralError, Refused
from tests.support.cluster import current, pods, throwaway
from tests.support.cluster.place import Place


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
        pytest.exit(f"{error.message} {error.next_step}".strip(), returncode=int(error.exit_code))
    yield found
    found.api.close()
    if not os.environ.get("CLUSTER"):
        throwaway.down(Place(int(found.folder.name)))


@pytest.fixture
def namespace(cluster):
    """The name of a fresh namespace, which is on its way out when the test ends."""
    name = f"test-{secrets.token_hex(3)}"
    core = client.CoreV1Api(cluster.api)
    core.create_namespace({"metadata": {"name": name}})
    yield name
    pods.leave(cluster, name)
