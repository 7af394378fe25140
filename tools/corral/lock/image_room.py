"""Whether the context of a vision model has room for the images that one of its requests holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from corral.errors import UnreadableHeader
from corral.lock import headers
from corral.lock.lock import LockEntry
from corral.vram.gguf_header import parse_fixture
from corral.vram.image_tokens import image_tokens

SIDE_PX: Final = 896
"""Of the images that ``images_per_request`` counts: a photograph as clients send it, and what Gemma 3 scales to."""
TEXT_TOKENS: Final = 256
"""What question and answer take beside the images."""
COLUMNS = ("model", "images", "tokens an image", "needs", "context", "verdict", "reason")
"""The headings of ``row``."""
_STEP = 256  # contexts are multiples of it


class State(StrEnum):
    """Of the room for images."""

    FITS = "fits"
    TOO_SMALL = "too small"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Room:
    """Of one model; tokens, None: unknown.

    Attributes:
        model: its id.
        images: that a request holds.
        tokens_an_image: of ``SIDE_PX`` pixels a side.
        needed: of all images, with ``TEXT_TOKENS``.
        context: of one slot.
        state: whether there is room.
        reason: why, with what would help.
    """

    model: str
    images: int
    tokens_an_image: int | None
    needed: int | None
    context: int
    state: State
    reason: str

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)

    def row(self) -> tuple[str, ...]:
        """Its cells, under ``COLUMNS``."""
        counts = (self.images, self.tokens_an_image, self.needed, self.context)
        return (self.model, *("-" if one is None else f"{one:,}" for one in counts), self.state, self.reason)


def rooms(models: Mapping[str, LockEntry], catalog: Path, new: Mapping[str, bytes] | None = None) -> Iterator[Room]:
    """Of each of *models* that has ``images_per_request``, by its projector's header.

    Args:
        models: entries of a lock.
        catalog: in whose folder the headers are.
        new: headers by sha256 that are not written yet.
    """
    for model_id, entry in models.items():
        if entry.intent.images_per_request is not None:
            yield _room(model_id, entry, entry.intent.images_per_request, _projector(entry, catalog, new or {}))


def _room(model_id: str, entry: LockEntry, images: int, projector: bytes | None) -> Room:
    context = entry.intent.context

    def found(state: State, reason: str, tokens: int | None = None, needed: int | None = None) -> Room:
        return Room(model_id, images, tokens, needed, context, state, reason)

    measure = f"corral contract vision {model_id} measures it"
    if projector is None:
        return found(State.UNKNOWN, f"its projector's header is not beside the lock; {measure}")
    try:
        header = parse_fixture(projector)
    except UnreadableHeader as error:
        return found(State.UNKNOWN, f"{error.message} {measure}")
    least = _number_after("--image-min-tokens", entry.argv)
    tokens = image_tokens(header, SIDE_PX, most=entry.intent.image_tokens, least=least)
    if tokens is None:
        kind = header.metadata.get("clip.projector_type")
        return found(State.UNKNOWN, f"no rule for the tokens of an image of projector {str(kind)[:40]}; {measure}")
    needed = images * tokens + TEXT_TOKENS
    if needed <= context:
        return found(State.FITS, f"{context - needed:,} tokens are left", tokens, needed)
    enough = -(-needed // _STEP) * _STEP
    fewer = (context - TEXT_TOKENS) // tokens
    instead = f", or images_per_request: {fewer}" if fewer > 0 else ""
    return found(State.TOO_SMALL, f"context: {enough} would do{instead}", tokens, needed)


def _projector(entry: LockEntry, catalog: Path, new: Mapping[str, bytes]) -> bytes | None:
    names = entry.predicted.headers
    if not entry.has_projector or len(names) != len(entry.files):
        return None
    return new.get(names[-1]) or headers.read(catalog, names[-1])


def _number_after(flag: str, argv: tuple[str, ...]) -> int | None:
    """The value of the last *flag* of *argv*, when it is a positive number."""
    values = [value for word, value in pairwise(argv) if word == flag]
    return int(values[-1]) if values and values[-1].isdecimal() and int(values[-1]) > 0 else None
