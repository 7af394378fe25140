"""Solid-colour PNG images, made from nothing but the standard library."""

from __future__ import annotations

import base64
import struct
import zlib

SIDE_PX = 224
"""Large enough for every vision encoder's patches, small enough to cost about fifty tokens."""

RGB = {
    "red": (255, 0, 0),
    "blue": (0, 0, 255),
    "green": (0, 255, 0),
    "yellow": (255, 255, 0),
    "white": (255, 255, 255),
    "black": (0, 0, 0),
}
"""The colours that are shown.  They are far apart, and no language model confuses their names."""


def solid_png(colour: str, side_px: int = SIDE_PX) -> bytes:
    """A square PNG (8-bit RGB) of one colour, *side_px* pixels wide.

    Raises:
        KeyError: *colour* is not one of ``RGB``.
    """
    row = b"\0" + bytes(RGB[colour]) * side_px  # 0: the row is stored unfiltered
    header = struct.pack(">IIBBBBB", side_px, side_px, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(row * side_px, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, payload) for kind, payload in chunks)


def data_url(image: bytes, kind: str = "png") -> str:
    """*image* of *kind* as a ``data:`` URL: it travels inside the request, so nothing is fetched."""
    return f"data:image/{kind};base64," + base64.b64encode(image).decode("ascii")


def _chunk(kind: bytes, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", zlib.crc32(kind + payload))
