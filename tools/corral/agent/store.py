"""The model store on disk.

::

    <store>/blobs/<sha256>/<name>                    content, verified before it appears here, never written to
    <store>/sets/<model>@<digest>/model.gguf …       links to blobs: the files of a model at one version
    <store>/<model> -> sets/<model>@<digest>         what servers follow; the only thing that ever switches
    <store>/.corral/partials|leases                  downloads under way, and which process works on which blob
    <store>/.corral/verified                         what was verified when, one small file for each blob
    <store>/.corral/replaced                         damaged files that were replaced; servers may have them open

Everything appears by a rename or a link made in one step, so a reader finds the old state or the new one.
Nothing here relies on locks: two processes that do the same concurrently end with the same result.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shlex
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

from .errors import CannotRun, Code, Refused
from .lock_file import LockedFile, LockedModel
from .ownership import foreign_in, owner_of
from .progress import Hashing, Report
from .stopping import Stopped

_READ_BYTES = 128 << 10
"""Small enough to be hashed in a core's own cache, where it was just copied to."""

_REPORT_BYTES = 8 << 20


@dataclass(frozen=True)
class Store:
    """The model store in the folder *root*; making the object touches nothing."""

    root: Path

    @property
    def partials(self) -> Path:
        return self.root / ".corral" / "partials"

    @property
    def leases(self) -> Path:
        return self.root / ".corral" / "leases"

    @property
    def records(self) -> Path:
        return self.root / ".corral" / "verified"

    @property
    def replaced(self) -> Path:
        return self.root / ".corral" / "replaced"

    def require(self) -> None:
        """Raise ``Refused`` where there is no store."""
        if not (self.root / "blobs").is_dir():
            raise Refused(
                f"There is no store at {self.root}.",
                next_step="Name another folder with --store DIR, or make it with: corral fetch",
                code=Code.STORE_MISSING,
                fields={"path": str(self.root)},
            )

    def prepare(self) -> None:
        """Make the folders, or raise ``CannotRun`` where the store cannot be written."""
        try:
            for folder in (self.root / "blobs", self.root / "sets", self.partials, self.leases, self.records):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if foreign := of_another(error, self.root):
                raise foreign from error
            raise CannotRun(
                f"The store {self.root} cannot be written: {error.strerror}.",
                next_step="Give this user the right to write there, or name another folder with: --store DIR",
                code=Code.STORE_UNUSABLE,
                fields={"path": str(self.root)},
            ) from error

    def free_bytes(self) -> int:
        """Free space of the file system under the store, for this user."""
        return shutil.disk_usage(self.root).free

    def location(self, model: LockedModel, file: LockedFile) -> Path:
        """The path of *file*: a blob, or its own path when the model is already on disk."""
        if model.repo is None:
            return Path(file.path)
        return self.root / "blobs" / file.sha256 / file.name

    def recorded(self, path: Path, file: LockedFile) -> bool:
        """Whether *path* was verified as *file*, and size, time and inode are still the same.

        ``verify`` finds a change that keeps all three.
        """
        try:
            return self.verified(path, file) == fingerprint(path)
        except OSError:
            return False

    def verified(self, path: Path, file: LockedFile) -> dict[str, int] | None:
        """The ``fingerprint`` that *path* had when it was verified as *file*; None when there is no record of it."""
        try:
            record = json.loads(self._record(path, file).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None

    def keep(self, path: Path, file: LockedFile) -> None:
        """Restart the grace period of *path*, after which ``prune`` may remove it."""
        with contextlib.suppress(OSError):  # nothing prunes where nothing can be written
            os.utime(self._record(path, file))

    def record(self, path: Path, file: LockedFile) -> None:
        """Record that *path* was just verified as *file*."""
        target = self._record(path, file)
        written = target.with_name(f"{target.name}.{os.getpid()}")
        written.write_text(json.dumps(fingerprint(path)), encoding="utf-8")
        written.replace(target)

    def forget(self, path: Path, file: LockedFile) -> None:
        """Remove the record of *path*: the next fetch reads the file again."""
        with contextlib.suppress(OSError):  # verify may run where the store is read-only
            self._record(path, file).unlink(missing_ok=True)

    def publish(self, partial: Path, file: LockedFile) -> Path:
        """Move the verified, durable *partial* to its place among the blobs.

        A good file that is there already stays.  The same rename replaces a damaged one, which is kept for servers that
        have it open, until ``prune`` removes it.  A ``FileNotFoundError``: another process took *partial* over.
        """
        target = self.root / "blobs" / file.sha256 / file.name
        target.parent.mkdir(exist_ok=True)
        if target.is_symlink():  # another repo's name for it; both are repaired
            target = target.parent / target.readlink().name
        if self.recorded(target, file):
            partial.unlink()
            return target
        if target.exists():
            # A second name keeps the bytes: on a network file system, a file that is replaced under a server is gone.
            folder = self.replaced / f"{file.sha256}.{os.urandom(4).hex()}"
            folder.mkdir(parents=True)
            with contextlib.suppress(OSError):  # some file systems have no second names
                os.link(target, folder / target.name)
        partial.rename(target)
        sync_folder(target.parent)
        sync_folder(target.parent.parent)
        self.record(target, file)
        return target

    def reuse_under_other_name(self, file: LockedFile) -> None:
        """Give a blob that has another repo's file name the name of *file* too: a link beside it, no second copy."""
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

    def set_name(self, model: LockedModel) -> str:
        """``<model>@<12 hex digits>``: the same for the same content under the same names."""
        described = [
            (link, file.sha256, file.path if model.repo is None else "") for link, file in sorted(model.links.items())
        ]
        digest = hashlib.sha256(json.dumps(described).encode()).hexdigest()
        return f"{model.id}@{digest[:12]}"

    def linked_set(self, model_id: str) -> str | None:
        """The set to which the link *model_id* leads, None without one; refuses what corral did not make."""
        link = self.root / model_id
        try:  # in one step: another process may make it meanwhile
            return link.readlink().name
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise Refused(
                f"{link} is not a link that corral made.",
                next_step=f"Move it away, for example with: mv {link} {link}.old",
                code=Code.STORE_OCCUPIED,
                fields={"path": str(link)},
            ) from None

    def link(self, model: LockedModel) -> bool:
        """Make the set of *model* and point the model's link to it; whether it pointed elsewhere before.

        A missing file is a ``FileNotFoundError``; anything in the link's place that corral did not make is refused.
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

    def partials_of(self, sha256: str) -> list[Path]:
        """The folders that hold a part of this blob, the longest journal first."""
        found = [folder for folder in self.partials.iterdir() if folder.name.startswith(f"{sha256}.")]
        return sorted(found, key=_journal_size, reverse=True)

    def adopt_partial(self, sha256: str, owner: str) -> Path:
        """A folder for *owner* to collect this blob in, with what earlier owners left.

        One rename moves bytes and journal together; of two processes that try, one gets them.
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
        """Remove the partial files of a blob that is complete."""
        for folder in self.partials_of(sha256):
            shutil.rmtree(folder, ignore_errors=True)


def hash_file(path: Path, size: int, name: str, report: Report, stop: threading.Event | None) -> str:
    """The sha256 of the file at *path*, of *size* bytes; reports progress as *name*, raises ``Stopped`` on *stop*."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_READ_BYTES))
    done = reported = 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            done += count
            if done - reported >= _REPORT_BYTES or done == size:
                reported = done
                if stop and stop.is_set():
                    raise Stopped
                report(Hashing(name, done, size))
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


def disk_error(error: OSError, path: Path) -> CannotRun:
    """The error for a disk that is full or fails at *path*."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CannotRun(
            f"There is no room left on the file system of {path}; what has arrived is kept.",
            next_step="Make room there, then run the same command again: it resumes from here.",
            code=Code.STORE_FULL,
            fields={"path": str(path)},
        )
    if foreign := of_another(error, path):
        return foreign
    return CannotRun(
        f"{path} cannot be read or written: {error}.",
        next_step="Check the file system under the store, and the rights of this user there",
        code=Code.STORE_UNUSABLE,
        fields={"path": str(path)},
    )


