"""Anthropic's SDK on ``/v1/messages``."""

from __future__ import annotations

import base64
import json
from typing import Any

from corral.contract.chat import TOKENS, messages
from corral.contract.check import Breach, check, require
from corral.contract.errors import longer_than_the_context
from corral.contract.reach import Way
from corral.contract.tools import ASKED, SCHEMA, fits, without_tools
from corral.smoke.images import solid_png
from corral.smoke.questions import IMAGE_ORDERS, IMAGE_PROMPT

_GREEDY = {"temperature": 0}  # which this SDK has no argument for
_REASONS = ("end_turn", "max_tokens", "stop_sequence")
_ORDER = ("message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop")


@check()
async def message(way: Way) -> None:
    """`messages.create()`: text, a `stop_reason`, and the tokens."""
    answer = await way.anthropic.messages.create(
        model=way.model, messages=messages(), max_tokens=TOKENS, extra_body=_GREEDY
    )
    text: Any = answer.content[0]
    require(answer.type == "message" and answer.role == "assistant", "no message of the assistant")
    require(text.type == "text" and text.text.strip(), "no text")
    require(answer.stop_reason in _REASONS, "no usual stop_reason")
    require(answer.usage.output_tokens > 0, "no tokens")


@check()
async def message_stream(way: Way) -> None:
    """`messages.create(stream=True)`: the events in their order, from `message_start` to `message_stop`."""
    stream = await way.anthropic.messages.create(
        model=way.model, messages=messages(), max_tokens=TOKENS, extra_body=_GREEDY, stream=True
    )
    kinds, text, stopped = [], "", None
    async for event in stream:
        kinds.append(event.type)
        if event.type == "content_block_delta":
            text += event.delta.text
        elif event.type == "message_delta":
            stopped = event.delta.stop_reason
    require(text.strip(), "no text")
    require(tuple(kind for kind in kinds if kind in _ORDER) == _ORDER, "the events are in another order")
    require(stopped in _REASONS, "no usual stop_reason")


@check()
async def message_tokens(way: Way) -> None:
    """`messages.count_tokens()`: as many as the answer's usage counts."""
    counted = await way.anthropic.messages.count_tokens(model=way.model, messages=messages())
    answer = await way.anthropic.messages.create(model=way.model, messages=messages(), max_tokens=1)
    used = answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)
    require(counted.input_tokens == used, "another number")


@check()
async def message_tool(way: Way) -> None:
    """`tool_choice: {"type": "tool", …}`: a call of this tool, with an input of its schema."""
    answer = await way.anthropic.messages.create(
        model=way.model,
        messages=messages(ASKED),
        tools=[{"name": "weather", "description": "the weather of a city", "input_schema": SCHEMA}],
        tool_choice={"type": "tool", "name": "weather"},
        max_tokens=TOKENS,
        extra_body=_GREEDY,
    )
    calls: list[Any] = [block for block in answer.content if block.type == "tool_use"]
    if not calls:
        raise Breach(f"HTTP 200 with prose, the tools are ignored{await without_tools(way)}")
    require(calls[0].name == "weather", "another tool than the named one")
    require(fits(json.dumps(calls[0].input)), "an input that does not fit the schema")
    require(answer.stop_reason == "tool_use", "another stop_reason than tool_use")


@check(of="vision")
async def message_images(way: Way) -> None:
    """Two images as `base64` sources: they are named in their order."""
    colours = IMAGE_ORDERS["images"]
    sources = [
        {"type": "base64", "media_type": "image/png", "data": base64.b64encode(solid_png(colour)).decode()}
        for colour in colours
    ]
    content = [*({"type": "image", "source": source} for source in sources), {"type": "text", "text": IMAGE_PROMPT}]
    answer = await way.anthropic.messages.create(
        model=way.model,
        messages=[{"role": "user", "content": content}],
        max_tokens=64,
        extra_body=_GREEDY,
    )
    text = "".join(getattr(block, "text", "") for block in answer.content).lower()
    require(-1 < text.find(colours[0]) < text.find(colours[1]), "they are not named in their order")


@check()
async def message_error(way: Way) -> None:
    """A prompt longer than the context: 400, in Anthropic's form: `{"type": "error", "error": {"type", …}}`."""
    await _require_refusal(way, await longer_than_the_context(way))


@check()
async def message_wrong_type(way: Way) -> None:
    """A value of another type, `messages: 1`: 400."""
    await _require_refusal(way, 1)


async def _require_refusal(way: Way, asked: Any) -> None:
    from anthropic import APIStatusError

    try:
        await way.anthropic.messages.create(model=way.model, messages=asked, max_tokens=1)
    except APIStatusError as error:
        status, body = error.response.status_code, error.response.json()
        require(status == 400, f"HTTP {status}")
        require(isinstance(body.get("error"), dict), "no `error` object")
        require(body.get("type") == "error", 'OpenAI\'s form, without `"type": "error"`')
    else:
        raise Breach("HTTP 200, and an answer")
