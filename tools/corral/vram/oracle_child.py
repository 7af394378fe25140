"""The process that calls the engine: a job as JSON on stdin, one line of JSON on stdout for each command line.

    {"gpu": true, "cuda": "first", "argvs": [["-m", "/tmp/…/model.gguf", "-c", "4096", …], …]}

llama.cpp ends its process on some inputs (an unknown architecture is a C++ exception without a handler), so it runs in
a process of its own, confined.  ``corral.vram.oracle`` starts it, fills in the paths, and makes an error of its death.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

from corral.engine import embedded
from corral.errors import CorralError
from corral.vram.adapter_memory import Adapters
from corral.vram.native import LayoutUnproven, LogCallback, Native, Refusal, prove
from corral.vram.pretend_gpu import FREE, NAME, TOTAL, PretendGpu, memory_of
from corral.vram.projector_memory import Projectors

_ERRORS_ONLY = 1  # of common/log.h: output 0, errors 1
_LOG_LEVEL_ERROR = 4  # GGML_LOG_LEVEL_ERROR
_F16 = 1  # GGML_TYPE_F16
_NO_POOLING = (-1, 0)  # unspecified, none
_DRAFT_SIMPLE = 1  # COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE
_CANARY = b"\xa5"
_ROW = 5 * 8  # common_device_memory_data: total, free, model, context, compute
_PARAMS_ROOM = 1 << 16  # more than sizeof(common_params)


def _write_errors(level: int, text: bytes, _: None) -> None:
    """Write an error unbuffered: the thread of the engine's own log dies with the process, and the reason with it."""
    if level == _LOG_LEVEL_ERROR:
        os.write(sys.stderr.fileno(), text)


_ERROR_LOG = LogCallback(_write_errors)


class Engine:
    """The embedded engine, with a pretend GPU or without one; ``embedded.require_available`` has returned before."""

    def __init__(self, *, gpu: bool) -> None:
        self._native = Native()
        self._native.set_verbosity(_ERRORS_ONLY)
        self._native.log_to(_ERROR_LOG, None)
        self._gpu = PretendGpu(self._native) if gpu else None
        self._devices = self._native.devices()
        self._projectors = Projectors(self._native, self._devices, NAME if gpu else None)
        self._adapters = Adapters(self._native, self._gpu)

    def measure(self, argv: list[str], *, cuda: bool) -> dict[str, Any]:
        """Bytes that llama-server would take with *argv*; with *cuda* or a cache that is not f16, also on CUDA.

        Raises:
            LayoutUnproven: the engine's answer is not what this build gives.
            Refusal: the engine does not take it.
        """
        # On a machine with a GPU that the wheel can use (macOS), that one must stay out of it.
        line = embedded.parse([*argv, *(("--device", NAME) if self._gpu else ("--device", "none", "--no-repack"))])
        if line is None:
            raise Refusal("llama-server refuses the command line")
        params = line.params
        _as_llama_server_does(params)
        card, host, trained = self._whole(line)
        projector = self._projectors.measure(params, cuda=False)
        padded, copies = None, 0
        if self._gpu:
            caches = params, *([params.speculative.draft] if params.speculative.draft.mparams.path else [])
            if cuda or {int(kind) for one in caches for kind in (one.cache_type_k, one.cache_type_v)} != {_F16}:
                padded, copies = self._like_cuda(line, self._gpu)
            self._gpu.require_intact()
        return {
            "gpu": card | {"projector": projector.gpu},
            "host": host | {"projector": projector.host},
            "cuda": padded,
            "f16_copies": copies,
            "context_trained": trained,
            "ubatch": params.n_ubatch,
            "image_tokens": projector.image_tokens,
            "projector_growth": projector.growth,
            "image_batch": params.mtmd_batch_max_tokens,
        }

    def _like_cuda(self, line: embedded.CommandLine, gpu: PretendGpu) -> tuple[dict[str, int], int]:
        """The card's row when its buffers are as large as CUDA's, and the largest f16 copies among them."""
        gpu.like_cuda, gpu.f16_copies = True, 0
        try:
            card, _, _ = self._whole(line)
            copies = gpu.f16_copies  # the projector has none
            return card | {"projector": self._projectors.measure(line.params, cuda=True).gpu}, copies
        finally:
            gpu.like_cuda = False

    def _whole(self, line: embedded.CommandLine) -> tuple[dict[str, int], dict[str, int], int]:
        """Card and host as ``_sides`` has them, with adapters and draft model."""
        params = line.params
        card, host, trained = self._sides(line.params, line.address, params.model.path)
        adapters = [one.path for one in params.lora_adapters]
        if adapters:
            own = self._adapters.measure(line, adapters, (card, host))
            card, host = card | own.card, host | own.host
        draft = 0, 0
        if path := params.speculative.draft.mparams.path:
            derived = ctypes.create_string_buffer(_CANARY * _PARAMS_ROOM)
            returned = self._native.draft_params(derived, line.address)
            prove(ctypes.addressof(derived), returned, "common_base_params_to_speculative")
            ends = derived.raw[_PARAMS_ROOM - 2048 : _PARAMS_ROOM]
            prove(_CANARY * 2048, ends, "the end of struct common_params")
            *sides, _ = self._sides(params, ctypes.addressof(derived), path, is_draft=True)
            draft = sum(sides[0].values()), sum(sides[1].values())
        return card | {"draft": draft[0]}, host | {"draft": draft[1]}, trained

    def _sides(
        self, params: Any, address: int, path: str, *, is_draft: bool = False
    ) -> tuple[dict[str, int], dict[str, int], int]:
        """Weights, context and compute on the card (all 0 without one) and on the host; and the trained context.

        *address* is that of the ``common_params`` for the model at *path*, which *params* are or are the base of.
        """
        native = self._native
        model, context = (ctypes.create_string_buffer(_CANARY * 4096) for _ in range(2))
        prove(ctypes.addressof(model), native.model_params(model, address), "common_model_params_to_llama")
        prove(ctypes.addressof(context), native.context_params(context, address), "common_context_params_to_llama")
        _prove_params(params, model, context, is_draft=is_draft)
        answer, devices = (ctypes.c_uint64 * 4)(), (ctypes.c_uint64 * 3)()
        answer[3] = 0xA5A5A5A5
        layers, trained, experts = ctypes.c_uint32(), ctypes.c_uint32(), ctypes.c_uint32()
        counts = ctypes.byref(layers), ctypes.byref(trained), ctypes.byref(experts)
        returned = native.memory(answer, path.encode(), model, context, devices, *counts, _LOG_LEVEL_ERROR)
        prove(ctypes.addressof(answer), returned, "common_get_device_memory_data")
        prove(0xA5A5A5A5, answer[3], "std::vector of common_get_device_memory_data")
        own = [self._gpu.address] if self._gpu else []
        begin, end, _ = devices
        prove(8 * len(own), end - begin, "the devices that the model is on")
        prove(own, list((ctypes.c_uint64 * len(own)).from_address(begin)), "the devices that the model is on")
        begin, end = answer[:2]
        prove(_ROW * (len(own) + 1), end - begin, "std::vector<common_device_memory_data>")
        rows = [(ctypes.c_int64 * 5).from_address(begin + _ROW * number) for number in range(len(own) + 1)]
        for row in rows[:-1]:
            prove((TOTAL, FREE), tuple(row[:2]), "struct common_device_memory_data")
        (cpu,) = [address for address, name in self._devices.items() if name == "CPU"]
        prove(memory_of(native, cpu)[1], rows[-1][0], "the host's row of common_device_memory_data")
        sides = [dict(zip(("weights", "context", "compute"), row[2:], strict=True)) for row in rows]
        return (sides[0] if own else dict.fromkeys(sides[0], 0)), sides[-1], trained.value


