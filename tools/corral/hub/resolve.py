"""Commit, files and sha256 of a model, from the hub or from disk: the network half of `corral lock`."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import httpx2
from huggingface_hub import errors as hub_errors
from huggingface_hub.hf_api import ModelInfo, RepoFile

from corral.agent.hub_policy import HubPolicy
from corral.agent.lock_file import LockedFile, Role
from corral.catalog.intent import Model
from corral.catalog.source import Source
from corral.errors import HubUnavailable, Refused, RevisionMissing
from corral.hub import folder, select
from corral.hub.answers import MOST_FILE_BYTES
from corral.hub.hub_api import CHECK_HUB, HubApi
from corral.hub.resolved import Resolved

_SHA256 = re.compile(r"[0-9a-f]{64}")


def resolve(model: Model, catalog_dir: Path, *, revision: str | None = None) -> Resolved:
    """The commit and the files of *model*.

    Args:
        model: its intent.
        catalog_dir: what a relative ``source.path`` starts from.
        revision: a commit to stay on, instead of the newest one of ``source.revision``.

    Raises:
        RevisionMissing: the repository has no such branch, tag or commit.
        Refused: gated, missing or ambiguous; the message names the repository.
        HubUnreachable: there is no connection to the hub.
        HubUnavailable: the hub did not answer as a hub does.
    """
    source = model.weights
    if source.path is not None:
        return _on_disk(model, source.path, catalog_dir)
    assert source.repo is not None
    policy = HubPolicy.from_environment()
    hub = HubApi(policy)
    info, listing = _listing(hub, policy, source, revision, of_vllm=model.engine == "vllm")
    assert info.sha
    if model.engine == "vllm":
        parts = folder.files(source.repo, info.sha, listing)
        return Resolved(repo=source.repo, revision=info.sha, licence=_licence(info), files=parts)
    try:
        chosen = _choose(model, listing)
    except Refused as error:
        raise Refused(f"{source.repo}@{info.sha[:12]}: {error.message}", next_step=error.next_step) from None
    with _hub_errors(source, policy):
        files = tuple(_locked(hub, source.repo, info.sha, listing[path], role) for path, role in chosen)
    return Resolved(repo=source.repo, revision=info.sha, licence=_licence(info), files=files)


def sizes(source: Source) -> dict[str, int]:
    """The bytes of each GGUF file that the repository of *source* has at its revision, by path; raises as ``resolve``.

    They are what the hub lists: for a table, and for nothing that must be right.
    """
    policy = HubPolicy.from_environment()
    _, listing = _listing(HubApi(policy), policy, source, None)
    return {path: entry.lfs.size if entry.lfs else entry.size for path, entry in listing.items()}


def _listing(
    hub: HubApi, policy: HubPolicy, source: Source, revision: str | None, *, of_vllm: bool = False
) -> tuple[ModelInfo, dict[str, RepoFile]]:
    assert source.repo is not None
    with _hub_errors(source, policy):
        info = hub.report(source.repo, revision or source.revision or "main")
        assert info.sha
        return info, hub.files(source.repo, info.sha, of_vllm=of_vllm)


def _choose(model: Model, listing: Collection[str]) -> list[tuple[str, Role]]:
    source = model.source
    if source.quant is not None:
        files = select.model_by_quant(listing, source.quant)
    else:
        assert source.file is not None
        files = select.model_by_file(listing, source.file)
    chosen: list[tuple[str, Role]] = [(file, "model") for file in files]
    if model.vision:
        chosen.append((select.projector(listing, files[0], source.mmproj), "projector"))
    return chosen


def _licence(info: ModelInfo) -> str | None:
    named = info.card_data.get("license") if info.card_data else None
    if isinstance(named, str):
        return named
    return next((tag.removeprefix("license:") for tag in info.tags or [] if tag.startswith("license:")), None)


def _locked(hub: HubApi, repo: str, commit: str, entry: RepoFile, role: Role) -> LockedFile:
    size, sha256 = (entry.lfs.size, entry.lfs.sha256) if entry.lfs else (entry.size, None)
    if sha256 is None:
        # Some hubs list no LFS data; the HEAD of the file has it.
        stated, sha256 = hub.size_and_sha256(repo, commit, entry.path)
        size = size if stated is None else stated
    if sha256 is None or not _SHA256.fullmatch(sha256):
        raise Refused(
            f"{repo}@{commit[:12]}: the hub gives no sha256 for {entry.path}, so it could not be verified.",
            next_step="Choose a repository that keeps its GGUF files in LFS or Xet",
        )
    if not 0 < size <= MOST_FILE_BYTES:
        raise Refused(
            f"{repo}@{commit[:12]}: {entry.path} has {size:,} bytes, and no model has that size.",
            next_step="Choose another repository",
        )
    return LockedFile(path=entry.path, role=role, size=size, sha256=sha256)


def _on_disk(model: Model, path: str, catalog_dir: Path) -> Resolved:
    file = Path(os.path.normpath(catalog_dir / Path(path).expanduser()))
    if not file.is_file():
        raise Refused(f"source.path {path}: there is no file {file}.", next_step="Correct source.path")
    beside = PurePosixPath(path).parent
    listing = [entry.name for entry in file.parent.iterdir() if entry.is_file()]
    try:
        names = select.model_by_file(listing, file.name)
        chosen: list[tuple[str, Role]] = [(str(beside / name), "model") for name in names]
        if model.vision:
            wanted = model.source.mmproj
            projector = wanted if "/" in wanted else str(beside / select.projector(listing, names[0], wanted))
            chosen.append((projector, "projector"))
    except Refused as error:
        raise Refused(
            f"{file.parent}: {error.message.replace('the repository', 'the folder')}", next_step=error.next_step
        ) from None
    return Resolved(
        repo=None, revision=None, licence=None, files=tuple(_hashed(file, role, catalog_dir) for file, role in chosen)
    )


def _hashed(path: str, role: Role, catalog_dir: Path) -> LockedFile:
    file = catalog_dir / Path(path).expanduser()
    if not file.is_file():
        raise Refused(f"there is no file {file}.", next_step="Correct source.path or source.mmproj")
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return LockedFile(path=str(Path(path).expanduser()), role=role, size=file.stat().st_size, sha256=digest)


@contextmanager
def _hub_errors(source: Source, policy: HubPolicy) -> Iterator[None]:
    """Turns the hub client's exceptions into ours; what is not known here stays a bug with its traceback."""
    endpoint = policy.endpoint
    try:
        yield
    except hub_errors.GatedRepoError:
        token = "the token in HF_TOKEN has no access" if policy.token else "no token was given"
        raise Refused(
            f"{source.repo} is gated, and {token}.",
            next_step=f"Accept its terms at {endpoint}/{source.repo}, then: export HF_TOKEN=<your token>",
        ) from None
    except hub_errors.RevisionNotFoundError:
        raise RevisionMissing(
            f"{source.repo} has no revision {source.revision}.",
            next_step="Correct source.revision: a branch, a tag, or a commit",
        ) from None
    except hub_errors.RepositoryNotFoundError:
        raise Refused(
            f"There is no repository {source.repo} on {endpoint}, or it is private.",
            next_step="Correct source.repo; for a private repository: export HF_TOKEN=<your token>",
        ) from None
    except hub_errors.HFValidationError:
        raise Refused(
            f"{source.repo} is no name that a repository of the hub may have.", next_step="Correct source.repo"
        ) from None
    except hub_errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise Refused(
                f"{endpoint} refuses {source.repo} (HTTP {status}).",
                next_step="Check the token in HF_TOKEN and its access",
            ) from None
        raise HubUnavailable(f"{endpoint} answers HTTP {status} for {source.repo}.", next_step=CHECK_HUB) from None
    except httpx2.HTTPError as error:
        raise HubUnavailable(f"{endpoint}: {error}.", next_step=CHECK_HUB) from None
