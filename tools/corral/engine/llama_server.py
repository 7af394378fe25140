"""``corral-llama-server``: llama-server's own command line, served by the llama.cpp inside the xllamacpp wheel.

The wheel brings no executable, but llama-server's real parser (``corral.engine.embedded``), and its HTTP server is
llama-server's own too.  What the process adds is what ``main()`` of llama-server does: signals and exit codes.

It differs from llama-server in two things: there is no router mode (a command line without a model is refused), and
SIGTERM ends it immediately even while it answers (llama-server may wait until its clients hang up).
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
from typing import NoReturn

from corral.engine import embedded
from corral.errors import ProgramMissing


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
        embedded.require_available()
        command_line = embedded.parse(sys.argv[1:])
    except ProgramMissing as error:
        fail(f"{error.message} {error.next_step}")
    if command_line is None:
        sys.exit(1)  # the parser has printed why
    params = command_line.params
    if not (params.model.path or params.model.hf_repo or params.model.url):
        fail("no model given: pass -m FILE (the embedded engine has no router mode)")
    try:
        import xllamacpp

        _server = xllamacpp.Server(params)  # returns when the model is loaded; answers 503 over HTTP meanwhile
    except Exception as error:  # noqa: BLE001 - the extension throws llama.cpp's reason as whatever type it likes
        embedded.flush_log()
        fail(str(error))
    _wait_for_signal()
    # The destructor would wait for every client to hang up.
    os._exit(0)


def _wait_for_signal() -> None:
    # A thread that waits for a lock may never run a Python handler; the byte is written immediately.
    # https://docs.python.org/3/library/signal.html#signal.set_wakeup_fd
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno())
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda _number, _frame: None)
    reader.recv(1)


def fail(reason: str) -> NoReturn:
    """Print *reason* and exit 1, past the destructors of half-built C++ objects."""
    sys.stderr.write(f"error: {reason}\n")
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main()