def _as_llama_server_does(params: Any) -> None:
    """Change *params* as llama-server's ``main`` and ``server_output_limits`` do, where memory is concerned."""
    if params.embedding and params.n_batch > params.n_ubatch:
        params.n_batch = params.n_ubatch
    if params.n_parallel < 0:
        params.n_parallel, params.kv_unified = 4, True
    whole_batch = params.embedding or int(params.pooling_type) not in _NO_POOLING
    # A draft is verified at once: its tokens, and the one that follows (common_speculative_get_output_limits).
    draft = params.speculative.draft
    each = 1 + max(0, draft.n_max) if draft.mparams.path and _drafts(params) else 1
    params.n_outputs_max = params.n_batch if whole_batch else min(params.n_batch, params.n_parallel * each)
    params.n_outputs_max_per_seq = 1 if whole_batch else min(params.n_batch, each)


def _drafts(params: Any) -> bool:
    """Whether the draft model of *params* is used, by ``--spec-type``: else it is loaded and given back."""
    return any(int(one) == _DRAFT_SIMPLE for one in params.speculative.types)


def _prove_params(params: Any, model: Any, context: Any, *, is_draft: bool) -> None:
    """Find in the structures for llama.cpp what was parsed, and nothing written behind their ends."""
    first = (ctypes.c_uint32 * 6).from_buffer(context)
    # A draft gives the logits of one token a sequence.
    outputs = params.n_parallel if is_draft else params.n_outputs_max
    known = (params.n_ctx, params.n_batch, params.n_ubatch, params.n_parallel, outputs)
    prove(known, (*first[:4], first[5]), "struct llama_context_params")
    for buffer, name in ((model, "struct llama_model_params"), (context, "struct llama_context_params")):
        prove(_CANARY * 2048, buffer.raw[2048:4096], f"the end of {name}")


def main() -> None:
    """Compute one job."""
    # What the engine prints must not end up between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = json.load(sys.stdin)

    def report(**line: Any) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    try:
        engine = Engine(gpu=job["gpu"])
        for number, argv in enumerate(job["argvs"]):
            report(**engine.measure(argv, cuda=number == 0 or job["cuda"] == "all"))
    except LayoutUnproven as error:
        report(cause="layout", text=str(error))
    except Refusal as error:
        report(cause="refusal", text=str(error))
    except CorralError as error:
        report(cause="missing", text=error.message, next_step=error.next_step)
    sys.stderr.flush()
    os._exit(0)  # past the destructors of llama.cpp
