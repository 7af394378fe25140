"""A hub and a registry on loopback that send what a test gives them, byte for byte; else what they send in health."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from corral.demo.hub import Hub, Request, Wire

REPO = "org/model-GGUF"
COMMIT = "c0ffee" + "0" * 34
SHA256 = "5" * 64
PATH = "model-Q4_K_M.gguf"
IMAGE = "org/server:v1"
MANIFEST = b'{"schemaVersion": 2, "manifests": []}'
MIB = 1 << 20

Reply = bytes | Iterable[bytes] | Callable[[Request], bytes]
"""A whole response, its head included; in pieces where it has no end; or made from the request."""


def http(content: Any = b"", status: str = "200 OK", **fields: str | bytes) -> bytes:
    """A response with *content*, as JSON unless it is bytes; ``Content_Length=…`` replaces a field, "" removes it."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    usual = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    lines = [f"HTTP/1.1 {status}".encode()]
    for name, value in {**usual, **named}.items():
        if value:
            lines.append(name.encode() + b": " + (value if isinstance(value, bytes) else value.encode()))
    return b"\r\n".join([*lines, b"", body])


def redirect(location: str | bytes, status: str = "302 Found", **fields: str) -> bytes:
    """A redirect."""
    return http(b"", status, Location=location, **fields)


def endless(first: bytes, piece: bytes) -> Iterable[bytes]:
    """*first*, and then *piece* for as long as the client takes it."""
    return itertools.chain([first], itertools.repeat(piece))


def info(**changes: Any) -> dict[str, Any]:
    """What the API reports of the repository; a change to ``...`` leaves a field out."""
    sound = {"id": REPO, "sha": COMMIT, "tags": ["gguf", "license:mit"], "cardData": {"license": "mit"}}
    return _changed(sound, changes)


def entry(**changes: Any) -> dict[str, Any]:
    """The one model in the listing, the same way."""
    sound = {"type": "file", "path": PATH, "size": 5, "oid": "0" * 40, "lfs": _LFS}
    return _changed(sound, changes)


def lfs(**changes: Any) -> list[dict[str, Any]]:
    """The listing, with changes of the model's LFS data."""
    return [entry(lfs=_changed(_LFS, changes))]


def metadata(**changes: str) -> bytes:
    """The response to the HEAD of the model; "" leaves a field out."""
    return http(b"", **{"X_Linked_Etag": f'"{SHA256}"', "X_Linked_Size": "5", **changes})


def manifest(content: bytes = MANIFEST, **fields: str | bytes) -> bytes:
    """The manifest of the image."""
    return http(content, **{"Content_Type": "application/vnd.oci.image.index.v1+json", **fields})


def bomb(window: int, mib: int = 1024) -> bytes:
    """*mib* MiB of blanks, compressed a thousandfold: as gzip with *window* 31, as deflate with 15."""
    packing = zlib.compressobj(9, zlib.DEFLATED, window)
    first = packing.compress(b" " * MIB) + packing.flush(zlib.Z_FULL_FLUSH)
    again = packing.compress(b" " * MIB) + packing.flush(zlib.Z_FULL_FLUSH)  # refers to nothing before it
    return first + again * (mib - 1)


_LFS = {"oid": SHA256, "size": 5, "pointerSize": 134}


def _changed(sound: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**sound, **changes}.items() if value is not ...}


class HostileHub(Hub):
    """Responds by kind of request: ``info``, ``tree``, ``head``, ``manifest`` or ``token``, as ``replies`` has them.

    Every response ends its connection.
    """

    def __init__(self, **replies: Reply) -> None:
        super().__init__({})
        self.replies: dict[str, Reply] = {
            "info": http(info()),
            "tree": http([entry()]),
            "head": metadata(),
            "manifest": manifest(),
            "token": http({"token": "let-me-pull"}),
            **replies,
        }

    @property
    def address(self) -> str:
        """Host and port, as in the name of an image."""
        return self.endpoint.removeprefix("http://")

    @property
    def tokens(self) -> set[str | None]:
        """What the requests carried in ``Authorization``."""
        return {request.headers.get("authorization") for request in self.log}

    def serve(self, request: Request, wire: Wire) -> None:
        reply = self.replies[_kind(request)]
        if callable(reply):
            reply = reply(request)
        wire.close_connection = True
        with contextlib.suppress(OSError):  # the client hung up
            for piece in _pieces(reply):
                wire.send_piece(piece)


def _kind(request: Request) -> str:
    if request.method == "HEAD":
        return "head"
    if request.path.startswith("/token"):
        return "token"
    if request.path.startswith("/v2/"):
        return "manifest"
    return "tree" if "/tree/" in request.path else "info"


def _pieces(reply: bytes | Iterable[bytes]) -> Iterator[bytes]:
    return iter([reply]) if isinstance(reply, bytes) else iter(reply)


def digest_of(content: bytes = MANIFEST) -> str:
    """The digest of a manifest."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
