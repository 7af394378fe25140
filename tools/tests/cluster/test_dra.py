"""A spike: a scheduler that knows the card by the MiB, with Dynamic Resource Allocation and consumable capacity.

The feature is alpha: a cluster of its own has it on.  Nothing that corral applies uses it.
"""

from __future__ import annotations

import secrets

import pytest
from kubernetes import client

from corral.lock import lock as locks
from corral.paths import REPOSITORY
from tests.support.cluster import pods, seat_claims, throwaway
from tests.support.cluster.place import Place

CARD = "laptop"


@pytest.fixture(scope="module")
def lock():
    return locks.require(REPOSITORY / "terraform" / "catalog-demo")


@pytest.fixture(scope="module")
def gated():
    """A cluster with the feature: also beside CLUSTER=, whose cluster has it off."""
    found = throwaway.up(keep=False, features=[seat_claims.FEATURE])
    yield found
    found.api.close()
    throwaway.down(Place(int(found.folder.name)))


@pytest.fixture(scope="module")
def seated(gated, lock):
    """A namespace in which every seat and budget of the card has its claim and a running pod."""
    core, namespace = client.CoreV1Api(gated.api), f"test-{secrets.token_hex(3)}"
    core.create_namespace({"metadata": {"name": namespace}})
    with seat_claims.offering(gated, seat_claims.offered(lock, CARD)):
        names = [
            seat_claims.place_claim(gated, namespace, name, mib)
            for name, mib in seat_claims.of_lock(lock, CARD).items()
        ]
        for name in names:
            phase_is(core, namespace, name, "Running")
        yield namespace
        core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
        pods.eventually(lambda: core.list_namespaced_pod(namespace).items, lambda found: not found)


def phase_is(core, namespace, name, phase):
    pods.eventually(lambda: core.read_namespaced_pod(name, namespace).status.phase, {phase}.__contains__)


def unscheduled(core, namespace, name):
    """The scheduler's sentence about the pod; empty: it has none."""
    conditions = core.read_namespaced_pod(name, namespace).status.conditions or ()
    return next((one.message or "" for one in conditions if (one.type, one.status) == ("PodScheduled", "False")), "")


def left(lock):
    return seat_claims.offered(lock, CARD) - sum(seat_claims.of_lock(lock, CARD).values())


def test_every_seat_and_budget_has_its_part_of_the_card(gated, lock, seated):
    wanted = {name: f"{mib}Mi" for name, mib in seat_claims.of_lock(lock, CARD).items()}
    assert len(wanted) > 3
    assert seat_claims.consumed(gated, seated) == wanted


def test_a_tenant_that_does_not_fit_stays_pending_with_the_schedulers_reason(gated, lock, seated):
    core = client.CoreV1Api(gated.api)
    seat_claims.place_claim(gated, seated, "too-large", left(lock) + 1)
    why = pods.eventually(lambda: unscheduled(core, seated, "too-large"), bool)
    assert "cannot allocate all claims" in why
    assert core.read_namespaced_pod("too-large", seated).status.phase == "Pending"
    assert "too-large" not in seat_claims.consumed(gated, seated)

    seat_claims.place_claim(gated, seated, "exact", left(lock))  # of the same card, one MiB less
    phase_is(core, seated, "exact", "Running")
    core.delete_namespaced_pod("exact", seated, grace_period_seconds=0)
    core.delete_namespaced_pod("too-large", seated, grace_period_seconds=0)


def test_a_claim_without_a_number_would_take_the_whole_card_and_waits(gated, seated):
    core = client.CoreV1Api(gated.api)
    seat_claims.place_claim(gated, seated, "unknown", None)
    assert "cannot allocate all claims" in pods.eventually(lambda: unscheduled(core, seated, "unknown"), bool)
    core.delete_namespaced_pod("unknown", seated, grace_period_seconds=0)
