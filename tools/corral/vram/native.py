"""The functions of ggml and llama.cpp that a prediction calls, and the proof of their layout.

Declared as in llama.cpp's ``ggml.h``, ``ggml-backend.h``, ``llama.h``, ``mtmd.h``, ``common/common.h`` and
``common/fit.h`` of the pinned build.  Whatever is read out of a structure is first compared with a value that is known
to stand there: a wrong layout must end in an error, never in a wrong number.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_bool, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any

from corral.engine import embedded


class LayoutUnproven(Exception):
    """Something in the engine is not where this build has it."""


class Refusal(Exception):
    """The engine does not take this command line or this model; the message has the reason."""


def prove(known: object, found: object, what: str) -> None:
    """Return when *found*, read from *what* in the engine, is the value that is known.

    Raises:
        LayoutUnproven: it is not.
    """
    if known != found:
        raise LayoutUnproven(f"{what}: {found!r} stands where {known!r} was expected")


LogCallback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
"""``ggml_log_callback``: level, text, and what was given with it."""


class InitParams(Structure):
    """``struct ggml_init_params``."""

    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


class Tensor(Structure):
    """``struct ggml_tensor``, as far as the size of a buffer depends on it (see ``prove_tensor_layout``)."""

    _fields_ = (
        ("type", c_int),
        ("buffer", c_void_p),
        ("ne", c_int64 * 4),
        ("nb", c_size_t * 4),
        ("op", c_int),
        ("op_params", c_int32 * 16),
        ("flags", c_int32),
        ("src", c_void_p * 10),
        ("view_src", c_void_p),
        ("view_offs", c_size_t),
    )


class BufferInterface(Structure):
    """``struct ggml_backend_buffer_i``: eleven functions."""

    _fields_ = tuple(
        (name, c_void_p)
        for name in (
            *("free_buffer", "get_base", "init_tensor", "memset_tensor", "set_tensor", "get_tensor"),
            *("set_tensor_2d", "get_tensor_2d", "cpy_tensor", "clear", "reset"),
        )
    )


class ProjectorParams(Structure):
    """``struct mtmd_context_params``."""

    _fields_ = (
        ("use_gpu", c_bool),
        ("device", c_void_p),
        ("print_timings", c_bool),
        ("n_threads", c_int),
        ("image_marker", c_char_p),
        ("media_marker", c_char_p),
        ("flash_attn_type", c_int),
        ("warmup", c_bool),
        ("image_min_tokens", c_int),
        ("image_max_tokens", c_int),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("batch_max_tokens", c_int32),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
    )


class ByValue(Structure):
    """``struct llama_model_params`` or ``llama_context_params`` with room behind it.

    Both are passed by value and larger than two registers, so they lie in memory and the callee reads its own part.
    """

    _fields_ = (("content", ctypes.c_uint8 * 4096),)


_COMMON = "13common_params"
_PROJECTOR_MEMORY = "_Z21mtmd_get_memory_usagePKc19mtmd_context_params"
_MEMORY = (
    "_Z29common_get_device_memory_dataPKcPK18llama_model_paramsPK20llama_context_params"
    "RSt6vectorIP19ggml_backend_deviceSaIS9_EERjSD_SD_14ggml_log_level"
)
_FUNCTIONS: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
    # Python name: (exported name, result, arguments)
    "init": ("ggml_init", c_void_p, (InitParams,)),
    "free": ("ggml_free", None, (c_void_p,)),
    "new_tensor": ("ggml_new_tensor_4d", c_void_p, (c_void_p, c_int, c_int64, c_int64, c_int64, c_int64)),
    "view": ("ggml_view_tensor", c_void_p, (c_void_p, c_void_p)),
    "mul_mat": ("ggml_mul_mat", c_void_p, (c_void_p, c_void_p, c_void_p)),
    "flash_attn": ("ggml_flash_attn_ext", c_void_p, (*(c_void_p,) * 5, *(ctypes.c_float,) * 3)),
    "nbytes": ("ggml_nbytes", c_size_t, (c_void_p,)),
    "nelements": ("ggml_nelements", c_int64, (c_void_p,)),
    "nrows": ("ggml_nrows", c_int64, (c_void_p,)),
    "row_size": ("ggml_row_size", c_size_t, (c_int, c_int64)),
    "is_quantized": ("ggml_is_quantized", c_bool, (c_int,)),
    "op_name": ("ggml_op_name", c_char_p, (c_int,)),
    "type_name": ("ggml_type_name", c_char_p, (c_int,)),
    "register": ("ggml_backend_register", None, (c_void_p,)),
    "registry": ("ggml_backend_reg_get", c_void_p, (c_size_t,)),
    "device_count": ("ggml_backend_dev_count", c_size_t, ()),
    "device": ("ggml_backend_dev_get", c_void_p, (c_size_t,)),
    "device_name": ("ggml_backend_dev_name", c_char_p, (c_void_p,)),
    "device_type": ("ggml_backend_dev_type", c_int, (c_void_p,)),
    "device_memory": ("ggml_backend_dev_memory", None, (c_void_p, POINTER(c_size_t), POINTER(c_size_t))),
    "device_props": ("ggml_backend_dev_get_props", None, (c_void_p, c_void_p)),
    "device_init": ("ggml_backend_dev_init", c_void_p, (c_void_p, c_char_p)),
    "device_host_buffer_type": ("ggml_backend_dev_host_buffer_type", c_void_p, (c_void_p,)),
    "device_buffer_type": ("ggml_backend_dev_buffer_type", c_void_p, (c_void_p,)),
    "device_supports_op": ("ggml_backend_dev_supports_op", c_bool, (c_void_p, c_void_p)),
    "device_supports_buffer_type": ("ggml_backend_dev_supports_buft", c_bool, (c_void_p, c_void_p)),
    "device_offloads": ("ggml_backend_dev_offload_op", c_bool, (c_void_p, c_void_p)),
    "backend_name": ("ggml_backend_name", c_char_p, (c_void_p,)),
    "buffer_type_name": ("ggml_backend_buft_name", c_char_p, (c_void_p,)),
    "buffer_type_device": ("ggml_backend_buft_get_device", c_void_p, (c_void_p,)),
    "buffer_type_is_host": ("ggml_backend_buft_is_host", c_bool, (c_void_p,)),
    "alignment": ("ggml_backend_buft_get_alignment", c_size_t, (c_void_p,)),
    "alloc_size": ("ggml_backend_buft_get_alloc_size", c_size_t, (c_void_p, c_void_p)),
    "alloc_buffer": ("ggml_backend_buft_alloc_buffer", c_void_p, (c_void_p, c_size_t)),
    "cpu_buffer_type": ("ggml_backend_cpu_buffer_type", c_void_p, ()),
    "buffer_init": ("ggml_backend_buffer_init", c_void_p, (c_void_p, BufferInterface, c_void_p, c_size_t)),
    "buffer_type": ("ggml_backend_buffer_get_type", c_void_p, (c_void_p,)),
    "buffer_size": ("ggml_backend_buffer_get_size", c_size_t, (c_void_p,)),
    "buffer_base": ("ggml_backend_buffer_get_base", c_void_p, (c_void_p,)),
    "buffer_clear": ("ggml_backend_buffer_clear", None, (c_void_p, ctypes.c_uint8)),
    "buffer_free": ("ggml_backend_buffer_free", None, (c_void_p,)),
    "common_init": ("_Z11common_initv", None, ()),
    "backend_init": ("llama_backend_init", None, ()),
    "set_verbosity": ("_Z30common_log_set_verbosity_tholdi", None, (c_int,)),
    "log_to": ("llama_log_set", None, (LogCallback, c_void_p)),
    # Both return a structure of many bytes, through a hidden first pointer.
    "model_params": (f"_Z28common_model_params_to_llamaR{_COMMON}", c_void_p, (c_void_p, c_void_p)),
    "context_params": (f"_Z30common_context_params_to_llamaRK{_COMMON}", c_void_p, (c_void_p, c_void_p)),
    "always_true": ("llama_supports_mmap", c_bool, ()),
    "default_marker": ("mtmd_default_marker", c_char_p, ()),
    "projector_params": ("mtmd_context_params_default", ProjectorParams, ()),
    "projector_memory": (_PROJECTOR_MEMORY, c_void_p, (c_void_p, c_char_p, ProjectorParams)),
    "memory": (_MEMORY, c_void_p, (c_void_p, c_char_p, *(c_void_p,) * 3, *(POINTER(c_uint32),) * 3, c_int)),
}

_ON_DEMAND: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
    # For adapters and draft models alone; older builds lack some of them.
    "load_model": ("llama_model_load_from_file", c_void_p, (c_char_p, ByValue)),
    "free_model": ("llama_model_free", None, (c_void_p,)),
    "load_adapter": ("llama_adapter_lora_init", c_void_p, (c_void_p, c_char_p)),
    "make_context": ("llama_init_from_model", c_void_p, (c_void_p, ByValue)),
    "free_context": ("llama_free", None, (c_void_p,)),
    "set_adapters": (
        *("llama_set_adapters_lora", c_int32),
        (c_void_p, POINTER(c_void_p), c_size_t, POINTER(ctypes.c_float)),
    ),
    "reserve": ("_ZN13llama_context13sched_reserveEv", None, (c_void_p,)),
    "breakdown": ("_Z26llama_get_memory_breakdownPK13llama_context", c_void_p, (c_void_p, c_void_p)),
    "draft_params": (f"_Z33common_base_params_to_speculativeRK{_COMMON}", c_void_p, (c_void_p, c_void_p)),
}


class Native:
    """The engine's functions by their short names: ``native.nbytes(tensor)``.

    Raises:
        ProgramMissing: the wheel does not fit, or does not export one of them.
    """

    def __init__(self) -> None:
        _, self._library = embedded.load()
        for name, declared in _FUNCTIONS.items():
            self._bind(name, *declared)
        self.common_init()
        self.backend_init()

    def __getattr__(self, name: str) -> Any:
        if name not in _ON_DEMAND:
            raise AttributeError(name)
        return self._bind(name, *_ON_DEMAND[name])

    def _bind(self, name: str, exported: str, result: Any, arguments: tuple[Any, ...]) -> Any:
        function = embedded.symbol(self._library, exported)
        function.restype, function.argtypes = result, arguments
        setattr(self, name, function)
        return function

    def api_version(self) -> int:
        """GGML_BACKEND_API_VERSION, with which the first of the engine's own backends registers itself."""
        return c_int.from_address(self.registry(0)).value

    def devices(self) -> dict[int, str]:
        """Names of the registered devices by their address."""
        addresses = [self.device(number) for number in range(self.device_count())]
        return {address: self.device_name(address).decode() for address in addresses}


