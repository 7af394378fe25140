"""What is answered while a model is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from corral.contract.chat import messages
from corral.contract.check import Finding, State
from corral.contract.reach import json_of
from corral.engine import llama_swap
from corral.files import kept_closed
from corral.smoke import checks
from corral.smoke.endpoint import Endpoint, Reply, UnreachableError

TITLES: Mapping[str, str] = {
    "load-health": "`GET /health`: 503 until the model can answer, then 200",
    "load-models": "`GET /v1/models`: the list, and that the model is not there yet",
    "load-running": "`GET /running`: `starting`, then `ready`",
    "load-request": "A request meanwhile: it waits for the load, and is answered",
}
_POLL_S = 0.02
_TOKENS = 4


class Both(NamedTuple):
    """What llama-server alone and llama-swap before it do."""

    alone: Finding
    through: Finding


class Replies(NamedTuple):
    """What was answered during a load, and after it.

    Attributes:
        alone: of the engine: ``/health``, ``/v1/models``, a chat completion.
        through: of llama-swap: ``/health``, ``/v1/models``, ``/running``.
        asked: the chat completion for which the model was loaded.
        after: of the engine ``/health``, of llama-swap ``/running``.
    """

    alone: list[Reply]
    through: list[Reply]
    asked: Reply
    after: list[Reply]


async def watch(
    through: Endpoint,
    engine_at: Callable[[str], Endpoint],
    model: str,
    unload: Callable[[], Awaitable[None]],
    file: Path,
) -> Replies | None:
    """Load *model* by a request, and read meanwhile what both answer; None: the load was over before.

    The load goes on once it was observed: until then a lease on *file*, the model's own, keeps its engine from opening
    it, where the system has leases.  Elsewhere a load that is too short for that is reported as such.

    Args:
        through: llama-swap, as a client reaches it.
        engine_at: the endpoint of the engine at an address.
        model: its id.
        unload: unloads it.
        file: its weights.
    """
    await unload()
    body = {"model": model, "messages": messages(), "max_tokens": _TOKENS}
    with kept_closed(file):
        asked = asyncio.create_task(through.request("/v1/chat/completions", body))
        try:
            proxy = await _starting(through, model, asked)
            async with engine_at(proxy) as engine:
                alone = [await _listening(engine), await engine.request("/v1/models")]
                alone.append(await engine.request("/v1/chat/completions", body))
                meanwhile = [await through.request(path) for path in ("/health", "/v1/models", "/running")]
                is_early = not asked.done()
        except BaseException:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            raise
    answered = await asked
    if not is_early:
        return None
    async with engine_at(proxy) as engine:
        after = [await engine.request("/health"), await through.request("/running")]
    return Replies(alone, meanwhile, answered, after)


async def observe(
    through: Endpoint,
    engine_at: Callable[[str], Endpoint],
    model: str,
    unload: Callable[[], Awaitable[None]],
    file: Path,
) -> dict[str, Both]:
    """What became of each of ``TITLES``; the arguments are those of ``watch``."""
    replies = await watch(through, engine_at, model, unload, file)
    if replies is None:
        late = Finding(State.DIFFERS, "the load was over before it was observed")
        return dict.fromkeys(TITLES, Both(late, late))
    alone, meanwhile, after = replies.alone, replies.through, replies.after
    states = [_state(meanwhile[2], model), _state(after[1], model)]
    return {
        "load-health": Both(_judged([alone[0], after[0]]), _health(meanwhile[0])),
        "load-models": Both(_loading(alone[1]), _listed(meanwhile[1], model)),
        "load-running": Both(
            Finding(State.ABSENT),
            Finding(State.WORKS) if states == ["starting", "ready"] else Finding(State.DIFFERS, " then ".join(states)),
        ),
        "load-request": Both(_loading(alone[2]), _request(replies.asked)),
    }


async def _starting(through: Endpoint, model: str, asked: asyncio.Task[Reply]) -> str:
    """The address of the engine, once llama-swap has begun to load *model*."""
    while True:
        for one in llama_swap.residents_in((await through.request("/running")).body):
            if one.model == model and one.proxy:
                return one.proxy
        if asked.done():
            raise ValueError("llama-swap does not load it")
        await asyncio.sleep(_POLL_S)


async def _listening(engine: Endpoint) -> Reply:
    """The answer of /health, once the engine listens."""
    while True:
        try:
            return await engine.request("/health")
        except UnreachableError:
            await asyncio.sleep(_POLL_S)


def _loading(reply: Reply) -> Finding:
    how = "HTTP 503, `unavailable_error`" if checks.is_loading(reply) else f"HTTP {reply.status}"
    return Finding(State.DIFFERS, how)


def _judged(health: list[Reply]) -> Finding:
    statuses = [reply.status for reply in health]
    is_right = statuses == [503, 200] and checks.is_loading(health[0])
    return Finding(State.WORKS) if is_right else Finding(State.DIFFERS, f"HTTP {statuses[0]}, then {statuses[1]}")


def _health(reply: Reply) -> Finding:
    return Finding(State.DIFFERS, f"HTTP {reply.status} all the time: it is llama-swap's own, not a model's")


def _listed(reply: Reply, model: str) -> Finding:
    found = [one for one in json_of(reply)["data"] if one["id"] == model]
    status = found[0].get("status", {}).get("value") if found else None
    if status == "loading":
        return Finding(State.WORKS)
    return Finding(State.DIFFERS, "its `status` is `loaded` already" if status == "loaded" else "without a `status`")


def _state(reply: Reply, model: str) -> str:
    states = {one.model: one.state for one in llama_swap.residents_in(reply.body)}
    return states.get(model, "not there")


def _request(reply: Reply) -> Finding:
    has_content = reply.status == 200 and json_of(reply)["choices"][0]["message"]["content"]
    return Finding(State.WORKS) if has_content else Finding(State.DIFFERS, f"HTTP {reply.status}")
