"""The header of a GGUF file: what a model is, without its weights.

A GGUF file begins with metadata (hyperparameters, tokenizer) and a table of its tensors; gigabytes of weights follow.
llama.cpp computes the memory of a model from that beginning alone.  So corral keeps it, without all that has no
influence on memory, as a *fixture* of a few kilobytes (``canonical``), and makes of it a file that llama.cpp takes for
the model: the same header, and a hole where the weights were (``expand``).

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

from corral.errors import UnreadableHeader
from corral.vram.ggml_types import TYPES, padded

MAGIC: Final = b"GGUF"

_DEFAULT_ALIGNMENT: Final = 32
_LARGEST_ALIGNMENT: Final = 1 << 16
_MOST_DIMENSIONS: Final = 4  # GGML_MAX_DIMS
_LONGEST_NAME: Final = 63  # GGML_MAX_NAME, less its end
_LONGEST_KEY: Final = 65_535  # the format's own limit
_MOST_BYTES: Final = 1 << 50  # of one tensor: more than any file, and far from where the engine's int64 ends
_LEAST_KEY_BYTES: Final = 8 + 1 + 4 + 1  # length, one letter, type, value
_LEAST_TENSOR_BYTES: Final = 8 + 1 + 4 + 8 + 4 + 8

_UINT32, _STRING, _ARRAY, _UINT64 = 4, 8, 9, 10
_SCALARS: Final = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32, _U64 = _SCALARS[4], _SCALARS[10]


class HeaderIncomplete(Exception):
    """The bytes end before the header does, which has at least ``needed_at_least`` bytes, and may have more."""

    def __init__(self, needed_at_least: int) -> None:
        super().__init__(f"the header has at least {needed_at_least:,} bytes")
        self.needed_at_least = needed_at_least


@dataclass(frozen=True)
class Tensor:
    """One tensor of the table.

    Attributes:
        name: as llama.cpp knows it, ``blk.0.attn_q.weight``.
        shape: values a side, ``ne0`` (the length of a row) first.
        type: its number format, ``Q4_K``.
        size: bytes, without padding.
        offset: bytes from where the data begins.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    size: int
    offset: int


@dataclass(frozen=True)
class LeftOut:
    """Stands for a tokenizer's array, which is counted and not read."""

    count: int


@dataclass(frozen=True)
class GgufHeader:
    """What stands in a GGUF file before its data.

    Attributes:
        metadata: the values by key; an array is a tuple, one of the tokenizer's a ``LeftOut``.
        tensors: in the file's order.
        alignment: of each tensor's data, in bytes.
        file_size: bytes of the whole file, as given to ``parse``, else as the tensors have it.
        version: of the format, 2 or 3.
        size: bytes of the header itself.
        encoded: each value with its type in the file's own bytes, so that it can be written again unchanged.
    """

    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    alignment: int
    file_size: int
    version: int
    size: int
    encoded: Mapping[str, bytes] = field(repr=False, compare=False)

    @property
    def architecture(self) -> str:
        """``general.architecture``: ``qwen3``, ``clip`` for a projector; empty for a later shard of a split model."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def main_type(self) -> str:
        """The number format that most of the tensors' bytes have; empty when there are none."""
        total = Counter[str]()
        for tensor in self.tensors:
            total[tensor.type] += tensor.size
        return max(total, key=lambda name: (total[name], name), default="")


def parse(
    data: bytes | bytearray, *, file_size: int | None = None, skipped: dict[int, tuple[int, int]] | None = None
) -> GgufHeader:
    """The header at the start of *data*.

    Args:
        data: the file from its first byte on; more than the header does no harm.
        file_size: bytes of the whole file; it is checked that the tensors fit into it.
        skipped: of each tokenizer's list, by its place, how many texts end before which byte.  A call on more of the
            same file goes on from there; without it, each call passes all texts again.

    Raises:
        HeaderIncomplete: *data* ends too early, and the file may have more.
        UnreadableHeader: it is no GGUF file that this llama.cpp reads, or it is damaged.
    """
    reader = _Reader(data, {} if skipped is None else skipped)
    try:
        return _header(reader, file_size)
    except HeaderIncomplete as error:
        if file_size is not None and error.needed_at_least > file_size:
            rule = f"its header takes at least {error.needed_at_least:,} bytes, and the file has {file_size:,}"
            _refuse(rule, "Not a whole GGUF file")
        raise


