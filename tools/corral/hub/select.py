"""Which files of a repository the intent means: pure functions of a listing.

Close is not good enough here: ``F16`` is a substring of ``BF16``, ``Q4_K_M`` of ``UD-Q4_K_M`` and of
``i1-Q4_K_M``, and half of a split model loads nowhere.  What is not certain is an error that lists the candidates.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from corral.errors import Refused

PROJECTOR_PREFERENCE = ("F16", "BF16", "Q8_0", "F32")
"""Precisions of a projector, best first: BF16 fails or is slow on several backends (Turing among them)."""

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_PROJECTOR = re.compile(r"(?<![a-z0-9])mmproj(?![a-z0-9])", re.IGNORECASE)
_NO_MODEL = re.compile(r"(?<![a-z0-9])(mmproj|imatrix)(?![a-z0-9])", re.IGNORECASE)
_PRECISION = re.compile(r"(?<![A-Za-z0-9])(BF16|FP?16|FP?32|Q8_0)(?![A-Za-z0-9_])", re.IGNORECASE)
_LONGER_QUANT = re.compile(r"(?<![a-z0-9])([it]?q\d|mxfp\d)[a-z0-9_]*_$", re.IGNORECASE)
_DYNAMIC = ("UD-", "i1-")
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])(?:UD-|i1-)?(?:[IT]?Q\d\w*|MXFP\d\w*|BF16|FP?16|FP?32)(?![A-Za-z0-9_])", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True)
class Offer:
    """One model of a repository: the key of ``source`` that means exactly it, its files in order, and their bytes."""

    key: Literal["quant", "file"]
    value: str
    files: tuple[str, ...]
    size: int


def offers(listing: Mapping[str, int]) -> Iterator[Offer]:
    """Every whole model in *listing* (bytes by path in the repository), the smallest first."""
    found = []
    for stem, members in _group_shards(path for path in listing if _is_model(path)).items():
        with suppress(Refused):  # a shard is missing
            files = _complete(stem, members)
            quant = next(_quants(listing, files), None)
            size = sum(listing[path] for path in files)
            found.append(Offer("quant" if quant else "file", quant or files[0], tuple(files), size))
    yield from sorted(found, key=lambda one: (one.size, one.value))


def projectors(listing: Iterable[str]) -> list[str]:
    """The projectors in *listing*."""
    return [path for path in listing if path.lower().endswith(".gguf") and _PROJECTOR.search(PurePosixPath(path).name)]


def _quants(listing: Iterable[str], files: Sequence[str]) -> Iterator[str]:
    """What stands in the name of the first of *files*, or of its folder, and means them all and nothing else."""
    path = PurePosixPath(files[0])
    for name in (path.stem, path.parent.name):
        for quant in _QUANT.findall(name)[::-1]:
            with suppress(Refused):
                if model_by_quant(listing, quant) == list(files):
                    yield quant


def model_by_quant(listing: Iterable[str], quant: str) -> list[str]:
    """The one model in *listing* (paths in the repository) with quantisation *quant*; all its shards, in order.

    A ``UD-`` (dynamic) or ``i1-`` (imatrix) variant is meant only when *quant* begins with that.

    Raises:
        Refused: none, more than one, or a shard is missing.
    """
    models = _group_shards(path for path in listing if _is_model(path))
    token = re.compile(rf"(?<![A-Za-z0-9]){re.escape(quant)}(?![A-Za-z0-9_])", re.IGNORECASE)
    found = [stem for stem in models if _is_meant(PurePosixPath(stem), token, quant)]
    if not found:
        found = [stem for stem in models if _has_quant(PurePosixPath(stem).parent.name, token, quant)]
    if len({stem.lower() for stem in found}) == 1:  # they differ in capitals alone
        found = [stem for stem in found if quant in stem] or found
    if not found:
        raise Refused(
            f"no GGUF with quant {quant}; the repository has: {_listed(models)}.",
            next_step="Correct source.quant, or name the file itself with source.file",
        )
    if len(found) > 1:
        raise Refused(
            f"quant {quant} is ambiguous: {_listed(found)}.",
            next_step="Name the one you mean with source.file instead of source.quant",
        )
    return _complete(found[0], models[found[0]])


def model_by_file(listing: Iterable[str], file: str) -> list[str]:
    """*file* as it stands in *listing*; when it is the first shard of a split model, all shards in order.

    Raises:
        Refused: it is not there, it is not the first shard, or a shard is missing.
    """
    paths = sorted(listing)
    if file not in paths:
        close = difflib.get_close_matches(file, [path for path in paths if path.endswith(".gguf")], n=3, cutoff=0.4)
        raise Refused(
            f"the repository has no file {file}; close: {_listed(close)}.",
            next_step="Correct source.file",
        )
    if not _is_model(file):
        raise Refused(f"{file} is no model, but a projector or an imatrix.", next_step="Name the model's own file")
    shard = _SHARD.fullmatch(file)
    if shard is None:
        return [file]
    if int(shard["number"]) != 1:
        first = f"{shard['stem']}-00001-of-{shard['count']}.gguf"
        raise Refused(f"{file} is not the first shard.", next_step=f"Name the first one: source.file: {first}")
    stem, members = next(group for group in _group_shards(paths).items() if file in group[1])
    return _complete(stem, members)


def projector(listing: Iterable[str], model: str, wanted: str) -> str:
    """The projector for *model* (path of its first file): *wanted* itself, or the best one when it is ``auto``.

    In the model's own folder first; F16 before BF16 before Q8_0 before F32.

    Raises:
        Refused: none, or two that are equally good.
    """
    paths = set(listing)
    if wanted in paths and wanted != "auto":
        return wanted
    candidates = projectors(paths)
    if wanted != "auto":
        raise Refused(
            f"the repository has no projector {wanted}; it has: {_listed(candidates)}.",
            next_step="Correct source.mmproj",
        )
    folder = PurePosixPath(model).parent
    candidates = [path for path in candidates if PurePosixPath(path).parent == folder] or candidates
    if not candidates:
        raise Refused(
            "modalities has image, but the repository has no projector (a GGUF with mmproj in its name).",
            next_step="Name one with source.mmproj, use another repository, or drop image from modalities",
        )
    by_rank = ([path for path in candidates if _precision(path) == precision] for precision in PROJECTOR_PREFERENCE)
    best = next(filter(None, by_rank), candidates)
    if len(best) == 1:
        return best[0]
    raise Refused(
        f"several projectors are equally good: {_listed(best)}.",
        next_step="Name the one you mean with source.mmproj",
    )


def _is_model(path: str) -> bool:
    return path.lower().endswith(".gguf") and not _NO_MODEL.search(PurePosixPath(path).name)


def _precision(path: str) -> str | None:
    found = _PRECISION.findall(PurePosixPath(path).name)
    return found[-1].upper().replace("FP", "F") if found else None


def _is_meant(path: PurePosixPath, token: re.Pattern[str], quant: str) -> bool:
    """Whether the name has *quant*, and the folder no other variant of it (UD-Q4_K_M/model-Q4_K_M.gguf)."""
    folder = path.parent.name
    return _has_quant(path.name, token, quant) and (not token.search(folder) or _has_quant(folder, token, quant))


def _has_quant(name: str, token: re.Pattern[str], quant: str) -> bool:
    others = () if quant.startswith(_DYNAMIC) else tuple(prefix.lower() for prefix in _DYNAMIC)
    before = (name[: match.start()].lower() for match in token.finditer(name))
    return any(not start.endswith(others) and not _LONGER_QUANT.search(start) for start in before)


def _group_shards(paths: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for path in sorted(paths):
        shard = _SHARD.fullmatch(path)
        stem = f"{shard['stem']} (split in {int(shard['count'])})" if shard else path
        groups.setdefault(stem, []).append(path)
    return groups


def _complete(stem: str, members: Sequence[str]) -> list[str]:
    shard = _SHARD.fullmatch(members[0])
    if shard is None:
        return list(members)
    count = int(shard["count"])
    expected = [f"{shard['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    missing = [path for path in expected if path not in members]
    if missing:
        raise Refused(
            f"{stem} is incomplete in the repository; missing: {_listed(missing)}.",
            next_step="Choose another quant or revision",
        )
    return expected


def _listed(paths: Iterable[str], most: int = 30) -> str:
    names = sorted(paths)
    shown = ", ".join(names[:most]) or "none"
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