def prove_tensor_layout(native: Native) -> dict[str, int]:
    """Make tensors through the public API and find their parts where ``Tensor`` has them.

    Returns:
        the numbers of all operations by name.

    Raises:
        LayoutUnproven: a part is elsewhere.
    """
    operations: dict[str, int] = {}
    # ggml_op_name reads past its table for a number that no operation has; GLU is the last one.
    for number in range(256):
        operations[native.op_name(number).decode()] = number
        if "GLU" in operations:
            break
    types = {native.type_name(number).decode(): number for number in (0, 1, 8)}
    prove({"f32": 0, "f16": 1, "q8_0": 8}, types, "enum ggml_type")
    context = native.init(InitParams(1 << 20, None, no_alloc=True))
    query = native.new_tensor(context, types["f32"], 64, 32, 4, 1)
    keys = native.new_tensor(context, types["q8_0"], 64, 96, 2, 1)
    values = native.view(context, keys)
    found, view = Tensor.from_address(keys), Tensor.from_address(values)
    prove((8, [64, 96, 2, 1]), (found.type, found.ne[:]), "struct ggml_tensor")
    attention = Tensor.from_address(native.flash_attn(context, query, keys, values, None, 1.0, 0.0, 0.0))
    prove(operations.get("FLASH_ATTN_EXT"), attention.op, "ggml_tensor.op")
    prove([query, keys, values, None], attention.src[:4], "ggml_tensor.src")
    prove((keys, 0), (view.view_src, view.view_offs), "ggml_tensor.view_src")
    product = Tensor.from_address(native.mul_mat(context, keys, query))
    prove(operations.get("MUL_MAT"), product.op, "ggml_tensor.op")
    native.free(context)
    return operations
