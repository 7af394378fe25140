"""llama.cpp from the xllamacpp wheel, through the symbols that its extension module exports.

``CommonParams`` of the wheel holds llama.cpp's C++ ``common_params`` inline, so llama-server's real command-line parser
can fill it: every flag, ``LLAMA_ARG_*`` variable and error text is llama.cpp's own.  ``corral-llama-server`` serves
with it, and ``corral.vram`` asks it what a command line takes.

This is sound for exactly one build: the version is compared, and the layout of the structure proved, before use.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from corral.engine import openmp
from corral.errors import ProgramMissing


def build_of(wheel_version: str) -> str:
    """llama.cpp's build in the xllamacpp wheel of *wheel_version*, e.g. ``b11549`` in ``2026.10.11549``."""
    return f"b{wheel_version.split('.')[2]}"


WHEEL_VERSION = "2026.10.11549"
LLAMA_CPP_BUILD = build_of(WHEEL_VERSION)
"""llama.cpp's build number inside that wheel (the wheel itself reports 0)."""
ENGINE = f"xllamacpp {WHEEL_VERSION} (llama.cpp {LLAMA_CPP_BUILD})"
"""What measurements name as their engine."""

_PARSE = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
_LOG, _FLUSH_LOG = "_Z15common_log_mainv", "_Z16common_log_flushP10common_log"
_LLAMA_EXAMPLE_SERVER = 12  # enum llama_example in llama.cpp's common/common.h
_OBJECT_HEAD = 16  # sizeof(PyObject): common_params follows it
_N_CTX_AT, _N_BATCH_AT = 4, 8  # bytes from the start of common_params
_OTHERWISE = "Install llama.cpp's llama-server and put it on PATH, or name it with: LLAMA_SERVER=/path/to/llama-server"


def require_available() -> None:
    """Return when the embedded engine can run on this machine; loads nothing.

    Raises:
        ProgramMissing: the wheel is missing or another one than the pinned, or the CPU is too old for it.
    """
    from importlib import metadata  # slow to import, and the child that measures does not call this

    try:
        version = metadata.version("xllamacpp")
    except metadata.PackageNotFoundError:
        here = f"{platform.system()} {platform.machine()}"
        message = f"The embedded engine is not installed; its wheel, xllamacpp, may not exist for {here}."
        raise ProgramMissing(message, next_step=_OTHERWISE) from None
    if version != WHEEL_VERSION:
        message = f"The embedded engine is xllamacpp {WHEEL_VERSION} and no other; {version} is installed."
        raise ProgramMissing(message, next_step=f"pip install xllamacpp=={WHEEL_VERSION}")
    if not _has_avx2():
        raise ProgramMissing("The embedded engine needs a CPU with AVX2; this one has none.", next_step=_OTHERWISE)


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line."""

    params: Any  # the wheel's CommonParams; its attributes read and write the C++ fields
    address: int  # of its common_params
    words: Any  # the C strings that it points into, kept alive


def load() -> tuple[ModuleType, ctypes.CDLL]:
    """The wheel's package, and its extension module as a C library.

    Raises:
        ProgramMissing: the library, or the OpenMP runtime that it links, cannot be loaded.
    """
    openmp.provide()
    import xllamacpp
    from xllamacpp import xllamacpp as extension

    try:
        return xllamacpp, ctypes.CDLL(extension.__file__)
    except OSError as error:
        raise ProgramMissing(f"The embedded engine cannot be loaded: {error}.", next_step=_OTHERWISE) from None


def symbol(library: ctypes.CDLL, name: str) -> Any:
    """The exported function *name* (mangled, as C++ has it); raises ProgramMissing where the wheel has none."""
    try:
        return getattr(library, name)
    except AttributeError:
        message = f"The xllamacpp wheel of this platform does not export llama.cpp's {name}."
        raise ProgramMissing(message, next_step=_OTHERWISE) from None


def parse(arguments: Sequence[str]) -> CommandLine | None:
    """*arguments* (without the program's name) as llama-server reads them; None when it refuses them and prints why.

    ``--help`` and ``--version`` print and end the process inside llama.cpp.

    Raises:
        ProgramMissing: the wheel does not fit; see ``require_available``.
    """
    xllamacpp, library = load()
    params = xllamacpp.CommonParams()
    address = id(params) + _OBJECT_HEAD
    _prove_layout(params, address)
    parser = symbol(library, _PARSE)
    parser.restype = ctypes.c_bool
    parser.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    encoded = [b"llama-server", *(os.fsencode(word) for word in arguments)]
    words = (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)
    if not parser(len(encoded), words, address, _LLAMA_EXAMPLE_SERVER, None):
        return None
    return CommandLine(params, address, words)


def flush_log() -> None:
    """Have llama.cpp write its log now: its own thread may be slower than an exit.  Raises as ``load``."""
    _, library = load()
    log, flush = symbol(library, _LOG), symbol(library, _FLUSH_LOG)
    log.restype, log.argtypes = ctypes.c_void_p, ()
    flush.restype, flush.argtypes = None, (ctypes.c_void_p,)
    flush(log())


def _prove_layout(params: Any, address: int) -> None:
    """Set two fields through the wheel's API and find both where the parser would write them."""
    saved = params.n_ctx, params.n_batch
    params.n_ctx, params.n_batch = 0x1234567, 0x7654321
    found = [ctypes.c_int32.from_address(address + offset).value for offset in (_N_CTX_AT, _N_BATCH_AT)]
    params.n_ctx, params.n_batch = saved
    if found != [0x1234567, 0x7654321]:
        message = f"The structures of the installed xllamacpp are not those of {WHEEL_VERSION}."
        raise ProgramMissing(message, next_step=_OTHERWISE)


def _has_avx2() -> bool:
    """Whether this CPU runs the wheel's code; only x86 needs AVX2."""
    if platform.machine() not in {"x86_64", "AMD64"}:
        return True
    try:
        return "avx2" in Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return True
