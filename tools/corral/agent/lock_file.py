"""Reading ``lock.json``: what the store must hold, as frozen dataclasses.

The lock is written elsewhere, perhaps by a newer corral, and its paths become names on disk.  Everything is checked
here, once: first the seal, which shows an edit or a merge, then each value.  The rest of the agent trusts the result.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

from .errors import Code, Refused
from .hub_policy import printable
from .merge_markers import present as has_merge_markers
from .merge_markers import sides

VERSION = 2
MOST_BYTES = 4 << 20
"""Of a lock or a ledger: those of a thousand models."""

Role = Literal["model", "draft", "adapter", "projector", "part"]
"""A part is a file of a folder of safetensors, which is linked under its own name."""
_ROLES: tuple[Role, ...] = get_args(Role)

_MODEL_ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LARGEST_FILE = 1 << 50

_LONGEST_PATH = 1024
_LONGEST_NAME = 255  # bytes, as file systems have it

_STORE_FOLDERS = ("blobs", "sets")  # beside the models' links: no model may have such a name

_TOP_KEYS = {"version", "models"}
_TOP_KEYS_NOT_READ = {
    "seal",
    "sources",
    "images",
    "engine",
    "cards",
    "clients",
}  # for Terraform and the operator's machine
_MODEL_KEYS = {"repo", "revision", "files"}
_MODEL_KEYS_NOT_READ = {"licence", "argv", "intent", "predicted", "measured", "placed"}
_FILE_KEYS = {"path", "role", "size", "sha256", "repo", "revision"}

_SEAL = re.compile(r'^  "seal": "[0-9a-f]*"', re.MULTILINE)


@dataclass(frozen=True)
class LockedFile:
    """One file of a model: its path in the repo (absolute for a model on disk), its size in bytes, and its sha256.

    ``repo`` and ``revision`` are its own where it is from another repository than the model.
    """

    path: str
    role: Role
    size: int
    sha256: str
    repo: str | None = None
    revision: str | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class LockedModel:
    """One model with its files, shards in order; repo and revision are None where it is already on disk."""

    id: str
    repo: str | None
    revision: str | None
    files: tuple[LockedFile, ...]

    @property
    def links(self) -> dict[str, LockedFile]:
        """The files by the names of their links; llama.cpp finds the shards of a split model by their numbers."""
        shards = [file for file in self.files if file.role == "model"]
        names = {}
        for number, file in enumerate(shards, start=1):
            split = f"-{number:05d}-of-{len(shards):05d}" if len(shards) > 1 else ""
            names[f"model{split}.gguf"] = file
        names.update(("draft.gguf", file) for file in self.files if file.role == "draft")
        adapters = [file for file in self.files if file.role == "adapter"]
        names.update((f"adapter-{number}.gguf", file) for number, file in enumerate(adapters, start=1))
        names.update(("mmproj.gguf", file) for file in self.files if file.role == "projector")
        names.update((file.name, file) for file in self.files if file.role == "part")
        return names

    def origin(self, file: LockedFile) -> tuple[str | None, str | None]:
        """Repository and commit of *file*; None where the model is already on disk."""
        return (file.repo, file.revision) if file.repo else (self.repo, self.revision)


@dataclass(frozen=True)
class Lock:
    """A whole lock file."""

    path: Path
    models: Mapping[str, LockedModel]

    def select(self, ids: Sequence[str]) -> tuple[LockedModel, ...]:
        """The models named *ids*, in the lock's order, all of them when *ids* is empty; refuses an unknown id."""
        unknown = sorted(set(ids) - set(self.models))
        if unknown:
            raise Refused(
                f"{self.path} has no model {', '.join(unknown)}; it has {', '.join(self.models) or 'none'}.",
                next_step="Correct the name, or bring the lock up to date with: corral lock",
                code=Code.MODEL_UNKNOWN,
                fields={"models": " ".join(unknown)},
            )
        return tuple(model for model in self.models.values() if not ids or model.id in ids)


