"""What a projector takes, asked of llama.cpp's multimodal library (mtmd) over a header-only file.

llama.cpp sizes the projector's buffers with one image of warm-up size.  For types that take images of any size that is
less than the largest image that they accept ("avoid OOM on warmup", ``tools/mtmd/clip.cpp``), and the buffers grow when
that image comes.  How they grow with the tokens of an image is measured here with small images, and continued.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from corral.vram.native import Native, ProjectorParams, prove

_CANARY = 0xA5
_SAMPLES = (64, 144, 256)
"""Tokens of the small images: squares, and no more than any type warms up with."""


@dataclass(frozen=True)
class ProjectorMemory:
    """Bytes of a projector.

    Attributes:
        gpu: on the card, as the engine reserves them.
        host: in host memory, likewise.
        image_tokens: most tokens that one image may take; None when every image has the same size.
        growth: further bytes on the card for an image of that many tokens.
    """

    gpu: int
    host: int
    image_tokens: int | None
    growth: int


class Projectors:
    """The projectors that a process was asked about; the same question is put to the engine once.

    Args:
        native: the engine.
        devices: all devices by address.
        gpu: the name of the one that is the card; None without one.
    """

    def __init__(self, native: Native, devices: dict[int, str], gpu: str | None) -> None:
        self._native = native
        self._devices = devices
        self._gpu = gpu
        self._asked: dict[tuple[Any, ...], tuple[dict[str, int], int, bool]] = {}

    def measure(self, params: Any, *, variant: object = None, growth: bool = True) -> ProjectorMemory:
        """What the projector of a command line takes.

        Args:
            params: the wheel's ``CommonParams``; a header-only file will do.
            variant: how the card answers now, where that is not always the same.
            growth: whether to find out how its buffers grow.

        Raises:
            LayoutUnproven: the answer is not laid out as it should be.
            ValueError: the projector cannot be loaded.
        """
        if not params.mmproj.path:
            return ProjectorMemory(0, 0, None, 0)

        def ask(limit: int, least: int) -> tuple[int, int, int, bool]:
            sizes, tokens, non_causal = self._ask(params, limit, least, variant)
            if not self._loaded(sizes, params):
                other = limit > 0 and self._loaded(self._ask(params, -1, -1, variant)[0], params)
                raise ValueError(
                    f"the projector does not take --image-max-tokens {limit}"
                    if other
                    else "the projector cannot be loaded"
                )
            on_card = sizes.get(self._gpu, 0) if self._gpu else 0
            return on_card, sum(sizes.values()) - on_card, tokens, non_causal

        limit, least = params.image_max_tokens, params.image_min_tokens
        on_card, on_host, tokens, non_causal = ask(limit, least)
        if non_causal and tokens > params.n_ubatch:
            # llama-server: an image that is attended to both ways must fit into one ubatch.
            on_card, on_host, tokens, _ = ask(params.n_ubatch, min(least, params.n_ubatch))
        if tokens < 0 or on_card == 0 or not growth:
            return ProjectorMemory(on_card, on_host, None, 0)
        at_most = max(tokens, 1)
        needed = _continued({small: ask(small, 1)[0] for small in _SAMPLES}, at_most)
        return ProjectorMemory(on_card, on_host, at_most, max(0, needed - on_card))

    def _loaded(self, sizes: dict[str, int], params: Any) -> bool:
        return bool(sizes) and (self._gpu is None or not params.mmproj_use_gpu or self._gpu in sizes)

    def _ask(self, params: Any, limit: int, least: int, variant: object) -> tuple[dict[str, int], int, bool]:
        """Bytes by device, most tokens of an image (-1: all alike), and whether it is attended to both ways."""
        how = params.mmproj_use_gpu, int(params.flash_attn_type), params.mtmd_batch_max_tokens
        key = (params.mmproj.path, limit, least, variant, how)
        if key not in self._asked:
            answer = _ask(self._native, params.mmproj.path, _params_for(self._native, params, limit, least))
            sizes = dict(_sizes(answer, self._devices))
            self._asked[key] = sizes, answer.image_max_tokens, answer.non_causal
        return self._asked[key]


def _continued(measured: dict[int, int], tokens: int) -> int:
    """The bytes at *tokens*, by the parabola through three measurements; where they lie on a line, by that line.

    Attention over windows has a mask of patches times patches, so there is a square in it.
    """
    total = Fraction()
    for one, size in measured.items():
        others = [other for other in measured if other != one]
        total += size * Fraction(
            math.prod(tokens - other for other in others), math.prod(one - other for other in others)
        )
    return math.ceil(total)


class _Answer(ctypes.Structure):
    """``struct mtmd_memory_usage``, its ``std::map`` as libstdc++ lays it out, and room behind it."""

    _fields_ = (
        ("compare", ctypes.c_uint64),
        ("colour", ctypes.c_uint64),
        ("root", ctypes.c_uint64),
        ("leftmost", ctypes.c_uint64),
        ("rightmost", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("image_max_tokens", ctypes.c_int),
        ("non_causal", ctypes.c_bool),
        ("behind", ctypes.c_uint8 * 64),
    )


def _params_for(native: Native, params: Any, limit: int, least: int) -> ProjectorParams:
    """What llama-server would pass, after the defaults have shown that the structure is the known one."""
    chosen: ProjectorParams = native.projector_params()
    known = (True, None, native.default_marker(), True, -1, -1, None, 1024, None)
    found = (
        *(chosen.use_gpu, chosen.device, chosen.media_marker, chosen.warmup),
        *(chosen.image_min_tokens, chosen.image_max_tokens, chosen.cb_eval),
        *(chosen.batch_max_tokens, chosen.progress_callback),
    )
    prove(known, found, "struct mtmd_context_params")
    chosen.use_gpu = params.mmproj_use_gpu
    chosen.print_timings = False
    chosen.flash_attn_type = int(params.flash_attn_type)
    chosen.image_min_tokens, chosen.image_max_tokens = least, limit
    chosen.batch_max_tokens = params.mtmd_batch_max_tokens
    # With --no-warmup the first image reserves the same buffers, only later.
    chosen.warmup = True
    return chosen


def _ask(native: Native, path: str, params: ProjectorParams) -> _Answer:
    answer = _Answer()
    ctypes.memset(ctypes.byref(answer), _CANARY, ctypes.sizeof(answer))
    returned = native.projector_memory(ctypes.byref(answer), path.encode(), params)
    prove(ctypes.addressof(answer), returned, "mtmd_get_memory_usage")
    prove(True, all(byte == _CANARY for byte in answer.behind), "the end of struct mtmd_memory_usage")
    return answer


def _sizes(answer: _Answer, devices: dict[int, str]) -> Iterator[tuple[str, int]]:
    """Device and bytes of every entry of the map."""
    prove(True, answer.count <= len(devices), "std::map in struct mtmd_memory_usage")
    waiting = [answer.root] if answer.count else []
    seen = 0
    while waiting:
        # A node: colour, parent, left, right, key, value.
        _, _, left, right, device, size = (ctypes.c_uint64 * 6).from_address(waiting.pop())
        prove(True, device in devices, "a device in struct mtmd_memory_usage")
        seen += 1
        prove(True, seen <= answer.count, "std::map in struct mtmd_memory_usage")
        yield devices[device], size
        waiting += [node for node in (left, right) if node]
    prove(answer.count, seen, "std::map in struct mtmd_memory_usage")
