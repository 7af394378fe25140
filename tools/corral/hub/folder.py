"""The files of a repository that vLLM serves: safetensors, configuration and tokenizer, each with its sha256.

The hub states the sha256 of large files alone.  A small one is read when it is locked: its bytes must be those of the
commit, by the hash that git gives them, and their sha256 goes into the lock.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from huggingface_hub.hf_api import RepoFile

from corral.agent.hub_client import Hub
from corral.agent.lock_file import LockedFile
from corral.agent.scheduling import RetryBudget, TransferSettings
from corral.errors import Refused, UnreadableHeader
from corral.hub.answers import CONFIG, MOST_FILE_BYTES, is_weights
from corral.hub.gguf_range import Front
from corral.hub.resolved import Resolved
from corral.vram import safetensors_header, vllm_facts
from corral.vram.safetensors_header import LENGTH_BYTES, Tensor
from corral.vram.vllm_facts import Facts

MOST_SMALL_BYTES = 16 << 20
"""Of a file that is locked by its content: git keeps at most 10 MB of one on the hub."""

_SHARD = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def files(repo: str, commit: str, listing: Mapping[str, RepoFile]) -> tuple[LockedFile, ...]:
    """The files of *listing* that are served: the weights in their order, then the others by name.

    Raises:
        Refused: weights or configuration are missing or incomplete, or a file is not what the commit has.
        HubUnavailable: a small file could not be read.
    """
    where = f"{repo}@{commit[:12]}"
    chosen = [*_weights(where, listing), *sorted(path for path in listing if not is_weights(path))]
    if CONFIG not in chosen:
        raise Refused(f"{where}: it has no {CONFIG}, without which vLLM serves nothing.", next_step=_CHOOSE)
    return tuple(_locked(repo, commit, where, listing[path]) for path in chosen)


def read_facts(model_id: str, resolved: Resolved, *, say: Callable[[str], None]) -> Facts:
    """What decides the memory of the model whose files are *resolved*: of its config.json, and of its headers by range.

    Args:
        model_id: for messages.
        resolved: the files, and the commit of the hub that they are from.
        say: receives a line for each file of weights.

    Raises:
        UnreadableHeader: a file has no header that corral reads, or two have the same tensor.
        EngineCannotPredict: the rules for vLLM do not know such a configuration.
        Refused, HubUnavailable: as ``corral.hub.gguf_range.read_headers``.
    """
    assert resolved.repo is not None
    assert resolved.revision is not None
    tensors: dict[str, Tensor] = {}
    config = b""
    for file in resolved.files:
        if file.path == CONFIG:
            config = _content(resolved.repo, resolved.revision, file)
        elif is_weights(file.path):
            name = f"{model_id}: {file.path}"
            say(f"{name}: reading the header")
            with _front(resolved.repo, resolved.revision, file, say) as read:
                count = safetensors_header.length(read(min(LENGTH_BYTES, file.size)), file.size, name)
                found = safetensors_header.parse(read(LENGTH_BYTES + count), file.size, name)
            if again := next((tensor for tensor in found if tensor in tensors), None):
                raise UnreadableHeader(f"{name} has {again}, which another file has too.", next_step=_CHOOSE)
            tensors |= found
    return vllm_facts.facts_of(model_id, config, tensors)


_CHOOSE = "Choose another repository or revision"


def _weights(where: str, listing: Mapping[str, RepoFile]) -> list[str]:
    shards = sorted(path for path in listing if _SHARD.fullmatch(path))
    if not shards:
        if "model.safetensors" in listing:
            return ["model.safetensors"]
        raise Refused(f"{where}: it has no model.safetensors, whole or in numbered parts.", next_step=_CHOOSE)
    match = _SHARD.fullmatch(shards[0])
    assert match
    expected = [f"model-{number:05}-of-{match[2]}.safetensors" for number in range(1, int(match[2]) + 1)]
    if shards != expected or "model.safetensors.index.json" not in listing:
        missing = [one for one in (*expected, "model.safetensors.index.json") if one not in listing]
        rest = f"missing: {', '.join(missing[:5])}" if missing else "it has two sets of them"
        raise Refused(f"{where}: its parts of safetensors are not one whole model; {rest}.", next_step=_CHOOSE)
    return shards


def _locked(repo: str, commit: str, where: str, entry: RepoFile) -> LockedFile:
    size, sha256 = (entry.lfs.size, entry.lfs.sha256) if entry.lfs else (entry.size, "")
    if (entry.lfs and not _SHA256.fullmatch(sha256)) or not 0 < size <= MOST_FILE_BYTES:
        raise Refused(f"{where}: the hub states no proper size and sha256 of {entry.path}.", next_step=_CHOOSE)
    if entry.lfs:
        return LockedFile(path=entry.path, role="part", size=size, sha256=sha256)
    if is_weights(entry.path) or size > MOST_SMALL_BYTES:
        raise Refused(
            f"{where}: the hub gives no sha256 for {entry.path}, so it could not be verified.",
            next_step="Choose a repository that keeps its large files in LFS or Xet",
        )
    content = _read(repo, commit, LockedFile(path=entry.path, role="part", size=size, sha256=sha256))
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content)  # noqa: S324 - git's own name of the content
    if blob.hexdigest() != entry.blob_id:
        raise Refused(
            f"{where}: {entry.path} is not the file that the commit has: git's hash of it is another one.",
            next_step="corral lock, or choose another repository or revision",
        )
    return LockedFile(path=entry.path, role="part", size=size, sha256=hashlib.sha256(content).hexdigest())


def _content(repo: str, commit: str, file: LockedFile) -> bytes:
    """All bytes of a small *file*, which are the locked ones."""
    content = _read(repo, commit, file)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise Refused(f"{file.path} of {repo} is not the locked file.", next_step="corral lock --upgrade")
    return content


def _read(repo: str, commit: str, file: LockedFile) -> bytes:
    if file.size > MOST_SMALL_BYTES:
        raise Refused(f"{file.path} of {repo} has {file.size:,} bytes, and none of its kind has.", next_step=_CHOOSE)
    with _front(repo, commit, file, lambda _: None) as read:
        return read(file.size)


@contextmanager
def _front(repo: str, commit: str, file: LockedFile, say: Callable[[str], None]) -> Iterator[Callable[[int], bytes]]:
    """What gives the bytes of *file* after those that it gave, up to an offset."""
    hub = Hub.from_environment()
    source = hub.file(repo, commit, file.path)
    budget = RetryBudget(TransferSettings(), hub.budgets.least_rate)
    front = Front(hub.endpoint, source, file, f"{repo}: {file.path}", say, budget)
    try:
        yield lambda end: b"".join(front.up_to(end))
    finally:
        front.close()
        source.abort()
