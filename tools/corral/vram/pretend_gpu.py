"""A GPU with no memory behind it, for the llama.cpp of the wheel.

The wheel has the CPU alone, and llama.cpp splits a model between card and host only where there is a card.  So one is
registered: tables of functions, as ``ggml-backend-impl.h`` has them, that accept every operation for the card and
return buffers without bytes.  llama.cpp then runs its real loader, its real memory classes and its real graph allocator
over it; the bytes that they request are the prediction.

It behaves as the plainest backend does (what a loopback RPC server reports: 32-byte alignment, no padding), and, while
``like_cuda``, with what the CUDA backend adds: 128-byte alignment, rows of quantised tensors padded to 512 values, and
room for f16 copies of K and V where the cache has another type
(``ggml_backend_cuda_buffer_type_get_alloc_size`` in ``ggml/src/ggml-cuda/ggml-cuda.cu``, and
``ggml_cuda_flash_attn_ext_get_f16_extra_data`` in ``fattn-common.cuh``).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_bool, c_char_p, c_int, c_size_t, c_void_p
from typing import Any, Final

from corral.vram.ggml_types import padded
from corral.vram.native import BufferInterface, InitParams, LayoutUnproven, Native, Tensor, prove, prove_tensor_layout

NAME = "PRETEND0"
FREE, TOTAL = 0x5A5_1234_5000, 0x5A5_6789_A000
"""The memory that it reports: more than any model takes, and numbers that are recognised in what llama.cpp returns."""

_BUFFER_TYPES: Final = {
    2: ("get_name", "alloc_buffer", "get_alignment", "get_max_size", "get_alloc_size", "is_host"),
    3: (
        *("get_name", "alloc_buffer", "alloc_buffer_n", "get_alignment", "get_max_size"),
        *("get_alloc_size", "get_alloc_size_n", "is_host"),
    ),
}
"""The functions of ``ggml_backend_buffer_type_i``, by GGML_BACKEND_API_VERSION: 2 is that of b9536 to b11063."""
_GPU = 1  # GGML_BACKEND_DEVICE_TYPE_GPU
_ALIGNMENT, _CUDA_ALIGNMENT = 32, 128
_CUDA_ROW = 512  # MATRIX_ROW_PADDING
_CUDA_LEAST_BATCH = 32  # op_offload_min_batch_size
_BASE = 1 << 20  # where its buffers claim to begin; nothing is ever read or written there


class _Props(ctypes.Structure):
    """``struct ggml_backend_dev_props``."""

    _fields_ = (
        ("name", c_char_p),
        ("description", c_char_p),
        ("memory_free", c_size_t),
        ("memory_total", c_size_t),
        ("type", c_int),
        ("device_id", c_char_p),
        ("capabilities", c_bool * 5),
    )


class PretendGpu:
    """The device; there is one in a process, and it stays.

    Attributes:
        address: its ``ggml_backend_dev_t``.
        requested: bytes of all buffers that were made.
        f16_copies: bytes of the largest f16 copies of K and V that an attention had room for, while ``like_cuda``.

    Raises:
        LayoutUnproven: the engine does not call back what it was given.
    """

    def __init__(self, native: Native) -> None:
        prove(True, native.always_true(), "llama_supports_mmap")
        self._native = native
        self._operations = prove_tensor_layout(native)
        self._cuda = False
        self.f16_copies = 0
        self.requested = 0
        self._failed: Exception | None = None
        self._kept: list[Any] = []
        self._is_quantized = functools.cache(native.is_quantized)
        self._name = c_char_p(NAME.encode())
        # Each table begins with its functions and ends with its own fields; a slot that stays empty is optional.
        self._api_version = native.api_version()
        if self._api_version not in _BUFFER_TYPES:
            raise LayoutUnproven(
                f"GGML_BACKEND_API_VERSION is {self._api_version}, not {' or '.join(map(str, _BUFFER_TYPES))}"
            )
        self._buffer_functions = _BUFFER_TYPES[self._api_version]
        self._buffer_type = (c_void_p * (len(self._buffer_functions) + 2))()  # functions, device, context
        self._backend = (c_void_p * 19)()  # guid, 16 functions, device, context
        self._device = (c_void_p * 17)()  # 15 functions, registry, context
        self._registry = (c_void_p * 6)()  # version, 4 functions, context
        self._buffer = BufferInterface()
        self.address = ctypes.addressof(self._device)
        self._alloc_size = self._function(self._cuda_alloc_size, c_size_t, c_void_p, c_void_p)
        self._fill_tables()
        native.register(ctypes.addressof(self._registry))
        self._prove()

    @property
    def like_cuda(self) -> bool:
        """Whether its buffers are as large as CUDA's."""
        return self._cuda

    @like_cuda.setter
    def like_cuda(self, value: bool) -> None:
        self._cuda = value
        # None: ggml_nbytes, without a call to Python.
        self._buffer_type[self._buffer_functions.index("get_alloc_size")] = self._alloc_size if value else None

    def require_intact(self) -> None:
        """Return when no callback from the engine has failed.

        Raises:
            LayoutUnproven: one has, and the engine went on with a zero.
        """
        if self._failed is not None:
            raise LayoutUnproven(f"a call from the engine could not be answered: {self._failed!r}")

    def _function(self, python: Callable[..., Any], result: Any, *arguments: Any) -> int | None:
        def guarded(*given: Any) -> Any:
            try:
                return python(*given)
            except Exception as error:  # noqa: BLE001 - ctypes would print it and return 0
                self._failed = self._failed or error
                return None if result is None else 0

        return self._quick(guarded, result, *arguments)

    def _quick(self, python: Callable[..., Any], result: Any, *arguments: Any) -> int | None:
        """For what is called some ten thousand times, and cannot fail."""
        callback = CFUNCTYPE(result, *arguments)(python)
        self._kept.append(callback)
        return ctypes.cast(callback, c_void_p).value

    def _fill_tables(self) -> None:
        function, address = self._function, ctypes.addressof
        buffer_type, backend, registry = address(self._buffer_type), address(self._backend), address(self._registry)
        name_at = ctypes.cast(self._name, c_void_p).value
        name = self._quick(lambda _: name_at, c_void_p, c_void_p)
        nothing = function(lambda *_: None, None, c_void_p)

        self._buffer.free_buffer = nothing
        self._buffer.get_base = function(lambda _: _BASE, c_void_p, c_void_p)
        self._buffer.clear = function(lambda *_: None, None, c_void_p, ctypes.c_uint8)
        # Adapters are read whatever they are loaded for.
        self._buffer.set_tensor = function(lambda *_: None, None, c_void_p, c_void_p, c_void_p, c_size_t, c_size_t)

        of_buffers = {
            "get_name": name,
            "alloc_buffer": function(self._make_buffer, c_void_p, c_void_p, c_size_t),
            "get_alignment": self._quick(lambda _: _CUDA_ALIGNMENT if self._cuda else _ALIGNMENT, c_size_t, c_void_p),
        }
        for slot, what in enumerate(self._buffer_functions):
            self._buffer_type[slot] = of_buffers.get(what)
        self._buffer_type[len(self._buffer_functions)] = self.address

        guid = (ctypes.c_uint8 * 16)(*b"corral's pretend")
        self._kept.append(guid)
        self._backend[0] = address(guid)
        self._backend[1] = name
        self._backend[2] = nothing  # free
        self._backend[13] = function(lambda *_: 1, c_int, c_void_p, c_void_p)  # graph_compute: never called
        self._backend[17] = self.address

        slots = {
            0: name,
            1: name,  # description
            2: function(_give_memory, None, c_void_p, c_void_p, c_void_p),
            3: function(lambda _: _GPU, c_int, c_void_p),
            4: function(_give_props, None, c_void_p, ctypes.POINTER(_Props)),
            5: function(lambda *_: backend, c_void_p, c_void_p, c_void_p),
            6: function(lambda _: buffer_type, c_void_p, c_void_p),
            # As on CUDA, weights that stay on the host are in memory that the card can reach, and not repacked.
            7: function(lambda _: self._native.cpu_buffer_type(), c_void_p, c_void_p),
            # supports_op is called twenty thousand times a model: a function of llama.cpp's own returns true in C.
            9: ctypes.cast(self._native.always_true, c_void_p).value,
            10: self._quick(lambda _, other: other == buffer_type, c_bool, c_void_p, c_void_p),
            11: function(self._offloads, c_bool, c_void_p, c_void_p),
        }
        for slot, pointer in slots.items():
            self._device[slot] = pointer
        self._device[15] = registry

        self._registry[0] = self._api_version
        self._registry[1] = name
        self._registry[2] = function(lambda _: 1, c_size_t, c_void_p)
        self._registry[3] = function(lambda *_: self.address, c_void_p, c_void_p, c_size_t)

    def _make_buffer(self, buffer_type: int, size: int) -> int:
        """A buffer of *size* bytes that do not exist: recurrent states, projectors and adapters request one."""
        self.requested += size
        return int(self._native.buffer_init(buffer_type, self._buffer, None, size))

    def _offloads(self, _device: int, address: int) -> bool:
        """Whether weights that are on the host are copied to the card for this operation, as CUDA would have it."""
        tensor, operations = Tensor.from_address(address), self._operations
        if tensor.op == operations["GET_ROWS"]:
            return False
        if tensor.op == operations["MUL_MAT"]:
            batch = tensor.ne[1]
        elif tensor.op in (operations["MUL_MAT_ID"], operations["ROPE"]):
            batch = tensor.ne[2]
        else:
            batch = self._native.nrows(address)
        return int(batch) >= _CUDA_LEAST_BATCH

    def _cuda_alloc_size(self, _buffer_type: int, address: int) -> int:
        native, tensor = self._native, Tensor.from_address(address)
        size = int(native.nbytes(address))
        if tensor.op == self._operations["FLASH_ATTN_EXT"]:
            keys, values = (Tensor.from_address(tensor.src[operand]) for operand in (1, 2))
            same_view = (values.view_src, values.view_offs) == (keys.view_src, keys.view_offs)
            shared = values.view_src is not None and (values.view_src == tensor.src[1] or same_view)
            copies = 0
            for operand in (1,) if shared else (1, 2):
                if native.type_name(Tensor.from_address(tensor.src[operand]).type) != b"f16":
                    copies = padded(copies, _CUDA_ALIGNMENT) + 2 * int(native.nelements(tensor.src[operand]))
            self.f16_copies = max(self.f16_copies, copies)
            size = padded(size, _CUDA_ALIGNMENT) + copies if copies else size
        if self._is_quantized(tensor.type) and (over := tensor.ne[0] % _CUDA_ROW):
            size += int(native.row_size(tensor.type, _CUDA_ROW - over))
        return size

    def _prove(self) -> None:
        """Read everything through the public API: each value must be the one that was put there."""
        native, own = self._native, self.address
        prove(NAME, native.devices().get(own), "ggml_backend_device_i.get_name")
        prove(_GPU, native.device_type(own), "ggml_backend_device_i.get_type")
        prove((FREE, TOTAL), memory_of(native, own), "ggml_backend_device_i.get_memory")
        props = _Props()
        native.device_props(own, ctypes.byref(props))
        prove((FREE, TOTAL, _GPU), (props.memory_free, props.memory_total, props.type), "ggml_backend_dev_props")
        prove(NAME.encode(), native.backend_name(native.device_init(own, None)), "ggml_backend_i.get_name")
        kind = native.device_buffer_type(own)
        prove(ctypes.addressof(self._buffer_type), kind, "ggml_backend_device_i.get_buffer_type")
        prove(native.cpu_buffer_type(), native.device_host_buffer_type(own), "get_host_buffer_type")
        prove(NAME.encode(), native.buffer_type_name(kind), "ggml_backend_buffer_type_i.get_name")
        prove(own, native.buffer_type_device(kind), "ggml_backend_buffer_type.device")
        places = native.buffer_type_is_host(kind), native.device_supports_buffer_type(own, kind)
        prove((False, True), places, "is_host")
        buffer = native.alloc_buffer(kind, 12_345)
        found = native.buffer_type(buffer), native.buffer_size(buffer), native.buffer_base(buffer)
        prove((kind, 12_345, _BASE), found, "ggml_backend_buffer_i")
        native.buffer_clear(buffer, 0)  # would crash here, and not later, if the slot were another one
        native.buffer_free(buffer)
        self._prove_sizes(kind)

    def _prove_sizes(self, kind: int) -> None:
        native = self._native
        context = native.init(InitParams(1 << 20, None, no_alloc=True))
        q8_0, f32 = 8, 0
        weights = native.new_tensor(context, q8_0, 320, 64, 1, 1)
        keys, values = (native.new_tensor(context, q8_0, 64, 96, 2, 1) for _ in range(2))
        query = native.new_tensor(context, f32, 64, 32, 4, 1)
        attention = native.flash_attn(context, query, keys, values, None, 1.0, 0.0, 0.0)
        product = native.mul_mat(context, weights, native.new_tensor(context, f32, 320, 31, 1, 1))
        result = 4 * 64 * 32 * 4
        cuda_sizes = 128, 340 * 64 + 204, result + 2 * (2 * 64 * 96 * 2)
        for cuda, expected in ((False, (32, 340 * 64, result)), (True, cuda_sizes)):
            self.like_cuda = cuda
            found = native.alignment(kind), native.alloc_size(kind, weights), native.alloc_size(kind, attention)
            prove(expected, found, "ggml_backend_buffer_type_i")
        self.like_cuda = False
        works = native.device_supports_op(self.address, product), native.device_offloads(self.address, product)
        prove((True, False), works, "ggml_backend_device_i.offload_op")
        native.free(context)


def memory_of(native: Native, device: int) -> tuple[int, int]:
    """Free and total bytes, as *device* reports them."""
    free, total = c_size_t(), c_size_t()
    native.device_memory(device, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def _give_memory(_device: int, free: int, total: int) -> None:
    c_size_t.from_address(free).value = FREE
    c_size_t.from_address(total).value = TOTAL


def _give_props(_device: int, props: Any) -> None:
    props[0] = _Props(NAME.encode(), NAME.encode(), FREE, TOTAL, _GPU, None, (c_bool * 5)())
