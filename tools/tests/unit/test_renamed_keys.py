"""The key `slot` becomes `group`: only that word of the file changes."""

from __future__ import annotations

import pytest

from corral.catalog import renamed_keys

REST = "source: {repo: org/slot, quant: Q8_0}   # slot: not this one\ncard: t4\ncontext: 1\nmodalities: [text]\n"


@pytest.fixture
def file(tmp_path):
    (tmp_path / "models").mkdir()
    return tmp_path / "models" / "m.yaml"


def renamed(file, text):
    file.write_bytes(text.encode())
    found = renamed_keys.files(file.parents[1])
    for one in found:
        renamed_keys.rename(one)
    assert bool(found) == (file.read_bytes() != text.encode())
    return file.read_bytes().decode()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("slot: main", "group: main"),
        ("slot:   slot      # one model of a slot, ü", "group:   slot      # one model of a slot, ü"),
        ('"slot": main', '"group": main'),
        ("'slot': main", "'group': main"),
        ("? slot\n: main", "? group\n: main"),
        ('"sl\\x6ft": main', '"group": main'),
        ('"sl\\x6ft": main   # was a slot', '"group": main   # was a slot'),
        ("!!str slot: main", "!!str group: main"),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_only_the_name_of_the_key_changes(file, old, new, before):
    text = f"{old}\n{REST}" if before else f"# ä\n{REST}{old}\n"

    assert renamed(file, text) == text.replace(old, new)


def test_line_ends_stay(file):
    assert renamed(file, "slot: a\r\ncard: t4\r\n") == "group: a\r\ncard: t4\r\n"


def test_a_file_in_one_line_is_edited_too(file):
    assert renamed(file, '{"source": {"slot": 1}, "slot": "slot"}') == '{"source": {"slot": 1}, "group": "slot"}'


@pytest.mark.parametrize(
    "text",
    [REST, f"{REST}smoke: {{slot: x}}\n", f"{REST}slot: a\ngroup: b\n", "slot: a\nslot: b\n", "slot: [", "- slot", ""],
    ids=["no such key", "below another key", "both names", "twice", "not YAML", "no mapping", "empty"],
)
def test_what_is_not_the_old_key_alone_is_left_to_the_operator(file, text):
    assert renamed(file, text) == text


def test_a_link_stays_one(file, tmp_path):
    real = tmp_path / "real.yaml"
    real.write_text("slot: a\n")
    file.symlink_to(real)

    renamed_keys.rename(file)

    assert file.is_symlink()
    assert real.read_text() == "group: a\n"


def test_an_editors_file_keeps_its_keys(file):
    backup = file.with_name(".m.yaml")
    backup.write_text(f"slot: main\n{REST}")

    assert renamed_keys.files(file.parents[1]) == []
