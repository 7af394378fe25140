"""The header of a GGUF: read strictly, stored small, and given back to the engine as a file of the real length."""

from __future__ import annotations

import ctypes
import gzip
import hashlib
import struct

import pytest

from corral.engine import openmp
from corral.errors import UnreadableHeader
from corral.vram import ggml_types, gguf_header
from corral.vram.gguf_header import (
    MOST_BYTES,
    MOST_KEPT,
    HeaderIncomplete,
    HeaderParser,
    LeftOut,
    canonical,
    expand,
    parse,
)
from tests.support import gguf_models
from tests.support.gguf_bytes import ARCHITECTURE, KEY, TEXT, U8, array, gguf, pair, tensor, text, u64

QWEN, PROJECTOR = "qwen3-8b-q4km", "mmproj-qwen3vl-8b-f16"


def front(path):
    with path.open("rb") as file:
        return file.read(8 << 20)


@pytest.fixture
def model(tmp_path):
    """Writes a published model and returns the bytes of its header with a part of the hole behind it, and its size."""

    def write(name, **how):
        path = tmp_path / f"{name}.gguf"
        gguf_models.write(name, path, **how)
        return front(path), path.stat().st_size

    return write


def test_a_published_model_is_read(model):
    data, size = model(QWEN, tokenizer=True)

    header = parse(data, file_size=size)

    assert (header.architecture, header.version, header.alignment, header.file_size) == ("qwen3", 3, 32, size)
    assert header.metadata["qwen3.block_count"] == 36
    assert header.metadata["tokenizer.ggml.tokens"] == LeftOut(151936)
    assert len(header.tensors) == 399
    first = header.tensors[0]
    assert (first.name, first.shape, first.type, first.size) == (
        "token_embd.weight",
        (4096, 151936),
        "Q4_K",
        4096 * 151936 // 256 * 144,
    )
    assert header.main_type == "Q4_K"


def test_a_projector_is_read(model):
    data, size = model(PROJECTOR)

    header = parse(data, file_size=size)

    assert (header.architecture, header.main_type) == ("clip", "F16")
    assert header.metadata["clip.vision.is_deepstack_layers"].count(True) == 3


def test_every_shard_of_a_split_model_is_read(tmp_path):
    paths = gguf_models.write_shards(QWEN, tmp_path, 3, tokenizer=True)

    headers = [parse(front(path), file_size=path.stat().st_size) for path in paths]

    assert [header.architecture for header in headers] == ["qwen3", "", ""]
    assert sum(len(header.tensors) for header in headers) == 399
    assert [parse(canonical(header)).metadata["split.no"] for header in headers] == [0, 1, 2]


def test_the_formats_are_the_engines_own():
    openmp.provide()
    from xllamacpp import xllamacpp as extension

    engine = ctypes.CDLL(extension.__file__)
    engine.ggml_type_name.restype = ctypes.c_char_p
    engine.ggml_blck_size.restype = ctypes.c_int64
    engine.ggml_type_size.restype = ctypes.c_size_t
    present = {}
    for number in range(engine.ggml_type_count() if hasattr(engine, "ggml_type_count") else 43):
        name = engine.ggml_type_name(number).decode()
        if engine.ggml_type_size(number):
            present[number] = (name.upper(), engine.ggml_blck_size(number), engine.ggml_type_size(number))

    assert len(present) == 35
    assert {number: tuple(kind) for number, kind in ggml_types.TYPES.items()} == present


# -- the fixture ---------------------------------------------------------------------------------------------


def test_a_fixture_has_no_tokenizer_and_is_a_few_kilobytes(model):
    data, size = model(QWEN, tokenizer=True)
    header = parse(data, file_size=size)

    fixture = canonical(header)

    assert header.size > 4_000_000
    assert len(gzip.compress(fixture)) < 4_000
    left = {key for key in parse(fixture).metadata if key.startswith("tokenizer.")}
    assert left == {"tokenizer.ggml.model", "tokenizer.ggml.eos_token_id"}
    assert parse(fixture).metadata["tokenizer.ggml.model"] == "no_vocab"
    assert parse(fixture).metadata["qwen3.vocab_size"] == 151936
    assert parse(fixture).tensors == header.tensors


