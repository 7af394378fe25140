"""Which version of an adapter serves: what `corral adapters` chose, and what served before that.

It is kept apart from catalog and lock, because it is decided while the stack runs, and from the configuration, which
it outlives.  The guard reads the document (``corral.door.adapters``) again when it changes.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeAlias

from corral.door import adapters
from corral.errors import Refused
from corral.files import OwnFolder, refuse_unwritable, write_atomically

Chosen: TypeAlias = Mapping[str, Sequence[str]]
"""By MODEL:NAME the versions that were chosen, the latest first."""

_BUSY_LIMIT_S = 10.0


class VersionStore(Protocol):
    """Where the choices are kept: a file of this machine, or a ConfigMap of a cluster; all raise CorralErrors."""

    def exclusive_lock(self) -> AbstractContextManager[None]:
        """Keep out everything else that changes them."""

    def read(self) -> Chosen:
        """The choices; none where nothing was ever written."""

    def write(self, chosen: Chosen) -> None:
        """Replace them."""


def serving(chosen: Chosen, name: str, versions: Sequence[str]) -> str:
    """The one of *versions* of the adapter *name* that serves."""
    return adapters.serving(chosen.get(name, ()), versions)


def before(chosen: Chosen, name: str, versions: Sequence[str]) -> str | None:
    """The version that a rollback of the adapter *name* leads to, of *versions*; None: there is none."""
    usable = [one for one in chosen.get(name, ()) if one in versions]
    return usable[1] if len(usable) > 1 else None


def swap(store: VersionStore, name: str, versions: Sequence[str], version: str) -> str:
    """Have *version*, of *versions*, of the adapter MODEL:NAME *name* serve; the one that served before.

    Raises:
        Refused: it serves already.
    """
    with store.exclusive_lock():
        chosen = store.read()
        if (present := serving(chosen, name, versions)) == version:
            raise Refused(f"{name} is served by {version} already.", next_step="corral adapters list")
        usable = [one for one in chosen.get(name, ()) if one in versions] or [present]
        store.write({**chosen, name: [version, *usable]})
        return present


def rollback(store: VersionStore, name: str, versions: Sequence[str]) -> tuple[str, str]:
    """Have the version of *name* serve that served before the last swap: the one that served, and the one that does.

    Raises:
        Refused: there was no swap, or none of what served before it is left.
    """
    with store.exclusive_lock():
        chosen = store.read()
        if (version := before(chosen, name, versions)) is None:
            why = f"No other version of {name} served before {serving(chosen, name, versions)}."
            raise Refused(why, next_step=f"corral adapters swap {name} VERSION")
        present, *usable = [one for one in chosen[name] if one in versions]
        store.write({**chosen, name: usable})
        return present, version


class LocalVersions:
    """The choices of the local stack, in *file*, in a folder of the state folder; a ``VersionStore``."""

    def __init__(self, file: Path) -> None:
        self._own, self._file = OwnFolder(file.parent.parent, "CORRAL_STATE"), file

    def exclusive_lock(self) -> AbstractContextManager[None]:
        """As ``VersionStore``; raises Refused and CannotRun as ``OwnFolder.exclusive_lock``."""
        return self._own.exclusive_lock(self._file.parent, timeout_s=_BUSY_LIMIT_S)

    def read(self) -> Chosen:
        """As ``VersionStore``.

        Raises:
            Refused: the file is not what this class writes, or cannot be read.
        """
        try:
            return adapters.parse(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            step = f"Remove it, so that the first version of each serves: rm {shlex.quote(str(self._file))}"
            raise Refused(f"{self._file} cannot be used: {why}.", next_step=step) from None

    def write(self, chosen: Chosen) -> None:
        """As ``VersionStore``.

        Raises:
            Refused: the file cannot be written.
        """
        with refuse_unwritable(self._file, next_step=f"ls -ld {shlex.quote(str(self._file.parent))}"):
            write_atomically(self._file, adapters.text_of(chosen))
