"""What a demo hub has on its shelves: repositories, their commits, and what its API says about them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """One file as the hub knows it.  Large files are addressed by sha256 and served by the data host."""

    path: str
    content: Path | bytes
    size: int
    sha256: str
    oid: str
    large: bool

    @property
    def etag(self) -> str:
        """The sha256 of a large file, git's hash of a small one; in quotes, as the header has it."""
        return f'"{self.sha256 if self.large else self.oid}"'

    def tree_entry(self) -> dict[str, Any]:
        """What the tree listing says."""
        entry: dict[str, Any] = {"type": "file", "path": self.path, "size": self.size, "oid": self.oid}
        if self.large:
            entry["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": 134}
        return entry

    def sibling(self, *, detailed: bool) -> dict[str, Any]:
        """What the repository's own page says; sizes and hashes only when asked for."""
        if not detailed:
            return {"rfilename": self.path}
        lfs = {"sha256": self.sha256, "size": self.size, "pointerSize": 134}
        return {
            "rfilename": self.path,
            "size": self.size,
            "blobId": self.oid,
            **({"lfs": lfs} if self.large else {}),
        }


@dataclass(frozen=True)
class Commit:
    """One commit of a repository; its id depends on its content alone."""

    id: str
    content: RepoContent
    files: Mapping[str, StoredFile]


class Shelves:
    """Repositories with all their commits; safe to use from the server's threads."""

    def __init__(self, repositories: Mapping[str, RepoContent]) -> None:
        self._lock = threading.Lock()
        self._commits: dict[str, list[Commit]] = {}
        self._large: dict[str, StoredFile] = {}
        for repo, content in repositories.items():
            self.add(repo, content)

    def add(self, repo: str, content: RepoContent) -> str:
        """Put *content* on the main branch of *repo*; the new commit's id."""
        if repo.count("/") != 1:
            raise ValueError(f"a repository is called org/name, not {repo!r}")
        files = {path: _stored(path, file, content.digests.get(path)) for path, file in sorted(content.files.items())}
        described = [repo, str(content.licence), *(f"{path} {file.sha256}" for path, file in files.items())]
        commit = Commit(hashlib.sha1("\n".join(described).encode()).hexdigest(), content, files)  # noqa: S324
        with self._lock:
            self._commits.setdefault(repo, []).append(commit)
            self._large.update({file.sha256: file for file in files.values() if file.large})
        return commit.id

    def commit(self, repo: str, revision: str) -> Commit | None:
        """The commit that *revision* (``main`` or an id) of *repo* is."""
        with self._lock:
            commits = self._commits.get(repo, [])
            if revision in ("main", "refs/heads/main") and commits:
                return commits[-1]
            return next((commit for commit in commits if commit.id == revision), None)

    def large(self, sha256: str) -> StoredFile | None:
        """The large file with this hash, whatever repository has it."""
        with self._lock:
            return self._large.get(sha256)


def describe_repo(repo: str, commit: Commit, *, detailed: bool) -> dict[str, Any]:
    """What the API says about *repo* at *commit*."""
    licence = commit.content.licence
    return {
        "_id": commit.id[:24],
        "id": repo,
        "modelId": repo,
        "author": repo.split("/", 1)[0],
        "sha": commit.id,
        "lastModified": "2026-01-01T00:00:00.000Z",
        "createdAt": "2026-01-01T00:00:00.000Z",
        "private": False,
        "gated": "manual" if commit.content.token else False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": ["gguf", *([f"license:{licence}"] if licence else [])],
        "cardData": {"license": licence} if licence else {},
        "siblings": [file.sibling(detailed=detailed) for file in commit.files.values()],
    }


def list_tree(commit: Commit, under: str, *, recursive: bool) -> list[dict[str, Any]] | None:
    """The files and folders below the folder *under* (empty: the root); None when there is no such folder."""
    prefix = f"{under}/" if under else ""
    entries: dict[str, dict[str, Any]] = {}
    for path, file in commit.files.items():
        if not path.startswith(prefix):
            continue
        folders = path.removeprefix(prefix).split("/")[:-1]
        for depth in range(1, len(folders) + 1 if recursive else min(len(folders), 1) + 1):
            folder = prefix + "/".join(folders[:depth])
            entries[folder] = {"type": "directory", "path": folder, "size": 0, "oid": _git_oid("tree", folder.encode())}
        if recursive or not folders:
            entries[path] = file.tree_entry()
    return list(entries.values()) if entries or not under else None


def _stored(path: str, content: Path | bytes, digest: str | None) -> StoredFile:
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    digest = digest or _sha256(content)
    large = path.endswith(_LARGE)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {size}\n".encode()
    body = pointer if large else content if isinstance(content, bytes) else content.read_bytes()
    return StoredFile(path, content, size, digest, _git_oid("blob", body), large)


def _sha256(content: Path | bytes) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _git_oid(kind: str, body: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(body)}\0".encode() + body).hexdigest()  # noqa: S324 - git's own hash
