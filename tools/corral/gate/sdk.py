"""Box 5: whether clients can rely on the API as documented, by their own SDKs, through the address that they use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from corral.contract import reach
from corral.contract.check import Finding, State, checks_of
from corral.contract.document import MOST_BYTES, cell, promises
from corral.contract.survey import FAMILIES, finding, kind_of
from corral.errors import Refused
from corral.gate import box
from corral.gate.box import Line
from corral.gate.box import State as Box
from corral.gate.site import Site

_MOST_SHOWN = 5


def sdk(site: Site, document: Path) -> tuple[Line, ...]:
    """Whether each promise of *document* that is for the model's kind works, or is as it has it.

    Raises:
        Refused: *document* cannot be read.
        ProgramMissing: an SDK is not installed.
    """
    try:
        with document.open("rb") as file:
            documented = promises(file.read(MOST_BYTES).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{document} cannot be read: {error}.", next_step="Name another file: --contract FILE") from None
    return judge(asyncio.run(_findings(site)), documented, document.name)


async def _findings(site: Site) -> dict[tuple[str, str], Finding]:
    """What became of each promise, by its family and title."""
    kind = kind_of(site.entry.intent)
    wanted = [(name, one) for name, family in FAMILIES.items() for one in checks_of(family) if one.of == kind]
    site.report(f"{site.model}: {len(wanted)} promises of the API, by the SDKs …")
    native = f"/upstream/{site.model}"
    async with reach.opened(site.root, site.model, native=native, key=site.key, trust=site.trust) as way:
        return {(name, one.title): await finding(one, way, limit_s=site.timeout_s) for name, one in wanted}


def judge(
    found: Mapping[tuple[str, str], Finding], documented: Mapping[tuple[str, str], str], name: str
) -> tuple[Line, ...]:
    """The box by the findings: one that works is kept; any other must be as it is documented in the file *name*."""
    broken = [
        f"{key[1]}: {one}, and {name} has: {documented.get(key, 'no such promise')}"
        for key, one in found.items()
        if one.state is not State.WORKS and cell(one) != documented.get(key)
    ]
    works = sum(one.state is State.WORKS for one in found.values())
    if broken or not found:
        more = f"; and {len(broken) - _MOST_SHOWN} more" if len(broken) > _MOST_SHOWN else ""
        text = f"{len(broken)} of {len(found)} promises are not as documented: {'; '.join(broken[:_MOST_SHOWN])}{more}"
        step = (
            "corral contract api has all of them; of a model of your own: --document FILE --write, then --contract FILE"
        )
        return box.line(Box.FAILED, text, step)
    return box.line(Box.PASSED, f"{len(found)} promises: {works} work, {len(found) - works} are as {name} has them")
