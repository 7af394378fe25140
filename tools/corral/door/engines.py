"""What the guard asks an engine that is ready: its metrics, a short answer, its end; and an error that it explains.

No question passes llama-swap, which would load the model, or keep it loaded.  All questions raise FAULTS where
llama-swap does not list what runs.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus

from . import llama_swap
from .config import Config
from .llama_swap import FAULTS
from .refusals import Refusal, answer, json_answer
from .uses import Uses, busy

_METRICS_LIMIT_S = 5.0
_PROBE_LIMIT_S = 60.0
_BYTES = 1 << 20
_LOOPBACK = re.compile(r"http://127\.0\.0\.1:([0-9]{1,5})")
_REQUESTS = re.compile(rb"^llamacpp:requests_(?:processing|deferred) ([0-9]+)", re.MULTILINE)
_COUNTS = 2
# llama.cpp's tools/server/server-context.cpp, of a text that is computed at once; a chat gets 400 from the engine.
_TOO_LONG = re.compile(r"input \(([0-9]+) tokens\) is too large to process\..*\(current batch size: ([0-9]+)\)")
_CHAT = {"messages": [{"role": "user", "content": "Reply with one word."}], "max_tokens": 4, "temperature": 0}
_QUESTIONS: dict[str, tuple[str, dict[str, object], str]] = {
    "--embedding": ("/v1/embeddings", {"input": "One word."}, "prompt_tokens"),
    "--rerank": ("/v1/rerank", {"query": "One word.", "documents": ["One word."]}, "prompt_tokens"),
}
"""By the flag with which an engine has no chat: path, body, and which tokens of the answer's usage show that it works.

