"""Which cluster is meant: what the command line names, else what the homelab's stack was applied to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corral.errors import CorralError

NAMESPACE = "llama-cpp"
SERVICE = "llama-swap"


@dataclass(frozen=True)
class Whereabouts:
    """Where corral's objects are.

    Attributes:
        kubeconfig: the file; None for the default one.
        context: a name in it; None for its current one.
        namespace: of all objects.
        service: the Service of llama-swap.
        endpoint: its address inside the cluster, as Terraform gave it; empty when it did not.
        catalog: the folder of the one that is served there, as Terraform's variables name it; None: not known.
        chart: the seating chart of the last apply; empty when there is none.
        trouble: why Terraform could not be asked; empty when it could, or nothing was applied.
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
        """Where clients inside the cluster ask, without ``/v1``."""
        return self.endpoint or f"http://{self.service}.{self.namespace}.svc.cluster.local:8080"


def named(kubeconfig: Path | None, context: str | None, namespace: str | None) -> Whereabouts:
    """The cluster that the command line names; what it leaves open is Terraform's, where that means the same one."""
    asked = Whereabouts(kubeconfig, context, namespace or NAMESPACE)
    try:
        found = applied()
    except CorralError as error:
        return replace(asked, trouble=error.message)
    if found is None or (context and found.context != context):
        return asked
    if kubeconfig and not context and kubeconfig.resolve() != (found.kubeconfig and found.kubeconfig.resolve()):
        return asked  # another file's current context is another cluster
    if namespace and namespace != found.namespace:
        return replace(asked, kubeconfig=kubeconfig or found.kubeconfig, context=context or found.context)
    return replace(found, kubeconfig=kubeconfig or found.kubeconfig)


def applied() -> Whereabouts | None:
    """What terraform/stacks/homelab was applied to; None when it never was.

    Raises:
        CannotRun, ProgramMissing: Terraform, or its state, cannot be asked.
    """
    from corral.terraform import homelab

    if not (homelab.STACK / ".terraform").is_dir() and not (homelab.STACK / "terraform.tfstate").is_file():
        return None  # nothing was ever prepared here: no reason to ask, or to have Terraform prepare it
    stack = homelab.Homelab(homelab.STACK)
    outputs = stack.outputs()
    if not outputs:
        return None
    target = stack.target()
    return Whereabouts(
        kubeconfig=target.kubeconfig,
        context=target.context,
        namespace=str(outputs.get("namespace") or target.namespace),
        service=str(outputs.get("service") or SERVICE),
        endpoint=str(outputs.get("endpoint") or ""),
        catalog=target.catalog,
        chart=outputs.get("seating") or {},
    )