def is_repo_path(path: str) -> bool:
    """Whether *path* names a file inside a repo, by a name that every file system and terminal takes as it is."""
    parts = path.split("/")
    return (
        path.isprintable()
        and "\\" not in path
        and len(path) <= _LONGEST_PATH
        and all(part not in ("", ".", "..") and len(part.encode()) <= _LONGEST_NAME for part in parts)
    )


def sealed(text: str) -> str:
    """The lock file *text* with its seal: the hex sha256 of the file's UTF-8 bytes with the seal's value empty."""
    unsealed = _SEAL.sub('  "seal": ""', text, count=1)
    digest = hashlib.sha256(unsealed.encode()).hexdigest()
    return _SEAL.sub(f'  "seal": "{digest}"', unsealed, count=1)


def is_sealed(text: str) -> bool:
    """Whether the lock file *text* has its own seal: no byte was edited or merged after `corral lock` wrote it."""
    return _SEAL.search(text) is not None and sealed(text) == text


@dataclass(eq=False)
class NotALock(Exception):
    """A text is no lock of this corral's version; ``reason`` ends a sentence that begins with its path."""

    code: Literal["unreadable", "merge", "version", "seal", "content"]
    reason: str


def document_of(path: Path, text: str) -> dict[str, Any]:
    """The object in *text*, which was read from *path*.

    Raises:
        NotALock: it is not JSON, or not of this corral's version.
        Refused: only a newer corral writes its version.
    """
    if "\ufffd" in text:
        raise NotALock("unreadable", "is not UTF-8")
    try:
        document = _parse(path, text)
    except ValueError as error:
        if has_merge_markers(text):
            raise NotALock("merge", "has the conflict markers of a merge") from None
        raise NotALock("unreadable", f"is not JSON ({error})") from None
    found: dict[str, Any] = document if isinstance(document, dict) else {}
    version = found.get("version")
    if type(version) is not int or version != VERSION:
        has = "no version" if version is None else f"version {json.dumps(version)}"
        raise NotALock("version", f"has {has}, and this corral reads version {VERSION}")
    return found


def models_in(path: Path, text: str, *, is_extract: bool = False) -> dict[str, LockedModel]:
    """The models in *text* of *path*: a lock with its seal, or an extract, which has none.

    Raises:
        NotALock: it was edited, JSON readers disagree about it, or it holds anything that is not understood.
        Refused: only a newer corral writes its version.
    """
    top = document_of(path, text)
    if not is_extract and not is_sealed(text):
        why = "was edited or merged after `corral lock` had written it: its seal does not match"
        raise NotALock("seal", why)
    try:
        json.loads(text, object_pairs_hook=_object, parse_constant=_number, parse_float=_number)
    except ValueError as error:
        raise NotALock("unreadable", f"is not JSON that all readers read alike ({error})") from None
    reader = _Reader(path)
    reader.no_other_keys(top, _TOP_KEYS | _TOP_KEYS_NOT_READ, "the lock")
    entries = reader.mapping(top.get("models"), "models")
    return {name: reader.model(name, entries[name]) for name in sorted(entries)}


def objects_in(path: Path, text: str) -> list[dict[str, Any]]:
    """The JSON object in *text* of *path*, or of a merge that of each side which is one; refuses a newer corral's."""
    found = []
    for side in sides(text):
        with contextlib.suppress(ValueError):
            found.append(_parse(path, side.removeprefix("\ufeff")))
    return [document for document in found if isinstance(document, dict)]


def rewrite_step(path: Path, relock: str = "corral lock") -> str:
    """The command that replaces an unusable lock at *path*: *relock*, where `corral lock` can read commits in it."""
    text = text_of(path)
    if text is None or objects_in(path, text):
        return relock
    if has_merge_markers(text):
        return f"git -C {shlex.quote(str(path.parent))} checkout --ours {path.name} && {relock}"
    return f"Restore it from version control, or write it anew: rm {shlex.quote(str(path))} && {relock}"


