"""Whether the engines in a cluster's pod respond: through a forwarded port, past llama-swap."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import urlsplit

from corral.cluster.client import Cluster
from corral.cluster.port_forward import forwarded
from corral.cluster.target import ClusterTarget
from corral.engine import engine_process
from corral.engine.engine_process import Probe
from corral.engine.llama_swap import Resident
from corral.parallel import Result, read_all

_LIMIT_S = 5.0


def probes(cluster: Cluster, target: ClusterTarget, residents: Sequence[Resident]) -> dict[str, Result[Probe]]:
    """The probe of every model of *residents* that is ready, all at the same time; none is kept loaded by it."""
    sources = {one.model: partial(_probe, cluster, target, one) for one in residents if one.state == "ready"}
    return read_all(sources, limit_s=2 * _LIMIT_S)


def _probe(cluster: Cluster, target: ClusterTarget, resident: Resident) -> Probe:
    port = urlsplit(resident.proxy).port
    with forwarded(cluster, target.namespace, target.service, port=port) as root:
        return engine_process.probe(resident.proxy, None, limit_s=_LIMIT_S, through=root)
