"""The model store on disk.

::

    <store>/blobs/<sha256>/<name>                    content, verified before it appears here, never written to
    <store>/sets/<model>@<digest>/model.gguf …       links to blobs: the files of a model at one version
    <store>/<model> -> sets/<model>@<digest>         what servers follow; the only thing that ever flips
    <store>/.corral/                                 downloads under way, leases, what was verified when, and the
                                                     damaged files that good ones have taken the place of

Everything appears by a rename or a link made in one step, so a reader sees the old state or the new one.
Nothing here relies on locks: two processes that do the same at once end with the same result.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import CannotRun, Code, Refused
from .lock_file import LockedFile, LockedModel

_READ_BYTES = 128 << 10
"""Small enough to be hashed out of a core's own cache, where it was just copied to."""

_TELL_BYTES = 8 << 20


@dataclass(frozen=True)
class Store:
    """A model store; making the object touches nothing."""

    root: Path

    @property
    def partials(self) -> Path:
        """Where downloads under way are kept."""
        return self.root / ".corral" / "partials"

    @property
    def leases(self) -> Path:
        """Where processes say which blob they are working on."""
        return self.root / ".corral" / "leases"

    @property
    def records(self) -> Path:
        """What was verified when, one small file for each blob."""
        return self.root / ".corral" / "verified"

    @property
    def replaced(self) -> Path:
        """Damaged files that good ones have taken the place of; servers may still have them open."""
        return self.root / ".corral" / "replaced"

    def require(self) -> None:
        """Go on only where there is a store.

        Raises:
            Refused: there is none.
        """
        if not (self.root / "blobs").is_dir():
            raise Refused(
                f"There is no store at {self.root}.",
                next_step="Name another folder with --store DIR, or make it with: corral fetch",
                code=Code.STORE_MISSING,
                fields={"path": str(self.root)},
            )

    def prepare(self) -> None:
        """Make the folders.

        Raises:
            CannotRun: the store cannot be written.
        """
        try:
            for folder in (self.root / "blobs", self.root / "sets", self.partials, self.leases, self.records):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotRun(
                f"The store {self.root} cannot be written: {error.strerror}.",
                next_step="Give this user the right to write there, or name another folder with: --store DIR",
                code=Code.STORE_UNUSABLE,
                fields={"path": str(self.root)},
            ) from error

    def free_bytes(self) -> int:
        """What the file system under the store can still take, for this user."""
        return shutil.disk_usage(self.root).free

    # -- one file -----------------------------------------------------------------------------------------

    def location(self, model: LockedModel, file: LockedFile) -> Path:
        """Where the bytes of *file* belong: a blob, or its own place when the model is already on disk."""
        if model.repo is None:
            return Path(file.path)
        return self.root / "blobs" / file.sha256 / file.name

    def recorded(self, path: Path, file: LockedFile) -> bool:
        """Whether *path* was verified as *file* and has not been touched since (size, time and inode agree).

        A change that keeps all three is for ``verify`` to find.
        """
        try:
            return self.verified(path, file) == fingerprint(path)
        except OSError:
            return False

    def verified(self, path: Path, file: LockedFile) -> dict[str, int] | None:
        """The ``fingerprint`` that *path* had when it was verified as *file*; None when there is no record of it."""
        try:
            record = json.loads(self._record(path, file).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def keep(self, path: Path, file: LockedFile) -> None:
        """Say that *path* is wanted now: ``prune`` counts its grace period from here."""
        with contextlib.suppress(OSError):  # nothing prunes where nothing can be written
            os.utime(self._record(path, file))

    def record(self, path: Path, file: LockedFile) -> None:
        """Remember that *path* was just verified as *file*."""
        target = self._record(path, file)
        written = target.with_name(f"{target.name}.{os.getpid()}")
        written.write_text(json.dumps(fingerprint(path)), encoding="utf-8")
        written.replace(target)

    def forget(self, path: Path, file: LockedFile) -> None:
        """Trust the record of *path* no more: the next fetch reads it again."""
        with contextlib.suppress(OSError):  # verify may run where the store is read-only
            self._record(path, file).unlink(missing_ok=True)

    def publish(self, partial: Path, file: LockedFile) -> Path:
        """Move the verified, durable *partial* to its place among the blobs.

        A good file that is there already stays.  A damaged one goes by the same rename, and is kept aside for
        servers that have it open, until ``prune`` removes it.

        Raises:
            FileNotFoundError: *partial* has been taken over by another process.
        """
        target = self.root / "blobs" / file.sha256 / file.name
        target.parent.mkdir(exist_ok=True)
        if target.is_symlink():  # the name that another repo has for it; both are mended
            target = target.parent / target.readlink().name
        if self.recorded(target, file):
            partial.unlink()
            return target
        self._set_aside(target, file)
        partial.rename(target)
        sync_folder(target.parent)
        sync_folder(target.parent.parent)
        self.record(target, file)
        return target

    def _set_aside(self, path: Path, file: LockedFile) -> None:
        # A second name keeps the bytes: on a network file system, a file that is replaced under a server is gone.
        folder = self.replaced / f"{file.sha256}.{os.urandom(4).hex()}"
        if path.exists():
            folder.mkdir(parents=True)
            with contextlib.suppress(OSError):  # some file systems have no second names
                os.link(path, folder / path.name)

    def reuse_under_other_name(self, file: LockedFile) -> None:
        """Give a blob that another repo calls otherwise the name of *file* too: a link beside it, no second copy."""
        target = self.root / "blobs" / file.sha256 / file.name
        if target.exists() or not target.parent.is_dir():
            return
        for other in sorted(target.parent.iterdir()):
            if other.is_file() and not other.is_symlink() and other.stat().st_size == file.size:
                _point(target, other.name)
                sync_folder(target.parent)
                return

    def _record(self, path: Path, file: LockedFile) -> Path:
        where = "" if path.is_relative_to(self.root / "blobs") else ".in-place"
        return self.records / f"{file.sha256}{where}.json"

    # -- one model ----------------------------------------------------------------------------------------

    def set_name(self, model: LockedModel) -> str:
        """``<model>@<12 hex digits>``: the same for the same content under the same names."""
        described = [
            (link, file.sha256, file.path if model.repo is None else "") for link, file in sorted(model.links.items())
        ]
        digest = hashlib.sha256(json.dumps(described).encode()).hexdigest()
        return f"{model.id}@{digest[:12]}"

    def linked_set(self, model_id: str) -> str | None:
        """The name of the set that servers see for *model_id* now; None when there is none.

        Raises:
            Refused: something that corral did not make stands in the link's place.
        """
        link = self.root / model_id
        if link.is_symlink():
            return link.readlink().name
        if link.exists():
            raise Refused(
                f"{link} is not a link that corral made.",
                next_step=f"Move it away, for example with: mv {link} {link}.old",
                code=Code.STORE_OCCUPIED,
                fields={"path": str(link)},
            )
        return None

    def link(self, model: LockedModel) -> bool:
        """Make the set of *model* and point the model's link to it; every file must be in its place.

        Returns:
            Whether the link pointed elsewhere before.

        Raises:
            FileNotFoundError: a file of the set is missing.
            Refused: something that corral did not make stands in the link's place.
        """
        name = self.set_name(model)
        folder = self.root / "sets" / name
        targets = {link: self.location(model, file) for link, file in model.links.items()}
        for target in targets.values():
            target.stat()
        folder.mkdir(exist_ok=True)
        for link, target in targets.items():
            _point(folder / link, str(target) if model.repo is None else os.path.relpath(target, folder))
        if self.linked_set(model.id) == name:
            return False
        sync_folder(folder)
        sync_folder(folder.parent)
        _point(self.root / model.id, f"sets/{name}", scratch=self.root / ".corral" / f"flip.{model.id}")
        sync_folder(self.root)
        return True

    # -- downloads under way ------------------------------------------------------------------------------

    def partials_of(self, sha256: str) -> list[Path]:
        """The folders that hold a part of this blob, the fullest journal first."""
        found = [folder for folder in self.partials.iterdir() if folder.name.startswith(f"{sha256}.")]
        return sorted(found, key=_journal_size, reverse=True)

    def adopt_partial(self, sha256: str, owner: str) -> Path:
        """A folder for *owner* to collect this blob in, with what earlier owners left.

        One rename hands over bytes and journal together; of two who try, one gets them.
        """
        mine = self.partials / f"{sha256}.{owner}"
        for folder in self.partials_of(sha256):
            if mine.exists():
                shutil.rmtree(folder, ignore_errors=True)
            else:
                with contextlib.suppress(FileNotFoundError):
                    folder.rename(mine)
        mine.mkdir(exist_ok=True)
        sync_folder(self.partials)
        return mine

    def drop_partials(self, sha256: str) -> None:
        """Remove what is left of the download of a blob that is complete."""
        for folder in self.partials_of(sha256):
            shutil.rmtree(folder, ignore_errors=True)


def hash_file(path: Path, *, on_read: Callable[[int], None] | None = None) -> str:
    """The sha256 of the file at *path*; *on_read* gets the bytes done so far, every few MiB and at the end."""
    digest = hashlib.sha256()
    done = told = 0
    with path.open("rb", buffering=0) as file:
        for piece in _pieces(file.readinto):
            digest.update(piece)
            done += len(piece)
            if on_read and done - told >= _TELL_BYTES:
                told = done
                on_read(done)
    if on_read:
        on_read(done)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the entries of *folder* durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems have no such call
            raise
    finally:
        os.close(descriptor)


def _pieces(readinto: Callable[[memoryview], int | None]) -> Iterator[memoryview]:
    view = memoryview(bytearray(_READ_BYTES))
    while count := readinto(view):
        yield view[:count]


def fingerprint(path: Path) -> dict[str, int]:
    """What changes when the file at *path* is written to in the usual ways."""
    found = path.stat()
    return {"size": found.st_size, "mtime_ns": found.st_mtime_ns, "inode": found.st_ino}


def _journal_size(folder: Path) -> int:
    return max((file.stat().st_size for file in folder.glob("*.journal")), default=0)


def _point(link: Path, target: str, *, scratch: Path | None = None) -> None:
    """Make *link* point to *target* in one step, whatever link stood there before."""
    scratch = scratch or link.with_name(f".{link.name}.new")
    for _ in range(100):
        # Another process may be at the same link through the same scratch name: then a step fails here,
        # and the next look at the link tells what is left to do.
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            if link.is_symlink() and str(link.readlink()) == target:
                return
            scratch.unlink(missing_ok=True)
            scratch.symlink_to(target)
            scratch.rename(link)
    raise CannotRun(
        f"{link} is being changed by something else without end.",
        next_step="Find what else writes there.",
        code=Code.STORE_OCCUPIED,
        fields={"path": str(link)},
    )
