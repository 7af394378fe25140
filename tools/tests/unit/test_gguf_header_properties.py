"""Whatever bytes a header consists of, and in whatever pieces they come, it is read, incomplete or refused."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from corral.errors import UnreadableHeader
from corral.vram.gguf_header import (
    GgufHeader,
    HeaderIncomplete,
    HeaderParser,
    canonical,
    parse,
    parse_fixture,
)
from tests.support.gguf_bytes import gguf, pair, tensor, text
from tests.support.properties import examples

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a number, by the type of the value."""
KEYS = st.one_of(
    st.sampled_from(["general.architecture", "general.alignment", "llama.vocab_size", "split.no"]),
    st.sampled_from(["tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.x"]),
    st.text(min_size=1, max_size=6).map(lambda one: one.encode(errors="replace")),
)


@st.composite
def values(draw):
    """The type of a value, and its bytes."""
    kind = draw(st.sampled_from([*SIZES, 8, 9]))
    if kind == 8:
        return kind, text(draw(st.binary(max_size=12)))
    if kind != 9:
        return kind, draw(st.binary(min_size=SIZES[kind], max_size=SIZES[kind]))
    element, count = draw(st.sampled_from([*SIZES, 8])), draw(st.integers(0, 5))
    if element == 8:
        items = b"".join(text(draw(st.binary(max_size=5))) for _ in range(count))
    else:
        items = draw(st.binary(min_size=count * SIZES[element], max_size=count * SIZES[element]))
    return kind, struct.pack("<IQ", element, count) + items


@st.composite
def headers(draw):
    """A header that is right but for what keys mean: an alignment may be a text."""
    keys = draw(st.lists(KEYS, unique_by=lambda key: key if isinstance(key, bytes) else key.encode(), max_size=6))
    pairs = [pair(key, *draw(values())) for key in keys]
    tensors, offset = [], 0
    for number in range(draw(st.integers(0, 4))):
        shape = draw(st.lists(st.integers(1, 40), max_size=4))
        tensors.append(tensor(f"t{number}", shape, 24, offset))  # I8: a value is a byte
        size = 1
        for side in shape:
            size *= side
        offset += -(-size // 32) * 32
    return gguf(*pairs, tensors=tensors, version=draw(st.sampled_from([2, 3])))


@st.composite
def damaged(draw):
    """A header with a part replaced: a length, a type, a count, or what stands between."""
    whole = draw(headers())
    at = draw(st.integers(4, len(whole)))
    extreme = st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]).map(
        lambda n: struct.pack("<Q", n)
    )
    return whole[:at] + draw(st.one_of(extreme, st.binary(max_size=9))) + whole[at + draw(st.integers(0, 9)) :]


ANY = st.one_of(st.binary(max_size=100), st.binary(max_size=100).map(b"GGUF\3\0\0\0".__add__), damaged(), headers())


def require_sentence(message):
    assert message.isprintable()
    assert len(message) < 400


def outcome(read):
    """What *read* does with a header; what else it raises is a bug."""
    try:
        header = read()
    except HeaderIncomplete as error:
        return "incomplete", error.needed_at_least
    except UnreadableHeader as error:
        require_sentence(error.message)
        return "refused", None
    assert isinstance(header, GgufHeader)
    return "header", header


def fed(pieces, file_size):
    parser = HeaderParser(file_size)
    for piece in pieces:
        header = parser.feed(piece)
        if header is not None:
            return header
    raise HeaderIncomplete(parser.needed_at_least)


@examples(400)
@given(ANY, st.none() | st.integers(0, 5000))
def test_any_bytes_are_a_header_an_incomplete_one_or_refused(data, file_size):
    kind, found = outcome(lambda: parse(data, file_size=file_size))

    if kind == "incomplete":
        assert found > len(data)
        assert file_size is None or found <= file_size


@examples(400)
@given(ANY, st.lists(st.integers(0, 400), max_size=12), st.none() | st.integers(0, 5000))
def test_in_any_pieces_it_is_the_same(data, cuts, file_size):
    ends = [*sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    assert outcome(lambda: fed(pieces, file_size)) == outcome(lambda: parse(data, file_size=file_size))


@examples()
@given(headers(), st.floats(0, 1, exclude_max=True))
def test_what_an_incomplete_header_needs_is_never_more_than_it_has(whole, part):
    kind, header = outcome(lambda: parse(whole))
    if kind == "header":
        cut = int(header.size * part)
        assert cut < outcome(lambda: parse(whole[:cut]))[1] <= header.size


@examples()
@given(headers())
def test_a_fixture_has_the_same_tensors_and_is_its_own_fixture(whole):
    kind, header = outcome(lambda: parse(whole))
    if kind == "header":
        fixture = canonical(header)
        again = parse_fixture(fixture)
        assert (again.tensors, again.alignment) == (header.tensors, header.alignment)
        assert canonical(again) == fixture
