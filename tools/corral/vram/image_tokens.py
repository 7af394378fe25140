"""How many tokens of the context one image takes, by what the projector's header has.

The rules are llama.cpp's: what ``tools/mtmd/clip.cpp`` sets for a type of projector, and how ``mtmd-image.cpp`` resizes
an image.  Types that cut an image into slices, or that corral has not compared with the engine, have no rule here.
"""

from __future__ import annotations

import math
from typing import Final

from corral.vram.gguf_header import GgufHeader

AROUND_AN_IMAGE: Final = 2
"""Tokens that mark where an image begins and ends."""

_OF_ANY_SIZE: Final = ("qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger")
_LEAST: Final = 8  # tokens of an image; clip.cpp, set_limit_image_tokens of these types
_MOST_SIDE: Final = 1 << 16  # of a patch, in pixels: what a hostile header has is no rule


def image_tokens(projector: GgufHeader, side_px: int, *, most: int, least: int | None = None) -> int | None:
    """Tokens of a square image of *side_px* pixels, those around it included; None: no rule for that projector.

    Args:
        projector: its header.
        side_px: width and height of the image.
        most: as ``--image-max-tokens`` has it.
        least: as ``--image-min-tokens`` has it; None: the engine's own.
    """
    if projector.metadata.get("clip.projector_type") not in _OF_ANY_SIZE:
        return None
    patch = _side(projector.metadata.get("clip.vision.patch_size"))
    merge = _side(projector.metadata.get("clip.vision.spatial_merge_size", 2))
    if not (patch and merge and side_px > 0):
        return None
    of_token = patch * merge
    fewest = (least or _LEAST) * of_token**2
    largest = most * of_token**2
    side = max(of_token, _rounded(side_px / of_token) * of_token)
    if side**2 > largest:
        side = max(of_token, math.floor(math.sqrt(largest) / of_token) * of_token)
    elif side**2 < fewest:
        side = math.ceil(math.sqrt(fewest) / of_token) * of_token
    return (side // of_token) ** 2 + AROUND_AN_IMAGE


def _side(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value <= _MOST_SIDE else None


def _rounded(value: float) -> int:
    """As C++ rounds: a half away from zero."""
    return math.floor(value + 0.5)
