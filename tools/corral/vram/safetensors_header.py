"""Reads the header of a safetensors file, which comes from anywhere: https://github.com/huggingface/safetensors#format.

Eight bytes with the length of a JSON object, the object, then the tensors.  Every offset must lie in the file, and the
tensors must fill it, as the format demands: a header that is accepted accounts for each byte of the file.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from corral.agent.hub_policy import printable
from corral.errors import UnreadableHeader

LENGTH_BYTES: Final = 8
MOST_BYTES: Final = 16 << 20
"""Of a header: 100,000 tensors have less; the format permits 100 MB."""

_MOST_TENSORS: Final = 200_000
_BITS: Final = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8} | {
    "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8
}  # fmt: skip
_METADATA: Final = "__metadata__"
_NAME: Final = re.compile(r"[!-~]{1,500}")
_Offset = Annotated[int, Field(ge=0, le=1 << 50)]


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    dtype: str
    shape: Annotated[list[_Offset], Field(max_length=8)]
    data_offsets: Annotated[list[_Offset], Field(min_length=2, max_length=2)]


_ENTRIES: TypeAdapter[dict[str, _Entry]] = TypeAdapter(dict[str, _Entry])


@dataclass(frozen=True)
class Tensor:
    """One tensor: its number format by the format's name, its shape, and its bytes in the file."""

    dtype: str
    shape: tuple[int, ...]
    size: int


def length(first: bytes, size: int, name: str) -> int:
    """Bytes of the JSON object, by the *first* eight bytes of the file *name* of *size* bytes.

    Raises:
        UnreadableHeader: the file cannot have a header of that length.
    """
    if len(first) < LENGTH_BYTES:
        raise _unreadable(name, f"it has {len(first)} bytes")
    (count,) = struct.unpack("<Q", first[:LENGTH_BYTES])
    if not 2 <= count <= min(MOST_BYTES, size - LENGTH_BYTES):
        raise _unreadable(name, f"its header would have {count:,} bytes")
    return int(count)


def parse(text: bytes, size: int, name: str) -> Mapping[str, Tensor]:
    """The tensors of the file *name* of *size* bytes, whose JSON object is *text*.

    Raises:
        UnreadableHeader: it is no such header, or does not account for every byte of the file.
    """
    try:
        found = json.loads(text, object_pairs_hook=_once)
        if not isinstance(found, dict):
            raise ValueError("it is no object")  # noqa: TRY301, TRY004 - handled as the other faults of the text
        found.pop(_METADATA, None)
        entries = _ENTRIES.validate_python(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _unreadable(name, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise _unreadable(name, str(error)) from None
    if not entries or len(entries) > _MOST_TENSORS:
        raise _unreadable(name, f"it has {len(entries):,} tensors")
    at = 0
    for tensor, one in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, end = one.data_offsets
        if not _NAME.fullmatch(tensor):
            raise _unreadable(name, f"a tensor is called {tensor!r:.60}")
        if one.dtype not in _BITS:
            raise _unreadable(name, f"{tensor} has the unknown number format {one.dtype!r:.20}")
        if begin != at or (end - begin) * 8 != math.prod(one.shape) * _BITS[one.dtype]:
            raise _unreadable(name, f"the bytes of {tensor} are not those of its shape, one tensor after the other")
        at = end
    if at != size - LENGTH_BYTES - len(text):
        raise _unreadable(name, f"its tensors have {at:,} bytes, and the file {size - LENGTH_BYTES - len(text):,}")
    return {
        key: Tensor(one.dtype, tuple(one.shape), one.data_offsets[1] - one.data_offsets[0])
        for key, one in entries.items()
    }


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _unreadable(name: str, why: str) -> UnreadableHeader:
    return UnreadableHeader(
        f"{name} has no safetensors header that corral can read: {printable(why)}.",
        next_step="Choose another repository or revision",
    )
