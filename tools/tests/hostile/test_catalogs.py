"""Catalogs that no operator writes: `corral validate` refuses each by its rule, within little time and memory."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from tests.support.hostile import assert_printable, assert_refused, run_corral
from tests.support.locked_catalog import SMALLEST_INTENT, write_sources

INTENT = json.dumps(SMALLEST_INTENT).removesuffix("}")


def model(text: str | bytes):
    """A catalog whose model's file is *text*."""
    return lambda folder: (folder / "models" / "m.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())


def more(text: str):
    """A catalog whose model has the members *text*, in JSON, which is YAML, beside all that it needs."""
    return model(f"{INTENT}, {text}}}")


def named(name: str):
    """A catalog with a model of that file name."""
    return lambda folder: (folder / "models" / name).write_text(f"{INTENT}}}")


def other(path: str, content: str | bytes):
    """A catalog with one more file."""

    def write(folder: Path) -> None:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def linked(path: str, target: str):
    """A catalog in which *path* is a link."""

    def write(folder: Path) -> None:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).unlink(missing_ok=True)
        (folder / path).symlink_to(target)

    return write


def fifo(path: str):
    """A catalog in which *path* is a FIFO into which nothing is ever written."""

    def write(folder: Path) -> None:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).unlink(missing_ok=True)
        os.mkfifo(folder / path)

    return write


def with_socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(folder / "models")  # the path of a socket is short
        try:
            listener.bind("s.yaml")
        finally:
            os.chdir(before)


def template(write):
    """A catalog whose model has the chat template that *write* makes."""

    def both(folder: Path) -> None:
        more('"args": {"chat-template-file": "files/t.jinja"}')(folder)
        write(folder)

    return both


