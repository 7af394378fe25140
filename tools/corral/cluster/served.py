"""llama-swap in a cluster's pod, as the operator reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from corral.cluster import keys, port_forward
from corral.cluster.client import Cluster
from corral.cluster.snapshot import GUARD, Snapshot
from corral.cluster.target import ClusterTarget
from corral.door.peers import PASSED
from corral.engine.llama_swap import ANSWER_LIMIT_S, LlamaSwap


@contextmanager
def served(
    cluster: Cluster, target: ClusterTarget, *, limit_s: float = ANSWER_LIMIT_S, alone: bool = False
) -> Iterator[LlamaSwap]:
    """The llama-swap of *target*, with the operator's key; each request has *limit_s* seconds.

    *alone*: it answers for its own card, and its guard passes nothing on to that of another one.

    It is reached through the guard, past Caddy, which would cut the chunks of llama-swap's answers anew.

    Raises:
        Refused: there is no operator's key, or the user may not read it or forward a port.
        CannotRun: no pod is ready, or the API server does not respond.
    """
    with port_forward.forwarded(cluster, target.namespace, target.service, port=GUARD) as root:
        found = LlamaSwap(root, api_key=keys.operator_key(cluster, target.namespace), limit_s=limit_s)
        found.headers |= {PASSED: "1"} if alone else {}
        yield found


def of_card(cluster: Cluster, target: ClusterTarget, card: str) -> ClusterTarget:
    """*target* with the Service that leads to the pod of *card* alone, where there is one.

    Raises:
        Refused: the user may not read the Services.
        CannotRun: the API server does not respond.
    """
    services = cluster.items(f"/api/v1/namespaces/{target.namespace}/services")
    found = Snapshot(cluster.context, target.namespace, 0.0, services=services).service_of(card)
    return replace(target, service=found or target.service)
