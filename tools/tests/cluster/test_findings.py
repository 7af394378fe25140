"""`corral.cluster` on a real cluster: every fault of tests.support.cluster_faults has its finding, made together."""

from __future__ import annotations

import secrets

import pytest

from corral.cluster.client import connect
from tests.support.cluster_faults import FAULTS, Place, findings_of, free_slices, make, remove

pytestmark = pytest.mark.timeout(300)

SLOW = (
    "evicted",
)  # the kubelet checks every ten seconds, and takes its time: once a recording, and no test of every run


@pytest.fixture(scope="module")
def found(cluster):
    connected = connect(cluster.kubeconfig, cluster.context)
    node = connected.get(f"/api/v1/nodes/{cluster.node}")
    slices, run = free_slices(connected, node), secrets.token_hex(2)
    places = {
        name: Place(f"fault-{run}-{name}", cluster.node, cluster.images["fetch"], slices)
        for name in FAULTS
        if name not in SLOW
    }
    try:
        for name, place in places.items():
            make(connected, FAULTS[name], place)
        yield findings_of(connected, places)
    finally:
        for place in places.values():
            remove(connected, place)


@pytest.mark.parametrize("name", sorted(set(FAULTS) - set(SLOW)))
def test_every_fault_gets_a_plain_sentence_with_the_event_and_a_next_command(found, name):
    _, findings = found[name]
    assert FAULTS[name].matches(findings), [FAULTS[name].difference(one) for one in findings]
