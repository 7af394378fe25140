"""Loopback ports: which are free, which process holds one."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Collection, Sequence

import psutil

from corral.errors import CannotRun

HOST = "127.0.0.1"
DOOR = 8080
"""The default port of the front door."""
OTHER_DOORS = range(2_000, 8_000)
"""The ports of ``other_door``; those above are for programs that choose theirs by another rule, as the tests do."""
_ENGINES = range(10_000, 32_000)  # the kernel assigns ports above these to any program
PLACES = 199
"""Of a stack each: two doors whose ports differ by a multiple of it begin at the same."""
_APART = 100


def require_free(port: int, command: str = "corral up") -> None:
    """Return when *port* can be listened on; *command* is what wants it.

    Raises:
        CannotRun: it is in use (the message names pid and command of the holder) or not allowed.
    """
    if problem := _problem(port):
        held_by = holder(port)
        what = f"is in use by {held_by}" if held_by else f"cannot be listened on: {problem.strerror}"
        raise CannotRun(f"Port {port} {what}.", next_step=f"Stop that, or choose another: {command} --port {port + 1}")


def other_door(among: Sequence[int] = OTHER_DOORS) -> int:
    """A free port *among* those for a door beside the usual one, which no program gets that lets the kernel choose.

    Raises:
        CannotRun: there is none.
    """
    for port in (secrets.choice(among) for _ in among):
        if port != DOOR and not _problem(port):
            return port
    raise CannotRun(f"There is no free port from {among[0]} to {among[-1]}.", next_step="ss -ltnp")


def for_engines(count: int, port: int, scope: contextlib.ExitStack | None = None) -> int:
    """The first of *count* neighbouring free ports, for llama-swap and the engines behind the door on *port*.

    An engine listens only while its model is loaded, so a free port may still be another stack's: each stack has a
    place of its own, which follows from *port*, and is passed over as a whole when one of its ports is in use, as the
    first always is while its stack runs.  Until then, the last port of the place is held in *scope*: of two stacks
    that start at the same moment, the second passes it over.

    Raises:
        CannotRun: there are none.
    """
    for place in range(port, port + PLACES):
        first = _ENGINES.start + place % PLACES * _APART
        wanted = range(first, first + count)
        if wanted.stop <= _ENGINES.stop and _is_free(wanted, scope):
            return first
    raise CannotRun(f"There are no {count} free ports in a row below {_ENGINES.stop}.", next_step="ss -ltnp")


def holder(port: int) -> str:
    """Pid and command of the process that listens on *port*; empty when none does, or the system does not tell."""
    try:
        found = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:  # macOS asks for root
        return ""
    return described(
        [one.pid or 0 for one in found if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port]
    )


def described(pids: Collection[int]) -> str:
    """Pid and command of the first of *pids* that can be read; 0 is a process of another user."""
    for pid in filter(None, pids):
        with contextlib.suppress(psutil.Error):
            return f"pid {pid} ({' '.join(psutil.Process(pid).cmdline()) or 'unknown command'})"
    return "a process of another user" if pids else ""


def is_listening(pid: int, port: int) -> bool:
    """Whether process *pid* is the one that listens on *port*."""
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(pid).net_connections(kind="tcp")
        return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in found)
    return False


def _is_free(wanted: range, scope: contextlib.ExitStack | None) -> bool:
    last = wanted.start + (len(wanted) // _APART + 1) * _APART - 1
    with contextlib.ExitStack() as attempt:
        held = attempt.enter_context(socket.socket())
        if _refusal(held, last) or any(_problem(number) for number in wanted):
            return False
        if scope:
            scope.push(attempt.pop_all())
    return True


def _problem(port: int) -> OSError | None:
    with socket.socket() as probe:
        return _refusal(probe, port)


def _refusal(listener: socket.socket, port: int) -> OSError | None:
    """Why *listener* cannot listen on *port*; None: it does."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(1)
    except OSError as error:
        return error
    return None