def of_another(error: OSError, path: Path) -> CannotRun | None:
    """The error for something of another user in the store of *path*, which *error* is about; None: it is not that."""
    if error.errno not in (errno.EACCES, errno.EPERM):
        return None
    with contextlib.suppress(OSError):  # this user may not even read the store's folder
        root = next((one for one in (path, *path.parents) if (one / "blobs").is_dir()), path)
        named = [Path(os.fsdecode(name)) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
        if found := foreign_in(root, *named, path):
            owner = owner_of(root)
            return CannotRun(
                f"{found[0]} belongs to user {found[1].uid}, "
                f"and the store {root} to {owner.uid}, who cannot change it.",
                next_step=f"As root: chown -R {owner} {shlex.quote(str(root))}",
                code=Code.STORE_UNUSABLE,
                fields={"path": str(root)},
            )
    return None


def fingerprint(path: Path) -> dict[str, int]:
    """Size, time and inode of the file at *path*: a write changes one of them."""
    found = path.stat()
    return {"size": found.st_size, "mtime_ns": found.st_mtime_ns, "inode": found.st_ino}


def _journal_size(folder: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # another process removed the folder
        return max((file.stat().st_size for file in folder.glob("*.journal")), default=0)
    return 0


def _point(link: Path, target: str, *, scratch: Path | None = None) -> None:
    """Make *link* point to *target* in one step, whatever link stood there before."""
    scratch = scratch or link.with_name(f".{link.name}.new")
    for _ in range(100):
        # Another process may change the same link through the same scratch name: then a step fails here, and the
        # next round does what is left.
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            if link.is_symlink() and str(link.readlink()) == target:
                return
            scratch.unlink(missing_ok=True)
            scratch.symlink_to(target)
            scratch.rename(link)
    raise CannotRun(
        f"{link} is changed by another program all the time.",
        next_step="Find what else writes there.",
        code=Code.STORE_OCCUPIED,
        fields={"path": str(link)},
    )
