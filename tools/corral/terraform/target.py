"""Resolves the ``ClusterTarget`` of a command: the command line's, else the cluster that the homelab was applied to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from corral.agent.lock_file import Lock, lock_in
from corral.cluster.client import kubeconfigs
from corral.cluster.target import NAMESPACE, SERVICE, ClusterTarget
from corral.errors import CorralError
from corral.terraform import homelab


def resolve_target(kubeconfig: Path | None, context: str | None, namespace: str | None) -> ClusterTarget:
    """The cluster that the command line names; the rest is Terraform's, where both mean the same cluster."""
    named = ClusterTarget(kubeconfig, context, namespace or NAMESPACE)
    try:
        applied = applied_target()
    except CorralError as error:
        return replace(named, trouble=error.message)
    if applied is None or (context and applied.context != context):
        return named
    if (
        kubeconfig
        and not context
        and [kubeconfig.resolve()] != [one.resolve() for one in kubeconfigs(applied.kubeconfig)]
    ):
        return named  # another file's current context is another cluster
    kubeconfig = kubeconfig or applied.kubeconfig
    if namespace and namespace != applied.namespace:
        return replace(named, kubeconfig=kubeconfig, context=context or applied.context)
    return replace(applied, kubeconfig=kubeconfig)


def applied_lock() -> Lock | None:
    """The lock that terraform/stacks/homelab was applied with, which its server runs; None when it never was.

    Raises:
        Refused: it is not what this corral reads.
        CannotRun, ProgramMissing: Terraform fails, or its state cannot be read.
    """
    found = homelab.Homelab(homelab.STACK).outputs().get("lock") if _is_prepared() else None
    return lock_in(homelab.STACK / "output.lock", found) if found else None


def _is_prepared() -> bool:
    """Whether there may be a state; a stack that was never prepared must not be now."""
    return (homelab.STACK / ".terraform").is_dir() or (homelab.STACK / "terraform.tfstate").is_file()


def applied_target() -> ClusterTarget | None:
    """The cluster that terraform/stacks/homelab was applied to; None when it never was.

    Raises:
        CannotRun, ProgramMissing: Terraform fails, or its state cannot be read.
    """
    if not _is_prepared():
        return None
    stack = homelab.Homelab(homelab.STACK)
    outputs = stack.outputs()
    if not outputs:
        return None
    target = stack.target()
    return replace(
        target,
        namespace=str(outputs.get("namespace") or target.namespace),
        service=str(outputs.get("service") or SERVICE),
        endpoint=str(outputs.get("endpoint") or ""),
        chart=outputs.get("seating") or {},
    )
