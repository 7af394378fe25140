"""Which cluster a command works on: what the command line names, else what the homelab's stack was applied to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from corral.cluster.target import NAMESPACE, SERVICE, ClusterTarget
from corral.errors import CorralError
from corral.terraform import homelab


def resolve_target(kubeconfig: Path | None, context: str | None, namespace: str | None) -> ClusterTarget:
    """The cluster that the command line names; what it leaves open is Terraform's, where that means the same one."""
    asked = ClusterTarget(kubeconfig, context, namespace or NAMESPACE)
    try:
        found = applied_target()
    except CorralError as error:
        return replace(asked, trouble=error.message)
    if found is None or (context and found.context != context):
        return asked
    if kubeconfig and not context and kubeconfig.resolve() != (found.kubeconfig and found.kubeconfig.resolve()):
        return asked  # another file's current context is another cluster
    if namespace and namespace != found.namespace:
        return replace(asked, kubeconfig=kubeconfig or found.kubeconfig, context=context or found.context)
    return replace(found, kubeconfig=kubeconfig or found.kubeconfig)


def applied_target() -> ClusterTarget | None:
    """What terraform/stacks/homelab was applied to; None when it never was.

    Raises:
        CannotRun, ProgramMissing: Terraform, or its state, cannot be asked.
    """
    if not (homelab.STACK / ".terraform").is_dir() and not (homelab.STACK / "terraform.tfstate").is_file():
        return None  # nothing was ever prepared here: no reason to ask, or to have Terraform prepare it
    stack = homelab.Homelab(homelab.STACK)
    outputs = stack.outputs()
    if not outputs:
        return None
    target = stack.target()
    return ClusterTarget(
        kubeconfig=target.kubeconfig,
        context=target.context,
        namespace=str(outputs.get("namespace") or target.namespace),
        service=str(outputs.get("service") or SERVICE),
        endpoint=str(outputs.get("endpoint") or ""),
        catalog=target.catalog,
        chart=outputs.get("seating") or {},
    )
