"""The folder ``headers/`` beside the lock: the beginnings of the locked files, without tokenizers; the facts for vLLM.

With them every later prediction of memory is offline.  A header's name is the sha256 of its content
(uncompressed), so it never changes; `corral lock` writes what a new lock needs before the lock flips, and removes
what no lock needs after.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from corral.files import write_atomically
from corral.lock.lock import Lock, LockEntry
from corral.vram import predict
from corral.vram.gguf_header import MOST_KEPT, parse_fixture

_SUFFIX = ".gguf.gz"
_FACTS_SUFFIX = ".json.gz"  # what is kept of a model for vLLM (corral.vram.vllm_facts)


def folder(catalog: Path) -> Path:
    """Where the headers of the catalog in *catalog* are; beside the lock itself when ``lock.json`` is a link."""
    return (catalog / "lock.json").resolve().parent / "headers"


def sha256_of(header: bytes) -> str:
    """The name of *header*."""
    return hashlib.sha256(header).hexdigest()


def read(catalog: Path, sha256: str) -> bytes | None:
    """The header named *sha256*; None when it is not there, or its content has another digest."""
    found = (folder(catalog) / f"{sha256}{suffix}" for suffix in (_SUFFIX, _FACTS_SUFFIX))
    try:
        path = next((one for one in found if one.is_file()), None)
        if path is None:
            return None
        with path.open("rb") as file:
            packed = file.read(2 * MOST_KEPT)
        header = zlib.decompressobj(wbits=31).decompress(packed, MOST_KEPT)
    except (OSError, zlib.error):
        return None
    return header if sha256_of(header) == sha256 else None


def dimension(catalog: Path, entry: LockEntry) -> int | None:
    """Numbers of an embedding of the model of *entry*, by its header; None without one, or when it does not state them.

    Raises:
        UnreadableHeader: what is there is no header.
    """
    found = read(catalog, entry.predicted.headers[0]) if entry.predicted.headers else None
    return predict.dimension(parse_fixture(found)) if found else None


def missing(catalog: Path, lock: Lock) -> dict[str, str]:
    """Models whose headers are not all there and sound, with the first that is not."""
    return {
        model_id: damaged
        for model_id, entry in lock.models.items()
        if (damaged := next((sha256 for sha256 in entry.predicted.headers if read(catalog, sha256) is None), None))
    }


def write(catalog: Path, new: Mapping[str, bytes]) -> None:
    """Put the headers *new* (by sha256) where ``read`` finds them; the same header has the same bytes on disk.

    Raises:
        OSError: the folder is not writable.
    """
    target = folder(catalog)
    for sha256, header in new.items():
        target.mkdir(exist_ok=True)
        suffix = _FACTS_SUFFIX if header.startswith(b"{") else _SUFFIX
        write_atomically(target / f"{sha256}{suffix}", gzip.compress(header, mtime=0))


def remove(catalog: Path, names: Iterable[str]) -> None:
    """Remove the headers *names* (sha256), and the folder when it is empty.

    Raises:
        OSError: the folder is not writable.
    """
    target = folder(catalog)
    for sha256 in names:
        for suffix in (_SUFFIX, _FACTS_SUFFIX):
            (target / f"{sha256}{suffix}").unlink(missing_ok=True)
    with suppress(OSError):  # it is missing, or has others
        target.rmdir()


def prune(catalog: Path, lock: Lock) -> None:
    """Remove every header that *lock* does not name; other files are left alone.

    Raises:
        OSError: the folder is not writable.
    """
    keep = {sha256 for entry in lock.models.values() for sha256 in entry.predicted.headers}
    for suffix in (_SUFFIX, _FACTS_SUFFIX):
        for file in folder(catalog).glob("[0-9a-f]" * 64 + suffix):
            if file.name.removesuffix(suffix) not in keep:
                file.unlink()
