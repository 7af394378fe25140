"""The process: listens, and at SIGTERM lets the answers under way end."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import socket
import traceback
from functools import partial
from pathlib import Path
from typing import Any

from .config import Config
from .guard import Guard, Limits, Log
from .keys import Keys
from .relay import Exchange

_FILES = 8192
_QUEUE = 1024


async def serve(config: Config, log: Log, *, limits: Limits | None = None) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        Misconfigured: there are no keys that can be used.
        OSError: it cannot listen.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    keys = Keys(config.keys, config.clients, lambda reason: log({"event": "keys-kept", "reason": reason}))
    loop.set_exception_handler(lambda _, context: log(_defect(context)))
    files = _raise_limit_of_files()
    guard = Guard(config, keys, log, limits=limits, connections=files // 4)
    listener = _listen(config.listen)
    # Half of the files are for connections that are accepted before the guard can refuse them.
    server = await loop.create_server(partial(Exchange, guard), sock=listener, backlog=files // 16)
    listener.listen(_QUEUE)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    log({"event": "listening", "at": config.listen if isinstance(config.listen, str) else listener.getsockname()})
    await stop.wait()
    log({"event": "stopping"})
    await _accept_queued(listener)
    server.close()
    await guard.drain(config.drain_s)


async def _accept_queued(listener: socket.socket) -> None:
    """Let the loop accept the connections that wait at *listener*: closing it would reset them."""
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    for _ in range(_QUEUE):
        if not waiting.poll(0):
            break
        await asyncio.sleep(0)
    for _ in range(3):  # until the last one is counted: its task, its transport, its protocol
        await asyncio.sleep(0)


def _listen(where: tuple[str, int] | str) -> socket.socket:
    if not isinstance(where, str):
        return socket.create_server(where, family=socket.AF_INET6 if ":" in where[0] else socket.AF_INET)
    path = Path(where)
    if path.exists() and not path.is_socket():
        raise FileExistsError(f"{path} is no socket")
    os.chdir(path.parent)  # a socket's path may have about a hundred bytes
    name = f"{os.getpid()}.sock"
    mask = os.umask(0o177)  # only this user may connect
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(name)
    finally:
        os.umask(mask)
    listener.listen(_QUEUE)
    Path(name).rename(path.name)  # another guard may listen there: at no moment does none of the two
    return listener


def _raise_limit_of_files() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(soft, _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return min(limit, _FILES)


def _defect(context: dict[str, Any]) -> dict[str, Any]:
    """The record of an error that nothing expects, without its text, which may quote a request."""
    error = context.get("exception")
    frames = traceback.extract_tb(error.__traceback__) if error else []
    at = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames]
    return {"event": "defect", "reason": context["message"], "error": type(error).__name__, "at": at}
