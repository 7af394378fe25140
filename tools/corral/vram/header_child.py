"""The process that reads a header out of bytes from elsewhere, confined: ``corral.vram.header_reader`` starts it.

It receives the size of the file, then pieces of it, each after its length (``LENGTH``).  To each of these it answers
once (``ANSWER``, and what that announces): it needs more bytes, has the fixture of the header, or refuses the file.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import Final

from corral.errors import UnreadableHeader
from corral.vram.gguf_header import HeaderParser, canonical

LENGTH: Final = Struct(">Q")
ANSWER: Final = Struct(">cQ")
NEEDED: Final = b"N"
"""Followed by nothing; its number is how many bytes of the file are needed at least."""
FIXTURE: Final = b"F"
"""Followed by so many bytes of the fixture."""
REFUSED: Final = b"R"
"""Followed by so many bytes of the reason, in UTF-8."""

_STDIN, _STDOUT = 0, 1


def main() -> None:
    """Read one header."""
    parser: HeaderParser | None = None
    while len(announced := _receive(LENGTH.size)) == LENGTH.size:
        (number,) = LENGTH.unpack(announced)
        try:
            if parser is None:
                parser, header = HeaderParser(number), None
            else:
                header = parser.feed(_receive(number))
            content = canonical(header) if header else b""
        except UnreadableHeader as error:
            return _refuse(error.message)
        except MemoryError:
            return _refuse("Not a GGUF file that this corral reads: its header takes more memory than any other.")
        if content:
            return _send(ANSWER.pack(FIXTURE, len(content)) + content)
        _send(ANSWER.pack(NEEDED, parser.needed_at_least))
    return None


def _refuse(reason: str) -> None:
    content = reason.encode()
    _send(ANSWER.pack(REFUSED, len(content)) + content)


def _receive(count: int) -> bytes:
    data = bytearray()
    while len(data) < count and (more := os.read(_STDIN, count - len(data))):
        data += more
    return bytes(data)


def _send(data: bytes) -> None:
    while data:
        data = data[os.write(_STDOUT, data) :]
