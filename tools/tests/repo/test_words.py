"""The repository's text is plain technical English: no verbs of speech and sight as nouns or names."""

from __future__ import annotations

import re

from corral.paths import REPOSITORY
from tests.support import clone

BANNED = re.compile(
    r"(?<![a-z])(told|said|seen|heard|nobody|somebody|whoever|anybody|patience|a look|at hand)(?![a-z])",
    re.IGNORECASE,
)
TEXT = {".cfg", ".example", ".hcl", ".j2", ".md", ".py", ".sh", ".svg", ".tf", ".toml", ".yaml", ".yml", ""}
"""Suffixes of text that people write; generated locks, schemas and recordings are not checked."""

ITSELF = "tools/tests/repo/test_words.py"

QUOTED = {
    "llama_server_launchd_user: nobody": "the user name on macOS",
    "default: nobody": "the same, in the role's argument specification",
    "| `llama_server_launchd_user` | str | `nobody` |": "the same, in the generated table",
    "the user nobody": "the user that root_squash maps root to",
    "patience_seconds": "a key of the agent's events in JSON",
    '_UNPRIVILEGED = "nobody"': "the Unix user of the tests' PostgreSQL",
}
"""Part of a line → the reason why its banned word stays."""


def lines():
    """File, number and text of every checked line."""
    for name in clone.files():
        file = REPOSITORY / name
        if name in (ITSELF, "LICENSE") or file.suffix not in TEXT:
            continue
        if file.is_file() and not file.is_symlink():
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                yield name, number, line


def without_quotations(line):
    for quotation in QUOTED:
        line = line.replace(quotation, "")
    return line


def test_no_line_has_a_banned_word():
    checked = list(lines())
    found = [
        f"{name}:{number}: {match[0]!r} in: {line.strip()}"
        for name, number, line in checked
        for match in BANNED.finditer(without_quotations(line))
    ]

    assert len(checked) > 1000
    assert not found, "\n".join(["Name the subject, use the field's term, or quote with a reason:", *found])


def test_every_quotation_still_stands_in_the_repository():
    text = "\n".join(line for _, _, line in lines())

    assert [quotation for quotation in QUOTED if quotation not in text] == []


def test_words_of_names_are_found_and_parts_of_words_are_not():
    assert BANNED.findall("patience_s = Seen(); at hand, a look") == ["patience", "Seen", "at hand", "a look"]
    assert not BANNED.search("unseen overheard aforesaid: a lookup, a handle, at handover")
