"""Requests for the models of another card: its door gets them as they came, with the client's own key.

That door decides about the key, the model and the load again, so that no key of this guard's own is needed, and the
answer is the one that a client of that door gets.  A request is passed on once: a door that does not have the model
either, because the two were configured at different times, refuses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from . import llama_swap
from .config import Config, Peer
from .heads import Request
from .refusals import Refusal

PASSED = "x-corral-passed"
"""The field of a request that another door passed on; a client that sends it is not passed on."""
_CONNECT_LIMIT_S = 10.0  # a resolver asks again 5 s after a packet that was lost, a kernel 1, 3 and 7 s after one
# The name of a Service and its way reach the resolver and the nodes a moment after its pod is ready.
_AGAIN_S = 0.1
_LIST_LIMIT_S = 3.0  # a card that is away must not cost the client the answer of the others
_LISTS = {"/v1/models": ("data", "id"), "/running": ("running", "model")}  # the members of an answer, and of its models
_KEYS = ("authorization", "x-api-key")
# A node that dies closes nothing.  A stream that is silent meanwhile ends after 30 s.
_PROBES = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}


def peer_for(config: Config, request: Request, model: str) -> Peer | None:
    """The door that *request*, which is for *model*, is passed on to; None: this one's llama-swap has the model.

    Raises:
        Refusal: the request was passed on already.
    """
    peer = config.peer_of(model)
    if peer and PASSED in request.fields:
        rule = f"The model {model} is on its way to another card: a change of the catalog is not complete yet."
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "card-changing", rule, headers={"Retry-After": "5"})
    return peer


def request_head(peer: Peer, request: Request, target: str) -> bytes:
    """The head for *peer*: of the client's own there is the method, the key and the length of the body."""
    host, port = peer.address
    fields = {"Host": f"{host}:{port}", "Connection": "close", PASSED: "1"}
    fields |= {name: request.fields[name] for name in _KEYS if name in request.fields}
    if request.method == "POST":
        fields |= {"Content-Type": "application/json", "Content-Length": str(request.length)}
    lines = [f"{request.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def connect(peer: Peer, protocol: Any) -> None:
    """Connect *protocol*, which a call of it makes, to *peer*; raises TimeoutError when it cannot be reached."""
    async with asyncio.timeout(_CONNECT_LIMIT_S):
        transport = await _connected(peer, protocol)
        while transport is None:
            await asyncio.sleep(_AGAIN_S)
            transport = await _connected(peer, protocol)
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if option := getattr(socket, name, None):  # not every kernel has each
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


async def _connected(peer: Peer, protocol: Any) -> asyncio.Transport | None:
    """The connection; None: there is no such name, or no program listens there, now."""
    with contextlib.suppress(OSError):
        transport, _ = await asyncio.get_running_loop().create_connection(protocol, *peer.address)
        return transport
    return None


def unreachable(config: Config, peer: Peer, model: str) -> Refusal:
    """The answer for *model* when the door of its card does not answer."""
    rule = f"The model {model} is on card {peer.card}, whose server does not answer. See: corral status"
    retry = {"Retry-After": str(config.retry_after_s)}
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "card-unreachable", rule, headers=retry, fields={"card": peer.card})


async def listed(config: Config, request: Request, path: str) -> list[Mapping[str, Any]]:
    """The models that the doors of the other cards list at *path*, of ``_LISTS``, for the client of *request*.

    A door that does not answer lists none: what is listed can be asked for.
    """
    if PASSED in request.fields:
        return []
    found = await asyncio.gather(*(_listed_by(config, peer, request, path) for peer in config.peers.values()))
    return [one for models in found for one in models]


async def _listed_by(config: Config, peer: Peer, request: Request, path: str) -> list[Mapping[str, Any]]:
    member, name = _LISTS[path]
    with contextlib.suppress(TimeoutError, *llama_swap.FAULTS):
        async with (
            asyncio.timeout(_LIST_LIMIT_S),
            llama_swap.opened(peer.address, request_head(peer, request, path)) as (head, reader),
        ):
            body = await (reader.readexactly(head.length) if head.length is not None else reader.read(-1))
            found = [one for one in json.loads(body)[member] if config.model_named(one[name]) in peer.models]
            return found if path == "/v1/models" else [one | {"card": peer.card} for one in found]
    return []
