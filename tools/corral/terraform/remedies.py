"""The next command for each rule of the modules and each resource that can fail, by address.

Terraform's sentences name the command too, for people; no program reads them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LOCK, _SEAT, _VALIDATE = ("corral", "lock"), ("corral", "seat"), ("corral", "validate")

RULES: dict[str, tuple[str, ...]] = {
    "lock_exists": _LOCK,
    "lock_version_is_known": (*_LOCK, "--check"),  # which names the way out: `corral lock` refuses some of them
    "lock_is_sealed": _LOCK,
    "sources_are_listed": _VALIDATE,
    "lock_is_fresh": _LOCK,
    "every_model_has_a_figure": _LOCK,
    "every_model_has_a_seat": _LOCK,
    "every_model_is_in_a_set_of_its_group": _LOCK,
    "argv_is_of_vllm": _LOCK,
    "models_come_from_a_hub": _LOCK,
    "vllm_is_where_used": (),
    "private_hub_has_its_addresses": (),
    "clients_name_known_models": _LOCK,
    "clients_have_keys": (),
    "images_are_named": (),
    "one_image_has_the_engine": (),
    "card_has_a_model_of_llama_swap": (),
    "cards_can_name_objects": (),
    "models_are_on_this_machine": (),
    "card_names_its_node": ("kubectl", "get", "nodes"),
    "card_has_a_node_of_its_own": (),
    "yielding_card_has_its_exporter": (),
    "store_is_on_the_cards_node": (),
    "card_holds_its_set": _SEAT,
}
"""The locals that are the conditions of preconditions, in the order of their mending; without a command where it takes
an edit first."""

_VARIABLES: dict[str, tuple[str, ...]] = {"image": _LOCK}
"""Validated variables by name; the value of any other is the operator's own."""

RESOURCES: dict[str, str] = {
    "kubernetes_job_v1.download_models": "corral status, docs/runbooks/download-job-failed.md",
    "kubernetes_deployment_v1.llama_swap": "corral status, docs/runbooks/pod-not-ready.md",
    "kubernetes_deployment_v1.gateway": "corral status, docs/runbooks/pod-not-ready.md",
    "kubernetes_deployment_v1.vllm": "corral status, docs/vllm.md",
    "kubernetes_deployment_v1.store_exporter": "corral status, docs/runbooks/store-silent.md",
}
"""The next steps for a workload that was not ready in time, by its address."""


def order(diagnostic: Mapping[str, Any]) -> int:
    """The place of a broken rule among those that are broken with it: rules first, then refused variables."""
    rule = _rule(diagnostic)
    return list(RULES).index(rule) if rule in RULES else len(RULES)


def of_rule(diagnostic: Mapping[str, Any], catalog: Path | None) -> str:
    """The command after a broken rule, for *catalog* where one must be named; empty when it takes an edit alone."""
    words = RULES.get(_rule(diagnostic)) or _VARIABLES.get(_variable(diagnostic)) or ()
    named = ("--catalog", str(catalog)) if catalog and words[:1] == ("corral",) else ()
    return shlex.join([*words, *named])


def of_resource(diagnostic: Mapping[str, Any]) -> str:
    """The command after a resource that could not be made; empty when it has none of its own."""
    address = str(diagnostic.get("address") or "")
    return next((step for name, step in RESOURCES.items() if f".{address}".endswith(f".{name}")), "")


def _rule(diagnostic: Mapping[str, Any]) -> str:
    """The local that is the condition of the precondition that failed."""
    return _named(diagnostic, "local.")


def _variable(diagnostic: Mapping[str, Any]) -> str:
    return _named(diagnostic, "var.")


def _named(diagnostic: Mapping[str, Any], kind: str) -> str:
    """The first value of *kind* in the condition; its name without *kind*, empty where there is none."""
    values = (diagnostic.get("snippet") or {}).get("values") or ()
    names = (str(value.get("traversal", "")) for value in values)
    return next((name.removeprefix(kind) for name in names if name.startswith(kind)), "")