def content_of(path: Path, *, at_most: int = MOST_BYTES) -> bytes:
    """The bytes of *path*; an OSError also where there are more, or it is a FIFO or a device: a read might not end."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "It is no regular file", str(path))
        content = file.read(at_most + 1)
    if len(content) > at_most:
        raise OSError(errno.EFBIG, f"It has more than {at_most:,} bytes", str(path))
    return content


def text_of(path: Path) -> str | None:
    """The lock's text, None without a file; U+FFFD for what is not UTF-8: a lock is ASCII and has none of its own.

    Raises:
        Refused: the file cannot be opened.
    """
    try:
        return content_of(path).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        is_no_file = error.errno in (errno.EISDIR, errno.ELOOP, errno.EINVAL)
        words = ["mv", str(path), f"{path}.old"] if is_no_file else ["ls", "-l", str(path)]
        raise _unusable(path, f"{path} cannot be read: {error}.", shlex.join(words)) from None


def _parse(path: Path, text: str) -> Any:
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # of int()
        raise ValueError("it has a number of too many digits") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is int and version > VERSION:
        message = f"{path} has version {version}, and this corral is older: it reads version {VERSION}."
        raise _unusable(path, message, "Upgrade corral in its checkout: git pull && make setup")
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {json.dumps(name):.80} stands twice")
        found[name] = value
    return found


def _number(text: str) -> float:
    if math.isfinite(value := float(text)):
        return value
    raise ValueError(f"{text:.40} is no number of JSON")


def read_lock(path: Path) -> Lock:
    """Read and check the lock at *path*: a whole lock with its seal, or the extract that the download Job mounts.

    Terraform compares the seal of the whole lock and renders from it, into the Job's ConfigMap, only the keys that the
    agent reads.  An object with exactly these keys, here and in each model, is such an extract; any other needs a seal.

    Raises:
        Refused: it is missing, is not JSON, was edited after it was written, or holds anything that is not understood.
    """
    if (text := text_of(path)) is None:
        raise _unusable(path, f"There is no lock: {path} does not exist.")
    try:
        is_extract = _is_extract(document_of(path, text))
        return Lock(path=path, models=models_in(path, text, is_extract=is_extract))
    except NotALock as error:
        raise _unusable(path, f"{path} {error.reason}.", rewrite_step(path)) from None


def extract_of(lock: Lock) -> str:
    """The extract of *lock*, as ``read_lock`` reads it again."""
    models = {
        name: {
            "repo": model.repo,
            "revision": model.revision,
            "files": [{key: value for key, value in asdict(one).items() if value is not None} for one in model.files],
        }
        for name, model in lock.models.items()
    }
    return json.dumps({"version": VERSION, "models": models})


def lock_in(path: Path, document: Mapping[str, Any]) -> Lock:
    """The *document* of a whole lock that was not read from a file; *path* is its name in messages.

    Raises:
        Refused: it holds anything that is not understood.
    """
    try:
        reader = _Reader(path)
        entries = reader.mapping(document.get("models"), "models")
        return Lock(path=path, models={name: reader.model(name, entries[name]) for name in sorted(entries)})
    except NotALock as error:
        raise _unusable(path, f"{path} {error.reason}.") from None


def _is_extract(top: Mapping[str, Any]) -> bool:
    models = top.get("models")
    entries = models.values() if isinstance(models, dict) else ()
    return top.keys() == _TOP_KEYS and all(isinstance(entry, dict) and entry.keys() <= _MODEL_KEYS for entry in entries)


def _unusable(path: Path, message: str, next_step: str = "corral lock") -> Refused:
    return Refused(message, next_step=next_step, code=Code.LOCK_UNUSABLE, fields={"path": str(path)})


class _Reader:
    """The checks; each refusal names the place and the rule."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def refuse(self, what: str) -> NoReturn:
        raise NotALock("content", f"is not a lock that this corral can read: {what}")

    def mapping(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.refuse(f"{where} must be an object")
        return value

    def no_other_keys(self, value: Mapping[str, Any], allowed: set[str], where: str) -> None:
        others = sorted(set(value) - allowed)
        if others:
            self.refuse(f"{where} has {printable(', '.join(others))}, which this corral does not know")

    def model(self, name: str, value: Any) -> LockedModel:
        where = f"models.{printable(name)}"
        if not _MODEL_ID.fullmatch(name):
            rule = "is made of a-z, 0-9, '.' and '-', begins with a letter or digit, and has 63 at most"
            self.refuse(f"{where}: a model's id {rule}")
        if name in _STORE_FOLDERS:
            self.refuse(f"{where}: the store itself has a folder of that name")
        entry = self.mapping(value, where)
        self.no_other_keys(entry, _MODEL_KEYS | _MODEL_KEYS_NOT_READ, where)
        repo, revision = self._origin(entry, where)
        listed = entry.get("files")
        if not isinstance(listed, list):
            self.refuse(f"{where}.files must be a list")
        files = tuple(
            self._file(file, f"{where}.files[{index}]", on_disk=repo is None) for index, file in enumerate(listed)
        )
        roles = {file.role for file in files}
        if "model" not in roles and "part" not in roles:
            self.refuse(f"{where}.files names no file with the role model")
        if "part" in roles and (len(roles) > 1 or repo is None):
            self.refuse(f"{where}.files has parts of a folder; a repository on the hub has them, and no other role")
        model = LockedModel(id=name, repo=repo, revision=revision, files=files)
        if len(model.links) != len(files):
            self.refuse(
                f"{where}.files names more than one projector or draft, or a part twice; a set has one file of a name"
            )
        return model

    def _origin(self, entry: Mapping[str, Any], where: str) -> tuple[str | None, str | None]:
        repo, revision = entry.get("repo"), entry.get("revision")
        if repo is None and revision is None:
            return None, None
        if not isinstance(repo, str) or not _REPO.fullmatch(repo) or ".." in repo:
            self.refuse(f"{where}.repo is {repo!r}; it must be like org/name, or null for a model on disk")
        if not isinstance(revision, str) or not _COMMIT.fullmatch(revision):
            self.refuse(f"{where}.revision is {revision!r}; it must be a commit of 40 hexadecimal digits")
        return repo, revision

    def _file(self, value: Any, where: str, *, on_disk: bool) -> LockedFile:
        entry = self.mapping(value, where)
        self.no_other_keys(entry, _FILE_KEYS, where)
        path, role, size, sha256 = (entry.get(key) for key in ("path", "role", "size", "sha256"))
        if not isinstance(path, str) or not path or _CONTROL.search(path):
            self.refuse(f"{where}.path is {path!r}; it must be the path of a file")
        if not on_disk and not is_repo_path(path):
            self.refuse(f"{where}.path is {path!r}; it must stay inside the repo: no leading '/', no '..', no '\\'")
        if role == "part" and ("/" in path or path.startswith(".")):
            self.refuse(f"{where}.path is {path!r}; a part of a folder has a plain name, which its link gets")
        known: Role | None = next((one for one in _ROLES if one == role), None)
        if known is None:
            self.refuse(f"{where}.role is {role!r}; it must be one of {', '.join(_ROLES)}")
        repo, revision = self._origin(entry, where)
        if repo is not None and on_disk:
            self.refuse(f"{where}.repo is {repo!r}, and the model is already on disk: its files are, too")
        if type(size) is not int or not 0 < size <= _LARGEST_FILE:
            self.refuse(f"{where}.size is {size!r:.40}; it must be a number of bytes above 0, and at most 1 PiB")
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            self.refuse(f"{where}.sha256 is {sha256!r}; it must be 64 hexadecimal digits in lower case")
        if on_disk:
            path = str(self.path.parent.absolute() / path)
        return LockedFile(path=path, role=known, size=size, sha256=sha256, repo=repo, revision=revision)
