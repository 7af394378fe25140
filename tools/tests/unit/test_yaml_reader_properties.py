"""Whatever text a catalog's file is, it is read or refused; what is read is what other readers of YAML read."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from corral.catalog.yaml_reader import parse
from corral.errors import CatalogInvalid
from tests.support.properties import examples

FILE = Path("m.yaml")
WORDS = st.sampled_from(
    [
        *("a", "b", "null", "~", "true", "True", "off", "yes", "y", "<<", "=", "0", "-1", "017", "0x1f", "0o7", "1e3"),
        *("1_000", "1:30", ".5", "1.0", "-0.25", ".inf", ".nan", "2026-01-01", "9" * 16, "'", '"', "|", ">", "-", "?"),
        *(": ", ":", ", ", "[", "]", "{", "}", "#", " #", "&x", "*x", "!!str", "!x", "%YAML 1.2", "---", "...", "\\"),
        *(
            "\n",
            "\n  ",
            "\n    ",
            "\n- ",
            "\r\n",
            "\t",
            " ",
            "\x85",
            "\u2028",
            "\ufeff",
            "\0",
            "\x1b",
            "\ud800",
            "é",
            "é",
        ),
    ]
)
LETTERS = st.characters(codec="utf-8", exclude_categories=("Cc", "Cn", "Co", "Zl", "Zp"))
SCALARS = st.none() | st.booleans() | st.integers(-(10**14), 10**14) | st.text(LETTERS, max_size=12)
DATA = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc<=é", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def normalised(value):
    """As Terraform reads it: every text in NFC."""
    if isinstance(value, dict):
        return {normalised(key): normalised(item) for key, item in value.items()}
    if isinstance(value, list):
        return [normalised(item) for item in value]
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


def require(holds, found):
    assert holds, found


@examples(600)
@given(st.lists(WORDS, max_size=14).map("".join) | st.text(max_size=40))
def test_any_text_is_read_as_yaml_reads_it_or_refused_with_a_line(text):
    try:
        value, lines = parse(text, FILE)
    except CatalogInvalid as error:
        lines = [problem.line for problem in error.problems]
        require(lines and 0 < min(lines) <= max(lines) <= len(text) + 1, lines)
        return
    if value != "<<":  # a text to YAML 1.2, and no value to PyYAML
        assert value == normalised(yaml.safe_load(text))
    assert lines or value is None


@examples()
@given(DATA)
def test_json_is_read_as_it_is_unless_it_merges(data):
    try:
        value, _ = parse(json.dumps(data, ensure_ascii=False), FILE)
    except CatalogInvalid as error:
        reasons = [problem.message for problem in error.problems]
        require(all("<<" in reason or "twice" in reason for reason in reasons), reasons)
        return
    assert value == normalised(data)
