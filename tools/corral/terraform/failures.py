"""What a failed plan or apply of the homelab means: Terraform's diagnostics and the plan, as errors of corral's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from corral.cluster.client import kubectl
from corral.cluster.finding import Finding
from corral.errors import Failed, Refused
from corral.terraform.runner import Finished

if TYPE_CHECKING:
    from corral.terraform.homelab import Plan

_EXISTS = "already exists"
_NO_ANSWER = re.compile(
    r'(?:Failed to [^:]+: )?(?:Get|Post|Put|Patch|Delete) "(?P<server>https?://[^/"]+)[^"]*": (?P<why>[^\n]+)'
)
_NO_NAMESPACE = re.compile(r'namespaces "(?P<name>[^"]+)" not found')
_NOTHING_TO_LABEL = re.compile(r'The resource "(?P<name>[^"]+)" does not exist')
_CREDENTIALS = re.compile(r"(?:Failed to [^:]+: )?(?:Unauthorized|the server has asked for the client to provide cred)")


def without_namespace(plan: Plan, failed: Finished) -> Refused | None:
    """With a claim that exists already the stack expects its namespace too, and only labels it."""
    if plan.claim is None:
        return None
    for one in failed.errors:
        is_label = str(one.get("address", "")).startswith("kubernetes_labels.")
        message = f"{one['summary']}: {one.get('detail', '')}"
        if found := _NO_NAMESPACE.search(message) or (is_label and _NOTHING_TO_LABEL.search(message)):
            make = kubectl(plan.target.context or "", plan.target.kubeconfig, "create", "namespace", found["name"])
            return Refused(
                f"The namespace {found['name']} does not exist, or may not be read. With store.claim the stack does "
                f"not make it: the namespace of the claim {plan.claim} and the claim itself must be there before.",
                next_step=f"Correct namespace in terraform.tfvars, or make it: {make}; then the claim in it",
            )
    return None


def already_there(failed: Finished) -> Refused | None:
    """Objects of the stack that the cluster has and the state does not."""
    found = [one["summary"] for one in failed.errors if _EXISTS in f"{one['summary']} {one.get('detail', '')}"]
    if not found:
        return None
    return Refused(
        f"The cluster has objects that Terraform's state lacks: it was lost, or is behind.\n{failed.message}",
        next_step="corral adopt, docs/runbooks/state-lost-or-behind.md",
    )


def made_by_hand(plan: Plan) -> Refused | None:
    """A ConfigMap under the name of a content that it does not have, and immutable: one beside it has no name left."""
    for one in plan.document.get("resource_changes", ()):
        change = one["change"]
        if one["type"] != "kubernetes_config_map_v1" or change["actions"] != ["create", "delete"]:
            continue
        was, will_be = (change[side]["metadata"][0] for side in ("before", "after"))
        if (was["namespace"], was["name"]) == (will_be["namespace"], will_be["name"]):
            words = ("delete", "configmap", was["name"])
            target = plan.target
            step = kubectl(target.context or "", target.kubeconfig, *words, namespace=was["namespace"])
            return Refused(
                f"The ConfigMap {was['name']} was made by hand: its name ends with the hash of a content that it does "
                "not have, and it is immutable, so no apply can correct it.",
                next_step=f"{step}; then: corral apply, and restart a pod that was started with it",
            )
    return None


def unreachable(error: dict[str, Any]) -> str:
    """Why the cluster cannot be reached, as a sentence; empty when *error* is about something else."""
    summary, detail = error["summary"], error.get("detail", "")
    if str(error.get("address", "")).startswith("provider["):
        return f"The cluster cannot be reached: {detail or summary}."
    if found := _NO_ANSWER.match(summary):
        return f"The cluster at {found['server']} does not answer: {found['why']}."
    if _CREDENTIALS.match(summary):
        return f"The cluster does not accept the kubeconfig's credentials: {summary}."
    return ""


def lock_left(finished: Finished) -> str:
    """Terraform's own errors when it could not release the state; empty when it could."""
    return "\n".join(line for line in finished.messages if "state lock" in line or "Failed to save state" in line)


def cluster_failed(found: Sequence[Finding], message: str) -> Failed:
    """The error of what was *found* in the cluster, what is stuck first, and Terraform's own *message*."""
    first = sorted(found, key=lambda one: not one.is_stuck)
    lines = [line for one in first for line in (f"{one.subject} {one.what}", f"  {one.event}" if one.event else "")]
    return Failed("\n".join([*filter(None, lines), message]), next_step=first[0].next_step)
