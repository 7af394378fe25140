"""OpenAI's SDK: errors, and a request that is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from corral.contract.chat import QUESTION, messages
from corral.contract.check import Breach, check, require
from corral.contract.reach import Way, json_of
from corral.smoke.endpoint import Endpoint, Reply

_POLL_S = 0.02
_LONG = 1500  # tokens: more than are made before the client has gone


async def require_refusal(answer: Awaitable[Any], status: int, why: str = "") -> None:
    """Require that *answer* is an error with *status*, in OpenAI's form; else Breach, with *why* that is."""
    from openai import APIStatusError

    try:
        await answer
    except APIStatusError as error:
        found, form = error.response.status_code, openai_form(error.response.json())
        require(found == status, f"HTTP {found}, `{error.type}`" + (f": {why}" if why else ""))
        require(not form, f"HTTP {found}, {form}")
    else:
        raise Breach("HTTP 200, and an answer")


def openai_form(body: Any) -> str:
    """What *body* lacks of OpenAI's form of an error: ``{"error": {"message": text, "type": text}}``; else empty."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "no `error` object"
    missing = [key for key in ("message", "type") if not isinstance(error.get(key), str)]
    return f"no text `error.{missing[0]}`" if missing else ""


@check()
async def unknown_model(way: Way) -> None:
    """A model that does not exist: 404."""
    asked = way.openai.chat.completions.create(model="no-such-model", messages=messages(), max_tokens=1)
    await require_refusal(asked, 404)


@check()
async def prompt_too_long(way: Way) -> None:
    """A prompt longer than the context: 400."""
    long = await longer_than_the_context(way)
    asked = way.openai.chat.completions.create(model=way.model, messages=long, max_tokens=1)
    await require_refusal(asked, 400)


async def longer_than_the_context(way: Way) -> list[dict[str, object]]:
    """A chat that no slot of the model has room for."""
    slots = json_of(await way.http.request(f"{way.native}/slots"))
    return messages("a " * (slots[0]["n_ctx"] + 1))


@check()
async def wrong_type(way: Way) -> None:
    """A value of another type, `messages: 1`: 400."""
    asked = way.openai.chat.completions.create(model=way.model, messages=1)
    await require_refusal(asked, 400)


@check()
async def unknown_format(way: Way) -> None:
    """An unknown `response_format`: 400."""
    asked = way.openai.chat.completions.create(
        model=way.model, messages=messages(), max_tokens=1, response_format={"type": "no-such-format"}
    )
    await require_refusal(asked, 400)


@check()
async def unknown_path(way: Way) -> None:
    """A path that does not exist: 404, as JSON."""
    _require_error(await way.http.request("/v1/no-such-path"), 404)


@check()
async def wrong_key(way: Way) -> None:
    """A wrong key: 401."""
    async with Endpoint(way.root, api_key="wrong", trust=way.http.trust) as other:
        reply = await other.request("/v1/models")
    require(reply.status != 200, "HTTP 200: it requires none")
    _require_error(reply, 401)


def _require_error(reply: Reply, status: int) -> None:
    require(reply.status == status, f"HTTP {reply.status}")
    form = openai_form(json_of(reply))
    require(not form, f"HTTP {status}, {form}")


@check()
async def cancellation(way: Way) -> None:
    """A stream that its client closes: the engine stops, and its slot is free."""
    stream = await way.openai.chat.completions.create(
        model=way.model,
        messages=messages(f"{QUESTION} Tell a long story about it."),
        max_tokens=_LONG,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    await anext(aiter(stream))
    busy = await _slots_at_work(way)
    await stream.close()
    require(busy, "no slot is at work during the stream")
    while await _slots_at_work(way):  # noqa: ASYNC110 - the engine tells of no event
        await asyncio.sleep(_POLL_S)
    slots = json_of(await way.http.request(f"{way.native}/slots"))
    made = [token.get("n_decoded", 0) for slot in slots for token in slot.get("next_token", [])]
    require(made and max(made) < _LONG, "the engine answers to the end")


async def _slots_at_work(way: Way) -> int:
    reply = await way.http.request(f"{way.native}/slots")
    return sum(slot["is_processing"] is True for slot in json_of(reply))
