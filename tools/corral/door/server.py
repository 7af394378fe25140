"""The process: listens, and at SIGTERM lets the answers under way end."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from functools import partial

from .config import Config
from .keys import Keys
from .relay import Exchange, Guard, Limits, Log

_OTHER_FILES = 64


async def serve(config: Config, log: Log, *, limits: Limits | None = None) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        Misconfigured: there are no keys that can be used.
        OSError: it cannot listen.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    keys = Keys(config.keys, config.clients, lambda reason: log({"event": "keys-kept", "reason": reason}))
    # Each request needs a connection on both sides.
    connections = (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES) // 2
    guard = Guard(config, keys, log, limits=limits, connections=connections)
    if isinstance(config.listen, str):
        mask = os.umask(0o177)  # only this user may connect
        try:
            server = await loop.create_unix_server(partial(Exchange, guard), config.listen)
        finally:
            os.umask(mask)
    else:
        server = await loop.create_server(partial(Exchange, guard), *config.listen, backlog=1024)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    log({"event": "listening", "at": server.sockets[0].getsockname()})
    await stop.wait()
    log({"event": "stopping"})
    server.close()
    await guard.drain(config.drain_s)
