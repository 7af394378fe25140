"""What is different between two locks: each model, card, client and image, first as codes and fields, then in words.

Pure: it reads no file and sends no request.  `corral lock` compares the old lock with the new one, `corral plan` the
applied one with the one beside the catalog.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from corral.agent.lock_file import LockedFile
from corral.catalog.card import Card
from corral.catalog.clients import Client
from corral.catalog.intent import Model
from corral.lock import placement
from corral.lock.lock import Lock, LockEntry, Seat

About = Literal["model", "card", "client", "image"]
Kind = Literal["added", "removed", "changed", "upgraded", "unchanged"]
Field = Literal[
    "repo", "revision", "licence", "file", "argv", "intent", "prediction", "seat", "placed", "card", "client", "image"
]

_T = TypeVar("_T", LockEntry, Card, Client, str)
_SHORT = 12
_LONG = 200
"""Characters of a text that a line shows whole: a template has more."""


@dataclass(frozen=True)
class Difference:
    """One field that is different.

    Attributes:
        field: what kind of fact it is.
        key: which one: a file's path, a key of the intent or the card (``context``, ``tenants.frigate.budget_mib``);
            empty where there is only one.
        before: its value, None when there was none: a ``LockedFile`` for a file, words for argv, a ``Seat`` for a seat.
        after: the same now.
    """

    field: Field
    key: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Change:
    """A model, card, client or image in two locks, by its id or key.

    ``upgraded`` is another commit of the same repository, or another digest of the same tag.  The differences of its
    fields are in reading order; an added or removed one has all of its fields.
    """

    about: About
    name: str
    kind: Kind
    differences: tuple[Difference, ...]

    @property
    def subject(self) -> str:
        """What a line about it begins with: a model by its id, anything else named for what it is."""
        return self.name if self.about == "model" else f"{self.about} {self.name}"

    @property
    def details(self) -> tuple[str, ...]:
        """The differences in words, one line each."""
        whole = self.kind in ("added", "removed")
        return tuple(_words(difference, whole=whole) for difference in self.differences)


def compare(before: Lock | None, after: Lock | None) -> tuple[Change, ...]:
    """Every model, card, client and image of either lock, models first, each by name; unchanged ones too.

    None for a lock is an empty one.
    """
    empty = Lock(sources={}, images={}, cards={}, models={})
    old, new = before or empty, after or empty
    return (
        *_changes("model", old.models, new.models, _of_model),
        *_changes("card", old.cards, new.cards, partial(_different_keys, "card")),
        *_changes("client", old.clients, new.clients, _of_client),
        *_changes("image", old.images, new.images, partial(_different, "image", "")),
    )


def _changes(
    about: About,
    old: Mapping[str, _T],
    new: Mapping[str, _T],
    differences_of: Callable[[_T | None, _T | None], Iterator[Difference]],
) -> Iterator[Change]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        differences = tuple(differences_of(before, after))
        if before is None or after is None:
            kind: Kind = "added" if before is None else "removed"
        else:
            kind = "upgraded" if _is_upgrade(differences) else "changed" if differences else "unchanged"
        yield Change(about, name, kind, differences)


def _is_upgrade(differences: Sequence[Difference]) -> bool:
    by_field = {one.field: one for one in differences}
    if image := by_field.get("image"):
        return bool(image.before.partition("@")[0] == image.after.partition("@")[0])
    return "revision" in by_field and "repo" not in by_field


def _of_model(old: LockEntry | None, new: LockEntry | None) -> Iterator[Difference]:
    if old and new:
        for field in ("repo", "licence", "revision"):
            yield from _different(field, "", getattr(old, field), getattr(new, field))
    was, now = ({_place(file): file for file in entry.files} if entry else {} for entry in (old, new))
    for path in dict.fromkeys((*(path for path in was if path not in now), *now)):
        yield from _different("file", path, was.get(path), now.get(path))
    if old and new:
        yield from _different("argv", "", old.argv, new.argv)
        yield from _different_keys("intent", old.intent, new.intent)
    had, has = (entry.seat if entry else None for entry in (old, new))
    if not had or not has or (had.mib, had.basis) != (has.mib, has.basis):
        yield Difference("seat", "", had, has)
    elif old and new and old.predicted != new.predicted:
        yield Difference("prediction", "", old.predicted, new.predicted)
    was_on, is_on = (placement.reason(entry) if entry else "" for entry in (old, new))
    if was_on != is_on:
        yield Difference("placed", "", was_on or None, is_on or None)


def _place(file: LockedFile) -> str:
    """The path of *file*, with its repository where it has one of its own."""
    return f"{file.repo}/{file.path}" if file.repo else file.path


def _of_client(old: Client | None, new: Client | None) -> Iterator[Difference]:
    was, now = (
        one.model_dump(mode="json") | ({} if one.models else {"models": "all"}) if one else {} for one in (old, new)
    )
    return _different_values("client", was, now)


def _different_keys(field: Field, old: Model | Card | None, new: Model | Card | None) -> Iterator[Difference]:
    was, now = (_flat(_plain(one)) if one else {} for one in (old, new))
    return _different_values(field, was, now)


def _plain(one: Model | Card) -> dict[str, Any]:
    """All values of *one*; latency budgets by their consumers."""
    plain = one.model_dump(mode="json")
    if isinstance(one, Model):
        plain["latency"] = {budget.pop("consumer"): budget for budget in plain["latency"]}
    return plain


def _different_values(field: Field, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    for key in dict.fromkeys((*was, *now)):
        yield from _different(field, key, was.get(key), now.get(key))


def _different(field: Field, key: str, before: Any, after: Any) -> Iterator[Difference]:
    if before != after:
        yield Difference(field, key, before, after)


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots; an empty one has no keys."""
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat(inner, f"{prefix}{key}.") if isinstance(inner, Mapping) else {f"{prefix}{key}": inner}
    return flat