def canonical(header: GgufHeader) -> bytes:
    """The fixture of *header*: all that has an influence on memory, and always the same bytes for the same header.

    The tokenizer's arrays and texts (megabytes) are left out and the number of tokens takes their place:
    ``tokenizer.ggml.model`` becomes ``no_vocab``, for which llama.cpp reads ``<architecture>.vocab_size``.
    """
    entries = {
        key: value
        for key, value in header.encoded.items()
        if not key.startswith("tokenizer.") or _type_of(value) not in (_STRING, _ARRAY)
    }
    if "tokenizer.ggml.model" in header.metadata:
        count_key = f"{header.architecture}.vocab_size"
        stated = entries.pop(count_key, None)
        tokens = header.metadata.get("tokenizer.ggml.tokens")
        # Where both stand, llama.cpp counts the tokens.
        count = _U32.pack(_UINT32) + _U32.pack(tokens.count) if isinstance(tokens, LeftOut) else stated
        entries["tokenizer.ggml.model"] = _U32.pack(_STRING) + _text("no_vocab")
        entries |= {count_key: count} if count else {}
    parts = [MAGIC, _U32.pack(header.version), _U64.pack(len(header.tensors)), _U64.pack(len(entries))]
    parts += [_text(key) + value for key, value in entries.items()]
    numbers = {kind.name: number for number, kind in TYPES.items()}
    for tensor in header.tensors:
        parts += [_text(tensor.name), _U32.pack(len(tensor.shape)), *map(_U64.pack, tensor.shape)]
        parts += [_U32.pack(numbers[tensor.type]), _U64.pack(tensor.offset)]
    return b"".join(parts)


def expand(fixture: bytes, path: Path) -> None:
    """Write *fixture* to *path* and let a hole of the weights' length follow it: a few kilobytes on disk.

    Raises:
        UnreadableHeader: *fixture* is no header.
        OSError: the file cannot be written.
    """
    try:
        length = parse(fixture).file_size
    except HeaderIncomplete as error:
        _refuse(str(error) + f", and {len(fixture):,} are there")
    with path.open("wb") as file:
        file.write(fixture)
        file.truncate(length)


def _refuse(rule: str, what: str = "Not a GGUF file that this corral reads") -> NoReturn:
    next_step = "Check that the catalog names a GGUF file of llama.cpp, and that it is whole"
    raise UnreadableHeader(f"{what}: {rule}.", next_step=next_step) from None


class _Reader:
    """Reads the values at the front of *data*; each method raises HeaderIncomplete where it ends too early."""

    def __init__(self, data: bytes | bytearray, skipped: dict[int, tuple[int, int]]) -> None:
        self.data = data
        self.skipped = skipped
        self.at = 0

    def take(self, count: int) -> bytes | bytearray:
        start, end = self.at, self.at + count
        if end > len(self.data):
            raise HeaderIncomplete(end)
        self.at = end
        return self.data[start:end]

    def scalar(self, kind: int) -> Any:
        form = _SCALARS[kind]
        return form.unpack(self.take(form.size))[0]

    def u32(self) -> int:
        return int(self.scalar(_UINT32))

    def u64(self) -> int:
        return int(self.scalar(_UINT64))

    def text(self) -> str:
        return self.take(self.u64()).decode(errors="replace")

    def name(self, what: str, longest: int) -> str:
        length = self.u64()
        if not 0 < length <= longest:
            _refuse(f"{what} has {length:,} letters, not 1 to {longest:,}")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            _refuse(f"{what} is not UTF-8")

    def skip_texts(self, count: int) -> None:
        """Move past *count* texts, of which a tokenizer has hundreds of thousands."""
        data, unpack = self.data, _U64.unpack_from
        done, at = self.skipped.get(self.at, (0, self.at))
        try:
            while done < count:
                end = at + 8 + unpack(data, at)[0]
                if end > len(data):
                    raise HeaderIncomplete(end + 8 * (count - done - 1))
                done, at = done + 1, end
        except struct.error:
            raise HeaderIncomplete(at + 8 * (count - done)) from None
        finally:
            self.skipped[self.at] = done, at
        self.at = at


def _header(reader: _Reader, file_size: int | None) -> GgufHeader:
    version, tensor_count, key_count = _preamble(reader)
    metadata, encoded = _metadata(reader, key_count, tensor_count)
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    right_type = "general.alignment" not in encoded or _type_of(encoded["general.alignment"]) == _UINT32
    if not right_type or not 0 < alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
        _refuse(f"general.alignment is {alignment}, and must be a power of two up to {_LARGEST_ALIGNMENT} (uint32)")
    tensors = tuple(_tensors(reader, tensor_count, alignment))
    data_starts = padded(reader.at, alignment)
    ends = data_starts + max((tensor.offset + tensor.size for tensor in tensors), default=0)
    if file_size is not None and ends > file_size:
        _refuse(f"its tensors end at byte {ends:,}, and the file has {file_size:,}", "Not a whole GGUF file")
    return GgufHeader(
        metadata=MappingProxyType(metadata),
        tensors=tensors,
        alignment=alignment,
        file_size=ends if file_size is None else file_size,
        version=version,
        size=reader.at,
        encoded=MappingProxyType(encoded),
    )


