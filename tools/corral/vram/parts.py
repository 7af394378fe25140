"""Which header belongs to which flag of a command line: a model's files stand in one order, everywhere.

The model's shards, its draft model, its adapters, and its projector last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from corral.vram.server_flags import by_flag

_T = TypeVar("_T")

DRAFT, ADAPTERS = "spec-draft-model", ("lora", "lora-scaled")


@dataclass(frozen=True)
class Parts(Generic[_T]):
    """The files of one model, each None or empty where the command line names none."""

    model: tuple[_T, ...]
    draft: _T | None
    adapters: tuple[_T, ...]
    projector: _T | None


def of(files: Sequence[_T], argv: Sequence[str]) -> Parts[_T]:
    """*files*, or their headers, by what *argv* names; ``model`` is empty where there are too few."""
    names = [name for name, _ in by_flag(argv)]
    rest = list(files)
    projector = rest.pop() if "mmproj" in names and len(rest) > 1 else None
    count = sum(len(paths(words[-1])) for name, words in by_flag(argv) if name in ADAPTERS)
    adapters = tuple(rest[len(rest) - count :]) if 0 < count < len(rest) else ()
    del rest[len(rest) - len(adapters) :]
    draft = rest.pop() if DRAFT in names and len(rest) > 1 else None
    return Parts(tuple(rest), draft, adapters, projector)


def paths(word: str) -> list[str]:
    """The files in the value of a flag of adapters: ``a.gguf,b.gguf``, or ``a.gguf:0.5,b.gguf:1``."""
    return [one.partition(":")[0] for one in word.split(",")]
