"""Box 8: adapters swapped and rolled back.  Each with several versions answers by another one, and by its own again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from corral import versions
from corral.bench.exchange import described
from corral.bench.prompts import Prompts, body
from corral.gate import box
from corral.gate.box import Line, State
from corral.gate.site import Site
from corral.lock.lock import LockEntry
from corral.smoke import adapters

LIMIT_S = 30.0
"""Of a swap, and of a rollback."""
_FLAG = "--lora"
_TOKENS = 16


@dataclass(frozen=True)
class Change:
    """A swap or a rollback: the version that answered after it, and what was wrong; empty: nothing."""

    version: str
    seconds: float
    problem: str = ""


def unused(entry: LockEntry) -> tuple[Line, ...] | None:
    """*Not used* where the model has no adapter of which another version could serve; None where it has."""
    flags = sorted({word for word in entry.argv if word.startswith(_FLAG)})
    if not flags:
        return box.line(State.NOT_USED, f"the locked command line has no {_FLAG}")
    if not swappable(entry):
        text = f"the locked command line has {', '.join(flags)}, and no adapter with a name has a second version"
        return box.line(State.NOT_USED, text)
    return None


def swappable(entry: LockEntry) -> list[str]:
    """The names of the adapters that have several versions."""
    return [name for name in entry.intent.adapter_names if len(entry.intent.versions_of(name)) > 1]


def swap(site: Site, store: versions.VersionStore, *, may_swap: bool) -> tuple[Line, ...]:
    """Have another version of each adapter serve and roll it back, with an answer after each.

    Raises:
        CorralError: the versions cannot be changed; the one that served may have to be chosen again.
    """
    if (found := unused(site.entry)) is not None:
        return found
    if not may_swap:
        text = f"another version of {', '.join(swappable(site.entry))} would serve for a moment"
        return box.line(State.UNKNOWN, f"{text}, which was not allowed", f"{site.again} --only adapters --may-swap")
    return tuple(
        line
        for name in swappable(site.entry)
        for line in judge(f"{site.model}:{name}", asyncio.run(_changes(site, store, name)), site.why)
    )


def judge(name: str, found: Sequence[Change], step: str) -> tuple[Line, ...]:
    """The line of the adapter *name*."""
    text = ", then ".join(f"{one.version} after {one.seconds:.2f} s" for one in found)
    slow = [f"{one.version} took more than {LIMIT_S:g} s" for one in found if one.seconds > LIMIT_S]
    if problems := [*(one.problem for one in found if one.problem), *slow]:
        return box.line(State.FAILED, f"{name}: {text}: {'; '.join(problems)}", step)
    return box.line(State.PASSED, f"{name}: {text}, each with a whole answer")


async def _changes(site: Site, store: versions.VersionStore, name: str) -> list[Change]:
    whole, usable = f"{site.model}:{name}", site.entry.intent.versions_of(name)
    present = versions.serving(store.read(), whole, usable)
    other = next(one for one in usable if one != present)
    prompts = Prompts(_TOKENS)

    def swapped() -> str:
        versions.swap(store, whole, usable, other)
        return other

    def rolled_back() -> str:
        return versions.rollback(store, whole, usable)[1]

    found = []
    async with site.api() as api, site.client() as client:
        for change in (swapped, rolled_back):
            version, seconds = await adapters.changed(api, whole, change)
            sample = await client.send(body(whole, prompts.next(), _TOKENS, may_end=True))
            problem = "" if sample.is_ok else f"no whole answer of {version}: {described(sample.outcome)}"
            found.append(Change(version, seconds, problem))
    return found
