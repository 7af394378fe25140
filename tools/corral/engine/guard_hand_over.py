"""Replaces a running guard: the next one takes its socket over, and it ends with its last answer."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable

from corral.engine import processes
from corral.engine.launch import GUARD, ended
from corral.engine.processes import Mark
from corral.engine.stack import START_LIMIT_S
from corral.engine.stack_folder import SOCKET, StackFolder
from corral.errors import CannotRun

_POLL_S = 0.02


def replace_guard(folder: StackFolder, before: Mark, start: Callable[[], Mark]) -> Mark:
    """The guard that *start* starts, once it has the place of *before*, alive or dead, which is signalled to end.

    A guard that ends forwards the requests that wait in it, and takes as long as their answers; it is not waited for.

    Raises:
        CannotRun: the fresh one has ended, or does not listen in time; *before* serves as it did.
    """
    place, fresh = _place(folder), start()
    try:
        _wait_for_change(folder, place, fresh)
    except BaseException:
        processes.send(fresh, signal.SIGKILL)
        raise
    processes.send(before, signal.SIGTERM)
    return fresh


def _wait_for_change(folder: StackFolder, place: int | None, fresh: Mark) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while _place(folder) in (None, place):
        if not processes.is_alive(fresh):
            raise ended(GUARD, folder, fresh.pid)
        if time.monotonic() >= deadline:
            raise CannotRun(f"The guard did not listen within {START_LIMIT_S:.0f} s.", next_step="corral logs --door")
        time.sleep(_POLL_S)


def _place(folder: StackFolder) -> int | None:
    """The number of the file that is the guard's socket; None: there is none."""
    with contextlib.suppress(FileNotFoundError):
        return (folder.run / SOCKET).stat().st_ino
    return None
