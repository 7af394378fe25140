"""What lies in a store: models, sets, blobs, downloads, and what is left over.  Reads, and changes nothing.

What cannot have been made by corral is not judged: it is passed over, or marked as foreign.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .lease import Lease
from .lock_file import LockedFile
from .partial import length, read_journal
from .store import Store

_SET = re.compile(r"(?P<model>[a-z0-9][a-z0-9.-]*)@[0-9a-f]{12}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TRIES = 10


@dataclass(frozen=True)
class ModelSet:
    """The files of a model at one version.

    Attributes:
        name: ``<model>@<digest>``.
        model: the model's id.
        files: what servers call the files.
        missing: those of them that lead nowhere.
        size: bytes of all files.
        blobs: sha256 of the blobs that it leads to; none for a model that lies elsewhere on this machine.
        linked_by: the models whose link leads here, usually its own; empty when no server finds it.
        since: when its model's link was pointed here, or when it was pointed elsewhere.
        foreign: whether there is something in it that corral did not make.
    """

    name: str
    model: str
    files: tuple[str, ...]
    missing: tuple[str, ...]
    size: int
    blobs: tuple[str, ...]
    linked_by: tuple[str, ...]
    since: float
    foreign: bool


@dataclass(frozen=True)
class Blob:
    """Verified content.

    Attributes:
        sha256: of the content.
        names: what its repositories call it.
        size: bytes.
        used_by: the sets that lead to it.
        since: when it was fetched, or last wanted by a fetch.
    """

    sha256: str
    names: tuple[str, ...]
    size: int
    used_by: tuple[str, ...]
    since: float


@dataclass(frozen=True)
class Download:
    """A part of a file, collected by a process that is at work, or was.

    Attributes:
        folder: in the store's partials.
        sha256: of the whole file.
        done: bytes that have arrived and are safe.
        size: bytes of the whole file; 0 when that was not written down yet.
        on_disk: bytes that it takes up.
        owner: who is at work on this file, as words; empty when nobody is.
        since: when something last arrived.
    """

    folder: str
    sha256: str
    done: int
    size: int
    on_disk: int
    owner: str
    since: float


@dataclass(frozen=True)
class Leftover:
    """Something that a process that died left behind, or that was replaced; ``path`` is relative to the store."""

    path: Path
    what: str
    size: int
    since: float


@dataclass(frozen=True)
class Survey:
    """All of a store.

    Attributes:
        sets: the models' files, version by version, linked or not.
        blobs: the content.
        downloads: what is under way, or was.
        leftovers: what is of no use.
        at_work: sha256 of what a process that is alive says to be working on.
        total: bytes of the file system that the store is on.
        free: bytes of it that can still be written.
    """

    sets: tuple[ModelSet, ...]
    blobs: tuple[Blob, ...]
    downloads: tuple[Download, ...]
    leftovers: tuple[Leftover, ...]
    at_work: tuple[str, ...]
    total: int
    free: int


def survey(store: Store, *, lease_ttl: float) -> Survey:
    """Look at everything in *store*; a lease that is silent for *lease_ttl* seconds counts as left over.

    Raises:
        Refused: there is no store.
        OSError: it cannot be read.
    """
    store.require()
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):  # the store is alive: something went while it was looked at
            return _look(store, lease_ttl)
    return _look(store, lease_ttl)


def _look(store: Store, lease_ttl: float) -> Survey:
    root = store.root
    owners = {path.name: _owner(path, lease_ttl) for path in _entries(store.leases) if path.name != "clock"}
    links = {path.name: _end_of(path) for path in root.iterdir() if path.is_symlink()}
    flipped = root.stat().st_mtime
    sets = tuple(_set(store, folder, links, flipped) for folder in _folders(root / "sets"))
    blobs = tuple(_blob(store, folder, sets, links) for folder in _folders(root / "blobs") if _is_blob(folder))
    usage = shutil.disk_usage(root)
    return Survey(
        sets=sets,
        blobs=blobs,
        downloads=tuple(_download(folder, owners) for folder in _folders(store.partials)),
        leftovers=tuple(_leftovers(store, owners)),
        at_work=tuple(sha256 for sha256, owner in owners.items() if owner),
        total=usage.total,
        free=usage.free,
    )


def _set(store: Store, folder: Path, links: dict[str, Path], flipped: float) -> ModelSet:
    named = _SET.fullmatch(folder.name)
    model = named["model"] if named else ""
    files = [path for path in _entries(folder) if not path.name.startswith(".")]
    targets = {_end_of(path) for path in files}
    blobs, here = _end_of(store.root) / "blobs", _end_of(folder)
    linked_by = tuple(sorted(name for name, target in links.items() if target.is_relative_to(here)))
    # A model's link tells when it last changed; one that is gone went when the folder around it changed, or before.
    since = (store.root / model).lstat().st_mtime if model in links else flipped
    return ModelSet(
        name=folder.name,
        model=model,
        files=tuple(path.name for path in files),
        missing=tuple(path.name for path in files if not path.exists()),
        size=sum(_size(target) for target in targets),
        blobs=tuple(sorted({target.relative_to(blobs).parts[0] for target in targets if target.is_relative_to(blobs)})),
        linked_by=linked_by,
        since=since if linked_by else max(since, folder.stat().st_mtime),
        foreign=not model or not all(path.is_symlink() for path in files),
    )


def _is_blob(folder: Path) -> bool:
    return bool(_SHA256.fullmatch(folder.name)) and not any(path.is_dir() for path in _entries(folder))


def _blob(store: Store, folder: Path, sets: tuple[ModelSet, ...], links: dict[str, Path]) -> Blob:
    files = [path for path in _entries(folder) if not path.name.startswith(".")]
    changed = [path.lstat().st_mtime for path in files]
    with contextlib.suppress(FileNotFoundError):
        changed.append((store.records / f"{folder.name}.json").stat().st_mtime)
    users = [found.name for found in sets if folder.name in found.blobs]
    users += [name for name, target in links.items() if target.is_relative_to(_end_of(folder))]
    return Blob(
        sha256=folder.name,
        names=tuple(path.name for path in files),
        size=sum(_size(path) for path in files if not path.is_symlink()),
        used_by=tuple(users),
        since=max(changed, default=folder.stat().st_mtime),
    )


def _owner(lease: Path, ttl: float) -> str:
    """Who holds *lease*; empty when it is dead, or no lease."""
    held = Lease(lease, ttl)
    if not _SHA256.fullmatch(lease.name) or held.is_dead():
        return ""
    return str(held.holder() or "another process")


def _download(folder: Path, owners: dict[str, str]) -> Download:
    sha256 = folder.name.partition(".")[0]
    size = 0
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # a process may have died while writing it
        header, _, _ = (folder / f"{sha256}.journal").read_bytes().partition(b"\n")
        size = int(json.loads(header)["size"])
    arrived = read_journal(folder, LockedFile("", "model", size, sha256)) or []
    files = [path.lstat() for path in _entries(folder)]
    return Download(
        folder=folder.name,
        sha256=sha256,
        done=length(arrived),
        size=size,
        on_disk=sum(found.st_blocks * 512 for found in files),
        owner=owners.get(sha256, ""),
        since=max(found.st_mtime for found in (*files, folder.lstat())),
    )


def _leftovers(store: Store, owners: dict[str, str]) -> Iterator[Leftover]:
    def left(path: Path, what: str, *, size: int = 0) -> Leftover:
        return Leftover(path.relative_to(store.root), what, size, path.lstat().st_mtime)

    for name, owner in owners.items():
        if not owner:
            yield left(store.leases / name, "lease of a process that is gone")
    for path in _entries(store.records):
        sha256, _, kind = path.name.partition(".")
        if kind == "json" and not (store.root / "blobs" / sha256).exists():
            yield left(path, "record of a blob that is gone")
        elif kind not in ("json", "in-place.json"):
            yield left(path, "half-written record")
    for folder in _folders(store.replaced):
        yield left(folder, "damaged file that was replaced", size=sum(_size(path) for path in _entries(folder)))
    scratch = [path for path in _entries(store.root / ".corral") if path.name.startswith("flip.")]
    for folder in (*_folders(store.root / "sets"), *_folders(store.root / "blobs")):
        scratch += [path for path in _entries(folder) if re.fullmatch(r"\..+\.new", path.name)]
    for path in scratch:
        if path.is_symlink():
            yield left(path, "half-made link")


def _entries(folder: Path) -> list[Path]:
    """What is in *folder*, by name; nothing when there is no such folder."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _folders(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.is_dir() and not path.is_symlink()]


def _end_of(path: Path) -> Path:
    """Where *path* leads in the end, there or not; links in a circle lead to one of themselves."""
    return Path(os.path.realpath(path))


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0