LAUGHS = "".join(
    f"{name}: &{name} [{', '.join(f'*{before}' for _ in range(9))}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
TOO_BIG = "It has more than 65,536 bytes"
TOO_DEEP = "nested deeper than 16 levels"
TOO_MANY = "more than 4096 keys and values"
NO_ANCHOR = "anchors and aliases are not allowed"
NO_FILE = "It is no regular file"
ONE_PER_ENTRY = "holds one .yaml file per entry"

CATALOGS = {
    # depth and size
    "50 kB of [": (model("[" * 50_000), TOO_DEEP),
    "50 kB of {": (model("{" * 50_000), TOO_DEEP),
    "50 kB of ?": (model("? " * 25_000), TOO_DEEP),
    "50 kB of -": (model("- " * 25_000), TOO_DEEP),
    "blocks in blocks": (model("".join(f"{' ' * depth}a:\n" for depth in range(200))), TOO_DEEP),
    "100,000 keys": (model("".join(f"k{number}: 1\n" for number in range(100_000))), TOO_BIG),
    "5,000 keys": (model("".join(f"k{number}: 1\n" for number in range(5000))), TOO_MANY),
    "20,000 items": (model(f"a: [{'1,' * 20_000}]"), TOO_MANY),
    "10,000 empty lists": (model(f"a: [{'[],' * 10_000}]"), TOO_MANY),
    "a text of 1 MB": (more(f'"notes": "{"x" * 1_000_000}"'), TOO_BIG),
    "100 MB of comments": (model("#\n" * 50_000_000), TOO_BIG),
    "2,000 unknown keys": (model("".join(f"k{number}: 1\n" for number in range(2000))), "unknown key k1999;"),
    "a key of 60 kB": (model(f"{'k' * 60_000}: 1"), "not valid YAML"),
    "a quoted key of 60 kB": (model(f"? '{'k' * 60_000}'\n: 1"), "unknown key kkk"),
    "a name of 60 kB": (more(f'"aliases": ["{"a" * 60_000}"]'), "aliases"),
    # numbers
    "60,000 digits": (model(f"context: {'9' * 60_000}"), "YAML readers disagree"),
    "60,000 decimals": (model(f"context: 0.{'0' * 60_000}"), "YAML readers disagree"),
    "1e999": (model("context: 1e999"), "YAML readers disagree"),
    "base 60": (model(f"context: {'1:' * 20_000}1"), "YAML readers disagree"),
    "not a number": (model("context: .nan"), "YAML readers disagree"),
    "a context of 15 digits": (more('"context": 999999999999999'), "the key stands twice"),
    # anchors, tags, merges
    "a billion laughs": (model(f"a: &a [lol]\n{LAUGHS}"), NO_ANCHOR),
    "a list in itself": (model("a: &a [*a]"), NO_ANCHOR),
    "an alias of nothing": (model("a: *b"), NO_ANCHOR),
    "an anchor at a key": (model("&a card: laptop"), NO_ANCHOR),
    "an alias of 60 kB": (model(f"a: *{'b' * 60_000}"), NO_ANCHOR),
    "a Python object": (model('card: !!python/object/apply:os.system ["touch /tmp/x"]'), "card"),
    "a Python name": (model("card: !!python/name:os.system"), "tag:yaml.org,2002:python/name:os.system is not allowed"),
    "binary": (model("card: !!binary aGk="), "tag:yaml.org,2002:binary is not allowed"),
    "a tag of one's own": (model("%TAG ! tag:x,2000:\n---\ncard: !y z"), "tag:x,2000:y is not allowed"),
    "a merge": (model("<<: {card: laptop}"), "merge keys (<<) are not allowed"),
    "a mapping as a key": (model("? {a: b}\n: c"), "a key must be a plain word or quoted text"),
    "a list as a key": (model("? [a]\n: c"), "a key must be a plain word or quoted text"),
    "a key twice": (model("card: a\ncard: b"), "the key stands twice"),
    "a key twice, once escaped": (model('card: a\n"\\x63ard": b'), "the key stands twice"),
    "a key twice, in two forms of Unicode": (model("\u00e9: a\ne\u0301: b"), "the key stands twice"),
    "two documents": (model("card: a\n---\ncard: b"), "but found another document"),
    "no document": (model("# nothing\n"), "the file is empty"),
    "a text": (model("laptop"), "the file must be a mapping"),
    # characters
    "NUL": (model("card: a\0b"), "special characters are not allowed"),
    "an escaped NUL": (more('"args": {"chat-template": "a\\u0000b"}'), "args.chat-template"),
    "ESC": (model("card: \x1b[2J"), "special characters are not allowed"),
    "an escaped ESC in a key": (more('"\\u001b[2J\\u001b]0;x\\u0007": 1'), r"unknown key \x1b[2J\x1b]0;x\x07"),
    "an escaped ESC in a value": (model('card: "\\e[31mred"'), r"'\x1b[31mred' must be"),
    "right to left in a key": (more('"\u202egpj.exe": 1'), r"unknown key \u202egpj.exe"),
    "right to left in a value": (model("card: \u202egpj"), r"'\u202egpj' must be"),
    "invisible characters": (more('"c\u200bard": 1'), r"unknown key c\u200bard"),
    "a line separator": (model('? "a\u2028b"\n: 1'), "unknown key"),
    "a byte order mark within": (model("card: laptop\n\ufeffcontext: 1"), r"unknown key \ufeffcontext"),
    "UTF-16": (model("card: laptop".encode("utf-16")), "not UTF-8 text"),
    "Latin-1": (model("card: M\xfcller".encode("latin-1")), "not UTF-8 text (byte 7)"),
    "half a surrogate pair": (model(b"card: \xed\xa0\x80"), "not UTF-8 text (byte 6)"),
    "half a surrogate pair, escaped": (model('card: "\\ud800"'), r"'\ud800' is not allowed here"),
    "a program": (model(Path("/bin/sh").read_bytes()[:60_000]), "not UTF-8 text"),
    # names and kinds of files
    "a folder with the name of a file": (lambda folder: (folder / "models" / "x.yaml").mkdir(), ONE_PER_ENTRY),
    "a name with ESC": (named("a\x1b[2J.yaml"), r"a\u001b[2J.yaml"),
    "a name with a line end": (named("a\nb.yaml"), "the file's name must be lower case letters"),
    "a name that is no text": (named(b"a\xff.yaml".decode(errors="surrogateescape")), "the file's name must be"),
    "a name from right to left": (named("a\u202e.yaml"), "the file's name must be lower case letters"),
    "a name of the store": (named("blobs.yaml"), "not blobs or sets"),
    "a FIFO": (fifo("models/m.yaml"), ONE_PER_ENTRY),
    "a socket": (with_socket, ONE_PER_ENTRY),
    "a device": (linked("models/m.yaml", "/dev/zero"), ONE_PER_ENTRY),
    "a link to itself": (linked("models/m.yaml", "m.yaml"), "is a link that leads nowhere"),
    "a link to nowhere": (linked("models/m.yaml", "/nowhere"), "is a link that leads nowhere"),
    "a link to another file": (linked("models/m.yaml", "/etc/passwd"), "leads out of the catalog"),
    "a FIFO as images": (fifo("images.yaml"), NO_FILE),
    "a device as images": (linked("images.yaml", "/dev/zero"), "leads out of the catalog"),
    "a FIFO as clients": (fifo("clients.yaml"), NO_FILE),
    "a FIFO as the ledger": (fifo("measured.json"), NO_FILE),
    "a device as the ledger": (linked("measured.json", "/dev/zero"), NO_FILE),
    "a ledger of 10 MB": (other("measured.json", "[" * 10_000_000), "more than 4,194,304 bytes"),
    "a ledger that is deep": (other("measured.json", "[" * 100_000), "is not a ledger"),
    "a ledger with no number": (other("measured.json", '{"version": 1, "measurements": [NaN]}'), "is not a ledger"),
    "a FIFO as a template": (template(fifo("files/t.jinja")), NO_FILE),
    "a device as a template": (template(linked("files/t.jinja", "/dev/zero")), "leads out of the catalog"),
    "a template from elsewhere": (template(linked("files/t.jinja", "/etc/passwd")), "leads out of the catalog"),
    "a template of 10 MB": (template(other("files/t.jinja", "x" * 10_000_000)), "more than 4,194,304 bytes"),
    "a template that is no text": (template(other("files/t.jinja", b"\xff")), "is not UTF-8 text"),
    # values
    "a repository elsewhere": (model('source: {repo: "../../etc", quant: F16}'), "source.repo"),
    "a card elsewhere": (model('card: "../cards/laptop"'), "card"),
    "a shell in a flag": (more('"args": {"temp; touch /tmp/x": 1}'), "args"),
    "a line end in a flag": (more('"args": {"temp": "1\\n--tools all"}'), "args"),
    "a flag that runs programs": (more('"args": {"tools": "all"}'), "args.tools"),
}


@pytest.fixture
def catalog(tmp_path):
    """A good catalog of one model."""
    return write_sources(tmp_path / "catalog", {"good": SMALLEST_INTENT})


def everything(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in folder.rglob("*"))


def test_there_are_many_ways_and_the_catalog_that_they_change_is_good(catalog):
    assert len(CATALOGS) >= 40
    result = run_corral(["validate", "--catalog", str(catalog)], memory_mib=512, cpu_seconds=2)
    assert result.code == 0, result.stderr


@pytest.mark.parametrize("hostile", CATALOGS)
def test_a_hostile_catalog_is_refused_by_its_rule_and_changes_nothing(hostile, catalog):
    write, rule = CATALOGS[hostile]
    write(catalog)
    before = everything(catalog.parent)

    result = run_corral(["validate", "--catalog", str(catalog)], memory_mib=512, cpu_seconds=2)

    assert_refused(result)
    assert result.code == 2
    assert rule in result.stderr
    assert "\n  → " in result.stderr
    assert everything(catalog.parent) == before


@pytest.mark.parametrize(
    "hostile", ["an escaped ESC in a key", "right to left in a key", "a name with ESC", "a name that is no text"]
)
def test_what_a_terminal_would_obey_is_escaped_in_json_too(hostile, catalog):
    CATALOGS[hostile][0](catalog)

    result = run_corral(["validate", "--json", "--catalog", str(catalog)], memory_mib=512, cpu_seconds=2)

    assert result.code == 2
    assert_printable(result.stdout)
    assert json.loads(result.stdout)["valid"] is False
