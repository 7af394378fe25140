"""The files of the local stack in a state folder, and the right to change them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from corral.files import OwnFolder

SOCKET = "guard.sock"
"""The guard's, in the folder of its configuration; ``terraform/stacks/local`` names it, too."""

_BUSY_LIMIT_S = 60.0
_FOLLOW_POLL_S = 0.1
_TAIL_BYTES = 1 << 20


def versions_beside(run: Path) -> Path:
    """The versions of adapters that were chosen, where *run* is the folder of the guard's socket: they outlive it."""
    return run.parent / "adapters" / "versions.json"


class StackFolder:
    """The paths of the local stack in the state folder *state*."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.own = OwnFolder(state, "CORRAL_STATE")
        self.run = state / "run"  # with the guard's socket; Caddy's own files are below it
        self.config = self.run / "llama-swap.yaml"  # llama-swap was started with it
        self.guard_config = self.run / "guard.json"
        self.caddy_config = self.run / "caddy.json"
        self.key = self.run / "llama-swap.key"  # of llama-swap, since the last start
        self.before = self.run / "before.json"  # while the stack is changed: the configuration that it had
        self.versions = versions_beside(self.run)
        self.record = self.run / "stack.json"  # of corral.engine.stack.Running
        self.log = state / "logs" / "llama-swap.log"  # the output of llama-swap and its engines since the last start
        self.door_log = state / "logs" / "door.log"  # the guard's access log, and what Caddy has to report

    def previous(self, log: Path) -> Path:
        """The same *log* of the start before."""
        return log.with_suffix(".log.1")

    def log_tail(self, lines: int, *, log: Path | None = None, end: int | None = None) -> str:
        """The last *lines* lines of *log* (default: llama-swap's), at most its last MiB before byte *end*; or empty."""
        log = log or self.log
        try:
            with log.open("rb") as stream:
                end = log.stat().st_size if end is None else end
                start = stream.seek(max(0, end - _TAIL_BYTES))
                return "\n".join(stream.read(end - start).decode(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def follow_log(
        self, still_written: Callable[[], bool], *, log: Path | None = None, start: int = 0
    ) -> Iterator[str]:
        """Every line of *log* (default: llama-swap's) from byte *start* on, until *still_written* is false.

        Raises:
            FileNotFoundError: nothing was ever started.
        """
        with (log or self.log).open("rb") as stream:
            stream.seek(start)
            rest = b""
            while True:
                written = still_written()  # before reading, so that no last line is lost
                if new := stream.read():
                    *lines, rest = (rest + new).split(b"\n")
                    yield from (line.decode(errors="replace") for line in lines)
                elif not written:
                    return
                else:
                    time.sleep(_FOLLOW_POLL_S)

    def only_up(self, report: Callable[[str], None]) -> AbstractContextManager[None]:
        """Exclude every other `corral up` of this stack, from what it reads to what it has started.

        Raises: as ``exclusive_lock``, but it waits as long as the other one takes.
        """
        return self.own.exclusive_lock(
            self.state / "up",
            timeout_s=math.inf,
            waiting=lambda other: report(f"Waiting for {other}, which starts or changes this stack ..."),
        )

    def exclusive_lock(self) -> AbstractContextManager[None]:
        """Exclude every other corral that starts or stops this stack.

        Raises:
            Refused: another user may change what is in the state folder.
            CannotRun: the folder is not writable, or another corral does not finish in it.
        """
        return self.own.exclusive_lock(self.record.parent, timeout_s=_BUSY_LIMIT_S)
