"""OpenAI's SDK: tools, and answers bound to a schema."""

from __future__ import annotations

import json
from typing import Any

from corral.contract.chat import messages
from corral.contract.check import check, require
from corral.contract.reach import Way, json_of

CITIES = ("Bern", "Oslo")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": list(CITIES)}},
    "required": ["city"],
    "additionalProperties": False,
}
_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
_TOKENS = 64
_TOOL_TOKENS = 24
ASKED = "What is the weather in Bern?"


def fits(text: str) -> bool:
    """Whether *text* is JSON of ``SCHEMA``."""
    try:
        value = json.loads(text)
    except (ValueError, TypeError):
        return False
    return isinstance(value, dict) and set(value) == {"city"} and value["city"] in CITIES


async def without_tools(way: Way) -> str:
    """Why a model may call none, as far as llama-server knows."""
    reply = await way.http.request(f"{way.native}/props")
    caps = json_of(reply).get("chat_template_caps", {}) if reply.status == 200 else {}
    return ": the model's chat template has none" if caps.get("supports_tools") is False else ""


async def _called(way: Way, tool_choice: Any) -> Any:
    """The function that the model calls."""
    tools = [_tool("weather", "the weather of a city", SCHEMA), _tool("clock", "the time of day", _NOTHING)]
    answer = await way.openai.chat.completions.create(
        model=way.model,
        messages=messages(ASKED),
        tools=tools,
        tool_choice=tool_choice,
        max_tokens=_TOOL_TOKENS,
        temperature=0,
    )
    choice = answer.choices[0]
    if not choice.message.tool_calls:
        require(False, f"HTTP 200 with prose, the tools are ignored{await without_tools(way)}")
    require(choice.finish_reason == "tool_calls", "another finish_reason than tool_calls")
    call: Any = choice.message.tool_calls[0]
    require(call.id and call.type == "function", "a call without an id")
    return call.function


def _tool(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


@check()
async def tool_required(way: Way) -> None:
    """`tool_choice="required"`: a call of one of the tools, with arguments of its schema."""
    called = await _called(way, "required")
    require(called.name in ("weather", "clock"), "a tool that was not offered")
    require(called.name == "clock" or fits(called.arguments), "arguments that do not fit the schema")


@check()
async def tool_named(way: Way) -> None:
    """`tool_choice={…"name": …}`: a call of this very tool."""
    called = await _called(way, {"type": "function", "function": {"name": "clock"}})
    require(called.name == "clock", "another tool than the named one")
    require(json.loads(called.arguments) == {}, "arguments that do not fit the schema")


@check()
async def tool_none(way: Way) -> None:
    """`tool_choice="none"`: content, and no call."""
    answer = await way.openai.chat.completions.create(
        model=way.model,
        messages=messages(ASKED),
        tools=[_tool("clock", "the time of day", _NOTHING)],
        tool_choice="none",
        max_tokens=4,
        temperature=0,
    )
    require(not answer.choices[0].message.tool_calls, "a call")
    require((answer.choices[0].message.content or "").strip(), "no content")


async def _bound(way: Way, response_format: Any) -> tuple[str, bool]:
    """The answer, and whether it has its end."""
    answer = await way.openai.chat.completions.create(
        model=way.model,
        messages=messages("Name a city"),
        response_format=response_format,
        max_tokens=_TOKENS,
        temperature=0,
    )
    choice = answer.choices[0]
    return choice.message.content or "", choice.finish_reason == "stop"


@check()
async def json_schema(way: Way) -> None:
    """`response_format` with `json_schema.schema`: the answer fits the schema."""
    bound = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": SCHEMA}}
    require(fits((await _bound(way, bound))[0]), "the answer does not fit the schema")


@check()
async def json_schema_at_the_top(way: Way) -> None:
    """`response_format` with `schema` beside `type`, as llama.cpp's README has it: the answer fits the schema."""
    answer, _ = await _bound(way, {"type": "json_schema", "schema": SCHEMA})
    require(fits(answer), "HTTP 200, and the schema is ignored")


@check()
async def json_object(way: Way) -> None:
    """`response_format` with `json_object`: the answer is a JSON object."""
    answer, has_end = await _bound(way, {"type": "json_object"})
    require(answer.lstrip().startswith("{"), "no JSON object")
    require(not has_end or isinstance(json.loads(answer), dict), "no JSON object")
