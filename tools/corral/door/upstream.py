"""The way of a request onwards: to llama-swap, or to the door of another card."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from . import heads

_SLICE = 256 << 10
ERROR_BYTES = 64 << 10
"""Of an error that is read whole."""


class Receiver(Protocol):
    """Who gets the answer."""

    def forwarding(self, upstream: Upstream) -> None:
        """There is a connection."""

    def forwarded(self) -> None:
        """The whole request was sent."""

    def answered(self, response: heads.Response) -> bool:
        """The answer begins; False when it is an error that ``failed`` is to get whole."""

    def relay(self, data: bytes) -> None:
        """The next bytes of the answer."""

    def failed(self, response: heads.Response, body: bytes) -> None:
        """The answer was an error, with *body*."""

    def answer_ended(self) -> None:
        """The connection is closed."""


class Upstream(asyncio.Protocol):
    """A connection: sends the request, and hands the answer on as it comes."""

    def __init__(self, receiver: Receiver, head: bytes, body: bytearray) -> None:
        self._receiver, self._body = receiver, memoryview(body)
        self._head, self._at = head, 0
        self._may_write = True
        self._received = b""
        self._response: heads.Response | None = None
        self._receive = self._receive_head

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._receiver.forwarding(self)
        transport.write(self._head)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._send()

    def pause(self) -> None:
        """Read nothing for now: the client does not take what there is."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once; llama-swap then frees the model's slot."""
        self._transport.abort()

    def connection_lost(self, _: Exception | None) -> None:
        if self._receive == self._receive_error and self._response:
            self._receiver.failed(self._response, self._received)
        else:
            self._receiver.answer_ended()

    def _send(self) -> None:
        while self._may_write and self._at < len(self._body):
            self._transport.write(self._body[self._at : self._at + _SLICE])
            self._at += _SLICE
        if self._at >= len(self._body):
            self._body = memoryview(b"")
            self._receiver.forwarded()

    def _receive_head(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(heads.END)
        if end < 0:
            if len(self._received) > heads.RESPONSE_LIMIT:
                self._transport.abort()
            return
        try:
            self._response = heads.read_response(self._received[:end])
        except ValueError:
            self._transport.abort()
            return
        self._received = self._received[end + len(heads.END) :]
        if self._receiver.answered(self._response):
            self._receive = self._receiver.relay
            self._receive(self._received)
        else:
            self._receive = self._receive_error

    def _receive_error(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > ERROR_BYTES:
            self._transport.abort()
