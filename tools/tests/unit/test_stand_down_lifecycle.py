"""How corral reads the Lease of a stand-down, which others may write.  A dictionary stands in for the API server."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from corral.errors import Refused
from corral.stand_down import lifecycle, restorer
from corral.stand_down.workloads import Tenant

TENANT = Tenant("ml", "immich", "app=ml")
SCALE = "/apis/apps/v1/namespaces/immich/deployments/ml/scale"
GOOD = {restorer.WORKLOADS: json.dumps([{"path": SCALE, "replicas": 2}]), restorer.UNTIL: "100.5"}


def cluster_with(**notes):
    lease = {"metadata": {"uid": "1", "annotations": notes}, "spec": {"holderIdentity": "me@here"}}
    return SimpleNamespace(get=lambda _: lease, kubectl=lambda *words, namespace: " ".join(["kubectl", *words]))


def test_a_stand_down_is_read_from_its_lease():
    found = lifecycle.read(cluster_with(**GOOD), TENANT)
    assert (found.holder, found.until) == ("me@here", 100.5)
    assert [(str(one), one.replicas) for one in found.workloads] == [("deployment ml", 2)]


@pytest.mark.parametrize(
    "notes",
    [
        {restorer.WORKLOADS: "{"},
        {restorer.WORKLOADS: '[{"path": "/etc/passwd", "replicas": 1}]'},
        {restorer.WORKLOADS: "[1]"},
        {restorer.UNTIL: "soon"},
        {restorer.SCALED: '["/another"]'},
        {restorer.SCALED: "[[]]"},
        {restorer.RESTORED: "[]"},
        {restorer.RESTORED: "{"},
    ],
)
def test_a_lease_that_corral_did_not_make_is_refused_with_the_way_out(notes):
    with pytest.raises(Refused, match="is not what `corral stand-down` writes") as error:
        lifecycle.end(cluster_with(**GOOD | notes), TENANT)
    assert "kubectl delete lease corral-stand-down-ml" in error.value.next_step