def _preamble(reader: _Reader) -> tuple[int, int, int]:
    magic = bytes(reader.data[:4])
    if not MAGIC.startswith(magic):
        _refuse(f"it begins with {magic!r}, not {MAGIC!r}")
    reader.take(4)
    version = reader.u32()
    if version & 0xFFFF == 0 and version:
        _refuse("it was written for big-endian machines (llama.cpp's gguf-convert-endian turns it round)")
    if version not in (2, 3):
        _refuse(f"it has version {version} of the format; 2 and 3 are read")
    tensor_count, key_count = reader.u64(), reader.u64()
    for what, count in (("tensors", tensor_count), ("metadata keys", key_count)):
        if count > 1 << 24:
            _refuse(f"it claims to have {count:,} {what}")
    return version, tensor_count, key_count


def _metadata(reader: _Reader, count: int, tensor_count: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    metadata: dict[str, Any] = {}
    encoded: dict[str, bytes] = {}
    for done in range(count):
        try:
            key = reader.name("a metadata key", _LONGEST_KEY)
            if key in metadata:
                _refuse(f"the metadata key {key} stands twice")
            start = reader.at
            metadata[key] = _value(reader, key)
        except HeaderIncomplete as error:
            rest = (count - done - 1) * _LEAST_KEY_BYTES + tensor_count * _LEAST_TENSOR_BYTES
            raise HeaderIncomplete(error.needed_at_least + rest) from None
        left_out = isinstance(metadata[key], LeftOut)
        encoded[key] = _U32.pack(_ARRAY) if left_out else bytes(reader.data[start : reader.at])
    return metadata, encoded


def _value(reader: _Reader, key: str) -> Any:
    kind = reader.u32()
    if kind == _STRING:
        return reader.text()
    if kind != _ARRAY:
        if kind not in _SCALARS:
            _refuse(f"the metadata key {key} has a value of type {kind}, which GGUF does not have")
        return reader.scalar(kind)
    element, count = reader.u32(), reader.u64()
    left_out = key.startswith("tokenizer.")
    if element == _STRING:
        start = reader.at
        reader.skip_texts(count)
        if left_out:
            return LeftOut(count)
        reader.at = start
        return tuple(reader.text() for _ in range(count))
    if element not in _SCALARS:
        _refuse(f"the metadata key {key} is an array of type {element}, which llama.cpp does not read")
    form = _SCALARS[element]
    data = reader.take(count * form.size)
    return LeftOut(count) if left_out else tuple(value for (value,) in form.iter_unpack(data))


def _tensors(reader: _Reader, count: int, alignment: int) -> Iterator[Tensor]:
    names: set[str] = set()
    expected = 0
    for done in range(count):
        try:
            tensor = _tensor(reader)
        except HeaderIncomplete as error:
            raise HeaderIncomplete(error.needed_at_least + (count - done - 1) * _LEAST_TENSOR_BYTES) from None
        if tensor.name in names:
            _refuse(f"the tensor {tensor.name} stands twice")
        if tensor.offset != expected:
            _refuse(f"the tensor {tensor.name} begins at {tensor.offset:,}, not at {expected:,}")
        names.add(tensor.name)
        expected += padded(tensor.size, alignment)
        yield tensor


def _tensor(reader: _Reader) -> Tensor:
    name = reader.name("a tensor's name", _LONGEST_NAME)
    dimensions = reader.u32()
    if dimensions > _MOST_DIMENSIONS:
        _refuse(f"the tensor {name} has {dimensions} dimensions; {_MOST_DIMENSIONS} is the most")
    shape = tuple(reader.u64() for _ in range(dimensions))
    number, offset = reader.u32(), reader.u64()
    if number not in TYPES:
        _refuse(f"the tensor {name} has number format {number}, which llama.cpp does not know (any more)")
    kind = TYPES[number]
    row = shape[0] if shape else 1
    if row % kind.block_length:
        _refuse(f"the tensor {name} has rows of {row}, no multiple of the {kind.block_length} of {kind.name}")
    size = kind.size_of(row) * math.prod(shape[1:])
    if size > _MOST_BYTES:
        _refuse(f"the tensor {name} claims to have {size:,} bytes")
    return Tensor(name, shape, kind.name, size, offset)


def _type_of(encoded: bytes) -> int:
    return int(_U32.unpack_from(encoded)[0])


def _text(text: str) -> bytes:
    raw = text.encode()
    return _U64.pack(len(raw)) + raw
