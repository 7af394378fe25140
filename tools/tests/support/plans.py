"""Plans of the homelab as ``terraform show -json`` prints them, made from what stands before and after.

Only what ``corral.terraform.changes`` reads; the shapes are those of a real plan with hashicorp/kubernetes 3.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from corral.agent.lock_file import LockedFile
from corral.catalog import intent
from corral.catalog.argv import llama_server_argv
from corral.catalog.card import Card, Tenant
from corral.catalog.clients import Client
from corral.catalog.source import Source
from corral.lock.lock import Lock, LockEntry
from corral.vram.prediction import Bytes, Prediction


@dataclass(frozen=True)
class Model:
    """A model on one side of a plan: sizes in bytes by the first letters of a sha256."""

    context: int = 3072
    mib: int = 4193
    revision: str = "a" * 40
    files: tuple[tuple[str, int], ...] = (("aa", 2_684_354_560),)
    ttl: int = 600
    args: str = ""
    """A word at the end of the command line, which no key of the intent explains."""
    unsafe: tuple[tuple[str, str, str], ...] = ()
    """Flag, value and reason."""


@dataclass(frozen=True)
class Side:
    """Everything before, or everything after."""

    models: dict[str, Model] = field(default_factory=lambda: {"a": Model()})
    image: str = "ghcr.io/org/llama-swap:v1@sha256:" + "1" * 64
    engine: str = ""
    """The image llama-server; empty: the one above has the engine."""
    fetch: str = "python:3.13-slim@sha256:" + "2" * 64
    fetched_with: str = "python:3.13-slim@sha256:" + "2" * 64
    """The Job's image, of the time at which it ran."""
    door: str = "caddy:2.11-alpine@sha256:" + "3" * 64
    tenants: tuple[tuple[str, int], ...] = (("desktop", 300),)
    clients: tuple[tuple[str, int], ...] = ()
    """Name, and requests at once."""
    spare_mib: int = 0
    """Of a second card without models; 0: there is none."""
    content: str = "one"
    replicas: str = "1"
    claim: str = "models"

    def but(self, **changes: Any) -> Side:
        """Another side, that differs in *changes*."""
        return replace(self, **changes)

    def files(self) -> set[Any]:
        """The files that the download Job fetches."""
        return {(name, model.revision, model.files) for name, model in self.models.items()}

    def with_model(self, name: str, model: Model) -> Side:
        return replace(self, models={**self.models, name: model})

    def without(self, name: str) -> Side:
        return replace(self, models={key: model for key, model in self.models.items() if key != name})

    def lock(self) -> dict[str, Any]:
        """The lock as Terraform decodes it."""
        card = Card(
            vram_mib=15360,
            reserve_mib=512,
            tenants={name: Tenant(budget_mib=budget) for name, budget in self.tenants},
        )
        cards = {"t4": card}
        if self.spare_mib:
            cards["spare"] = Card(vram_mib=self.spare_mib, reserve_mib=512)
        models = {name: _entry(name, model) for name, model in self.models.items()}
        clients = {name: Client(models=None, requests=requests) for name, requests in self.clients}
        lock = Lock(sources={}, images={}, cards=cards, clients=clients, models=models)
        return json.loads(lock.text())

    def outputs(self) -> dict[str, Any]:
        return {
            "store": {"claim": self.claim, "node": None},
            "endpoint": "http://llama-swap.llama-cpp.svc.cluster.local:8080",
        }

    def resources(self) -> dict[str, Any]:
        beside = {"guard": self.fetch, "door": self.door} | ({"copy-llama-swap": self.image} if self.engine else {})
        template = {
            "spec": [
                {
                    "volume": [{"config_map": [{"name": f"llama-swap-config-{self.content}"}]}],
                    "init_container": [{"name": name, "image": image} for name, image in beside.items()],
                    "container": [{"name": "llama-swap", "image": self.engine or self.image}],
                }
            ],
        }
        containers = {"init_container": [{"name": "fetch"}], "container": [{"name": "warm"}]}
        job = {
            "spec": [{kind: [{**one, "image": self.fetched_with} for one in each] for kind, each in containers.items()}]
        }
        return {
            "terraform_data.applied_lock": {"input": self.lock()},
            "kubernetes_config_map_v1.lock": {"data": {"lock.json": str(sorted(self.files()))}},
            "kubernetes_config_map_v1.llama_swap": {"data": {"config.yaml": str(self.models)}},
            "kubernetes_job_v1.download_models": {"spec": [{"template": [job]}]},
            "kubernetes_persistent_volume_claim_v1.models": {"metadata": [{"name": self.claim}]},
            "kubernetes_deployment_v1.llama_swap": {"spec": [{"replicas": self.replicas, "template": [template]}]},
            "kubernetes_network_policy_v1.llama_swap": {"spec": [{"policy_types": ["Ingress"]}]},
        }


def _entry(name: str, model: Model) -> LockEntry:
    files = tuple(
        LockedFile(path=f"{first}.gguf", role="model", size=size, sha256=hashlib.sha256(first.encode()).hexdigest())
        for first, size in model.files
    )
    wanted = intent.Model(
        source=Source(repo=f"org/{name}", quant="Q4_K_M"),
        card="t4",
        context=model.context,
        modalities=("text",),
        ttl=model.ttl,
        unsafe={flag: intent.UnsafeFlag(value=value, why=why) for flag, value, why in model.unsafe},
    )
    return LockEntry(
        intent=wanted,
        repo=f"org/{name}",
        revision=model.revision,
        licence=None,
        files=files,
        argv=(*llama_server_argv(name, wanted, files), *model.args.split()),
        predicted=_prediction(model.mib),
        measured=None,
    )


def _prediction(mib: int) -> Prediction:
    gpu = Bytes(weights=mib << 20, context=0, compute=0, projector=0)
    host = Bytes(weights=0, context=0, compute=0, projector=0)
    return Prediction(engine="a test", rules_version=1, headers=(), gpu=gpu, host=host, gpu_bytes=gpu.total)


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
    if before and after and before.files() != after.files():
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
    if kind == "terraform_data":
        found["address"] = address
    return {**found, "change": _change(before, after)}


def _change(before: Any, after: Any) -> dict[str, Any]:
    if before is None:
        actions = ["create"]
    elif after is None:
        actions = ["delete"]
    else:
        actions = ["no-op"] if before == after else ["update"]
    return {"actions": actions, "before": before, "after": after, "after_unknown": {}}
