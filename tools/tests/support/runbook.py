"""The structure of a runbook: commands under headings, and a table from corral's messages to remedies."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from corral import paths

FOLDER = paths.REPOSITORY / "docs" / "runbooks"
HEADINGS = ("Meaning", "Impact", "Diagnosis", "Mitigation", "Verify")
ANY = "…"
"""Replaces names and numbers in a quoted message."""


@dataclass(frozen=True)
class Row:
    """A message of corral, as its parts in order, and the link to its remedy."""

    quoted: tuple[str, ...]
    target: str

    def is_in(self, text: str) -> bool:
        """Whether *text* has the message."""
        return re.search(".*".join(map(re.escape, self.quoted)), text) is not None


@dataclass
class Runbook:
    """A runbook.

    Attributes:
        commands: heading → its commands, in order.
        rows: the rows of the diagnosis' table that quote corral.
    """

    file: Path
    commands: dict[str, list[str]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def read(cls, name: str) -> Runbook:
        """The runbook *name* (without .md)."""
        book, heading, in_code = cls(FOLDER / f"{name}.md"), "", False
        for line in book.file.read_text(encoding="utf-8").splitlines():
            if line.startswith("```"):
                in_code = not in_code
            elif in_code and line.startswith("$ "):
                book.commands.setdefault(heading, []).append(line.removeprefix("$ "))
            elif not in_code and (found := re.match(r"#+ (.+)", line)):
                heading = found[1]
            elif heading == "Diagnosis" and line.startswith("| ") and not line.startswith("| ---"):
                first, target = line.strip("| ").split(" | ", 1)
                link = re.search(r"\]\((\S+?)\)", target)
                for quoted in re.findall(r"`([^`]+)`", first):
                    parts = tuple(part.strip() for part in quoted.split(ANY) if part.strip())
                    if not quoted.startswith("corral "):
                        book.rows.append(Row(parts, link[1] if link else ""))
        return book

    def targets(self, text: str) -> list[str]:
        """The links of the rows whose message *text* has."""
        return list(dict.fromkeys(row.target for row in self.rows if row.is_in(text)))