def test_the_same_model_has_the_same_fixture_with_any_tokenizer(model):
    data, _ = model(QWEN, tokenizer=True)
    bare, _ = model(QWEN)
    with_tokens, without = parse(canonical(parse(data))), parse(canonical(parse(bare)))

    assert without.tensors == with_tokens.tensors
    assert {**without.metadata, "tokenizer.ggml.eos_token_id": 1} == with_tokens.metadata


@pytest.mark.parametrize("name", [QWEN, PROJECTOR, "gpt-oss-20b-mxfp4"])
def test_a_fixture_of_a_fixture_is_the_same_bytes(model, name):
    data, _ = model(name, tokenizer=True)
    fixture = canonical(parse(data))

    assert canonical(parse(fixture)) == fixture


def test_what_a_fixture_keeps_is_kept_as_it_was_written():
    odd = [
        pair("llama.block_count", 10, struct.pack("<Q", 3)),
        pair("llama.rope.scaling", 6, struct.pack("<I", 0x7FC00001)),
        pair("general.name", 8, text(b"caf\xe9")),
        pair("llama.flags", 9, struct.pack("<IQ", 7, 2) + b"\x01\x00"),
        pair("llama.labels", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b")),
    ]

    fixture = canonical(parse(gguf(ARCHITECTURE, *odd)))

    assert fixture == gguf(ARCHITECTURE, *odd)
    assert parse(fixture).metadata["llama.labels"] == ("a", "b")


def test_the_tokens_are_counted_and_what_else_was_stated_gives_way():
    tokens = pair("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 3) + text("a") * 3)
    stated = pair("llama.vocab_size", 4, struct.pack("<I", 99))
    kind = pair("tokenizer.ggml.model", 8, text("gpt2"))

    fixture = parse(canonical(parse(gguf(ARCHITECTURE, stated, kind, tokens))))

    assert fixture.metadata["llama.vocab_size"] == 3


def test_a_numbers_of_the_tokenizer_stays():
    types = pair("tokenizer.ggml.token_type_count", 4, struct.pack("<I", 2))

    assert parse(canonical(parse(gguf(ARCHITECTURE, types)))).metadata["tokenizer.ggml.token_type_count"] == 2


def test_an_expanded_fixture_is_as_long_as_the_model_and_takes_no_room(model, tmp_path):
    data, size = model("qwen3-30b-a3b-q4km")
    fixture = canonical(parse(data))
    path = tmp_path / "expanded.gguf"

    expand(fixture, path)

    assert path.stat().st_size == parse(fixture).file_size
    assert size - 64 < path.stat().st_size <= size  # the real file pads its last tensor
    assert path.stat().st_blocks * 512 < 100_000
    with path.open("rb") as file:
        assert file.read(len(fixture)) == fixture


@pytest.mark.parametrize(
    ("fixture", "reason"),
    [(gguf(KEY)[:-1], "at least 41 bytes, and 40"), (gguf(KEY) + b"x", "has 41 bytes, and 42")],
    ids=["cut", "longer"],
)
def test_a_fixture_that_is_not_exactly_a_header_is_not_expanded(tmp_path, fixture, reason):
    with pytest.raises(UnreadableHeader, match=reason):
        expand(fixture, tmp_path / "x.gguf")


def test_the_fixture_of_a_known_header_does_not_change():
    """Locks refer to fixtures by hash: another form would make every lock stale."""
    tokens = pair("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b"))
    known = gguf(ARCHITECTURE, pair("tokenizer.ggml.model", 8, text("gpt2")), tokens, KEY, tensors=[tensor("t", (32,))])

    digest = hashlib.sha256(canonical(parse(known))).hexdigest()

    assert digest == "a82bd6083e8cad0c032ef7b3512d83e2a6a082b5d2bb1ed8a6ad2a75f9212b0d"


# -- what is not whole ---------------------------------------------------------------------------------------


def test_every_cut_asks_for_more_and_never_for_more_than_it_takes(model):
    data, size = model(PROJECTOR)
    whole = parse(data, file_size=size).size

    for cut in range(0, whole, 97):
        with pytest.raises(HeaderIncomplete) as caught:
            parse(data[:cut], file_size=size)
        assert cut < caught.value.needed_at_least <= whole
        if cut:  # then it is known that 352 tensors follow
            assert caught.value.needed_at_least > 352 * 25
    parse(data[:whole], file_size=size)


def test_a_file_that_is_shorter_than_its_header_is_refused(model):
    data, _ = model(PROJECTOR)

    with pytest.raises(UnreadableHeader, match="the file has 1,000"):
        parse(data[:1000], file_size=1000)


def test_a_file_that_is_shorter_than_its_tensors_is_refused(model):
    data, size = model(PROJECTOR)

    with pytest.raises(UnreadableHeader, match="its tensors end at byte"):
        parse(data, file_size=size - 10_000)


# -- what is not a GGUF --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<!DOCTYPE html>", "it begins with b'<!DO'"),
        (b"GGUX", "it begins with"),
        (b"version https://git-lfs.github.com/spec/v1", "it begins with b'vers'"),
        (gguf(version=1), "version 1 of the format"),
        (gguf(version=4), "version 4 of the format"),
        (gguf(version=0), "version 0 of the format"),
        (gguf(version=3, order=">"), "big-endian"),
        (gguf(KEY, KEY), "'a' stands twice"),
        (gguf(pair("a", 13, b"")), "a value of type 13"),
        (gguf(pair("a", 9, struct.pack("<IQ", 9, 1))), "array of type 9"),
        (gguf(pair("", 4, b"\0\0\0\0")), "has 0 letters"),
        (gguf(pair(b"\xff", 4, b"\0\0\0\0")), "not UTF-8"),
        (gguf(pair("general.alignment", 4, struct.pack("<I", 24))), "power of two"),
        (gguf(pair("general.alignment", 4, struct.pack("<I", 0))), "power of two"),
        (gguf(pair("general.alignment", 8, text("x"))), "power of two"),
        (gguf(tensors=[tensor("t", (1, 1, 1, 1, 1))]), "5 dimensions"),
        (gguf(tensors=[tensor("t", (32,), 4)]), "number format 4"),
        (gguf(tensors=[tensor("t", (32,), 31)]), "number format 31"),
        (gguf(tensors=[tensor("t", (33,), 8)]), "no multiple of the 32 of Q8_0"),
        (gguf(tensors=[tensor("t", (1 << 40, 1 << 20))]), "claims to have"),
        (gguf(tensors=[tensor("t", (1,), offset=32)]), "begins at 32, not at 0"),
        (gguf(tensors=[tensor("t", (1,)), tensor("t", (1,), offset=32)]), "'t' stands twice"),
        (gguf(tensors=[tensor("t" * 64, (1,))]), "has 64 letters"),
        (gguf(counts=(1 << 62, 0)), "takes at least 115,292,150,460,684,697,624 bytes"),
        (gguf(counts=(0, 1 << 62)), "takes at least 64,563,604,257,983,430,680 bytes"),
        (gguf(pair("a\x1b[2J\u202e", 13, b"")), r"'a\x1b[2J\u202e'"),
        (gguf(pair("a" * 1000, 13, b"")), f"'{'a' * 79}… has a value"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_engine_would_not_read_is_refused_with_the_reason(data, reason):
    with pytest.raises(UnreadableHeader) as caught:
        parse(data)
    assert reason in caught.value.message


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (gguf(pair("a", TEXT, u64(1 << 63))), "more than 4,194,304 bytes"),
        (gguf(array("a", TEXT, 1 << 60)), "more than 4,194,304 bytes"),
        (gguf(array("a", 12, 1 << 60)), "more than 4,194,304 bytes"),
        (gguf(array("tokenizer.ggml.tokens", TEXT, 1 << 60)), "67,108,864 is the most"),
        (gguf(array("tokenizer.ggml.tokens", TEXT, 2, u64(1 << 63))), "67,108,864 is the most"),
        (gguf(array("tokenizer.ggml.scores", 6, 1 << 60)), "67,108,864 is the most"),
    ],
    ids=["text", "array of texts", "array of numbers", "token list", "token", "scores"],
)
def test_a_length_that_cannot_be_is_refused_before_its_bytes_come(hostile, reason):
    with pytest.raises(UnreadableHeader, match=reason):
        parse(hostile)


