"""What a demo hub has: repositories, their commits, and what its API reports of them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

_LARGE = (".gguf", ".safetensors", ".bin")


@dataclass(frozen=True)
class RepoContent:
    """One version of a repository.

    Attributes:
        files: path in the repository to the file that has its bytes, or the bytes themselves.
        licence: as its card names it.
        token: the only token that opens a gated repository; None for one that is open to all.
        digests: sha256 of files by path, where it is known: gigabytes need not be read to compute it.
    """

    files: Mapping[str, Path | bytes]
    licence: str | None = "apache-2.0"
    token: str | None = field(default=None, repr=False)
    digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredFile:
    """One file of the hub.  Large files are addressed by sha256 and served by the data host."""

    path: str
    content: Path | bytes
    size: int
    sha256: str

    @property
    def large(self) -> bool:
        """Whether the data host serves it."""
        return self.path.endswith(_LARGE)

    @property
    def oid(self) -> str:
        """40 hexadecimal digits: of a small file git's own hash; of a large one, whose pointer git has, any."""
        if self.large:
            return _sha1(self.sha256)
        with open_content(self.content) as stream:
            content = stream.read()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324 - as git has it

    def tree_entry(self) -> dict[str, Any]:
        """Its entry in the tree listing."""
        lfs = {"lfs": {"oid": self.sha256, "size": self.size, "pointerSize": 134}} if self.large else {}
        return {"type": "file", "path": self.path, "size": self.size, "oid": self.oid, **lfs}


@dataclass(frozen=True)
class Commit:
    """One commit of a repository; its id depends on its content alone."""

    id: str
    content: RepoContent
    files: Mapping[str, StoredFile]


class Repositories:
    """Repositories with all their commits."""

    def __init__(self, repositories: Mapping[str, RepoContent]) -> None:
        self._commits: dict[str, list[Commit]] = {}
        for repo, content in repositories.items():
            self.add(repo, content)

    def add(self, repo: str, content: RepoContent) -> str:
        """Put *content* on the main branch of *repo* (``org/name``); the new commit's id."""
        files = {path: _stored(path, file, content.digests.get(path)) for path, file in sorted(content.files.items())}
        described = [repo, str(content.licence), *(f"{path} {file.sha256}" for path, file in files.items())]
        commit = Commit(_sha1("\n".join(described)), content, files)
        self._commits.setdefault(repo, []).append(commit)
        return commit.id

    def commit(self, repo: str, revision: str) -> Commit | None:
        """The commit that *revision* (``main`` or an id) of *repo* is; the newest of equal ones."""
        newest_first = reversed(self._commits.get(repo, []))
        return next((commit for commit in newest_first if revision in ("main", commit.id)), None)

    def large(self, sha256: str) -> StoredFile | None:
        """The large file with this hash, whatever repository has it."""
        commits = [commit for several in list(self._commits.values()) for commit in several]
        files = (file for commit in commits for file in commit.files.values() if file.large)
        return next((file for file in files if file.sha256 == sha256), None)


def describe_repo(repo: str, commit: Commit) -> dict[str, Any]:
    """What the API reports of *repo* at *commit*, as far as huggingface-hub reads it."""
    licence = commit.content.licence
    return {
        "id": repo,
        "sha": commit.id,
        "gated": "manual" if commit.content.token else False,
        "tags": ["gguf", *([f"license:{licence}"] if licence else [])],
        "cardData": {"license": licence} if licence else {},
    }


def _stored(path: str, content: Path | bytes, digest: str | None) -> StoredFile:
    with open_content(content) as stream:
        digest = digest or hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
        return StoredFile(path, content, stream.seek(0, io.SEEK_END), digest)


def open_content(content: Path | bytes) -> BinaryIO:
    """A stream of the bytes."""
    return io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()  # noqa: S324 - an address, as in git
