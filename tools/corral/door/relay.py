"""One request: read, decided, forwarded, and its answer relayed as bytes while they come.

Both connections carry one request only, so that no byte of it can become the beginning of another.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from . import adapters, bodies, engines, heads, llama_swap, paths, peers, streams
from .config import Client, Peer
from .guard import Guard
from .refusals import Refusal, beginning, down, json_answer, late, malformed, silent, stopping
from .upstream import ERROR_BYTES, Upstream

_ERRORS = (HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_GATEWAY)
_RETRIES, _PAUSE_S, _AT_ONCE_S = 3, 0.02, 1.0
_ROOMS = 2  # in its group, then beside the models of others


class Exchange(asyncio.Protocol):
    """A client's connection: a request, and its answer."""

    def __init__(self, guard: Guard) -> None:
        self._guard, self._loop = guard, asyncio.get_running_loop()
        self._receive: Callable[[bytes], None] = self._receive_head
        self._received = bytearray()
        self._held = self._kept = self._retries = self._rooms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._upstream: Upstream | None = None
        self._request: heads.Request | None = None
        self._route: paths.Route | None = None
        self._client: Client | None = None
        self._used = ""  # the model that the request is counted for
        self._peer: Peer | None = None  # that the request is passed on to
        self._end: streams.StreamEnd | None = None
        self._is_over = self._makes_room = False
        # For the access log.
        self._begun = self._loop.time()
        self._first_byte: float | None = None
        self._forwarded_at = 0.0
        self._path, self._model, self._adapter, self._code = "", "", "", ""
        self._status, self._sent = 0, 0

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._limit(self._guard.limits.head, lambda: self._refuse(late("head")))
        self._refusing(self._guard.add, self)

    def data_received(self, data: bytes) -> None:
        self._refusing(self._receive, data)

    def eof_received(self) -> None:
        self._transport.abort()  # a client that ends its side reads no answer

    def connection_lost(self, _: Exception | None) -> None:
        if not self._is_over:
            self._code = "client-closed"
            self._finish()
        self._limit(0, None)
        self._guard.remove(self)
        is_unloading = self._makes_room or self._path.startswith(paths.ENGINE_YIELD)
        if self._task and not is_unloading:  # what waits for that must not be cut by it
            self._task.cancel()

    def pause_writing(self) -> None:
        if self._upstream:
            self._upstream.pause()
        self._limit(self._guard.limits.stall, self._transport.abort)

    def resume_writing(self) -> None:
        if self._upstream:
            self._upstream.resume()
        if not self._is_over:
            self._limit(0, None)

    def end(self) -> None:
        """Close the connection, whatever is under way."""
        self._transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether there is no request on it yet."""
        return self._request is None

    @property
    def is_pause(self) -> bool:
        """Whether its request is a pause, which ends with the guard."""
        return self._path == paths.PAUSE

    # The request.

    def _receive_head(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(heads.END)
        if end < 0:
            heads.check_beginning(self._received)
            return
        self._begun = self._loop.time()
        head, body = bytes(self._received[:end]), bytes(self._received[end + len(heads.END) :])
        self._received = bytearray()
        self._request = heads.read_request(head)
        self._decide(self._request)
        self._limit(self._guard.limits.body, lambda: self._refuse(late("body")))
        self._receive = self._receive_body
        if self._request.fields.get("expect", "").lower() == "100-continue" and not body:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._receive_body(body)

    def _decide(self, request: heads.Request) -> None:
        """Refuse what the head alone decides."""
        self._path = request.target.partition("?")[0]
        paths.check_target(request.target)
        route, client = paths.find_route(self._path), None
        if route is None or route.access is not paths.Access.EVERYBODY:
            client = self._guard.keys.client_of(request.fields)
        self._route = route = paths.check_method(route, request.method)
        adapters.require_no_adapter_in(self._path, self._guard.config)
        if client:
            if not route.access.permits(client.role):
                raise Refusal(HTTPStatus.FORBIDDEN, "operator-only", "Only an operator's key may use this path.")
            self._guard.enter(client)
            self._client = client
        if request.method != "POST" and request.length:
            raise malformed("Only a POST has a body here.")
        if request.length > self._guard.config.body_bytes:
            rule = f"The body of a request has at most {self._guard.config.body_bytes >> 20} MiB."
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body-too-large", rule)
        # A web page can send text/plain to any address without a question to it.
        kind = request.fields.get("content-type", "").partition(";")[0].strip().lower()
        if (request.length or route.is_inference) and kind != "application/json":
            rule = "The content-type of a body must be application/json."
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content-type", rule)

    def _receive_body(self, data: bytes) -> None:
        assert self._request is not None
        self._held += len(data)
        self._guard.hold(len(data))
        self._received += data
        if len(self._received) > self._request.length:
            raise malformed("More follows the body than content-length gives.")
        if len(self._received) == self._request.length:
            self._limit(0, None)
            self._receive = self._receive_more
            self._check_body()
            self._task = self._loop.create_task(self._forward())

    def _receive_more(self, _: bytes) -> None:
        self._transport.abort()  # there is one request on each connection

    def _check_body(self) -> None:
        assert self._route is not None
        if not self._received and not self._route.is_inference:
            return
        config = self._guard.config
        document = bodies.read_document(self._received)
        bodies.require_local_media(document, config.image_hosts)
        if self._route.is_inference:
            assert self._client is not None
            self._model = bodies.model_of(document, config.model_named, self._client)
            paths.check_task(self._route, config.tasks.get(self._model, "chat"))
            received, versions = self._received, self._guard.versions
            self._adapter, self._received = adapters.in_request(config, versions, self._path, document, received)
            self._held = len(self._received)
            self._guard.hold(len(self._received) - len(received))
        else:
            adapters.require_no_adapter_named(document, config)

    # The answer.

    async def _forward(self) -> None:
        assert self._request is not None
        assert self._route is not None
        config, request, client = self._guard.config, self._request, self._client
        try:
            if self._route.path == "/v1/models" and client:
                others = await peers.listed(config, request, "/v1/models")
                listed = await llama_swap.models_of(config, client, others, self._guard.versions)
                self._answer_whole(HTTPStatus.OK, listed)
                return
            # The exporter of a card, which has a monitor's key, means that card alone.
            if self._route.path == "/running" and config.peers and client and client.is_operator:
                others = await peers.listed(config, request, "/running")
                self._answer_whole(HTTPStatus.OK, await llama_swap.running_with(config, others))
                return
            if self._route.path == paths.PAUSE:
                if request.method == "POST":
                    await self._pause()
                else:
                    self._answer_whole(HTTPStatus.OK, json_answer(HTTPStatus.OK, self._guard.uses.pause()))
                return
            # Neither llama-swap nor an engine uses the query of an inference path.
            target = self._path if self._route.is_inference else request.target
            wanted = self._model or paths.model_in(self._path, config.models)
            if peer := peers.peer_for(config, request, wanted):
                self._peer = peer
                head = peers.request_head(peer, request, target)
                try:
                    await peers.connect(peer, lambda: Upstream(self, head, self._received))
                except TimeoutError:
                    raise peers.unreachable(config, peer, wanted) from None
                return
            for prefix, ask in ((paths.ENGINE_METRICS, engines.metrics), (paths.ENGINE_PROBE, engines.probe)):
                if self._path.startswith(prefix):
                    self._answer_whole(HTTPStatus.OK, await ask(config, self._path.removeprefix(prefix)))
                    return
            if self._route.path == paths.MODEL_CHANGES:
                self._answer_whole(HTTPStatus.OK, self._guard.follower.answer(config))
                return
            if self._path.startswith(paths.ENGINE_YIELD):
                name = self._path.removeprefix(paths.ENGINE_YIELD)
                self._answer_whole(HTTPStatus.OK, await engines.unload(config, self._guard.uses, name))
                return
            if not self._used and wanted and (self._model or self._path.startswith(paths.UPSTREAM)):
                await self._guard.uses.enter(wanted)
                self._used = wanted
            if self._route.is_quick:
                self._limit(self._guard.limits.quick_answer, lambda: self._refuse(silent()))
            head = llama_swap.request_head(config, request.method, target, length=len(self._received))
            await self._loop.create_connection(lambda: Upstream(self, head, self._received), *config.upstream)
        except Refusal as refusal:
            self._refuse(refusal)
        except TimeoutError:
            self._refuse(silent())
        except llama_swap.FAULTS:
            self._refuse(self._no_llama_swap())

    async def _pause(self) -> None:
        """Have the requests of models wait until the connection ends, and this task with it, or the limit is over."""
        with self._guard.uses.paused():
            self._begin_answer(HTTPStatus.OK, beginning(HTTPStatus.OK, "text/plain") + b"paused\n")
            await asyncio.sleep(self._guard.limits.pause)
        self._code = "pause-over"
        self._finish()
        self._transport.close()

    def forwarding(self, upstream: Upstream) -> None:
        """There is a connection to llama-swap."""
        self._upstream = upstream

    def forwarded(self) -> None:
        """The whole request is on its way to llama-swap.  Its body is kept for ``_try_again``, while there is room."""
        assert self._route is not None
        self._guard.release(self._held)
        self._forwarded_at = self._loop.time()
        size, self._held = self._held, 0
        if self._kept:
            return
        if self._route.is_inference and not self._peer and self._guard.keep(size):
            self._kept = size
        else:
            self._received = bytearray()

    def answered(self, response: heads.Response) -> bool:
        """llama-swap's answer begins; False when it is an error that ``failed`` is to get whole."""
        assert self._route is not None
        self._limit(0, None)
        if self._peer:  # it has explained its errors
            self._release_body()
            self._begin_answer(response.status, response.relayed())
            return True
        if response.status == HTTPStatus.UNAUTHORIZED:
            rule = "llama-swap does not accept the guard's key: one of the two is older than the configuration."
            self._refuse(Refusal(HTTPStatus.BAD_GATEWAY, "internal-key", rule))
            return False
        length = response.length
        if self._route.is_inference and response.status in _ERRORS and length is not None and length <= ERROR_BYTES:
            return False
        self._release_body()
        self._begin_answer(response.status, response.relayed())
        self._end = streams.end_of(self._path, response)
        return True

    def failed(self, response: heads.Response, body: bytes) -> None:
        """llama-swap's whole answer is an error with *body*."""
        if self._is_over:
            return
        if response.status == HTTPStatus.BAD_GATEWAY and not body:
            self._task = self._loop.create_task(self._try_again())
        elif response.status == HTTPStatus.INTERNAL_SERVER_ERROR and _is_of_llama_swap(body):
            self._task = self._loop.create_task(self._explain())
        elif response.status == HTTPStatus.INTERNAL_SERVER_ERROR and (refusal := engines.too_long(body)):
            self._refuse(refusal)
        elif response.status == HTTPStatus.BAD_GATEWAY and body.startswith(llama_swap.NO_POD):
            rule = f"The pod of the model {self._model} does not answer. See: corral why {self._model}"
            retry = {"Retry-After": str(self._guard.config.retry_after_s)}
            self._refuse(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "pod-unreachable", rule, headers=retry))
        else:  # the engine's own
            self._answer_whole(response.status, response.relayed() + body)

    async def _try_again(self) -> None:
        """Forward the request once more, if it failed at once and its engine is there.

        llama-server announces that it keeps a connection after a streamed answer, and closes it; llama-swap fails the
        next request that it sends on it, with a bare 502.  That is one of a hundred requests that follow each other
        closely.  After the pause llama-swap knows that those connections are closed.  A request whose engine is not
        there any more may be what ended it, and is not sent to the next one.
        """
        failed_at_once = self._loop.time() - self._forwarded_at < _AT_ONCE_S
        if self._kept and self._retries < _RETRIES and failed_at_once:
            await asyncio.sleep((self._retries + 1) * _PAUSE_S)
            if await engines.is_alive(self._guard.config, self._model):
                self._retries += 1
                await self._forward()
                return
        retry = {"Retry-After": str(self._guard.config.retry_after_s)}
        rule = "The engine of the model ended during the request."
        self._refuse(Refusal(HTTPStatus.BAD_GATEWAY, "engine-ended", rule, headers=retry))

    async def _explain(self) -> None:
        """Refuse the request with the reason, or forward it again when that was room, and other models had some."""
        assert self._client is not None
        refusal = await llama_swap.failed_load(self._guard.config, self._model, self._client)
        if refusal.code == "no-room" and self._kept and self._rooms < _ROOMS:
            self._rooms += 1
            if await self._make_room() and not self._is_over:
                await self._forward()
                return
        self._refuse(refusal)

    async def _make_room(self) -> bool:
        """Whether idle models were unloaded for this one.  Its client's end does not cut that off."""
        self._makes_room = True
        try:
            return await engines.make_room(self._guard.config, self._guard.uses, self._model)
        except llama_swap.FAULTS:
            return False
        finally:
            self._makes_room = False

    def relay(self, data: bytes) -> None:
        """The next bytes of the answer."""
        if self._end:
            data = self._end.passed(data)
        self._sent += len(data)
        self._transport.write(data)

    def answer_ended(self) -> None:
        """llama-swap has closed its connection; the framing of the answer shows the client whether it is whole."""
        if self._is_over:  # the client's end has ended this one
            return
        if self._first_byte is None:
            lost = self._peer and peers.unreachable(self._guard.config, self._peer, self._model or self._path)
            self._refuse(lost or self._no_llama_swap())
        else:
            if self._end and self._end.is_cut:
                self._code = "engine-ended"
            self._finish()
            self._transport.close()
            self._limit(self._guard.limits.stall, self._transport.abort)

    def _no_llama_swap(self) -> Refusal:
        return stopping(self._guard.config.retry_after_s) if self._guard.is_ending else down()

    def _refusing(self, act: Callable[[Any], None], argument: Any) -> None:
        if self._is_over:
            return  # what still comes of a request that is refused is not used
        try:
            act(argument)
        except Refusal as refusal:
            self._refuse(refusal)

    def _refuse(self, refusal: Refusal) -> None:
        if self._first_byte is None:
            self._code = refusal.code
            self._answer_whole(refusal.status, refusal.answer())

    def _answer_whole(self, status: int, data: bytes) -> None:
        """Send *data* as the whole answer; then read on for a moment, so that a client that still sends can read it."""
        if self._is_over:  # the client is gone
            return
        has_received = bool(self._received or self._request)
        self._begin_answer(status, data)
        self._finish()
        if not has_received:
            self._transport.close()
            return
        self._limit(self._guard.limits.linger, self._transport.abort)
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def _begin_answer(self, status: int, data: bytes) -> None:
        self._first_byte, self._status = self._loop.time(), status
        self.relay(data)

    def _finish(self) -> None:
        """The request is over, if not the connection."""
        self._is_over = True
        self._release_body()
        if self._upstream:
            self._upstream.abort()
        if self._client:
            self._guard.leave(self._client)
        if self._used:
            self._guard.uses.leave(self._used)
        # Of a path for everybody, or of a monitor that reads; they come for ever.
        is_reading = self._client is None or (self._client.is_monitor and not self._path.startswith(paths.ENGINE_YIELD))
        if (self._request or self._status) and not (is_reading and self._status == HTTPStatus.OK):
            self._log()

    def _release_body(self) -> None:
        self._guard.release(self._held)
        self._guard.drop(self._kept)
        self._held, self._kept, self._received = 0, 0, bytearray()

    def _limit(self, seconds: float, act: Callable[[], None] | None) -> None:
        """Replace the only timer; without an *act* there is none."""
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, act) if act else None

    def _log(self) -> None:
        self._guard.log(
            {
                "event": "request",
                "client": self._client.name if self._client else None,
                "model": self._model or None,
                "adapter": self._adapter.partition(":")[2] or None,
                "card": self._peer.card if self._peer else None,
                "method": self._request.method if self._request else None,
                "path": self._path[:200],
                "status": self._status or None,
                "code": self._code or None,
                "bytes": self._sent,
                "retries": self._retries,
                "first_byte_s": None if self._first_byte is None else round(self._first_byte - self._begun, 4),
                "seconds": round(self._loop.time() - self._begun, 4),
            }
        )


def _is_of_llama_swap(body: bytes) -> bool:
    try:
        return bool(json.loads(body)["src"] == "llama-swap")
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
