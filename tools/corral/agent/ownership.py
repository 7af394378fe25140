"""Who owns what is written into a store: the store's owner, also where root writes it.

A pod that is not root can neither replace nor remove what root left in a folder of root.  So while root works on a
store, this thread, and those that it starts, make files as the owner of the store's folder.  They keep root's right to
read: a file of a `path:` model, the program itself and certificates may be where only root can read.  Only Linux can do
this: https://man7.org/linux/man-pages/man2/setfsuid.2.html
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from .errors import CannotRun, Code

_libc: Any = ctypes.CDLL(None, use_errno=True)
_KEEP = -1  # an id that setfsuid and setfsgid refuse: the present one is returned
_CAPABILITIES_V3 = 0x20080522
_CAP_DAC_READ_SEARCH = 1 << 2


class Owner(NamedTuple):
    """A user and a group, as numbers."""

    uid: int
    gid: int

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid}"


def owner_of(root: Path) -> Owner:
    """The owner of the store in the folder *root*, which is the owner of that folder.

    Where root has it, and all may write there, it is the owner of the folder ``blobs`` in it.  A folder that does not
    exist will belong to the owner of the one in which it is made.
    """
    owner = _owner(next(one for one in (root, *root.absolute().parents) if one.exists()))
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return owner if owner.uid else _owner(root / "blobs")
    return owner


def _owner(path: Path) -> Owner:
    found = path.stat()
    return Owner(found.st_uid, found.st_gid)


@contextmanager
def as_owner_of(root: Path) -> Iterator[None]:
    """In the block, what root makes belongs to the owner of the folder *root*; nothing else changes for root.

    Raises:
        CannotRun: this root may not act as another user.
    """
    if os.geteuid() != 0 or not hasattr(_libc, "setfsuid"):
        yield
        return
    owner = owner_of(root)
    before = _present()
    try:
        _act_as(owner)
        if _present() != owner:
            raise CannotRun(
                f"The store {root} belongs to {owner}, and this root may not make files for that user.",
                next_step=f"Run it as user {owner.uid}",
                code=Code.STORE_UNUSABLE,
                fields={"path": str(root)},
            )
        yield
    finally:
        _act_as(before)


def _present() -> Owner:
    return Owner(*(call(_KEEP) & 0xFFFFFFFF for call in (_libc.setfsuid, _libc.setfsgid)))  # ids have no sign


def _act_as(owner: Owner) -> None:
    _libc.setfsgid(owner.gid)
    _libc.setfsuid(owner.uid)  # of another user than root: this takes the rights over others' files away
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; the same of the higher capabilities
    if _libc.capget(header, sets) == 0:
        sets[0] |= sets[1] & _CAP_DAC_READ_SEARCH
        _libc.capset(header, sets)


def foreign_in(root: Path, *paths: Path) -> tuple[Path, Owner] | None:
    """The first of *paths*, or the folder in *root* that would hold it, that does not belong to the owner of *root*."""
    owner = owner_of(root)
    for path in paths:
        for one in (path, *path.parents):
            if one == root or not one.is_relative_to(root):
                break
            try:
                found = one.lstat()
            except OSError:
                continue
            if found.st_uid != owner.uid:
                return one, Owner(found.st_uid, found.st_gid)
    return None
