"""A pause of all models in a running stack: the guard keeps new requests, and those under way go on.

It lasts as long as its connection, ten minutes at most (``corral.door.guard.Limits``).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path

from corral.door.paths import PAUSE
from corral.engine.stack import Running
from corral.keys import LocalKeys

_BEGIN_LIMIT_S = 20.0


@dataclass(frozen=True)
class Pause:
    """What the guard answers of the pause that it has."""

    seconds: float  # since it began
    waiting: int  # requests

    def __str__(self) -> str:
        """A sentence about it."""
        begun = f"a pause of all models began {self.seconds:.0f} s ago"
        return (
            f"New requests wait in the guard, {self.waiting} so far: {begun}. "
            "It ends with the program that asked for it, which is usually a corral up that changes the stack, "
            "and after 10 min in any case."
        )


def read(running: Running, state: Path) -> Pause | None:
    """The pause of *running*, the stack of *state*; None: there is none, or the guard answers no such question."""
    try:
        with contextlib.closing(running.door.connection(running.folder)) as connection:
            connection.request("GET", PAUSE, headers=_headers(running, state))
            answer = connection.getresponse()
            if answer.status == HTTPStatus.OK and (found := json.loads(answer.read()))["seconds"] is not None:
                return Pause(float(found["seconds"]), int(found["waiting"]))
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        pass
    return None


@contextlib.contextmanager
def held(running: Running, state: Path) -> Iterator[bool]:
    """Have a pause of *running*, the stack of *state*, until the block ends.

    Yields False where the guard knows no pause, as one of an older corral, or does not answer.
    """
    with contextlib.ExitStack() as scope:
        try:
            connection = running.door.connection(running.folder, _BEGIN_LIMIT_S)
            scope.enter_context(contextlib.closing(connection))
            connection.request("POST", PAUSE, headers=_headers(running, state))
            answer = scope.enter_context(contextlib.closing(connection.getresponse()))
            is_paused = answer.status == HTTPStatus.OK and bool(answer.readline())
        except (OSError, HTTPException):
            is_paused = False
        yield is_paused


def _headers(running: Running, state: Path) -> dict[str, str]:
    key = LocalKeys(state).operator_key() if running.door.keys else None
    return {"Authorization": f"Bearer {key}"} if key else {}