def _words(one: Difference, *, whole: bool) -> str:
    before, after = one.before, one.after
    match one.field:
        case "file":
            return _file_words(before, after)
        case "revision":
            return " → ".join([f"revision {(before or 'none')[:_SHORT]}", (after or "none")[:_SHORT]])
        case "argv":
            return f"argv {argv_words(before, after)}"
        case "seat":
            return f"seat {' → '.join(_seat_words(seat) for seat in (before, after) if seat)}"
        case "placed":
            return str(after or f"no longer {before}")
        case "prediction":
            return f"predicted anew by {after.engine}"
        case "image":
            return " → ".join(filter(None, (before, after)))
        case _ if whole:
            return f"{one.key} {shown(before if after is None else after)}"
        case _:
            return f"{one.key or one.field} {shown(before)} → {shown(after)}"


def _seat_words(seat: Seat) -> str:
    return f"{seat.mib:,} MiB{'' if seat.basis == 'predicted' else f' {seat.basis}'}"


def shown(value: Any) -> str:
    """A value of a ``Difference`` in words: a list with commas, a long text by its hash; ``none`` for an empty list."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, str) and (len(value) > _LONG or "\n" in value):
        return f"{len(value):,} characters ({hashlib.sha256(value.encode()).hexdigest()[:_SHORT]})"
    return "none" if value is None else str(value)


def argv_words(old: Sequence[str], new: Sequence[str]) -> str:
    """The words of *old* that are others in *new*, each run of them beside the words in its place."""
    return ", ".join(
        f"{' '.join(map(shown, old[a:b])) or 'nothing'} → {' '.join(map(shown, new[c:d])) or 'nothing'}"
        for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if kind != "equal"
    )


def _file_words(old: LockedFile | None, new: LockedFile | None) -> str:
    if old and new:
        hashes = f"{old.sha256[:_SHORT]} → {new.sha256[:_SHORT]}"
        return f"~ {new.path}: {old.size:,} → {new.size:,} bytes, {hashes}"
    if new:
        return f"+ {new.path} ({new.role}, {new.size:,} bytes)"
    assert old
    return f"- {old.path}"
