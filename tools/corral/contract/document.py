"""``docs/api.md``: the contract as a table, and what differs from the committed one."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from itertools import groupby, islice
from typing import Any

from corral import markdown, templates
from corral.contract.check import Finding
from corral.contract.survey import Row

MOST_BYTES = 1 << 20
"""Of the document."""
_COLUMNS = 3
_FILE_NAMES = 2  # lines of a diff before its first change, which also begin with - and +


def facts(engine: str, llama_swap: str, models: Mapping[str, str]) -> dict[str, str]:
    """What the table belongs to: builds, the SDKs' versions, and the model of each kind with what it is."""
    sdks = {f"SDK `{name}`": metadata.version(name) for name in ("openai", "anthropic")}
    return {"llama-server": engine, "llama-swap": llama_swap, **sdks, **models}


def text(about: Mapping[str, str], rows: Sequence[Row]) -> str:
    """The document."""
    families = [
        (family, [(row.title, cell(row.alone), cell(row.through)) for row in found])
        for family, found in groupby(rows, lambda row: row.family)
    ]
    about = {markdown.one_line(name): markdown.cell(value) for name, value in about.items()}
    return templates.render("api.md.j2", about=about, families=families)


def as_json(about: Mapping[str, str], rows: Sequence[Row], drift: Sequence[str]) -> dict[str, Any]:
    """The same for a program."""
    return {
        "about": dict(about),
        "rows": [
            {"family": row.family, "code": row.code, "promise": row.title}
            | {"alone": row.alone._asdict(), "through_llama_swap": row.through._asdict()}
            for row in rows
        ],
        "drift": list(drift),
    }


def drift(committed: str, found: str) -> Iterator[str]:
    """The lines that differ: ``-`` of *committed*, ``+`` of *found*; none when they are alike."""
    compared = difflib.unified_diff(committed.splitlines(), found.splitlines(), lineterm="", n=0)
    return (line for line in islice(compared, _FILE_NAMES, None) if line.startswith(("-", "+")))


def promises(document: str) -> dict[tuple[str, str], str]:
    """Of each family and promise of *document*, what happens through llama-swap, as ``cell`` writes it."""
    found, family = {}, ""
    for line in document.splitlines():
        if line.startswith("## "):
            family = line.removeprefix("## ")
        elif len(cells := line.removeprefix("| ").removesuffix(" |").split(" | ")) == _COLUMNS:
            found[family, cells[0]] = cells[-1]
    return found


def cell(finding: Finding) -> str:
    """*finding* in the document."""
    return f"**{finding.state}**{': ' if finding.how else ''}{finding.how}"
