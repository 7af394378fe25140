"""Reads the header of a GGUF file from elsewhere, in a confined process of its own (``corral.vram.header_child``).

The caller brings the bytes, from the hub or from disk, and gets the fixture of the header.  The answer is a header in
its smallest form, and is read here as strictly as any other before it counts.
"""

from __future__ import annotations

from typing import Final, Self

from corral.agent.hub_policy import printable
from corral.errors import CannotRun, CorralError, UnreadableHeader
from corral.vram.confined import Confined, Ending, Limits
from corral.vram.gguf_header import MOST_BYTES, MOST_KEPT, NEXT_STEP, parse_fixture
from corral.vram.header_child import ANSWER, FIXTURE, LENGTH, NEEDED, REFUSED

LIMITS: Final = Limits(memory=256 << 20, processor_s=20, answer_s=20.0)
"""For one header, whichever place it is from; the time that its bytes take to arrive does not count.  The worst header
found within ``MOST_BYTES`` and ``MOST_KEPT`` takes 130 MiB and 2 s."""

_PROGRAM = "from corral.vram.header_child import main; main()"
_MOST_ANSWERED = {FIXTURE: MOST_KEPT, REFUSED: 1000}


class HeaderReader:
    """Reads the header of one file; leaving it as a context manager ends its process.

    Attributes:
        needed_at_least: bytes of the file that the header has at least; 0 before the first answer.
    """

    def __init__(self, name: str, file_size: int) -> None:
        """Begin the file *name* (for messages) of *file_size* bytes.

        Raises:
            UnreadableHeader: no header is that short.
            CannotRun: the process does not start.
        """
        self.needed_at_least = 0
        self._name = printable(name)
        self._most = min(file_size, MOST_BYTES)
        self._fed = 0
        self._process = Confined(_PROGRAM, LIMITS)
        try:
            self._exchange(LENGTH.pack(file_size))
        except BaseException:
            self._process.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__()

    def feed(self, piece: bytes) -> bytes | None:
        """The fixture of the header, when it ends in *piece*, which follows those before it.

        Raises:
            UnreadableHeader: the file has no header that corral reads within the limits.
            CannotRun: the process ended otherwise, or its answer is none.
        """
        self._fed += len(piece)
        return self._exchange(LENGTH.pack(len(piece)) + piece)

    def _exchange(self, data: bytes) -> bytes | None:
        try:
            self._process.send(data)
            kind, number = ANSWER.unpack(self._receive(ANSWER.size))
            content = self._receive(number) if number <= _MOST_ANSWERED.get(kind, 0) else b""
        except TimeoutError:
            raise self._failed(Ending(f"has not answered after {LIMITS.answer_s:g} s")) from None
        if kind == NEEDED and self._fed < number <= self._most:
            self.needed_at_least = number
            return None
        if kind == FIXTURE and content:
            self._require_whole(content)
            return content
        if kind == REFUSED and (reason := content.decode(errors="replace")) and reason.isprintable():
            raise UnreadableHeader(f"{self._name}: {reason}", next_step=NEXT_STEP)
        raise self._failed(Ending("sent what is no answer"))

    def _require_whole(self, fixture: bytes) -> None:
        try:
            parse_fixture(fixture)
        except UnreadableHeader as error:
            raise UnreadableHeader(f"{self._name}: {error.message}", next_step=error.next_step) from None

    def _receive(self, count: int) -> bytes:
        data = self._process.receive_all(count)
        if len(data) < count:
            raise self._failed(self._process.ending())
        return data

    def _failed(self, ending: Ending) -> CorralError:
        message = f"{self._name}: the process that reads its header {ending.text}."
        if ending.at_limit:
            return UnreadableHeader(message, next_step=NEXT_STEP)
        return CannotRun(message, next_step="Check this machine's memory and load (free -m; uptime), then: corral lock")
