"""The contents of a store: models, sets, blobs, downloads, and leftovers.  Reads, and changes nothing.

What corral cannot have made is passed over, or marked as foreign.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .hub_policy import printable
from .lease import DEFAULT_LEASE_TTL, Lease
from .lock_file import LockedFile
from .ownership import as_owner_of
from .partial import length, read_journal
from .progress import count, human
from .store import Store

COLUMNS = ("what", "path", "size", "since", "detail")

_SET = re.compile(r"(?P<model>[a-z0-9][a-z0-9.-]*)@[0-9a-f]{12}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TRIES = 10
_LONGEST = 4096  # characters of a cell


@dataclass(frozen=True)
class ModelLink:
    """The link of a model, as a fetch makes it; a link of another form is the operator's own."""

    model: str
    set_name: str  # where it leads; there may be no such set any more
    since: float  # when it was pointed there


@dataclass(frozen=True)
class ModelSet:
    """The files of a model at one version; size in bytes, time in seconds since 1970."""

    name: str  # <model>@<digest>
    model: str
    files: tuple[str, ...]  # as servers call them
    missing: tuple[str, ...]  # those of them that lead nowhere
    size: int
    blobs: tuple[str, ...]  # their sha256; none for a model that lies elsewhere on this machine
    linked_by: tuple[str, ...]  # the models whose link leads here, usually its own
    since: float  # when its model's link was pointed here, or was pointed elsewhere
    foreign: bool  # there is something in it that corral did not make


@dataclass(frozen=True)
class Blob:
    """Verified content."""

    sha256: str
    names: tuple[str, ...]  # as its repositories call it
    size: int
    used_by: tuple[str, ...]  # the sets that lead to it
    since: float  # when it was fetched, or last used by a fetch


@dataclass(frozen=True)
class Download:
    """A part of a file, collected by a process that works on it or has ended."""

    folder: str  # in the store's partials
    sha256: str  # of the whole file
    done: int  # durable bytes
    size: int  # of the whole file; 0 when it is not recorded yet
    on_disk: int
    owner: str  # the process that works on it, as words; empty without one
    since: float  # when the last byte arrived


@dataclass(frozen=True)
class Leftover:
    """What a dead process left behind, or what was replaced; ``path`` is relative to the store."""

    path: str
    what: str
    size: int
    since: float


@dataclass(frozen=True)
class Survey:
    """The contents of a store, and the bytes of its file system."""

    links: tuple[ModelLink, ...]
    sets: tuple[ModelSet, ...]
    blobs: tuple[Blob, ...]
    downloads: tuple[Download, ...]
    leftovers: tuple[Leftover, ...]
    at_work: tuple[str, ...]  # sha256 of the files for which a live process has a lease
    total: int
    free: int

    def rows(self) -> Iterator[tuple[str, str, str, str, str]]:
        """One row, by ``COLUMNS``, for each model, and for each thing that no model needs."""
        for what, path, size, since, detail in self._rows():
            yield what, printable(path, _LONGEST), size, since, printable(detail, _LONGEST)

    def _rows(self) -> Iterator[tuple[str, str, str, str, str]]:
        for one in self.sets:
            for link in one.linked_by:
                yield "model", link, human(one.size), _date(one.since), f"{one.name}: {_files(one)}"
        for one in self.sets:
            if not one.linked_by:
                why = "holds what corral did not make" if one.foreign else f"no link leads to it: {_files(one)}"
                yield "set", f"sets/{one.name}", human(one.size), _date(one.since), why
        for blob in self.blobs:
            if not blob.used_by:
                why = f"no set leads to it: {', '.join(blob.names)}" if blob.names else "empty"
                yield "blob", f"blobs/{blob.sha256}", human(blob.size), _date(blob.since), why
        for part in self.downloads:
            share = f"{100 * part.done // part.size} % of {human(part.size)}" if part.size else "nothing yet"
            state = f"{part.owner} works on it" if part.owner else "a fetch resumes it"
            path = f".corral/partials/{part.folder}"
            yield "part", path, human(part.on_disk), _date(part.since), f"{share}; {state}"
        for left in self.leftovers:
            yield "left over", left.path, human(left.size), _date(left.since), left.what

    @property
    def unlinked(self) -> int:
        """Bytes of the blobs that no model links to."""
        linked = {sha256 for one in self.sets if one.linked_by for sha256 in one.blobs}
        return sum(blob.size for blob in self.blobs if blob.sha256 not in linked)

    def summary(self) -> str:
        """The sums, in one sentence."""
        held, idle = sum(blob.size for blob in self.blobs), self.unlinked
        spare = f", {human(idle)} of it linked to by no model" if idle else ""
        blobs = count(len(self.blobs), "blob")
        return f"{blobs}, {human(held)}{spare}; {human(self.free)} free of {human(self.total)}"


