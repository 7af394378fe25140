"""What the guard itself asks llama-swap: its list of models, those that run, and the log of one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from typing import Any

from . import heads, preflight_line
from .adapters import Versions
from .config import Client, Config
from .refusals import Refusal, json_answer

# Every way in which llama-swap does not answer, or not as it should.
FAULTS = (OSError, EOFError, ValueError, KeyError, TypeError, asyncio.LimitOverrunError)

YIELDS = "corral-yield"
"""The agent of an unload for a neighbour; no request of a client has it, because the guard forwards none."""
MAKES_ROOM = "corral-room"
"""That of an unload for another model of the group."""
NO_POD = b"peer proxy error"
"""The beginning of its error for a model that a pod beside it serves: ErrorHandler in internal/router/peer.go."""
_ANSWER_LIMIT_S = 10.0
_UNLOAD_LIMIT_S = 30.0  # llama-swap gives an engine 10 s, then kills it
_LOG_LIMIT_S = 3.0  # of a model that wrote nothing there is no answer
_LOG_BYTES = 1 << 20  # llama-swap keeps 100 KiB


def request_head(
    config: Config, method: str, target: str, *, length: int = 0, version: str = "1.1", agent: str = ""
) -> bytes:
    """A request to llama-swap: nothing of a client's head is in it but *method*, *target* and *length*.

    llama-swap's log has the name of the *agent*.
    """
    fields = {"Host": "llama-swap", "Authorization": f"Bearer {config.internal_key}", "Connection": "close"}
    if agent:
        fields["User-Agent"] = agent
    if method == "POST":
        fields |= {"Content-Type": "application/json", "Content-Length": str(length)}
    lines = [f"{method} {target} HTTP/{version}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def models_of(config: Config, client: Client, others: Sequence[Mapping[str, Any]], versions: Versions) -> bytes:
    """The answer to GET /v1/models with the models that *client* may use, *others* of other cards among them.

    llama-swap lists the aliases of what it passes on to vLLM as models of their own; they are left out.
    An adapter follows its model: ``parent`` names that, ``version`` is the one that serves, null where none is known.

    Raises:
        FAULTS: llama-swap does not answer as it should.
    """
    document = await _document(config, "/v1/models")
    permitted = set(config.models.values()) if client.models is None else client.models
    found = [one for one in document["data"] if one["id"] in permitted]
    parents = {one["id"]: one for one in found}
    found += [
        parents[one.model]
        | {"id": name, "parent": one.model, "version": versions.listed(name), "versions": one.versions}
        for name, one in config.adapters.items()
        if one.model in parents
    ]
    document["data"] = sorted([*found, *others], key=lambda one: str(one["id"]))
    return json_answer(HTTPStatus.OK, document)


async def running(config: Config) -> list[dict[str, str]]:
    """The models that have a process, by the names of /running; raises FAULTS.

    Their id (``model``), ``state``, the address of their engine (``proxy``) and its command line (``cmd``, if stated).
    """
    return [
        {name: str(one[name]) for name in ("model", "state", "proxy")} | {"cmd": str(one.get("cmd", ""))}
        for one in (await _document(config, "/running"))["running"]
    ]


async def running_with(config: Config, others: Sequence[Mapping[str, Any]]) -> bytes:
    """The answer to GET /running with the *others* that run on other cards; raises FAULTS."""
    document = await _document(config, "/running")
    return json_answer(HTTPStatus.OK, document | {"running": [*document["running"], *others]})


async def unload(config: Config, model: str, agent: str) -> None:
    """Have llama-swap end the engine of *model*, whatever it does, and wait until it has; raises FAULTS."""
    request = request_head(config, "POST", f"/api/models/unload/{model}", version="1.0", agent=agent)
    async with asyncio.timeout(_UNLOAD_LIMIT_S), opened(config.upstream, request) as (head, reader):
        await reader.read(-1)
    if head.status != HTTPStatus.OK:
        raise ValueError(f"status {head.status}")


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


async def _document(config: Config, path: str) -> dict[str, Any]:
    """llama-swap's answer to GET *path*, an object; raises FAULTS."""
    async with asyncio.timeout(_ANSWER_LIMIT_S), opened_for(config, path, version="1.0") as (head, reader):
        body = await reader.read(-1)
    if head.status != HTTPStatus.OK:
        raise ValueError(f"status {head.status}")
    document: dict[str, Any] = json.loads(body)
    return document


async def _log_of(config: Config, model: str) -> str:
    """The log of *model*'s engine: the first chunk of the stream is all that there was before the request."""
    async with asyncio.timeout(_LOG_LIMIT_S), opened_for(config, f"/logs/stream/{model}") as (_, reader):
        size = int((await reader.readline()).strip(), 16)
        return (await reader.readexactly(min(size, _LOG_BYTES))).decode(errors="replace")


def opened_for(
    config: Config, path: str, *, version: str = "1.1"
) -> AbstractAsyncContextManager[tuple[heads.Response, asyncio.StreamReader]]:
    """llama-swap's answer to GET *path*: its head, and where its body comes."""
    return opened(config.upstream, request_head(config, "GET", path, version=version))


@asynccontextmanager
async def opened(
    address: tuple[str, int], request: bytes
) -> AsyncIterator[tuple[heads.Response, asyncio.StreamReader]]:
    """The answer of *address* to *request*: its head, and where its body comes."""
    reader, writer = await asyncio.open_connection(*address, limit=heads.RESPONSE_LIMIT)
    try:
        writer.write(request)
        head = await reader.readuntil(heads.END)
        yield heads.read_response(head[: -len(heads.END)]), reader
    finally:
        writer.transport.abort()
