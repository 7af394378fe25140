"""What of a lock the running llama-swap does not have yet, by the configuration that it was started with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from corral.engine.command import Command, Sets
from corral.lock.lock import Lock, LockEntry
from corral.seating import chart


def changes(lock: Lock, commands: Mapping[str, Command], sets: Sets) -> list[str]:
    """What another `corral up` would change of the models: each with what differs, as a sentence has it.

    Args:
        lock: of the catalog.
        commands: of the models that are served.
        sets: of these that run together.
    """
    ids = sorted(lock.models.keys() | commands.keys())
    found = {model: ", ".join(_changes(lock.models.get(model), commands.get(model))) for model in ids}
    named = [f"{model} ({what})" for model, what in found.items() if what]
    wanted = {name: group.sets for card in chart.of(lock).cards.values() for name, group in card.groups.items()}
    return named if named or _unordered(wanted) == _unordered(sets) else ["which models run together"]


def _changes(entry: LockEntry | None, command: Command | None) -> Iterator[str]:
    if entry is None:
        yield "not in the lock"
    elif command is None:
        yield "not served"
    else:
        if command.seat_mib not in (None, entry.seat.mib):
            yield f"seat {entry.seat.mib:,} MiB in the lock"
        if command.sha256 != tuple(file.sha256 for file in entry.files):
            yield "other files"
        if not _is_run(command.argv[1:], entry.argv[1:]):
            yield "another command line"


def _is_run(words: Sequence[str], locked: Sequence[str]) -> bool:
    """Whether *words* are the *locked* ones; ``${STORE}`` stands for any folder."""
    forms = [re.escape(word).replace(re.escape("${STORE}"), ".*") for word in locked]
    same = len(words) == len(forms)
    return same and all(re.fullmatch(form, word, re.DOTALL) for form, word in zip(forms, words, strict=True))


def _unordered(sets: Sets) -> dict[str, set[frozenset[str]]]:
    return {group: set(map(frozenset, found)) for group, found in sets.items()}
