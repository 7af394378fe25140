"""Whether a streamed answer is whole.

llama-swap ends the stream of an engine that died as it ends any other.  A client of the API then takes what it got for
the whole answer; LiteLLM even adds the missing end.  Without the last chunk of the framing it is an error for each.
"""

from __future__ import annotations

from .heads import Response

_PATHS = ("/v1/chat/completions", "/v1/completions")  # their streams end with the mark, by the API
_MARK = b"[DONE]"
_LAST_CHUNK = b"0\r\n\r\n"


class StreamEnd:
    """Takes the last chunk off a stream that has no end mark.

    llama-swap writes that chunk at once, so that it never arrives in parts; one that did would pass.

    Attributes:
        is_cut: whether it was taken off.
    """

    def __init__(self) -> None:
        self._tail, self._is_whole, self.is_cut = b"", False, False

    def passed(self, data: bytes) -> bytes:
        """What of the next bytes the client gets."""
        received = self._tail + data
        self._tail = received[1 - len(_MARK) :]
        self._is_whole = self._is_whole or _MARK in received
        before = data[: -len(_LAST_CHUNK)]
        ends_a_chunk = not before or received[: -len(_LAST_CHUNK)].endswith(b"\r\n")
        self.is_cut = not self._is_whole and data.endswith(_LAST_CHUNK) and ends_a_chunk
        return before if self.is_cut else data


def end_of(path: str, response: Response) -> StreamEnd | None:
    """The end of the answer to *path*; None where it has no end mark."""
    fields = {name.lower(): value.lower() for name, value in response.fields}
    is_stream = fields.get("content-type", "").startswith("text/event-stream")
    is_chunked = fields.get("transfer-encoding") == "chunked"
    return StreamEnd() if path in _PATHS and response.status == 200 and is_stream and is_chunked else None