An engine of another task may answer a chat with noise, or not at all."""


async def metrics(config: Config, name: str) -> bytes:
    """The answer with the metrics of the engine of the model *name*, as it reports them.

    Raises:
        Refusal: no engine of such a model is ready, or it does not report them.
    """
    return answer(HTTPStatus.OK, "text/plain; version=0.0.4", await _metrics(config, await _ready(config, name)))


async def probe(config: Config, name: str) -> bytes:
    """The answer with the tokens and the seconds of a short answer of the engine of the model *name*.

    Raises:
        Refusal: no engine of such a model is ready, it serves other requests, or it gave no answer.
    """
    engine, command = await _idle(config, name)
    found = (one for flag, one in _QUESTIONS.items() if flag in command.split())
    path, question, kind = next(found, ("/v1/chat/completions", _CHAT, "completion_tokens"))
    body, began = json.dumps(question).encode(), time.monotonic()
    head = llama_swap.request_head(config, "POST", path, length=len(body))
    try:
        tokens = int(json.loads(await _body(engine, head + body, _PROBE_LIMIT_S))["usage"][kind])
    except FAULTS:
        tokens = 0
    if tokens < 1:
        await _ready(config, name)  # one that was unloaded meanwhile is no fault
        raise Refusal(HTTPStatus.BAD_GATEWAY, "engine-silent", "The engine of the model gave no answer.")
    return json_answer(HTTPStatus.OK, {kind: tokens, "seconds": round(time.monotonic() - began, 3)})


async def unload(config: Config, uses: Uses, name: str, agent: str = llama_swap.YIELDS) -> bytes:
    """The answer that the model *name* is unloaded, with the seconds that it took.

    A request for it that comes meanwhile waits, and loads it again.

    Raises:
        Refusal: no engine of such a model is ready, it serves requests, or does not report whether it does.
    """
    model, began = config.models.get(name, ""), time.monotonic()
    with uses.unloading(model):
        await _idle(config, name)  # a request that did not pass this guard is known to the engine alone
        await llama_swap.unload(config, model, agent)
    return json_answer(HTTPStatus.OK, {"model": model, "seconds": round(time.monotonic() - began, 3)})


async def make_room(config: Config, uses: Uses, model: str) -> bool:
    """Unload the idle models of the group of *model*, else those beside another one in the other groups.

    By the seats they have room beside it.  A tenant beyond its budget has that room, and *model* is promised its own.
    Of another group the model that was used last stays.  Whether any was unloaded.
    """
    loaded: dict[str | None, list[str]] = {}
    for one in await llama_swap.running(config):
        if one["state"] != "stopping":
            loaded.setdefault(config.groups.get(one["model"]), []).append(one["model"])
    loaded.pop(None, None)
    own = [one for one in loaded.pop(config.groups.get(model), []) if one != model]
    beside = [one for models in loaded.values() for one in models if one != uses.latest(models)]
    return await _unload_idle(config, uses, own) or await _unload_idle(config, uses, beside)


async def _unload_idle(config: Config, uses: Uses, models: Sequence[str]) -> bool:
    made = False
    for model in models:
        with suppress(Refusal):  # it serves, or does not report whether it does
            await unload(config, uses, model, llama_swap.MAKES_ROOM)
            made = True
    return made


def too_long(body: bytes) -> Refusal | None:
    """The answer in place of the error *body* of an engine, a bare 500, where a text has more tokens than it takes.

    The command line of an embedding model or a reranker has the context as its micro-batch, which is that limit.
    None: it is another error.
    """
    try:
        found = _TOO_LONG.fullmatch(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if found is None:
        return None
    tokens, most = map(int, found.groups())
    rule = (
        f"A text of the request has {tokens} tokens, and this model takes {most} in one text (of a ranking, the query "
        "and a document are one). Send shorter texts, or give the model a larger context in the catalog."
    )
    fields = {"n_prompt_tokens": tokens, "n_ctx": most}  # as the engine names them in the 400 for a chat
    return Refusal(HTTPStatus.BAD_REQUEST, "text-too-long", rule, fields=fields)


async def is_alive(config: Config, name: str) -> bool:
    """Whether the engine of the model *name* listens; llama-swap lists one that is dead as ready for a while."""
    try:
        async with asyncio.timeout(_METRICS_LIMIT_S):
            _, writer = await asyncio.open_connection(*await _ready(config, name))
    except (Refusal, TimeoutError, *FAULTS):
        return False
    writer.transport.abort()
    return True


async def _ready(config: Config, name: str) -> tuple[str, int]:
    """The address of the engine."""
    address, _ = await _listed(config, name)
    return address


async def _listed(config: Config, name: str) -> tuple[tuple[str, int], str]:
    """The address of the engine, and its command line."""
    wanted = (config.models.get(name), "ready")
    ready = [one for one in await llama_swap.running(config) if (one["model"], one["state"]) == wanted]
    found = _LOOPBACK.fullmatch(ready[0]["proxy"]) if ready else None
    if found is None:
        raise Refusal(HTTPStatus.NOT_FOUND, "not-loaded", "No engine of such a model is ready.")
    return ("127.0.0.1", int(found[1])), ready[0]["cmd"]


async def _idle(config: Config, name: str) -> tuple[tuple[str, int], str]:
    """The address and the command line of the engine, which reports that it serves no request and that none waits."""
    engine, command = await _listed(config, name)
    found = [int(number) for number in _REQUESTS.findall(await _metrics(config, engine))]
    if any(found):
        raise busy()
    if len(found) != _COUNTS:
        raise _silent()
    return engine, command


async def _metrics(config: Config, engine: tuple[str, int]) -> bytes:
    try:
        return await _body(engine, llama_swap.request_head(config, "GET", "/metrics"), _METRICS_LIMIT_S)
    except FAULTS:
        raise _silent() from None


def _silent() -> Refusal:
    rule = "The engine of the model does not report its metrics."
    return Refusal(HTTPStatus.BAD_GATEWAY, "engine-silent", rule)


async def _body(engine: tuple[str, int], request: bytes, limit_s: float) -> bytes:
    """The body of the answer, whose status is 200; raises FAULTS."""
    found = b""
    async with asyncio.timeout(limit_s), llama_swap.opened(engine, request) as (response, reader):
        if response.status != HTTPStatus.OK:
            raise ValueError(f"status {response.status}")
        while data := await reader.read(64 << 10):
            found += data
            if len(found) > _BYTES:
                raise ValueError(f"more than {_BYTES} bytes")
    return found
