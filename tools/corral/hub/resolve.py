"""Asks the hub which commit, which files, which sha256: the network half of `corral lock`."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import httpx2
from huggingface_hub import HfApi
from huggingface_hub import errors as hub_errors
from huggingface_hub.hf_api import ModelInfo, RepoFile

from corral.agent.hub_client import DEFAULT_ENDPOINT
from corral.agent.lock_file import LockedFile, Role
from corral.catalog.intent import Model, Source
from corral.errors import HubUnavailable, Refused, RevisionMissing
from corral.hub import select
from corral.hub.resolved import Resolved

_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TIMEOUT_SECONDS = 30


def endpoint() -> str:
    """The hub's address: ``HF_ENDPOINT``, else the public one.

    Raises:
        Refused: it is no address.
    """
    address = (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    if not address.startswith(("https://", "http://")):
        raise Refused(f"HF_ENDPOINT is {address!r}; it must begin with https:// or http://.", next_step="Correct it")
    return address


def resolve(model: Model, catalog_dir: Path, *, revision: str | None = None) -> Resolved:
    """The commit and the files of *model*.

    Args:
        model: its intent.
        catalog_dir: what a relative ``source.path`` starts from.
        revision: a commit to stay on, instead of the newest one of ``source.revision``.

    Raises:
        RevisionMissing: the repository has no such branch, tag or commit.
        Refused: gated, missing or ambiguous; the message names the repository.
        HubUnavailable: the hub did not answer.
    """
    source = model.source
    if source.path is not None:
        return _on_disk(model, source.path, catalog_dir)
    assert source.repo is not None
    api = HfApi(endpoint=endpoint())
    with _hub_errors(source):
        info = api.model_info(source.repo, revision=revision or source.revision, timeout=_TIMEOUT_SECONDS)
        commit = _commit(info, source)
        tree = api.list_repo_tree(source.repo, recursive=True, revision=commit)
        listing = {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}
    try:
        paths = _choose(model, listing)
    except Refused as error:
        raise Refused(f"{source.repo}@{commit[:12]}: {error.message}", next_step=error.next_step) from None
    with _hub_errors(source):
        files = tuple(
            _locked(api, source.repo, commit, listing[path], "projector" if path == paths.projector else "model")
            for path in paths.all
        )
    return Resolved(repo=source.repo, revision=commit, licence=_licence(info), files=files)


@dataclass(frozen=True)
class _Choice:
    model: tuple[str, ...]
    projector: str | None

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.model, self.projector) if self.projector else self.model


def _choose(model: Model, listing: dict[str, RepoFile]) -> _Choice:
    source = model.source
    if source.quant is not None:
        files = select.model_by_quant(listing, source.quant)
    else:
        assert source.file is not None
        files = select.model_by_file(listing, source.file)
    chosen = select.projector(listing, files[0], source.mmproj) if model.vision else None
    return _Choice(tuple(files), chosen)


def _commit(info: ModelInfo, source: Source) -> str:
    if info.sha is None or not _COMMIT.fullmatch(info.sha):
        raise HubUnavailable(f"{endpoint()} names no commit for {source.repo}@{source.revision}.")
    return info.sha


def _licence(info: ModelInfo) -> str | None:
    card = info.card_data
    named = card.get("license") if card else None
    if isinstance(named, str):
        return named
    tags = [tag.removeprefix("license:") for tag in info.tags or [] if tag.startswith("license:")]
    return tags[0] if tags else None


def _locked(api: HfApi, repo: str, commit: str, entry: RepoFile, role: Role) -> LockedFile:
    size, sha256 = entry.size, entry.lfs.sha256 if entry.lfs else None
    if entry.lfs:
        size = entry.lfs.size
    if sha256 is None:
        # Some hubs list no LFS data; the HEAD of the file has it.
        url = f"{endpoint()}/{repo}/resolve/{commit}/{entry.path}"
        metadata = api.get_hf_file_metadata(url=url)
        sha256 = metadata.etag
        size = metadata.size if metadata.size is not None else size
    if sha256 is None or not _SHA256.fullmatch(sha256):
        raise Refused(
            f"{repo}@{commit[:12]}: the hub gives no sha256 for {entry.path}, so it could not be verified.",
            next_step="Choose a repository that keeps its GGUF files in LFS or Xet",
        )
    return LockedFile(path=entry.path, role=role, size=size, sha256=sha256)


def _on_disk(model: Model, path: str, catalog_dir: Path) -> Resolved:
    file = Path(os.path.normpath(catalog_dir / Path(path).expanduser()))
    if not file.is_file():
        raise Refused(f"source.path {path}: there is no file {file}.", next_step="Correct source.path")
    folder = file.parent
    listing = [entry.name for entry in folder.iterdir() if entry.is_file()]
    try:
        names = select.model_by_file(listing, file.name)
        chosen = None
        if model.vision:
            wanted = model.source.mmproj
            if wanted != "auto" and "/" in wanted:
                chosen = str(Path(wanted).expanduser())
            else:
                chosen = select.projector(listing, names[0], wanted)
    except Refused as error:
        raise Refused(
            f"{folder}: {error.message.replace('the repository', 'the folder')}", next_step=error.next_step
        ) from None
    parent = PurePosixPath(path).parent
    files = [_hashed(str(parent / name), "model", catalog_dir) for name in names]
    if chosen:
        files.append(_hashed(chosen if "/" in chosen else str(parent / chosen), "projector", catalog_dir))
    return Resolved(repo=None, revision=None, licence=None, files=tuple(files))


def _hashed(path: str, role: Role, catalog_dir: Path) -> LockedFile:
    file = catalog_dir / Path(path).expanduser()
    if not file.is_file():
        raise Refused(f"there is no file {file}.", next_step="Correct source.path or source.mmproj")
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return LockedFile(path=str(Path(path).expanduser()), role=role, size=file.stat().st_size, sha256=digest)


@contextmanager
def _hub_errors(source: Source) -> Iterator[None]:
    """Turns the hub client's exceptions into ours; what is not known here stays a bug with its traceback."""
    page = f"{endpoint()}/{source.repo}"
    try:
        yield
    except hub_errors.GatedRepoError:
        token = "the token in HF_TOKEN has no access" if os.environ.get("HF_TOKEN") else "no token was given"
        raise Refused(
            f"{source.repo} is gated, and {token}.",
            next_step=f"Accept its terms at {page}, then: export HF_TOKEN=<your token>",
        ) from None
    except hub_errors.RevisionNotFoundError:
        raise RevisionMissing(
            f"{source.repo} has no revision {source.revision}.",
            next_step="Correct source.revision: a branch, a tag, or a commit",
        ) from None
    except hub_errors.RepositoryNotFoundError:
        raise Refused(
            f"There is no repository {source.repo} on {endpoint()}, or it is private.",
            next_step="Correct source.repo; for a private repository: export HF_TOKEN=<your token>",
        ) from None
    except hub_errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise Refused(
                f"{endpoint()} refuses {source.repo} (HTTP {status}).",
                next_step="Check the token in HF_TOKEN and its access",
            ) from None
        raise HubUnavailable(
            f"{endpoint()} answers HTTP {status} for {source.repo}.", next_step="Try again in a minute: corral lock"
        ) from None
    except (httpx2.HTTPError, OSError) as error:
        raise HubUnavailable(
            f"{endpoint()} does not answer: {str(error) or type(error).__name__}.",
            next_step="Check the network and HF_ENDPOINT, then: corral lock",
        ) from None
