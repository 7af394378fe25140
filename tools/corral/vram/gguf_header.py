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
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from corral.errors import UnreadableHeader
from corral.vram.ggml_types import TYPES, padded

MAGIC: Final = b"GGUF"

MOST_BYTES: Final = 64 << 20
"""Of a header: six times the largest of today."""
MOST_KEPT: Final = 4 << 20
"""Bytes of a header without the tokenizer's lists, and so of a fixture: forty times the largest of today."""
NEXT_STEP: Final = "Check that the catalog names a GGUF file of llama.cpp, and that it is whole; else choose another"
"""The remedy for a file whose header is refused."""

_DEFAULT_ALIGNMENT: Final = 32
_LARGEST_ALIGNMENT: Final = 1 << 16
_MOST_DIMENSIONS: Final = 4  # GGML_MAX_DIMS
_LONGEST_NAME: Final = 63  # GGML_MAX_NAME, less its end
_LONGEST_KEY: Final = 65_535  # the format's own limit
_LARGEST_TENSOR: Final = 1 << 50  # bytes: more than any file, and far from where the engine's int64 ends
_LEAST_KEY_BYTES: Final = 8 + 1 + 4 + 1  # length, one letter, type, value
_LEAST_TENSOR_BYTES: Final = 8 + 1 + 4 + 4 + 8
_LONGEST_SHOWN: Final = 80
_NOT_WHOLE: Final = "Not a whole GGUF file"

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

_T = TypeVar("_T")
_Steps: TypeAlias = Generator[int, None, _T]
"""What reads a value; it yields wherever bytes are missing, and goes on when there are more."""


class HeaderIncomplete(Exception):
    """The bytes end before the header does, which has at least ``needed_at_least`` bytes, and may have more."""

    def __init__(self, needed_at_least: int) -> None:
        super().__init__(f"the header has at least {needed_at_least:,} bytes")
        self.needed_at_least = needed_at_least


@dataclass(frozen=True, slots=True)
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


class HeaderParser:
    """Reads a header from the pieces of a file, in their order, each byte once.

    It keeps nothing of the tokenizer's lists, and of the rest at most ``MOST_KEPT`` bytes.

    Attributes:
        needed_at_least: bytes that the header has at least, and may have more; always beyond those that were fed.
    """

    def __init__(self, file_size: int | None = None) -> None:
        """Begin a file of *file_size* bytes, into which the header and the tensors must fit; None when unknown.

        Raises:
            UnreadableHeader: no header is that short.
        """
        self._reader = _Reader(file_size)
        self._steps = _header(self._reader, file_size)
        self.needed_at_least = next(self._steps)

    def feed(self, piece: bytes | bytearray | memoryview) -> GgufHeader | None:
        """Read on in *piece*; the header when this was the last one, which may hold what follows the header too.

        Raises:
            UnreadableHeader: it is no GGUF file that this llama.cpp reads, or it is damaged.
        """
        self._reader.add(piece)
        try:
            self.needed_at_least = next(self._steps)
        except StopIteration as end:
            header: GgufHeader = end.value
            return header
        return None


def parse(data: bytes | bytearray, *, file_size: int | None = None) -> GgufHeader:
    """The header at the start of *data*.

    Args:
        data: the file from its first byte on; more than the header does no harm.
        file_size: bytes of the whole file; it is checked that the tensors fit into it.

    Raises:
        HeaderIncomplete: *data* ends too early, and the file may have more.
        UnreadableHeader: it is no GGUF file that this llama.cpp reads, or it is damaged.
    """
    parser = HeaderParser(file_size)
    header = parser.feed(data)
    if header is None:
        raise HeaderIncomplete(parser.needed_at_least)
    return header


def parse_fixture(fixture: bytes) -> GgufHeader:
    """The header that is all of *fixture*.

    Raises:
        UnreadableHeader: it is none.
    """
    try:
        header = parse(fixture)
    except HeaderIncomplete as error:
        _refuse(f"{error}, and {len(fixture):,} are there")
    if header.size != len(fixture):
        _refuse(f"the header has {header.size:,} bytes, and {len(fixture):,} are there")
    return header


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
        entries.pop("tokenizer.ggml.model", None)  # where it is no text
        count_key = f"{header.architecture}.vocab_size"
        stated = entries.pop(count_key, None)
        tokens = header.metadata.get("tokenizer.ggml.tokens")
        # Where both stand, llama.cpp counts the tokens.
        count = _U32.pack(_UINT32) + _U32.pack(tokens.count) if isinstance(tokens, LeftOut) else stated
        entries["tokenizer.ggml.model"] = _U32.pack(_STRING) + _counted(b"no_vocab")
        entries |= {count_key: count} if count else {}
    parts = [MAGIC, _U32.pack(header.version), _U64.pack(len(header.tensors)), _U64.pack(len(entries))]
    parts += [_counted(key.encode()) + value for key, value in entries.items()]
    numbers = {kind.name: number for number, kind in TYPES.items()}
    for tensor in header.tensors:
        parts += [_counted(tensor.name.encode()), _U32.pack(len(tensor.shape)), *map(_U64.pack, tensor.shape)]
        parts += [_U32.pack(numbers[tensor.type]), _U64.pack(tensor.offset)]
    return b"".join(parts)


