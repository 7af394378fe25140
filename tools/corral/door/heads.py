"""The head of an HTTP/1.1 message, read so strictly that no other reader can find other boundaries in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

from .refusals import Refusal, malformed

REQUEST_LIMIT = 32 << 10
RESPONSE_LIMIT = 64 << 10
END = b"\r\n\r\n"

_FIELDS = 100
_REQUEST_LINE = re.compile(r"([A-Z]{3,10}) (\S+) (HTTP/[0-9.]{1,8})")
_STATUS_LINE = re.compile(r"HTTP/1\.[01] ([2-5][0-9]{2})(?: .*)?")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")
_BARE_END_OF_LINE = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")
_LENGTH = re.compile(r"[0-9]{1,15}")
_ONCE = {
    *("authorization", "connection", "content-length", "content-type", "expect", "host"),
    *("transfer-encoding", "x-api-key"),
}
# Of a connection, of llama-swap's own keys, and what would give a foreign web page access.
_DROPPED = re.compile(
    r"connection|keep-alive|proxy-.*|te|trailer|upgrade|set-cookie2?|www-authenticate|access-control-.*", re.IGNORECASE
)


@dataclass(frozen=True)
class Request:
    """The head of a request; names of fields are in lower case."""

    method: str
    target: str
    fields: dict[str, str]
    length: int  # bytes of the body


@dataclass(frozen=True)
class Response:
    """The head of a response."""

    status: int
    fields: list[tuple[str, str]]

    @property
    def length(self) -> int | None:
        """The bytes of the body; None when only its end gives them."""
        found = [value for name, value in self.fields if name.lower() == "content-length"]
        return int(found[0]) if len(found) == 1 and _LENGTH.fullmatch(found[0]) else None

    def relayed(self) -> bytes:
        """The head as the client gets it; the body after it stays as it is, with its framing."""
        try:
            phrase = HTTPStatus(self.status).phrase
        except ValueError:
            phrase = ""
        kept = [f"{name}: {value}" for name, value in self.fields if not _DROPPED.fullmatch(name)]
        return "\r\n".join([f"HTTP/1.1 {self.status} {phrase}", *kept, "Connection: close", "", ""]).encode("latin-1")


def check_beginning(received: bytes | bytearray) -> None:
    """Raise a Refusal when *received*, which has no end of a head yet, cannot become the head of a request."""
    if not b"A" <= received[:1] <= b"Z" or _BARE_END_OF_LINE.search(received):
        raise malformed("The head of the request is no HTTP/1.1: each of its lines ends with CR LF.")
    if len(received) > REQUEST_LIMIT:
        raise _too_large()


def read_request(head: bytes) -> Request:
    """The head of a request, given without its empty line.

    Raises:
        Refusal: it is malformed, too large, or its body would have no length.
    """
    check_beginning(head)
    first, *lines = head.decode("latin-1").split("\r\n")
    found = _REQUEST_LINE.fullmatch(first)
    if found is None:
        raise malformed("The request line is malformed.")
    method, target, version = found.groups()
    if version != "HTTP/1.1":
        raise Refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "http-version", "Only HTTP/1.1 is spoken here.")
    fields: dict[str, str] = {}
    for name, value in _fields(lines):
        if name.lower() in fields and name.lower() in _ONCE:
            raise malformed(f"The field {name.lower()} may stand in a request only once.")
        fields[name.lower()] = value
    if "host" not in fields:
        raise malformed("The field host is required.")
    return Request(method, target, fields, _length(fields))


def read_response(head: bytes) -> Response:
    """The head of a response, given without its empty line.

    Raises:
        ValueError: it is malformed.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    found = _STATUS_LINE.fullmatch(first)
    if found is None or len(head) > RESPONSE_LIMIT:
        raise ValueError("no head")
    try:
        return Response(int(found[1]), list(_fields(lines)))
    except Refusal as error:
        raise ValueError(str(error)) from None


def _fields(lines: list[str]) -> Iterable[tuple[str, str]]:
    if len(lines) > _FIELDS:
        raise _too_large()
    for line in lines:
        if (found := _FIELD.fullmatch(line)) is None:
            raise malformed("A field of the head is malformed.")
        yield found[1], found[2]


def _length(fields: dict[str, str]) -> int:
    if "transfer-encoding" in fields:
        rule = "The length of a body must stand in content-length; transfer-encoding is not accepted."
        raise Refusal(HTTPStatus.LENGTH_REQUIRED, "length-required", rule)
    length = fields.get("content-length", "0")
    if not _LENGTH.fullmatch(length):
        raise malformed("The field content-length must be a number.")
    return int(length)


def _too_large() -> Refusal:
    rule = f"The head of a request has at most {_FIELDS} fields and {REQUEST_LIMIT >> 10} KiB."
    return Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "head-too-large", rule)