def test_a_header_up_to_the_limit_is_read_and_one_byte_more_is_refused():
    begin = gguf(array("tokenizer.ggml.scores", U8, MOST_BYTES - 69))
    assert len(begin) == 69

    parser = HeaderParser()
    assert parser.feed(begin) is None
    assert parser.needed_at_least == MOST_BYTES
    header = parser.feed(bytes(MOST_BYTES - 69))
    assert (header.size, header.metadata) == (MOST_BYTES, {"tokenizer.ggml.scores": LeftOut(MOST_BYTES - 69)})

    with pytest.raises(UnreadableHeader, match="takes at least 67,108,865 bytes, and 67,108,864 is the most"):
        parse(gguf(array("tokenizer.ggml.scores", U8, MOST_BYTES - 68)) + bytes(MOST_BYTES))


def test_no_more_is_kept_of_a_header_than_a_fixture_may_have():
    def length_of(count):
        return gguf(array("a", U8, count, bytes(count)))

    most = MOST_KEPT - len(length_of(0))
    assert len(canonical(parse(length_of(most)))) == MOST_KEPT
    with pytest.raises(UnreadableHeader, match="more than 4,194,304 bytes of metadata and tensors"):
        parse(length_of(most + 1))


# -- in pieces -----------------------------------------------------------------------------------------------


