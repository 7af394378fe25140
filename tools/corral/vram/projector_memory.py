"""What a projector takes, by llama.cpp's multimodal library (mtmd) over a header-only file.

llama.cpp sizes the projector's buffers with one image of warm-up size.  For types that take images of any size that is
less than the largest image that they accept ("avoid OOM on warmup", ``tools/mtmd/clip.cpp``), and the buffers grow with
the first larger image.  How they grow with the tokens of an image is measured here with small images, and continued.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from corral.vram.native import Native, ProjectorParams, Refusal, prove

_CANARY = 0xA5
_UNWRITTEN = int.from_bytes(bytes([_CANARY] * 4), "little", signed=True)
_SAMPLES = (64, 144, 256)
"""Tokens of the small images: squares, and no more than any type warms up with."""


@dataclass(frozen=True)
class ProjectorMemory:
    """Bytes of a projector.

    Attributes:
        gpu: on the card, as the engine reserves them.
        host: in host memory, likewise.
        image_tokens: most tokens that one image may take; None when every image has the same size.
        growth: further bytes on the card for an image of that many tokens; None where the engine does not state them.
    """

    gpu: int
    host: int
    image_tokens: int | None
    growth: int | None


class Projectors:
    """The projectors of a process; each is loaded once for the same parameters.

    Args:
        native: the engine.
        devices: all devices by address.
        gpu: the name of the one that is the card; None without one.
    """

    def __init__(self, native: Native, devices: dict[int, str], gpu: str | None) -> None:
        self._native = native
        self._devices = devices
        self._gpu = gpu
        self._loads: dict[tuple[Any, ...], tuple[dict[str, int], int | None, bool]] = {}

    def measure(self, params: Any, *, cuda: bool) -> ProjectorMemory:
        """What the projector of *params* (the wheel's ``CommonParams``) takes.

        With *cuda* the card's buffers are CUDA's now, and their growth is not measured.

        Raises:
            LayoutUnproven: the engine's answer has another layout.
            Refusal: the projector cannot be loaded.
        """
        if not params.mmproj.path:
            return ProjectorMemory(0, 0, None, 0)
        on_card, on_host, tokens, non_causal = self._load(
            params, params.image_max_tokens, params.image_min_tokens, cuda
        )
        if tokens is None:
            return ProjectorMemory(on_card, on_host, None, None)
        if non_causal and tokens > params.n_ubatch:
            # llama-server: an image that is attended to both ways must fit into one ubatch.
            least = min(params.image_min_tokens, params.n_ubatch)
            on_card, on_host, tokens, _ = self._load(params, params.n_ubatch, least, cuda)
        if tokens is None or tokens < 0 or on_card == 0 or cuda:
            return ProjectorMemory(on_card, on_host, None, 0)
        at_most = max(tokens, 1)
        needed = _continued({small: self._load(params, small, 1, cuda)[0] for small in _SAMPLES}, at_most)
        return ProjectorMemory(on_card, on_host, at_most, max(0, needed - on_card))

    def _load(self, params: Any, limit: int, least: int, cuda: bool) -> tuple[int, int, int | None, bool]:
        """Bytes on card and host, most tokens of an image (-1: all alike), and whether it is attended to both ways."""
        sizes, tokens, non_causal = self._memory(params, limit, least, cuda)
        if not self._is_loaded(sizes, params):
            if limit > 0 and self._is_loaded(self._memory(params, -1, -1, cuda)[0], params):
                raise Refusal(f"the projector does not take --image-max-tokens {limit}")
            raise Refusal("the projector cannot be loaded")
        on_card = sizes.get(self._gpu or "", 0)
        return on_card, sum(sizes.values()) - on_card, tokens, non_causal

    def _is_loaded(self, sizes: dict[str, int], params: Any) -> bool:
        return self._gpu in sizes if self._gpu and params.mmproj_use_gpu else bool(sizes)

    def _memory(self, params: Any, limit: int, least: int, cuda: bool) -> tuple[dict[str, int], int | None, bool]:
        how = params.mmproj_use_gpu, int(params.flash_attn_type), params.mtmd_batch_max_tokens
        key = (params.mmproj.path, limit, least, cuda, how)
        if key not in self._loads:
            answer = _Answer()
            ctypes.memset(ctypes.byref(answer), _CANARY, ctypes.sizeof(answer))
            chosen = _params_for(self._native, params, limit, least)
            returned = self._native.projector_memory(ctypes.byref(answer), params.mmproj.path.encode(), chosen)
            prove(ctypes.addressof(answer), returned, "mtmd_get_memory_usage")
            prove(True, all(byte == _CANARY for byte in answer.behind), "the end of struct mtmd_memory_usage")
            # Builds before b11434 answer with the map alone.
            tokens = None if answer.image_max_tokens == _UNWRITTEN else answer.image_max_tokens
            self._loads[key] = dict(_sizes(answer, self._devices)), tokens, answer.non_causal
        return self._loads[key]


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


def _sizes(answer: _Answer, devices: dict[int, str]) -> Iterator[tuple[str, int]]:
    """Device and bytes of every entry of the map."""
    prove(True, answer.count <= len(devices), "std::map in struct mtmd_memory_usage")
    waiting = [answer.root] if answer.count else []
    read = 0
    while waiting:
        # A node: colour, parent, left, right, key, value.
        _, _, left, right, device, size = (ctypes.c_uint64 * 6).from_address(waiting.pop())
        prove(True, device in devices, "a device in struct mtmd_memory_usage")
        read += 1
        prove(True, read <= answer.count, "std::map in struct mtmd_memory_usage")
        yield devices[device], size
        waiting += [node for node in (left, right) if node]
    prove(answer.count, read, "std::map in struct mtmd_memory_usage")
