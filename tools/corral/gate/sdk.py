"""Box 5: whether clients can rely on the API as documented, by their own SDKs, through the address that they use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

from corral.catalog.intent import Model
from corral.contract import reach
from corral.contract.check import Check, Finding, State, checks_of
from corral.contract.document import MOST_BYTES, cell, promises
from corral.contract.survey import FAMILIES, finding
from corral.errors import Refused
from corral.gate import box
from corral.gate.box import Line
from corral.gate.box import State as Box
from corral.gate.site import Site

_MOST_SHOWN = 5


def sdk(site: Site, document: Path) -> tuple[Line, ...]:
    """Whether each promise of *document* that is for such a model works, or is as it has it.

    Raises:
        Refused: *document* cannot be read.
        ProgramMissing: an SDK is not installed.
    """
    try:
        with document.open("rb") as file:
            documented = promises(file.read(MOST_BYTES).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{document} cannot be read: {error}.", next_step="Name another file: --contract FILE") from None
    found = judge(asyncio.run(_findings(site)), documented, document.name)
    return require_all(found, site.entry.intent)


def wanted_of(intent: Model) -> Iterator[tuple[str, Check]]:
    """The checks for a model with this *intent*, each with its family.

    Those of text ask for few tokens, which the thoughts of a model that always thinks would take.
    """
    thinks = intent.reasoning == "on"
    kinds = {"thinking"} if thinks else {"text"}
    kinds |= {"vision"} if intent.vision else set()
    for name, family in FAMILIES.items():
        yield from ((name, one) for one in checks_of(family) if one.of in kinds and one.unless not in kinds)


def require_all(found: tuple[Line, ...], intent: Model) -> tuple[Line, ...]:
    """*found*, or unknown where it passed and the promises of text were not sent to a model with this *intent*."""
    if intent.reasoning != "on" or box.worst(found) is not Box.PASSED:
        return found
    left = sum(one.of == "text" for family in FAMILIES.values() for one in checks_of(family))
    text = f"{found[0].text}; {left} promises of text were not sent: its thoughts take the tokens that they ask for"
    return box.line(Box.UNKNOWN, text, "Prove them by hand, or serve it without thoughts: reasoning: off in its file")


async def _findings(site: Site) -> dict[tuple[str, str], Finding]:
    """What became of each promise, by its family and title."""
    wanted = list(wanted_of(site.entry.intent))
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
