"""The header of a GGUF: read strictly, stored small, and given back to the engine as a file of the real length."""

from __future__ import annotations

import ctypes
import gzip
import hashlib
import struct

import pytest

from corral.errors import UnreadableHeader
from corral.vram import ggml_types
from corral.vram.gguf_header import HeaderIncomplete, LeftOut, canonical, expand, parse
from tests.support import gguf_models

QWEN, PROJECTOR = "qwen3-8b-q4km", "mmproj-qwen3vl-8b-f16"


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def tensor(name, shape, kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(*pairs, tensors=(), version=3, order="<", counts=None):
    counts = counts or (len(tensors), len(pairs))
    return b"GGUF" + struct.pack(f"{order}IQQ", version, *counts) + b"".join(pairs) + b"".join(tensors)


ARCHITECTURE = pair("general.architecture", 8, text("llama"))
KEY = pair("a", 4, struct.pack("<I", 1))


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


def test_a_fixture_that_was_cut_is_not_expanded(tmp_path):
    with pytest.raises(UnreadableHeader, match="at least"):
        expand(gguf(ARCHITECTURE)[:-1], tmp_path / "x.gguf")


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
            assert caught.value.needed_at_least > 352 * 33
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
        (gguf(KEY, KEY), "a stands twice"),
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
        (gguf(tensors=[tensor("t", (1,)), tensor("t", (1,), offset=32)]), "t stands twice"),
        (gguf(tensors=[tensor("t" * 64, (1,))]), "has 64 letters"),
        (gguf(counts=(1 << 62, 0)), "claims to have 4,611,686,018,427,387,904 tensors"),
        (gguf(counts=(0, 1 << 62)), "claims to have 4,611,686,018,427,387,904 metadata keys"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_engine_would_not_read_is_refused_with_the_reason(data, reason):
    with pytest.raises(UnreadableHeader) as caught:
        parse(data)
    assert reason in caught.value.message


@pytest.mark.parametrize(
    "hostile",
    [
        gguf(pair("a", 8, struct.pack("<Q", 1 << 63))),
        gguf(pair("a", 9, struct.pack("<IQ", 8, 1 << 60))),
        gguf(pair("a", 9, struct.pack("<IQ", 12, 1 << 60))),
        gguf(pair("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 1 << 60))),
        gguf(pair("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + struct.pack("<Q", 1 << 63))),
    ],
    ids=["text", "array of texts", "array of numbers", "token list", "token"],
)
def test_a_length_that_cannot_be_costs_no_memory(hostile):
    with pytest.raises(HeaderIncomplete) as caught:
        parse(hostile)
    assert caught.value.needed_at_least > 1 << 60

    with pytest.raises(UnreadableHeader, match="Not a whole GGUF file"):
        parse(hostile, file_size=5_000_000_000)


def test_version_2_is_read_as_version_3(model):
    data, size = model(PROJECTOR)

    older = parse(data[:4] + struct.pack("<I", 2) + data[8:], file_size=size)

    assert older.version == 2
    assert older.tensors == parse(data, file_size=size).tensors
    assert canonical(older)[4:8] == struct.pack("<I", 2)
