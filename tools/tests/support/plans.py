"""Plans of the homelab as ``terraform show -json`` prints them, made from what stands before and after.

Only what ``corral.terraform.changes`` reads; the shapes are those of a real plan with hashicorp/kubernetes 3.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Model:
    """A model on one side of a plan: sizes in bytes by the first letters of a sha256."""

    context: int = 3072
    mib: int = 4193
    revision: str = "a" * 40
    files: tuple[tuple[str, int], ...] = (("aa", 2_684_354_560),)
    ttl: int = 600
    args: str = ""


@dataclass(frozen=True)
class Side:
    """Everything before, or everything after."""

    models: dict[str, Model] = field(default_factory=lambda: {"a": Model()})
    image: str = "ghcr.io/org/llama-swap:v1@sha256:" + "1" * 64
    fetch: str = "python:3.13-slim@sha256:" + "2" * 64
    tenants: tuple[tuple[str, int], ...] = (("desktop", 300),)
    checksum: str = "one"
    replicas: str = "1"
    claim: str = "models"

    def but(self, **changes: Any) -> Side:
        """Another side, that differs in *changes*."""
        return replace(self, **changes)

    def with_model(self, name: str, model: Model) -> Side:
        return replace(self, models={**self.models, name: model})

    def without(self, name: str) -> Side:
        return replace(self, models={key: model for key, model in self.models.items() if key != name})

    def lock(self) -> dict[str, Any]:
        models = {
            name: {
                "repo": f"org/{name}",
                "revision": model.revision,
                "files": [
                    {"path": f"{sha256}.gguf", "role": "model", "size": size, "sha256": sha256}
                    for sha256, size in model.files
                ],
            }
            for name, model in self.models.items()
        }
        return {"version": 1, "models": models}

    def outputs(self) -> dict[str, Any]:
        card = {"vram_mib": 15360, "reserve_mib": 512, "tenants": dict(self.tenants), "free_mib": 100}
        return {
            "models": [
                {"id": name, "context": model.context, "ttl": model.ttl, "aliases": []}
                for name, model in sorted(self.models.items())
            ],
            "seating": {
                "cards": {"t4": card},
                "models": {name: {"mib": model.mib} for name, model in self.models.items()},
            },
            "endpoint": "http://llama-swap.llama-cpp.svc.cluster.local:8080",
        }

    def resources(self) -> dict[str, Any]:
        config = {name: {"cmd": f"llama-server -c {model.context} {model.args}"} for name, model in self.models.items()}
        template = {
            "metadata": [{"annotations": {"corral/config": self.checksum}}],
            "spec": [{"container": [{"name": "llama-swap", "image": self.image}]}],
        }
        job = {"spec": [{"init_container": [{"image": self.fetch}], "container": [{"image": self.fetch}]}]}
        return {
            "kubernetes_config_map_v1.lock": {"data": {"lock.json": json.dumps(self.lock()), "store": self.claim}},
            "kubernetes_config_map_v1.llama_swap": {"data": {"config.yaml": json.dumps({"models": config})}},
            "kubernetes_job_v1.download_models": {"spec": [{"template": [job]}]},
            "kubernetes_persistent_volume_claim_v1.models": {"metadata": [{"name": self.claim}]},
            "kubernetes_deployment_v1.llama_swap": {"spec": [{"replicas": self.replicas, "template": [template]}]},
            "kubernetes_network_policy_v1.llama_swap": {"spec": [{"policy_types": ["Ingress"]}]},
        }


def plan(
    before: Side | None, after: Side | None, *, failed: bool = False, **resources: dict[str, Any]
) -> dict[str, Any]:
    """The plan from *before* to *after*; None is nothing at all.

    Args:
        before: what the state holds.
        after: what the configuration wants.
        failed: whether the Job of *before* did; Terraform calls it tainted.
        resources: keys to replace in the resource of that type's name, such as ``job={"action_reason": …}``.
    """
    was, now = before.resources() if before else {}, after.resources() if after else {}
    changes = [_resource(address, was.get(address), now.get(address)) for address in {**was, **now}]
    if before and after and before.lock() != after.lock():
        # A Job that is done is replaced, and keeps the containers that it is planned with.
        next(one for one in changes if one["type"] == "kubernetes_job_v1")["change"]["actions"] = ["delete", "create"]
    elif before and after:
        job = next(one for one in changes if one["type"] == "kubernetes_job_v1")["change"]
        job["actions"], job["after"] = ["no-op"], job["before"]
    for one in changes:
        kind = one["type"].removeprefix("kubernetes_").removesuffix("_v1")
        given = dict(resources.get(kind, {}))
        one["change"].update(given.pop("change", {}))
        one.update(given)
    old, new = before.outputs() if before else {}, after.outputs() if after else {}
    outputs = {name: _change(old.get(name), new.get(name)) for name in {**old, **new}}
    job = {"type": "kubernetes_job_v1", "name": "download_models", **({"tainted": True} if failed else {})}
    state = {"values": {"root_module": {"resources": [], "child_modules": [{"resources": [job]}]}}}
    return {"resource_changes": changes, "output_changes": outputs, "prior_state": state}


def _resource(address: str, before: Any, after: Any) -> dict[str, Any]:
    kind, _, name = address.partition(".")
    found = {"address": f"module.x.{address}", "mode": "managed", "type": kind, "name": name}
    return {**found, "change": _change(before, after)}


def _change(before: Any, after: Any) -> dict[str, Any]:
    if before is None:
        actions = ["create"]
    elif after is None:
        actions = ["delete"]
    else:
        actions = ["no-op"] if before == after else ["update"]
    return {"actions": actions, "before": before, "after": after, "after_unknown": {}}
