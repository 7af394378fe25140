"""What all requests share: the configuration, and the counts that bound them together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from .adapters import Versions
from .config import Client, Config
from .follower import Follower
from .keys import Keys
from .refusals import Refusal
from .uses import Uses

_BODIES = 4  # so many of the largest may be under way at a time
_KEPT_BODIES = 1  # and so many more are kept until their answer begins

Log = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Limits:
    """Seconds that a step may take.

    Attributes:
        head: of a request, until it is whole.
        body: of a request, from its head on.
        quick_answer: of llama-swap, where it answers at once.
        stall: of a client that takes nothing of its answer.
        linger: of a client that still sends when its answer is complete.
        pause: of all models, also where its client stays.
        last_request: of a client that has a connection and no request when the guard ends.
    """

    head: float = 10
    body: float = 300
    quick_answer: float = 10
    stall: float = 120
    linger: float = 5
    pause: float = 600
    last_request: float = 2


class Connection(Protocol):
    """A client's connection, as far as the guard counts and ends it."""

    @property
    def is_idle(self) -> bool:
        """Whether there is no request on it yet."""

    @property
    def is_pause(self) -> bool:
        """Whether its request is a pause, which ends with the guard."""

    def end(self) -> None:
        """Close it, whatever is under way."""


class Guard:
    """What all requests share.

    Args:
        config: the configuration.
        keys: the keys of its clients.
        log: gets an object for each request.
        limits: of time.
        connections: of clients, at a time.
    """

    def __init__(
        self, config: Config, keys: Keys, log: Log, *, limits: Limits | None = None, connections: int = 400
    ) -> None:
        self.config, self.keys, self.log, self.limits = config, keys, log, limits or Limits()
        self.versions = Versions(config.chosen_versions, config.adapters, self._warn_of_versions)
        self.uses = Uses()
        self.follower = Follower()
        self._most = connections
        self._connections: set[Connection] = set()
        self._is_empty = asyncio.Event()
        self._under_way = dict.fromkeys(config.clients, 0)
        self._held = self._kept = 0
        self.is_ending = False  # it accepts no connection any more

    def _warn_of_versions(self, reason: str) -> None:
        self.log({"event": "versions-kept", "reason": reason})

    def add(self, connection: Connection) -> None:
        """Count a connection; raise a Refusal when there are as many as there may be."""
        self._connections.add(connection)
        if len(self._connections) > self._most:
            raise _busy("There are as many connections as this server holds.")

    def remove(self, connection: Connection) -> None:
        """Count a connection as closed."""
        self._connections.discard(connection)
        if not self._connections:
            self._is_empty.set()

    async def drain(self, limit_s: float) -> None:
        """Wait until the requests under way have their answers; after *limit_s* seconds cut them off."""
        self.is_ending = True
        for connection in list(self._connections):
            if connection.is_pause:
                connection.end()
        # Caddy connects for each request: what has none yet is about to have one.
        asyncio.get_running_loop().call_later(self.limits.last_request, self._end_idle)
        self._is_empty.clear()
        if self._connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), limit_s)
        for connection in list(self._connections):
            connection.end()

    def _end_idle(self) -> None:
        for connection in list(self._connections):
            if connection.is_idle:
                connection.end()

    def enter(self, client: Client) -> None:
        """Count a request of *client*; raise a Refusal when it has as many as it may."""
        if client.requests is not None and self._under_way[client.name] >= client.requests:
            rule = f"This key may have {client.requests} requests under way at a time."
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too-many-requests", rule, headers={"Retry-After": "1"})
        self._under_way[client.name] += 1

    def leave(self, client: Client) -> None:
        """Count a request of *client* as over."""
        self._under_way[client.name] -= 1

    def hold(self, size: int) -> None:
        """Count *size* more bytes of bodies; raise a Refusal when all together are too much."""
        self._held += size
        if self._held > _BODIES * self.config.body_bytes:
            raise _busy("The requests under way are as much as this server holds.")

    def release(self, size: int) -> None:
        """Count *size* bytes of bodies as forwarded."""
        self._held -= size

    def keep(self, size: int) -> bool:
        """Count *size* bytes of a body that is kept after it was forwarded; False: there is no room for them."""
        if self._kept + size > _KEPT_BODIES * self.config.body_bytes:
            return False
        self._kept += size
        return True

    def drop(self, size: int) -> None:
        """Count *size* bytes as kept no more."""
        self._kept -= size


def _busy(rule: str) -> Refusal:
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "busy", rule, headers={"Retry-After": "1"})