def _files(one: ModelSet) -> str:
    return ", ".join(f"{name} (missing)" if name in one.missing else name for name in one.files) or "empty"


def _date(since: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(since))


def survey(store: Store) -> Survey:
    """List everything in *store*, which must exist; a lease that was not renewed for its TTL counts as left over."""
    store.require()
    with as_owner_of(store.root):  # the age of a lease is measured with a file
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):  # a process removed something meanwhile
                return _read(store)
        return _read(store)


def _read(store: Store) -> Survey:
    root = store.root
    owners = {path.name: _owner(path) for path in _entries(store.leases) if path.name != "clock"}
    links = {path.name: _end_of(path) for path in root.iterdir() if path.is_symlink()}
    flipped = root.stat().st_mtime
    sets = tuple(_set(store, folder, links, flipped) for folder in _folders(root / "sets"))
    blobs = tuple(_blob(store, folder, sets, links) for folder in _folders(root / "blobs") if _is_blob(folder))
    usage = shutil.disk_usage(root)
    return Survey(
        links=tuple(_model_links(root, links)),
        sets=sets,
        blobs=blobs,
        downloads=tuple(_download(folder, owners) for folder in _folders(store.partials)),
        leftovers=tuple(_leftovers(store, owners)),
        at_work=tuple(sha256 for sha256, owner in owners.items() if owner),
        total=usage.total,
        free=usage.free,
    )


def _model_links(root: Path, links: Iterable[str]) -> Iterator[ModelLink]:
    for name in sorted(links):
        folder, _, set_name = str((root / name).readlink()).partition("/")
        named = _SET.fullmatch(set_name)
        if folder == "sets" and named and named["model"] == name:
            yield ModelLink(name, set_name, (root / name).lstat().st_mtime)


def _set(store: Store, folder: Path, links: dict[str, Path], flipped: float) -> ModelSet:
    named = _SET.fullmatch(folder.name)
    model = named["model"] if named else ""
    files = [path for path in _entries(folder) if not path.name.startswith(".")]
    targets = {_end_of(path) for path in files}
    blobs, here = _end_of(store.root) / "blobs", _end_of(folder)
    linked_by = tuple(sorted(name for name, target in links.items() if target.is_relative_to(here)))
    # The time of a link is that of its last change; one that is gone was removed when the folder changed, or before.
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


def _owner(lease: Path) -> str:
    """The holder of *lease*; empty when it is dead, or no lease."""
    held = Lease(lease, DEFAULT_LEASE_TTL)
    if not _SHA256.fullmatch(lease.name) or held.is_dead():
        return ""
    return str(held.holder() or "another process")


def _download(folder: Path, owners: dict[str, str]) -> Download:
    sha256 = folder.name.partition(".")[0]
    size = 0
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        # a process may have died while writing it
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
        return Leftover(str(path.relative_to(store.root)), what, size, path.lstat().st_mtime)

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
    """The entries of *folder*, by name; none when there is no such folder."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _folders(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.is_dir() and not path.is_symlink()]


def _end_of(path: Path) -> Path:
    """The path at the end of all links, present or not; of links in a circle one of themselves."""
    return Path(os.path.realpath(path))


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0
