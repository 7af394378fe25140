"""Headers that no honest program writes: each is refused by name, in little memory and time, and nothing is locked."""

from __future__ import annotations

import re
import struct
import sys

import pytest

from corral.errors import UnreadableHeader
from corral.vram import header_reader
from corral.vram.confined import Limits
from corral.vram.gguf_header import MOST_BYTES, parse_fixture
from corral.vram.header_reader import HeaderReader
from tests.support.gguf_bytes import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    KEY,
    TEXT,
    U8,
    U32,
    U64,
    array,
    gguf,
    pair,
    tensor,
    text,
    u64,
)
from tests.support.hostile import assert_printable, assert_refused, run_limited
from tests.support.locked_catalog import SMALLEST_INTENT, write_sources

CORRAL = [sys.executable, "-m", "corral.cli.main"]
HUGE = 1 << 40
FILE = 5_000_000_000
"""Bytes of the file that a claim is in, where it could be true."""
PIECE = 256 << 10


def flood(make, size):
    """As many different values as *size* bytes hold."""
    found, number = [], 0
    while size > 0:
        found.append(make(number))
        size -= len(found[-1])
        number += 1
    return found


REFUSED = {
    # name: the file's content, made when it is needed where it is large, and a part of the reason
    "nothing": (b"", "at least 24 bytes, and the file has 0"),
    "one byte": (b"G", "at least 24 bytes"),
    "the magic alone": (b"GGUF", "at least 24 bytes, and the file has 4"),
    "zeros": (bytes(100), r"it begins with b'\x00\x00\x00\x00'"),
    "a page": (b"<!DOCTYPE html><title>Sign in</title>", "it begins with b'<!DO'"),
    "an LFS pointer": (b"version https://git-lfs.github.com/spec/v1\n", "it begins with b'vers'"),
    "a gzip file": (b"\x1f\x8b\x08\0" + bytes(60), "it begins with"),
    "an archive of pickles": (b"PK\x03\x04" + bytes(60), "it begins with b'PK"),
    "a terminal's codes": (b"\x1b[2J" + bytes(60), r"it begins with b'\x1b[2J'"),
    "small letters": (b"gguf" + gguf(KEY)[4:] + bytes(64), "it begins with b'gguf'"),
    "the format's predecessor": (b"GGML" + bytes(60), "it begins with b'GGML'"),
    "version 0": (gguf(version=0), "version 0"),
    "version 1": (gguf(version=1), "version 1"),
    "version 4": (gguf(version=4), "version 4"),
    "version 2 to the 31": (gguf(version=1 << 31), "big-endian"),
    "big-endian": (gguf(version=3, order=">"), "big-endian"),
    "all keys": (gguf(counts=(0, 2**64 - 1)), "and the file has 24"),
    "all tensors": (gguf(counts=(2**64 - 1, 0)), "and the file has 24"),
    "more keys than bytes": (gguf(KEY, counts=(0, 4)), "and the file has 41"),
    "more tensors than bytes": (gguf(KEY, counts=(1, 1)), "and the file has 41"),
    "a negative number of keys": (gguf(KEY, counts=(0, -1)) + bytes(1000), "takes at least"),
    "a key without letters": (gguf(pair("", U8, b"\0"), KEY) + bytes(64), "has 0 letters"),
    "a million keys without letters": (
        lambda: gguf(*[pair("", U8, b"\0")] * 1_000_000) + bytes(1 << 20),
        "has 0 letters",
    ),
    "a key of 65,536 letters": (gguf(pair("a" * 65_536, U8, b"\0")), "has 65,536 letters"),
    "a key of 2 to the 63 letters": (
        gguf(u64(1 << 63), counts=(0, 1)) + bytes(64),
        "9,223,372,036,854,775,808 letters",
    ),
    "a key of -1 letters": (gguf(u64(-1), counts=(0, 1)) + bytes(64), "18,446,744,073,709,551,615 letters"),
    "a key that is not UTF-8": (gguf(pair(b"\xc3\x28", U8, b"\0")) + bytes(64), "is not UTF-8"),
    "a key with half a surrogate": (gguf(pair(b"\xed\xa0\x80", U8, b"\0")) + bytes(64), "is not UTF-8"),
    "a key twice": (gguf(KEY, KEY) + bytes(64), "'a' stands twice"),
    "a key of a terminal's codes, twice": (
        gguf(*[pair("\x1b]0;x\x07\u202e\r\n", U8, b"\0")] * 2) + bytes(64),
        r"'\x1b]0;x\x07\u202e\r\n' stands twice",
    ),
    "a long key twice": (gguf(*[pair("a" * 60_000, U8, b"\0")] * 2) + bytes(64), "aaa… stands twice"),
    "a type that does not exist": (gguf(pair("a", 13, bytes(8))), "a value of type 13"),
    "a type of 32 bits": (gguf(pair("a", 2**32 - 1, bytes(8))), "a value of type 4294967295"),
    "a text of -1 bytes": (gguf(pair("a", TEXT, u64(-1)), KEY) + bytes(64), "more than 4,194,304 bytes"),
    "a text of 2 to the 63 bytes": (gguf(pair("a", TEXT, u64(1 << 63)), KEY) + bytes(64), "more than 4,194,304 bytes"),
    "a text of 5 MB": (lambda: gguf(pair("a", TEXT, text(b"x" * 5_000_000))) + bytes(64), "more than 4,194,304 bytes"),
    "a text that ends behind the file": (gguf(pair("a", TEXT, text("x", 1000))), "and the file has"),
    "an array in an array": (gguf(array("a", ARRAY, 1, struct.pack("<IQ", ARRAY, 1))) + bytes(64), "array of type 9"),
    "a million arrays in each other": (
        lambda: gguf(pair("a", ARRAY, struct.pack("<IQ", ARRAY, 1) * 1_000_000)) + bytes(64),
        "array of type 9",
    ),
    "a tokenizer's array in an array": (gguf(array("tokenizer.x", ARRAY, HUGE)) + bytes(64), "array of type 9"),
    "an array of no type": (gguf(array("a", 200, 1)) + bytes(64), "array of type 200"),
    "2 to the 40 texts": (gguf(array("a", TEXT, HUGE)) + bytes(64), "more than 4,194,304 bytes"),
    "-1 texts": (gguf(array("a", TEXT, -1)) + bytes(64), "more than 4,194,304 bytes"),
    "600,000 empty texts": (
        lambda: gguf(array("a", TEXT, 600_000, bytes(4_800_000))) + bytes(64),
        "more than 4,194,304 bytes",
    ),
    "2 to the 40 numbers": (gguf(array("a", U64, HUGE)) + bytes(64), "more than 4,194,304 bytes"),
    "-1 numbers": (gguf(array("a", U8, -1)) + bytes(64), "more than 4,194,304 bytes"),
    "5 million numbers": (
        lambda: gguf(array("a", U8, 5_000_000, bytes(5_000_000))) + bytes(64),
        "more than 4,194,304 bytes",
    ),
    "more keys than are kept": (
        lambda: gguf(*flood(lambda n: pair(f"{n:x}", U8, b"\0"), 4_300_000)),
        "more than 4,194,304 bytes",
    ),
    "more tensors than are kept": (
        lambda: gguf(tensors=flood(lambda n: tensor(f"{n:x}", (), 24, 32 * n), 4_300_000)) + bytes(1 << 20),
        "more than 4,194,304 bytes",
    ),
    "tokens that end behind the file": (gguf(array("tokenizer.ggml.tokens", TEXT, 9, text("a"))), "and the file has"),
    "a token that ends behind the file": (gguf(array("tokenizer.ggml.tokens", TEXT, 1, u64(99))), "and the file has"),
    "scores that end behind the file": (gguf(array("tokenizer.ggml.scores", 6, 99, bytes(4))), "and the file has"),
    "an alignment of 0": (gguf(pair("general.alignment", U32, bytes(4))), "power of two"),
    "an alignment of 33": (gguf(pair("general.alignment", U32, struct.pack("<I", 33))), "power of two"),
    "an alignment of 2 to the 31": (gguf(pair("general.alignment", U32, struct.pack("<I", 1 << 31))), "power of two"),
    "a negative alignment": (gguf(pair("general.alignment", 5, struct.pack("<i", -32))), "power of two"),
    "an alignment of 64 bits": (gguf(pair("general.alignment", U64, u64(32))), "power of two"),
    "an alignment that is true": (gguf(pair("general.alignment", BOOL, b"\1")), "power of two"),
    "an alignment that is not a number": (gguf(pair("general.alignment", 6, b"\0\0\xc0\x7f")), "power of two"),
    "an alignment that is a text": (gguf(pair("general.alignment", TEXT, text("\x1b[2J" * 30))), r"is '\x1b[2J\x1b"),
    "an alignment that is a list": (gguf(array("general.alignment", U32, 1, bytes(4))), "power of two"),
    "a tensor without a name": (gguf(tensors=[tensor("", (1,))]) + bytes(64), "has 0 letters"),
    "a tensor's name of 64 letters": (gguf(tensors=[tensor("t" * 64, (1,))]) + bytes(64), "has 64 letters"),
    "a tensor's name that is not UTF-8": (gguf(tensors=[tensor(b"\xff", (1,))]) + bytes(64), "is not UTF-8"),
    "a tensor twice": (gguf(tensors=[tensor("t", (8,)), tensor("t", (8,), offset=32)]) + bytes(64), "'t' stands twice"),
    "a tensor of a terminal's codes": (gguf(tensors=[tensor("\x9b2J", (1,), 4)]) + bytes(64), r"'\x9b2J' has number"),
    "five dimensions": (gguf(tensors=[tensor("t", (1,) * 5)]) + bytes(64), "5 dimensions"),
    "4 billion dimensions": (gguf(text("t") + b"\xff" * 4, counts=(1, 0)) + bytes(99), "4294967295 dimensions"),
    "a number format that was removed": (gguf(tensors=[tensor("t", (32,), 4)]) + bytes(64), "number format 4,"),
    "a number format of 32 bits": (
        gguf(tensors=[tensor("t", (32,), 2**32 - 1)]) + bytes(64),
        "number format 4294967295",
    ),
    "a row that is half a block": (gguf(tensors=[tensor("t", (16,), 8)]) + bytes(64), "no multiple of the 32"),
    "a tensor of 2 to the 60 bytes": (gguf(tensors=[tensor("t", (1 << 30, 1 << 28))]) + bytes(64), "claims to have"),
    "a size that is 0 in 64 bits": (gguf(tensors=[tensor("t", (1 << 32, 1 << 32))]) + bytes(64), "claims to have"),
    "sides of -1": (gguf(tensors=[tensor("t", (2**64 - 1,) * 4)]) + bytes(64), "claims to have"),
    "a tensor in another": (
        gguf(tensors=[tensor("a", (64,)), tensor("b", (8,), offset=32)]) + bytes(512),
        "not at 256",
    ),
    "a tensor before the data": (gguf(tensors=[tensor("t", (8,), offset=2**64 - 32)]) + bytes(64), "not at 0"),
    "a tensor behind the file": (gguf(tensors=[tensor("t", (1 << 20,))]), "its tensors end at byte"),
}
CLAIMS = {
    # name: what the file begins with, which has FILE bytes, and a part of the reason
    "keys for 128 MiB": (gguf(counts=(0, 1 << 24)), "67,108,864 is the most"),
    "tensors for 128 MiB": (gguf(counts=(1 << 23, 0)), "67,108,864 is the most"),
    "2 to the 28 tokens": (gguf(array("tokenizer.ggml.tokens", TEXT, 1 << 28)), "67,108,864 is the most"),
    "-1 tokens": (gguf(array("tokenizer.ggml.tokens", TEXT, -1), KEY), "and the file has 5,000,000,000"),
    "a token of 65 MiB": (gguf(array("tokenizer.ggml.tokens", TEXT, 1, u64(65 << 20)), KEY), "67,108,864 is the most"),
    "a token of -1 bytes": (gguf(array("tokenizer.ggml.tokens", TEXT, 2, u64(-1))), "and the file has 5,000,000,000"),
    "scores for 65 MiB": (gguf(array("tokenizer.ggml.scores", 12, 65 << 17)), "67,108,864 is the most"),
    "a tokenizer's text of 65 MiB": (gguf(pair("tokenizer.chat_template", TEXT, u64(65 << 20))), "4,194,304 bytes"),
    "tokens without an end": (
        lambda: gguf(array("tokenizer.ggml.tokens", TEXT, 1 << 20, text("t" * 70) * 870_000)),
        "67,108,864",
    ),
    "lists without an end": (
        lambda: gguf(*flood(lambda n: array(f"tokenizer.{n:x}", U64, 1 << 15, bytes(1 << 18)), MOST_BYTES)),
        "67,108,864 is the most",
    ),
}
ODD = {
    "no key and no tensor": gguf(),
    "8 million empty tokens": lambda: gguf(
        ARCHITECTURE, array("tokenizer.ggml.tokens", TEXT, 8_000_000, bytes(64_000_000))
    ),
    "200,000 empty lists": lambda: gguf(*flood(lambda n: array(f"tokenizer.{n:x}", TEXT, 0), 4_000_000)),
    "as many keys as are kept": lambda: gguf(*flood(lambda n: pair(f"{n:x}", U8, b"\0"), 4_194_304 - 50)),
    "as many texts as are kept": lambda: gguf(array("a", TEXT, 500_000, bytes(4_000_000))),
    "as many numbers as are kept": lambda: gguf(array("a", U8, 4_190_000, b"\xff" * 4_190_000)),
    "as many tensors as are kept": lambda: gguf(
        tensors=flood(lambda n: tensor(f"{n:x}", (), 24, 32 * n), 4_194_304 - 50)
    ),
    "an architecture of 4 MB": lambda: gguf(
        pair("general.architecture", TEXT, text("x" * 4_100_000)), pair("split.no", 2, bytes(2))
    ),
}


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """Little more than the worst of them takes, and half of the processor time that the reader has."""
    monkeypatch.setattr(header_reader, "LIMITS", Limits(memory=160 << 20, processor_s=10, answer_s=120.0))


