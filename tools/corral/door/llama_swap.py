"""What the guard itself asks llama-swap: its list of models, the log of one, and the metrics of an engine."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus

from . import heads, preflight_line
from .config import Client, Config
from .refusals import Refusal, answer, json_answer

# Every way in which llama-swap does not answer, or not as it should.
FAULTS = (OSError, EOFError, ValueError, KeyError, TypeError, asyncio.LimitOverrunError)

_ANSWER_LIMIT_S = 10.0
_LOG_LIMIT_S = 3.0  # of a model that wrote nothing there is no answer
_LOG_BYTES = 1 << 20  # llama-swap keeps 100 KiB
_ENGINE_LIMIT_S = 5.0
_METRICS_BYTES = 1 << 20
_LOOPBACK = re.compile(r"http://127\.0\.0\.1:([0-9]{1,5})")


def request_head(config: Config, method: str, target: str, *, length: int = 0, version: str = "1.1") -> bytes:
    """A request to llama-swap: nothing of a client's head is in it but *method*, *target* and *length*."""
    fields = {"Host": "llama-swap", "Authorization": f"Bearer {config.internal_key}", "Connection": "close"}
    if method == "POST":
        fields |= {"Content-Type": "application/json", "Content-Length": str(length)}
    lines = [f"{method} {target} HTTP/{version}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def models_of(config: Config, client: Client) -> bytes:
    """The answer to GET /v1/models with the models that *client* may use.

    Raises:
        FAULTS: llama-swap does not answer as it should.
    """
    async with asyncio.timeout(_ANSWER_LIMIT_S), _answer(config, "/v1/models", version="1.0") as (head, reader):
        document = json.loads(await reader.read(-1))
    if head.status != HTTPStatus.OK:
        raise ValueError(f"status {head.status}")
    document["data"] = [one for one in document["data"] if config.models.get(one["id"]) in (client.models or ())]
    return json_answer(HTTPStatus.OK, document)


async def engine_metrics(config: Config, name: str) -> bytes:
    """The answer with the metrics of the engine of the model *name*, as the engine reports them.

    Neither the question nor the answer passes llama-swap, which would load the model, or keep it loaded.

    Raises:
        Refusal: no engine of such a model is ready, or it does not answer as it should.
        FAULTS: llama-swap does not answer as it should.
    """
    async with asyncio.timeout(_ANSWER_LIMIT_S), _answer(config, "/running", version="1.0") as (_, reader):
        running = json.loads(await reader.read(-1))["running"]
    ready = [one for one in running if (one["model"], one["state"]) == (config.models.get(name), "ready")]
    port = _LOOPBACK.fullmatch(ready[0]["proxy"]) if ready else None
    if port is None:
        raise Refusal(HTTPStatus.NOT_FOUND, "not-loaded", "No engine of such a model is ready.")
    engine, head = ("127.0.0.1", int(port[1])), request_head(config, "GET", "/metrics")
    try:
        async with asyncio.timeout(_ENGINE_LIMIT_S), _opened(engine, head) as (response, reader):
            body = await _read(reader, _METRICS_BYTES)
        if response.status != HTTPStatus.OK:
            raise ValueError(f"status {response.status}")
    except FAULTS:
        rule = "The engine of the model does not report its metrics."
        raise Refusal(HTTPStatus.BAD_GATEWAY, "engine-silent", rule) from None
    return answer(HTTPStatus.OK, "text/plain; version=0.0.4", body)


async def failed_load(config: Config, model: str, client: Client) -> Refusal:
    """Why *model* could not be loaded, by the preflight's last record in its log."""
    retry = {"Retry-After": str(config.retry_after_s)}
    try:
        log = await _log_of(config, model)
    except FAULTS:
        log = ""
    starts = preflight_line.decisions(log)
    refused = preflight_line.refusal(log[starts[-1] :]) if starts else ()
    if not refused or refused[0].code != "no-room":
        rule = f"The model {model} could not be loaded. See: corral why {model}"
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "load-failed", rule, headers=retry)
    decision, *holders = refused
    fields: dict[str, object] = {
        "need_mib": decision.need_mib,
        "free_mib": decision.free_mib,
        "total_mib": decision.total_mib,
    }
    if client.is_operator:
        fields["holders"] = [preflight_line.described(one) for one in holders if one.code in ("holder", "seat")]
    sentence = preflight_line.sentence(refused if client.is_operator else [decision])
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "no-room", sentence, headers=retry, fields=fields)


async def _log_of(config: Config, model: str) -> str:
    """The log of *model*'s engine: the first chunk of the stream is all that there was before the request."""
    async with asyncio.timeout(_LOG_LIMIT_S), _answer(config, f"/logs/stream/{model}") as (_, reader):
        size = int((await reader.readline()).strip(), 16)
        return (await reader.readexactly(min(size, _LOG_BYTES))).decode(errors="replace")


def _answer(
    config: Config, path: str, *, version: str = "1.1"
) -> AbstractAsyncContextManager[tuple[heads.Response, asyncio.StreamReader]]:
    return _opened(config.upstream, request_head(config, "GET", path, version=version))


@asynccontextmanager
async def _opened(
    address: tuple[str, int], request: bytes
) -> AsyncIterator[tuple[heads.Response, asyncio.StreamReader]]:
    reader, writer = await asyncio.open_connection(*address, limit=heads.RESPONSE_LIMIT)
    try:
        writer.write(request)
        head = await reader.readuntil(heads.END)
        yield heads.read_response(head[: -len(heads.END)]), reader
    finally:
        writer.transport.abort()


async def _read(reader: asyncio.StreamReader, most: int) -> bytes:
    """All until the end of the connection; ValueError: more than *most* bytes."""
    found = b""
    while data := await reader.read(64 << 10):
        found += data
        if len(found) > most:
            raise ValueError(f"more than {most} bytes")
    return found
