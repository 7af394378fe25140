"""``ClusterTarget``, the value that names a cluster and corral's objects in it; corral.terraform.target resolves it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMESPACE = "llama-cpp"
SERVICE = "llama-swap"


@dataclass(frozen=True)
class ClusterTarget:
    """Where corral's objects are.

    Attributes:
        kubeconfig: the file; None for the default one.
        context: a name in it; None for its current one.
        namespace: of all objects.
        service: the Service of llama-swap.
        endpoint: its address inside the cluster, as Terraform gave it; empty when it did not.
        catalog: the folder of the one that is served there, as Terraform's variables name it; None: not known.
        chart: the seating chart of the last apply; empty when there is none.
        trouble: why Terraform's outputs could not be read; empty when they could, or nothing was applied.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str = NAMESPACE
    service: str = SERVICE
    endpoint: str = ""
    catalog: Path | None = None
    chart: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""

    @property
    def url(self) -> str:
        """The address for clients inside the cluster, without ``/v1``."""
        return self.endpoint or f"http://{self.service}.{self.namespace}.svc.cluster.local:8080"