def made(content):
    return content() if callable(content) else content


def read(data, file_size):
    with HeaderReader("m: x.gguf", file_size) as reader:
        for at in range(0, len(data), PIECE):
            if fixture := reader.feed(data[at : at + PIECE]):
                return fixture
    return None


def require_refusal(data, file_size, reason):
    with pytest.raises(UnreadableHeader) as caught:
        read(data, file_size)
    assert caught.value.message.startswith("m: x.gguf: Not a")
    assert reason in caught.value.message
    assert len(caught.value.message) < 400
    assert_printable(caught.value.message)
    assert caught.value.next_step.startswith("Check that the catalog names")


@pytest.mark.parametrize("name", REFUSED)
def test_a_header_that_breaks_a_rule_is_refused_by_that_rule(name):
    content, reason = REFUSED[name]
    data = made(content)
    require_refusal(data, len(data), reason)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_header_that_claims_more_than_is_read_is_refused(name):
    content, reason = CLAIMS[name]
    require_refusal(made(content), FILE, reason)


@pytest.mark.parametrize("name", ODD)
def test_the_largest_headers_that_are_read_stay_within_the_limits(name):
    fixture = read(made(ODD[name]), FILE)
    assert parse_fixture(fixture).version == 3


def test_there_are_enough_of_them():
    assert len(REFUSED) + len(CLAIMS) + len(ODD) >= 60


def test_corral_lock_names_all_of_them_and_locks_nothing(tmp_path):
    """Beside the catalog there is a file for each, which is small enough to be hashed in a moment."""
    models = {}
    for name, (data, _) in REFUSED.items():
        if not callable(data):
            model = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
            (tmp_path / f"{model}.gguf").write_bytes(data)
            models[model] = SMALLEST_INTENT | {"source": {"path": f"../{model}.gguf"}}
    folder = write_sources(tmp_path / "catalog", models)
    before = sorted(tmp_path.rglob("*"))

    result = run_limited([*CORRAL, "lock", "--catalog", str(folder)])

    assert_refused(result)
    assert len(models) >= 60
    assert [name for name in models if f"\n  {name}: " not in result.stderr] == []
    assert sorted(tmp_path.rglob("*")) == before
