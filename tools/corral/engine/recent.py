"""The last requests of each model: how long they took and how fast their tokens came, as llama-swap lists them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from corral.agent.progress import duration
from corral.engine.llama_swap import Exchange, LlamaSwap
from corral.errors import CannotRun

MOST = 5
"""Requests of a model that are given."""


def read(client: LlamaSwap) -> Mapping[str, tuple[Exchange, ...]] | None:
    """The last ``MOST`` requests of each model of *client*; None: it does not list them."""
    try:
        return by_model(client.exchanges())
    except CannotRun:
        return None


def by_model(exchanges: Sequence[Exchange]) -> Mapping[str, tuple[Exchange, ...]]:
    """The last ``MOST`` requests of each model in *exchanges*, in their order, which is the newest first."""
    found: defaultdict[str, list[Exchange]] = defaultdict(list)
    for one in exchanges:
        if len(found[one.model]) < MOST:
            found[one.model].append(one)
    return {model: tuple(requests) for model, requests in found.items()}


def words(requests: Sequence[Exchange] | None, now: float) -> str:
    """The newest of *requests* for people, at *now* in seconds since 1970; empty: there is none."""
    if requests is None:
        return "unknown"
    if not requests:
        return ""
    one = requests[0]
    status = "" if one.status == HTTPStatus.OK else f"HTTP {one.status} after "
    speed = "" if one.tokens_per_second is None else f", {one.tokens_per_second:,.1f} tokens/s"
    return f"{status}{one.seconds:.2f} s{speed}, {duration(max(0.0, now - one.ended))} ago"