def expand(fixture: bytes, path: Path) -> None:
    """Write *fixture* to *path* and let a hole of the weights' length follow it: a few kilobytes on disk.

    Raises:
        UnreadableHeader: *fixture* is no header.
        OSError: the file cannot be written.
    """
    length = parse_fixture(fixture).file_size
    with path.open("wb") as file:
        file.write(fixture)
        file.truncate(length)


def _refuse(rule: str, what: str = "Not a GGUF file that this corral reads") -> NoReturn:
    raise UnreadableHeader(f"{what}: {rule}.", next_step=NEXT_STEP) from None


def _shown(value: object) -> str:
    """A *value* of the file in a message: short, and without the characters that control a terminal."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


class _Reader:
    """Reads values in their order; a generator yields, wherever bytes are missing, how many the header has at least."""

    def __init__(self, file_size: int | None) -> None:
        self._file_size = file_size
        self._data = bytearray()  # what was added and not read yet
        self._at = 0  # in data; beyond its end, what is to be skipped has not come yet
        self._start = 0  # of data, in the file
        self._kept = 0
        self.rest = 0  # bytes that follow at least after the value that is read

    @property
    def place(self) -> int:
        """Where the next value is in the file."""
        return self._start + self._at

    def add(self, piece: bytes | bytearray | memoryview) -> None:
        """Let *piece* follow what was added before."""
        read = min(self._at, len(self._data))
        del self._data[:read]
        self._start += read
        self._at -= read
        self._data += piece

    def least(self, count: int = 0) -> int:
        """Bytes of a header that has *count* more at this place, and the rest; refuses one that is too long."""
        needed = self.place + count + self.rest
        if self._file_size is not None and needed > self._file_size:
            _refuse(f"its header takes at least {needed:,} bytes, and the file has {self._file_size:,}", _NOT_WHOLE)
        if needed > MOST_BYTES:
            _refuse(f"its header takes at least {needed:,} bytes, and {MOST_BYTES:,} is the most that is read")
        return needed

    def keep(self, count: int) -> None:
        """Refuse a header that has *count* more bytes to be kept than there may be."""
        if self._kept + count > MOST_KEPT:
            _refuse(f"it has more than {MOST_KEPT:,} bytes of metadata and tensors beside the tokenizer's lists")

    def take(self, count: int) -> _Steps[bytes]:
        self.keep(count)
        self._kept += count
        while self._at + count > len(self._data):
            yield self.least(count)
        start, self._at = self._at, self._at + count
        return bytes(self._data[start : self._at])

    def u32(self) -> _Steps[int]:
        return int(_U32.unpack((yield from self.take(4)))[0])

    def u64(self) -> _Steps[int]:
        return int(_U64.unpack((yield from self.take(8)))[0])

    def text(self) -> _Steps[bytes]:
        return (yield from self.take((yield from self.u64())))

    def name(self, what: str, longest: int) -> _Steps[str]:
        length = yield from self.u64()
        if not 0 < length <= longest:
            _refuse(f"{what} has {length:,} letters, not 1 to {longest:,}")
        try:
            return (yield from self.take(length)).decode()
        except UnicodeDecodeError:
            _refuse(f"{what} is not UTF-8")

    def skip(self, count: int) -> None:
        self._at += count

    def skip_texts(self, count: int) -> _Steps[None]:
        """Move past *count* texts, of which a tokenizer has hundreds of thousands."""
        unpack = _U64.unpack_from
        while True:
            data, at, last = self._data, self._at, len(self._data) - 8
            while count and at <= last:
                at += 8 + unpack(data, at)[0]
                count -= 1
            self._at = at
            if not count:
                return
            yield self.least(8 * count)


def _header(reader: _Reader, file_size: int | None) -> _Steps[GgufHeader]:
    version, tensor_count, key_count = yield from _preamble(reader)
    metadata, encoded = yield from _metadata(reader, key_count)
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    right_type = "general.alignment" not in encoded or _type_of(encoded["general.alignment"]) == _UINT32
    if not right_type or not 0 < alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
        rule = f"must be a power of two up to {_LARGEST_ALIGNMENT} (uint32)"
        _refuse(f"general.alignment is {_shown(alignment)}, and {rule}")
    tensors = yield from _tensors(reader, tensor_count, alignment)
    yield from reader.take(0)  # what was skipped is there
    size = reader.least()
    ends = padded(size, alignment) + max((tensor.offset + tensor.size for tensor in tensors), default=0)
    if file_size is not None and ends > file_size:
        _refuse(f"its tensors end at byte {ends:,}, and the file has {file_size:,}", _NOT_WHOLE)
    return GgufHeader(
        metadata=MappingProxyType(metadata),
        tensors=tensors,
        alignment=alignment,
        file_size=ends if file_size is None else file_size,
        version=version,
        size=size,
        encoded=MappingProxyType(encoded),
    )


def _preamble(reader: _Reader) -> _Steps[tuple[int, int, int]]:
    reader.rest = 4 + 8 + 8
    magic = yield from reader.take(4)
    if magic != MAGIC:
        _refuse(f"it begins with {magic!r}, not {MAGIC!r}")
    reader.rest = 8 + 8
    version = yield from reader.u32()
    if version & 0xFFFF == 0 and version:
        _refuse("it was written for big-endian machines (llama.cpp's gguf-convert-endian turns it round)")
    if version not in (2, 3):
        _refuse(f"it has version {version} of the format; 2 and 3 are read")
    reader.rest = 8
    tensor_count = yield from reader.u64()
    reader.rest = 0
    key_count = yield from reader.u64()
    reader.rest = key_count * _LEAST_KEY_BYTES + tensor_count * _LEAST_TENSOR_BYTES
    reader.least()
    return version, tensor_count, key_count


def _metadata(reader: _Reader, count: int) -> _Steps[tuple[dict[str, Any], dict[str, bytes]]]:
    metadata: dict[str, Any] = {}
    encoded: dict[str, bytes] = {}
    for _ in range(count):
        reader.rest -= _LEAST_KEY_BYTES
        key = yield from reader.name("a metadata key", _LONGEST_KEY)
        if key in metadata:
            _refuse(f"the metadata key {_shown(key)} stands twice")
        metadata[key], encoded[key] = yield from _value(reader, key)
    return metadata, encoded


def _value(reader: _Reader, key: str) -> _Steps[tuple[Any, bytes]]:
    """A value, and its bytes with its type; of a list of the tokenizer no more than how many it has."""
    kind = yield from reader.u32()
    start = _U32.pack(kind)
    if kind == _STRING:
        text = yield from reader.text()
        return text.decode(errors="replace"), start + _counted(text)
    if kind != _ARRAY:
        if kind not in _SCALARS:
            _refuse(f"the metadata key {_shown(key)} has a value of type {kind}, which GGUF does not have")
        raw = yield from reader.take(_SCALARS[kind].size)
        return _SCALARS[kind].unpack(raw)[0], start + raw
    element = yield from reader.u32()
    count = yield from reader.u64()
    if element != _STRING and element not in _SCALARS:
        _refuse(f"the metadata key {_shown(key)} is an array of type {element}, which llama.cpp does not read")
    if key.startswith("tokenizer."):
        if element == _STRING:
            yield from reader.skip_texts(count)
        else:
            reader.skip(count * _SCALARS[element].size)
        return LeftOut(count), start
    start += _U32.pack(element) + _U64.pack(count)
    if element == _STRING:
        reader.keep(8 * count)
        texts = yield from _repeated(count, reader.text)
        return tuple(text.decode(errors="replace") for text in texts), start + b"".join(map(_counted, texts))
    form = _SCALARS[element]
    raw = yield from reader.take(count * form.size)
    return tuple(value for (value,) in form.iter_unpack(raw)), start + raw


def _repeated(count: int, read: Callable[[], _Steps[_T]]) -> _Steps[list[_T]]:
    found = []
    for _ in range(count):
        one = yield from read()
        found.append(one)
    return found


def _tensors(reader: _Reader, count: int, alignment: int) -> _Steps[tuple[Tensor, ...]]:
    tensors: dict[str, Tensor] = {}
    expected = 0
    for _ in range(count):
        reader.rest -= _LEAST_TENSOR_BYTES
        tensor = yield from _tensor(reader)
        if tensor.name in tensors:
            _refuse(f"the tensor {_shown(tensor.name)} stands twice")
        if tensor.offset != expected:
            _refuse(f"the tensor {_shown(tensor.name)} begins at {tensor.offset:,}, not at {expected:,}")
        tensors[tensor.name] = tensor
        expected += padded(tensor.size, alignment)
    return tuple(tensors.values())


def _tensor(reader: _Reader) -> _Steps[Tensor]:
    name = yield from reader.name("a tensor's name", _LONGEST_NAME)
    dimensions = yield from reader.u32()
    if dimensions > _MOST_DIMENSIONS:
        _refuse(f"the tensor {_shown(name)} has {dimensions} dimensions; {_MOST_DIMENSIONS} is the most")
    shape = yield from _repeated(dimensions, reader.u64)
    number = yield from reader.u32()
    offset = yield from reader.u64()
    if number not in TYPES:
        _refuse(f"the tensor {_shown(name)} has number format {number}, which llama.cpp does not know (any more)")
    kind = TYPES[number]
    row = shape[0] if shape else 1
    if row % kind.block_length:
        rule = f"no multiple of the {kind.block_length} of {kind.name}"
        _refuse(f"the tensor {_shown(name)} has rows of {row}, {rule}")
    size = kind.size_of(row) * math.prod(shape[1:])
    if size > _LARGEST_TENSOR:
        _refuse(f"the tensor {_shown(name)} claims to have {size:,} bytes")
    return Tensor(name, tuple(shape), kind.name, size, offset)


def _type_of(encoded: bytes) -> int:
    return int(_U32.unpack_from(encoded)[0])


def _counted(text: bytes) -> bytes:
    return _U64.pack(len(text)) + text
