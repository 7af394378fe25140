"""The front door that the local stack gets: what options ask for, else what runs already, else the defaults."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from corral.engine import ports
from corral.engine.door import Door, Tls
from corral.engine.stack import Running
from corral.errors import Refused
from corral.keys import LocalKeys
from corral.lock.lock import Lock


def wanted(
    state: Path,
    lock: Lock,
    present: Running | None,
    *,
    port: int | None = None,
    keys: bool = False,
    tls: Sequence[Path] | None = None,
    names: Sequence[str] = (),
    scope: ExitStack | None = None,
) -> tuple[Door, int]:
    """The door of the stack in *state* that serves *lock*, and the first port of its engines.

    Args:
        state: the state folder, which has the keys.
        lock: its clients need keys.
        present: the stack that runs already.
        port: of the door; None: as *present*, else the default.
        keys: whether keys are required even without clients.
        tls: the files of a certificate and its key; empty: Caddy's own authority; None: as *present*.
        names: further names that requests may be for; none: as *present*.
        scope: until it ends, no other stack gets the ports.

    Raises:
        Refused: *tls* is one file, or three.
        CannotRun: there are not enough free ports.
    """
    had = present.door if present else None
    number = port or (had.port if had else ports.DOOR)
    if present:
        swap_port, first_engine_port = present.door.swap_port, present.first_engine_port
    else:
        swap_port = ports.for_engines(len(lock.models) + 1, number, scope)
        first_engine_port = swap_port + 1
    needs_keys = keys or bool(lock.clients) or bool(had and had.keys)
    door = Door(
        port=number,
        swap_port=swap_port,
        keys=LocalKeys(state).file if needs_keys else None,
        tls=_tls(tls) if tls is not None else had.tls if had else None,
        names=tuple(names) or (had.names if had else ()),
    )
    return door, first_engine_port


def _tls(files: Sequence[Path]) -> Tls:
    if len(files) not in (0, 2):
        step = "corral up --tls CERTIFICATE KEY, or without files for an authority of its own: corral up --tls"
        raise Refused(f"--tls takes a certificate and its key, not {len(files)} files.", next_step=step)
    for file in files:
        if not file.is_file():
            raise Refused(f"There is no file {file}.", next_step="corral up --tls CERTIFICATE KEY")
    return Tls(*(file.absolute() for file in files))
