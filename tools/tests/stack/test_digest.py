"""Python and Terraform must agree on every digest, or a fresh lock would be refused, or a stale one served."""

from __future__ import annotations

import hashlib
import json
import subprocess

import pytest

from corral.catalog import yaml_reader
from corral.catalog.digest import intent_sha256
from corral.terraform.program import find_terraform

VALUES = {
    "empty mapping": {},
    "empty list": {"a": []},
    "empty string": {"a": ""},
    "null": {"a": None},
    "booleans": {"t": True, "f": False},
    "integers": {"zero": 0, "one": 1, "large": 16777216, "larger": 999999999999999, "negative": -1},
    "floats": {"half": 0.5, "tenth": 0.1, "tiny": 0.0000001, "long": 12345678.1234567, "whole": 1.0, "negative": -0.25},
    "quotes": {"a": "\"double\" 'single' `back`"},
    "backslashes": {"a": "\\d+\\n", "b": "\\"},
    "what Go escapes for HTML": {"a": "<think> & </think>"},
    "line separators of Unicode": {"a": "one\u2028two\u2029three"},
    "control characters": {"a": "tab\tnew\nline\rreturn\b\f\x01\x1f\x7f"},
    "accents": {"a": "é", "ß": "Ünïcödé"},
    "beyond the basic plane": {"a": "🐎 \U0001f1e9\U0001f1ea"},
    "byte order mark and no-break space": {"a": "\ufeff\u00a0\u200b"},
    "placeholders": {"a": "${STORE} %{if} $${x} {{ jinja }}"},
    "words that YAML reads as booleans": {"a": "off", "b": "yes", "c": "n", "no": "key"},
    "numbers in quotes": {"a": "1", "b": "1.0", "c": "0x10", "d": "1e3"},
    "keys out of order": {"b": 1, "a": 2, "B": 3, "_": 4, "10": 5, "9": 6, "é": 7, "z": 8, "~": 9},
    "nested": {"a": [{"b": [[], {}, [None, {"c": ["d"]}]]}]},
    "mixed list": {"a": [1, "1", True, None, 0.5, {"b": []}]},
}

DOCUMENTS = {
    "flow": "source: {repo: a/b, quant: Q4_K_M, mmproj: none}\ncard: t4\ncontext: 16384\nmodalities: [text]\n",
    "quoted words": "reasoning: \"off\"\nother: 'on'\n",
    "comments and empty lines": "# first\n\na: 1 # why\n\n# last\n",
    "folded and literal text": "a: >-\n  one\n  two\n\n  three\nb: |\n  one\n    two\n",
    "plain text with signs": "a: c++ & <b>:no\nb: a#b\nc: it's\n",
    "escapes": 'a: "\\u2028\\x41\\t\\""\n',
    "accents, both ways": 'a: é\nb: e\u0301\n"e\u0301\u0301": 1\n',
    "null spellings": "a: null\nb: ~\nc:\n",
    "numbers": "a: 0\nb: -7\nc: 0.5\nd: 1.50\ne: 100000000000000\n",
    "version-like words": "a: 1.2.3\nb: b11434\nc: 7-5\nd: 12e\n",
    "windows line ends": "a: 1\r\nb: [u, v]\r\n",
}


def terraform(expression: str) -> list[str]:
    """*expression*, a list of strings, as Terraform sees it."""
    done = subprocess.run(
        [find_terraform(), "console"], input=f"jsonencode({expression})\n", capture_output=True, text=True, check=True
    )
    return json.loads(json.loads(done.stdout))


@pytest.fixture(scope="module")
def of_values(tmp_path_factory):
    file = tmp_path_factory.mktemp("digests") / "values.json"
    file.write_text(json.dumps(list(VALUES.values())), encoding="utf-8")
    return dict(zip(VALUES, terraform(f'[for v in jsondecode(file("{file}")) : sha256(jsonencode(v))]'), strict=True))


@pytest.mark.parametrize("name", VALUES)
def test_a_value_has_the_digest_that_terraform_computes(name, of_values):
    assert intent_sha256(VALUES[name]) == of_values[name]


@pytest.fixture(scope="module")
def of_documents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    files = [folder / f"{number}.yaml" for number in range(len(DOCUMENTS))]
    for file, text in zip(files, DOCUMENTS.values(), strict=True):
        file.write_bytes(text.encode())
    digests = terraform(f"[for f in {json.dumps([str(f) for f in files])} : sha256(jsonencode(yamldecode(file(f))))]")
    return {name: (file, digest) for name, file, digest in zip(DOCUMENTS, files, digests, strict=True)}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_file_has_the_digest_that_terraform_computes(name, of_documents):
    file, digest = of_documents[name]

    assert intent_sha256(yaml_reader.read(file).value) == digest


def test_the_comparison_sees_a_difference(of_values):
    assert of_values["null"] == hashlib.sha256(b'{"a":null}').hexdigest()
    assert len(set(of_values.values())) == len(VALUES)
