"""Plain HTTP: the paths of llama-server itself."""

from __future__ import annotations

import json
import re
from typing import Any

from corral.contract.chat import QUESTION, messages
from corral.contract.check import Breach, State, check, require
from corral.contract.reach import Way, json_of
from corral.contract.tools import SCHEMA, fits
from corral.smoke.endpoint import Reply

_PROMPT = "One, two, three,"
_COUNTER = re.compile(rb"^llamacpp:tokens_predicted_total (\d+)$", re.MULTILINE)
_NOT_THERE = (404, 405, 501)


def absent_or_differs(status: int, kind: object) -> Breach:
    """The breach that is an answer with *status*, and the *kind* of its error."""
    known = f", `{kind}`" if isinstance(kind, str) and re.fullmatch(r"[a-z_-]{1,60}", kind) else ""
    return Breach(f"HTTP {status}{known}", State.ABSENT if status in _NOT_THERE else State.DIFFERS)


def _body(reply: Reply) -> Any:
    if reply.status != 200:
        raise absent_or_differs(reply.status, _kind(reply))
    return json_of(reply)


def _kind(reply: Reply) -> object:
    try:
        return json_of(reply)["error"]["type"]
    except (ValueError, LookupError, TypeError):
        return None


async def _completed(way: Way, **more: Any) -> Any:
    body = {"prompt": _PROMPT, "n_predict": 4, "temperature": 0, **more}
    return _body(await way.post("/completion", **body))


@check(is_native=True)
async def health(way: Way) -> None:
    """`GET /health`: 200 and `{"status": "ok"}` while the model can answer."""
    reply = await way.get("/health")
    require(reply.status != 200 or reply.content_type == "application/json", "HTTP 200 and `OK`, whatever runs")
    require(_body(reply) == {"status": "ok"}, "another body")


@check(is_native=True)
async def completion(way: Way) -> None:
    """`POST /completion`: `content`, `tokens_predicted` and `stop_type`."""
    answer = await _completed(way)
    require(answer["content"].strip(), "no content")
    require(answer["tokens_predicted"] == 4, "another number of tokens")
    require(answer["stop_type"] == "limit", "another stop_type")


@check(is_native=True)
async def completion_stream(way: Way) -> None:
    """`POST /completion` with `stream`: pieces, and a last one with `stop`."""
    reply = await way.post("/completion", prompt=_PROMPT, n_predict=4, temperature=0, stream=True)
    if reply.status != 200:
        raise absent_or_differs(reply.status, _kind(reply))
    require(reply.content_type == "text/event-stream", "no stream of events")
    pieces = [json.loads(line[6:]) for line in reply.body.splitlines() if line.startswith(b"data: {")]
    require([piece["stop"] for piece in pieces[-2:]] == [False, True], "no piece with stop at the end")
    require("".join(piece["content"] for piece in pieces).strip(), "no content")


@check(is_native=True)
async def completion_grammar(way: Way) -> None:
    """`POST /completion` with a GBNF `grammar`: the answer is of the grammar, and a wrong one is 400."""
    answer = await _completed(way, n_predict=8, grammar='root ::= "yes" | "no"')
    require(answer["content"] in ("yes", "no"), "the grammar is ignored")
    wrong = await way.post("/completion", prompt=_PROMPT, n_predict=1, grammar="root ::= nothing")
    require(wrong.status == 400, f"a wrong grammar is HTTP {wrong.status}")


@check(is_native=True)
async def completion_schema(way: Way) -> None:
    """`POST /completion` with `json_schema`: the answer fits the schema."""
    answer = await _completed(way, n_predict=64, json_schema=SCHEMA)
    require(fits(answer["content"]), "the schema is ignored")


@check(is_native=True)
async def completion_n_probs(way: Way) -> None:
    """`POST /completion` with `n_probs`: so many alternatives a token, the greedy one first."""
    answer = await _completed(way, n_probs=3)
    tokens = answer["completion_probabilities"]
    require(len(tokens) == answer["tokens_predicted"], "not one for each token")
    for token in tokens:
        top = token["top_logprobs"]
        require(len(top) == 3, "not so many alternatives")
        require(top[0]["id"] == token["id"], "another token than the likeliest at temperature 0")
        values = [one["logprob"] for one in top]
        require(values == sorted(values, reverse=True) and max(values) <= 1e-6, "they are not sorted")


@check(is_native=True)
async def tokenize(way: Way) -> None:
    """`POST /tokenize`, `/detokenize`: a text and back."""
    tokens = _body(await way.post("/tokenize", content=QUESTION))["tokens"]
    require(tokens and all(type(token) is int for token in tokens), "no numbers")
    require(_body(await way.post("/detokenize", tokens=tokens))["content"] == QUESTION, "another text comes back")


@check(is_native=True)
async def apply_template(way: Way) -> None:
    """`POST /apply-template`: the prompt that a chat becomes."""
    require(QUESTION in _body(await way.post("/apply-template", messages=messages()))["prompt"], "without the question")


@check(is_native=True)
async def slots(way: Way) -> None:
    """`GET /slots`: each slot with its context and whether it works, and no text of a prompt."""
    found = _body(await way.get("/slots"))
    require(found and all(type(slot["is_processing"]) is bool and slot["n_ctx"] > 0 for slot in found), "another form")
    require(not any("prompt" in slot for slot in found), "the text of a prompt is in it")


@check(is_native=True)
async def metrics(way: Way) -> None:
    """`GET /metrics`: `llamacpp:tokens_predicted_total` grows by the tokens of an answer."""
    before = await _predicted(way)
    made = (await _completed(way))["tokens_predicted"]
    require(await _predicted(way) >= before + made, "it does not grow")


async def _predicted(way: Way) -> int:
    reply = await way.get("/metrics")
    if reply.status != 200:
        raise absent_or_differs(reply.status, _kind(reply))
    found = _COUNTER.search(reply.body)
    if found is None:
        raise Breach("no such counter in it")
    return int(found[1])


@check(is_native=True)
async def props(way: Way) -> None:
    """`GET /props`: slots, modalities and the chat template."""
    found = _body(await way.get("/props"))
    require(found["total_slots"] > 0 and found["chat_template"], "without slots or template")
    require(type(found["modalities"]["vision"]) is bool, "without modalities")


@check(is_native=True)
async def lora_adapters(way: Way) -> None:
    """`GET /lora-adapters`: a list of the adapters."""
    require(isinstance(_body(await way.get("/lora-adapters")), list), "no list")


@check(is_native=True)
async def rerank(way: Way) -> None:
    """`POST /v1/rerank` of a chat model: a score for each document."""
    found = _body(await way.post("/v1/rerank", query="A card.", documents=["A card.", "A cat."]))
    require(len(found["results"]) == 2, "not one for each document")


@check(is_native=True)
async def infill(way: Way) -> None:
    """`POST /infill` of a chat model: text between two others."""
    answer = _body(await way.post("/infill", input_prefix="def f(", input_suffix="", n_predict=2))
    require(answer["content"], "no content")
