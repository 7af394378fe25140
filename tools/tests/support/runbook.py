"""A runbook as its reader sees it: commands under headings, and a table from what is said to what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from corral import paths

FOLDER = paths.REPOSITORY / "docs" / "runbooks"
HEADINGS = ("Meaning", "Impact", "Diagnosis", "Mitigation", "Verify")
ANY = "…"
"""What stands in a quoted sentence for names and numbers."""


@dataclass(frozen=True)
class Row:
    """What corral says, in parts that stand in this order, and the heading where the reader goes on."""

    said: tuple[str, ...]
    target: str

    def is_in(self, text: str) -> bool:
        """Whether *text* says it."""
        return re.search(".*".join(map(re.escape, self.said)), text) is not None


@dataclass
class Runbook:
    """A runbook.

    Attributes:
        commands: what is to be typed, under the heading it stands under, in order.
        rows: of the table of the diagnosis, those that quote corral.
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
                said, target = line.strip("| ").split(" | ", 1)
                link = re.search(r"\]\((\S+?)\)", target)
                for quoted in re.findall(r"`([^`]+)`", said):
                    parts = tuple(part.strip() for part in quoted.split(ANY) if part.strip())
                    if not quoted.startswith("corral "):
                        book.rows.append(Row(parts, link[1] if link else ""))
        return book

    def targets(self, text: str) -> list[str]:
        """Where a reader who is told *text* goes."""
        return list(dict.fromkeys(row.target for row in self.rows if row.is_in(text)))
