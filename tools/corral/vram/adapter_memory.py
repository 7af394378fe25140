"""What adapters take, by llama.cpp itself: the model without weights, its context, and adapters that are applied.

Their matrices are in buffers of their own, and the products with them are further operations of the graph, for which
its buffers may have to be larger.  An adapter that starts with scale 0 may be turned on by a request, so all of them
are applied here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.vram.ggml_types import padded
from corral.vram.gguf_header import MOST_KEPT, parse
from corral.vram.native import ByValue, Native, Refusal, prove
from corral.vram.pretend_gpu import NAME, PretendGpu

_ALIGNMENT = 32
_KINDS = ("weights", "context", "compute")


@dataclass(frozen=True)
class AdapterMemory:
    """``compute`` and ``adapters`` on each side, in bytes."""

    card: dict[str, int]
    host: dict[str, int]


class Adapters:
    """The adapters of a process; *gpu* is its card, None without one."""

    def __init__(self, native: Native, gpu: PretendGpu | None) -> None:
        self._native = native
        self._gpu = gpu

    def measure(
        self, line: Any, paths: Sequence[str], known: tuple[Mapping[str, int], Mapping[str, int]]
    ) -> AdapterMemory:
        """What the model of *line* (``embedded.CommandLine``) takes with the adapters at *paths*.

        Args:
            line: changed, and put back.
            paths: of the adapters.
            known: what the model takes without them, on the card and on the host.

        Raises:
            LayoutUnproven: the engine's answer has another layout.
            Refusal: the model or an adapter cannot be loaded.
        """
        native, params = self._native, line.params
        before = params.no_alloc, params.load_mode
        params.no_alloc, params.load_mode = True, type(params.load_mode)(0)
        model_params, context_params = ByValue(), ByValue()
        try:
            native.model_params(ctypes.addressof(model_params), line.address)
            native.context_params(ctypes.addressof(context_params), line.address)
        finally:
            params.no_alloc, params.load_mode = before
        model = native.load_model(params.model.path.encode(), model_params)
        if not model:
            raise Refusal("the model cannot be loaded")
        try:
            on_card, on_host, loaded = self._load(model, paths)
            context = native.make_context(model, context_params)
            if not context:
                raise Refusal("the model has no context")
            try:
                prove(tuple(map(_counted, known)), self._rows(context), "llama_get_memory_breakdown")
                scales = (ctypes.c_float * len(loaded))(*[1.0] * len(loaded))
                handles = (ctypes.c_void_p * len(loaded))(*loaded)
                if native.set_adapters(context, handles, len(loaded), scales):
                    raise Refusal("the adapters cannot be applied")
                native.reserve(context)
                card, host = self._rows(context)
            finally:
                native.free_context(context)
        finally:
            native.free_model(model)
        return AdapterMemory({"compute": card[-1], "adapters": on_card}, {"compute": host[-1], "adapters": on_host})

    def _load(self, model: int, paths: Sequence[str]) -> tuple[int, int, list[int]]:
        """Bytes of the matrices on card and host, and the adapters."""
        loaded, on_card, whole = [], 0, 0
        for path in paths:
            already = self._gpu.requested if self._gpu else 0
            adapter = self._native.load_adapter(model, path.encode())
            if not adapter:
                raise Refusal(f"the adapter {Path(path).name} is not for this model")
            loaded.append(adapter)
            on_card += self._gpu.requested - already if self._gpu else 0
            whole += _matrices(Path(path))
        # What is not on the card is on the host; CUDA's buffers are larger than the matrices.
        return on_card, max(0, whole - on_card), loaded

    def _rows(self, context: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Weights, context and compute on the card and on the host, by the engine's map of buffer types."""
        answer = (ctypes.c_uint64 * 6)()  # std::map: compare, colour, root, leftmost, rightmost, count
        returned = self._native.breakdown(answer, context)
        prove(ctypes.addressof(answer), returned, "llama_get_memory_breakdown")
        sides = {True: [0, 0, 0], False: [0, 0, 0]}
        waiting, read = [answer[2]] if answer[5] else [], 0
        while waiting:
            # A node: colour, parent, left, right, key, weights, context, compute.
            _, _, left, right, kind, *sizes = (ctypes.c_uint64 * 8).from_address(waiting.pop())
            read += 1
            prove(True, read <= answer[5], "std::map of llama_get_memory_breakdown")
            side = sides[self._native.buffer_type_name(kind) == NAME.encode()]
            side[:] = [total + size for total, size in zip(side, sizes, strict=True)]
            waiting += [node for node in (left, right) if node]
        prove(answer[5], read, "std::map of llama_get_memory_breakdown")
        return tuple(sides[True]), tuple(sides[False])


def _counted(side: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(side[kind] for kind in _KINDS)


def _matrices(path: Path) -> int:
    """Bytes of the matrices in the file *path*, each at its alignment."""
    with path.open("rb") as file:
        header = parse(file.read(MOST_KEPT), file_size=path.stat().st_size)
    return sum(padded(tensor.size, _ALIGNMENT) for tensor in header.tensors)
