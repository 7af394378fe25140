"""The strict reader: what YAML readers disagree about is refused, the rest is plain data with lines."""

import pytest

from corral.catalog import yaml_reader
from corral.errors import CatalogInvalid


def read(tmp_path, text):
    file = tmp_path / "x.yaml"
    file.write_text(text)
    return yaml_reader.read(file)


@pytest.mark.parametrize(
    "scalar",
    [
        "off",
        "yes",
        "On",
        "y",
        "True",
        "0o17",
        "017",
        "1_000",
        "0x10",
        "1:30",
        "2024-01-01",
        "1e3",
        "1e-7",
        ".5",
        "3.",
        "+5",
        "-0",
        ".inf",
        "12345678901234567890",
        "!!str 5",
    ],
)
def test_a_scalar_that_readers_disagree_about_is_refused(tmp_path, scalar):
    with pytest.raises(CatalogInvalid, match="YAML readers disagree"):
        read(tmp_path, f"a: {scalar}\n")


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("0", 0),
        ("0.7", 0.7),
        ("true", True),
        ("null", None),
        ("10.0.0.1", "10.0.0.1"),
        ("UD-Q4_K_XL", "UD-Q4_K_XL"),
        ("4b", "4b"),
        ('"off"', "off"),
        ("'017'", "017"),
        ("app=immich", "app=immich"),
    ],
)
def test_a_scalar_that_readers_agree_about_is_read(tmp_path, scalar, value):
    assert read(tmp_path, f"a: {scalar}\n").value == {"a": value}


def test_every_value_knows_its_line(tmp_path):
    document = read(tmp_path, "a: 1\nb:\n  - x\n  - {c: 2}\n")

    assert [document.line_of(path) for path in (("a",), ("b", 0), ("b", 1, "c"), ("b", 1, "gone"))] == [1, 3, 4, 4]


def test_keys_that_terraform_reads_as_booleans_are_refused(tmp_path):
    with pytest.raises(CatalogInvalid, match="YAML readers disagree about on"):
        read(tmp_path, "on: 1\n")


@pytest.mark.parametrize(
    "text",
    [
        *("a: 1\n---\nb: 2\n", "a: !!python/name:os.system x\n", "a: {<<: {b: 1}}\n", "[a]: 1\n"),
        *("a: !!str true\n", "a: !!str\n", 'a: !!int "5"\n', 'a: !x "b"\n', "a: !!set {b}\n", "a: !!str\n  - b\n"),
    ],
)
def test_what_is_not_plain_data_is_refused(tmp_path, text):
    with pytest.raises(CatalogInvalid):
        read(tmp_path, text)
