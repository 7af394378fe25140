"""Every user of a card is counted once: tenants that name the same pods, or that corral serves itself, are refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from corral.catalog.intent import Card, Model, Tenant
from corral.catalog.yaml_reader import KeyPath

_OURS = ("llama-swap", "llama-server", "corral")
_OUR_LABEL = "=llama-swap"


def problems(models: Mapping[str, Model], cards: Mapping[str, Card]) -> Iterator[tuple[str, KeyPath, str]]:
    """Each tenant that is counted twice: its card, its key in the card's file, and why, as a sentence."""
    ours = {*_OURS, *models}
    for model in models.values():
        ours |= {model.group, *model.aliases}
    for name, card in cards.items():
        for one, other in itertools.combinations(card.tenants, 2):
            if _same_pods(card.tenants[one], card.tenants[other]):
                what = (
                    f"{one} and {other} mean the same pods; every user of a card is counted once. Remove one of them."
                )
                yield name, ("tenants", other), what
        for tenant, promised in card.tenants.items():
            if tenant in ours or any(label.endswith(_OUR_LABEL) for label in _labels(promised)):
                what = f"{tenant} is served from this catalog and has its seat by its lock: remove it from the tenants."
                yield name, ("tenants", tenant), what


def _labels(tenant: Tenant) -> set[str]:
    return set(tenant.selector.split(",")) if tenant.selector else set()


def _same_pods(one: Tenant, other: Tenant) -> bool:
    """Whether a pod can be meant by both: labels in any order; no namespace is every one, no selector all of its pods.

    A tenant with neither names no pods.
    """
    if not all(tenant.namespace or tenant.selector for tenant in (one, other)):
        return False
    near = one.namespace == other.namespace or not one.namespace or not other.namespace
    return near and (_labels(one) <= _labels(other) or _labels(other) <= _labels(one))