def in_pieces(data, size):
    parser = HeaderParser()
    headers = [parser.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert not any(headers[:-1])
    return headers[-1]


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_in_pieces_a_header_is_the_same(size):
    tokens = array("tokenizer.ggml.tokens", TEXT, 500, b"".join(text("x" * (n % 7)) for n in range(500)))
    labels = array("llama.labels", TEXT, 3, text("a") + text("") + text("b"))
    whole = gguf(
        ARCHITECTURE, tokens, labels, array("tokenizer.ggml.scores", 6, 500, bytes(2000)), tensors=[tensor("t", (32,))]
    )

    header = in_pieces(whole, size)

    assert header == parse(whole)
    assert canonical(header) == canonical(parse(whole))


class Counting(struct.Struct):
    """Counts the lengths that it reads; a method of a Struct cannot be replaced."""

    count = 0

    def unpack(self, data):
        Counting.count += 1
        return super().unpack(data)

    def unpack_from(self, data, at=0):
        Counting.count += 1
        return super().unpack_from(data, at)


def test_60_mb_in_steps_of_1_mb_cost_no_more_work_than_at_once(monkeypatch):
    """Keys, then texts that are skipped, then tensors; each has a length, and the lengths that are read are counted."""
    keys = [pair(f"llama.key.{number}", 0, b"\0") for number in range(20_000)]
    tokens = [array(f"tokenizer.list.{number}", TEXT, 2_000, text("t" * 742) * 2_000) for number in range(40)]
    tensors = [tensor(f"t{number}", (8,), offset=32 * number) for number in range(10_000)]
    whole = gguf(*keys, *tokens, tensors=tensors)
    assert len(whole) > 60_000_000
    monkeypatch.setattr(gguf_header, "_U64", Counting("<Q"))
    monkeypatch.setattr(Counting, "count", 0)

    at_once = parse(whole)
    counted, Counting.count = Counting.count, 0
    header = in_pieces(whole, 1 << 20)

    assert header == at_once
    assert counted > 130_000
    assert Counting.count == counted


def test_what_was_read_is_not_held(monkeypatch):
    """A megabyte comes at a time, and 50 of texts go by; what is held is counted where it is added to."""
    held = []
    add = gguf_header._Reader.add
    monkeypatch.setattr(
        gguf_header._Reader, "add", lambda self, piece: (add(self, piece), held.append(len(self._data)))
    )
    tokens = array("tokenizer.ggml.tokens", TEXT, 500_000, text("t" * 100) * 500_000)

    in_pieces(gguf(tokens), 1 << 20)

    assert len(held) > 50
    assert max(held) <= (1 << 20) + 108


def test_version_2_is_read_as_version_3(model):
    data, size = model(PROJECTOR)

    older = parse(data[:4] + struct.pack("<I", 2) + data[8:], file_size=size)

    assert older.version == 2
    assert older.tensors == parse(data, file_size=size).tensors
    assert canonical(older)[4:8] == struct.pack("<I", 2)
