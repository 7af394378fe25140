"""``corral-llama-server``: llama-server's own command line, served by the llama.cpp inside the xllamacpp wheel.

The wheel brings no executable, but its extension module exports llama.cpp's symbols.  llama-server's real
command-line parser fills the C++ ``common_params`` that a ``CommonParams`` object holds inline, so every flag,
``LLAMA_ARG_*`` variable and error text is llama.cpp's own; the wheel's HTTP server is llama-server's own too.
What the process adds is what ``main()`` of llama-server does: signals and exit codes.

Behaves as llama-server does, but for two things: there is no router mode (a command line without a model is
refused), and SIGTERM ends it at once even while it answers (llama-server may wait until its clients hang up).

This is sound for exactly one build, so the version is compared and the layout of the structure is proved before use.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import sys
import threading
from importlib import metadata
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from corral.errors import ProgramMissing

WHEEL_VERSION = "2026.10.11549"
LLAMA_CPP_BUILD = "b11549"
"""llama.cpp's build number inside that wheel (the wheel itself reports 0)."""

_PARSE = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
_LLAMA_EXAMPLE_SERVER = 12  # enum llama_example in llama.cpp's common/common.h
_OBJECT_HEAD = 16  # sizeof(PyObject): common_params follows it
_N_CTX_AT, _N_BATCH_AT = 4, 8  # bytes from the start of common_params
_OTHERWISE = "Install llama.cpp's llama-server and put it on PATH, or name it with: LLAMA_SERVER=/path/to/llama-server"


def require_available() -> None:
    """Return when the embedded engine can run on this machine; loads nothing.

    Raises:
        ProgramMissing: the wheel is missing or another one than the pinned, or the CPU is too old for it.
    """
    try:
        version = metadata.version("xllamacpp")
    except metadata.PackageNotFoundError:
        where = f"{platform.system()} {platform.machine()}"
        raise ProgramMissing(
            f"The embedded engine is not installed; its wheel, xllamacpp, may not exist for {where}.",
            next_step=_OTHERWISE,
        ) from None
    if version != WHEEL_VERSION:
        raise ProgramMissing(
            f"The embedded engine is xllamacpp {WHEEL_VERSION} and no other; {version} is installed.",
            next_step=f"pip install xllamacpp=={WHEEL_VERSION}",
        )
    if not _has_avx2():
        raise ProgramMissing("The embedded engine needs a CPU with AVX2; this one has none.", next_step=_OTHERWISE)


def main() -> NoReturn:
    """Serve until SIGTERM or SIGINT; never returns.

    Exit codes as llama-server's: 0 after a signal, 1 for anything wrong, and death by the signal itself while loading.
    """
    # A failed assertion would fork a debugger for the backtrace, and dump as much core as the model is large.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, signal.SIG_DFL)
    try:
        require_available()
        xllamacpp, params, _words = _parse(sys.argv[1:])
    except ProgramMissing as error:
        _fail(f"{error.message} {error.next_step}")
    if not (params.model.path or params.model.hf_repo or params.model.url):
        _fail("no model given: pass -m FILE (the embedded engine has no router mode)")
    try:
        _server = xllamacpp.Server(params)  # returns when the model is loaded; answers 503 over HTTP meanwhile
    except Exception as error:  # noqa: BLE001 - the extension throws llama.cpp's reason as whatever type it likes
        _fail(str(error))
    _wait_for_signal()
    # The destructor would wait for every client to hang up.
    os._exit(0)


def _parse(arguments: list[str]) -> tuple[ModuleType, Any, Any]:
    """The extension module, its ``CommonParams`` filled from *arguments*, and the C strings these point into.

    ``--help`` and ``--version`` print and end the process inside llama.cpp, and so does a bad flag.
    """
    import xllamacpp
    from xllamacpp import xllamacpp as extension

    params = xllamacpp.CommonParams()
    address = id(params) + _OBJECT_HEAD
    _prove_layout(params, address)
    try:
        parse = getattr(ctypes.CDLL(extension.__file__), _PARSE)
    except (AttributeError, OSError):
        raise ProgramMissing(
            "The xllamacpp wheel of this platform does not export llama.cpp's parser.", next_step=_OTHERWISE
        ) from None
    parse.restype = ctypes.c_bool
    parse.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    words = [b"llama-server", *(os.fsencode(word) for word in arguments)]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    if not parse(len(words), argv, address, _LLAMA_EXAMPLE_SERVER, None):
        sys.exit(1)  # the parser has said why
    return xllamacpp, params, argv


def _prove_layout(params: Any, address: int) -> None:
    """Set two fields through the wheel's API and find both where the parser would write them."""
    saved = params.n_ctx, params.n_batch
    params.n_ctx, params.n_batch = 0x1234567, 0x7654321
    found = [ctypes.c_int32.from_address(address + offset).value for offset in (_N_CTX_AT, _N_BATCH_AT)]
    params.n_ctx, params.n_batch = saved
    if found != [0x1234567, 0x7654321]:
        raise ProgramMissing(
            f"The structures of the installed xllamacpp are not those of {WHEEL_VERSION}.", next_step=_OTHERWISE
        )


def _wait_for_signal() -> None:
    stopping = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            os._exit(1)  # a second signal: terminate at once, as llama-server does
        stopping.set()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, on_signal)
    stopping.wait()


def _has_avx2() -> bool:
    """Whether this CPU runs the wheel's code; only x86 needs AVX2."""
    if platform.machine() not in {"x86_64", "AMD64"}:
        return True
    try:
        return "avx2" in Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return True


def _fail(reason: str) -> NoReturn:
    """Say why and exit 1, past the destructors of half-built C++ objects."""
    sys.stderr.write(f"error: {reason}\n")
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main()
