"""A process for what comes from outside: few rights, little memory and time, no network, nothing of the caller's.

It is Python with a program of ours (``Confined``).  Before that program begins, the process limits itself
(``confine``); its stdin and stdout are one socket, and it has no other way to its caller.  Both halves are here; the
process imports this module, so that what only its caller needs is imported where it is used.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple, Self

from corral.errors import CannotRun

_MOST_IN_A_FILE: Final = 16 << 20
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_LEAST_WAIT_S: Final = 0.001
_END_S: Final = 5.0


class Limits(NamedTuple):
    """What a process may take: bytes of address space, seconds of processor time, seconds until it has answered."""

    memory: int
    processor_s: int
    answer_s: float


class Ending(NamedTuple):
    """How a process ended, as the predicate of a sentence, and whether that was at its limit of processor time."""

    text: str
    at_limit: bool = False


class Confined:
    """A confined process, and its caller's end of the socket; leaving it as a context manager ends the process."""

    def __init__(
        self,
        program: str,
        limits: Limits,
        *,
        packages: bool = False,
        folder: Path = Path("/"),
        log: IO[bytes] | None = None,
    ) -> None:
        """Start Python with *program*, which is its text.

        Args:
            program: what it does once it is confined.
            limits: how long it may do so; ``answer_s`` is for all of ``send`` and ``receive`` together.
            packages: whether it needs others than the standard library and corral; a start takes twice the time.
            folder: where it works, its home, and where it may write.
            log: receives its stderr.

        Raises:
            CannotRun: it does not start.
        """
        import socket
        import subprocess

        self.limits = limits
        self._left = limits.answer_s
        root = str(Path(__file__).parents[2])
        start = f"import sys; sys.path.append({root!r}); from corral.vram.confined import confine"
        text = f"{start}; confine({limits.memory}, {limits.processor_s})\n{program}"
        self._channel, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", *(() if packages else ("-S",)), "-c", text],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=log or subprocess.DEVNULL,
                    cwd=folder,
                    env=_environment(folder),
                    start_new_session=True,
                )
            except OSError as error:
                self._channel.close()
                message = f"{sys.executable} could not be started: {error.strerror}."
                raise CannotRun(
                    message, next_step="Check this machine's memory and processes: free -m; ulimit -u"
                ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._process.kill()
        self._process.wait()

    def send(self, data: bytes) -> None:
        """Send *data*; to a process that has ended, nothing: ``receive`` returns what it left.

        Raises:
            TimeoutError: the time for its answers is over.
        """
        with self._in_time(), contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._channel.sendall(data)

    def receive(self, most: int) -> bytes:
        """Up to *most* bytes; none when the process has ended, or closed its stdout.

        Raises:
            TimeoutError: the time for its answers is over.
        """
        with self._in_time(), contextlib.suppress(ConnectionResetError):
            return self._channel.recv(most)
        return b""

    def receive_all(self, most: int) -> bytes:
        """What the process sends until it ends, but no more than *most* bytes of it; raises as ``receive``."""
        data = b""
        while len(data) < most and (more := self.receive(most - len(data))):
            data += more
        return data

    def no_more(self) -> None:
        """End the process's stdin."""
        import socket

        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)

    def ending(self) -> Ending:
        """How the process ended; one that goes on without a stdout is as good as ended."""
        import subprocess

        try:
            status = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            status = 0
        if status == -signal.SIGXCPU:
            return Ending(f"took more than {self.limits.processor_s} s of processor time", at_limit=True)
        if status < 0:
            name = next((one.name for one in signal.Signals if one == -status), f"signal {-status}")
            return Ending(f"was ended by {name}")
        return Ending(f"ended with exit code {status}" if status else "stopped answering")

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        import time

        started = time.monotonic()
        self._channel.settimeout(max(self._left, _LEAST_WAIT_S))
        try:
            yield
        finally:
            self._left -= time.monotonic() - started


def confine(memory: int, processor_s: int) -> None:
    """Confine this process for good: *memory* bytes, *processor_s* seconds; no core, no large files, no network.

    Where the kernel permits no network namespace (many containers, systems other than Linux), the network stays.
    """
    _limit(resource.RLIMIT_AS, memory)
    _limit(resource.RLIMIT_CPU, processor_s, 1)  # at the limit comes SIGXCPU; a second later SIGKILL
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, _MOST_IN_A_FILE)
    if sys.platform == "linux":
        import ctypes

        libc = ctypes.CDLL(None)
        # Root needs no user namespace, and in one it may lose the right to read corral's own files.
        if libc.unshare(_CLONE_NEWNET):
            libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit(kind: int, most: int, grace: int = 0) -> None:
    _, present = resource.getrlimit(kind)
    highest = most + grace if present == resource.RLIM_INFINITY else min(most + grace, present)
    try:
        resource.setrlimit(kind, (min(most, highest), highest))
    except (OSError, ValueError):
        if sys.platform == "linux":  # macOS does not take every limit
            raise


def _environment(folder: Path) -> dict[str, str]:
    """No secret and no setting of the caller's: llama.cpp reads ``LLAMA_ARG_*``, ``GGML_*`` and a config.ini."""
    from corral.engine import environment

    own = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR"), str(folder))
    return environment.allowed(PATH=os.defpath, LC_ALL="C.UTF-8", GGML_NO_BACKTRACE="1", **own)
