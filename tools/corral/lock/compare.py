"""What is different between two locks: each model, card and image, first as codes and fields, then in words.

Pure: it reads no file and asks no service.  `corral lock` compares the old lock with the new one, `corral plan` the
applied one with the one beside the catalog.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from corral.agent.lock_file import LockedFile
from corral.lock import seat
from corral.lock.lock import Lock, LockEntry

About = Literal["model", "card", "image"]
Kind = Literal["added", "removed", "changed", "upgraded", "unchanged"]
Field = Literal["repo", "revision", "licence", "file", "argv", "intent", "prediction", "seat", "card", "image"]

_SHORT = 12


@dataclass(frozen=True)
class Seat:
    """MiB that a model has on its card, and what decides them (``corral.lock.seat``)."""

    mib: int
    basis: seat.Basis


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
    """A model, card or image in two locks.

    Attributes:
        about: which of the three.
        name: its id or key.
        kind: ``upgraded`` is another commit of the same repository, or another digest of the same tag.
        differences: of its fields, in reading order; of an added or removed one what it is made of.
    """

    about: About
    name: str
    kind: Kind
    differences: tuple[Difference, ...] = ()

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
    """Every model, card and image of either lock, models first, each by name; unchanged ones too.

    Args:
        before: None stands for an empty lock.
        after: the same.
    """
    empty = Lock(sources={}, images={}, cards={}, models={})
    old, new = before or empty, after or empty
    return (
        *(_model(name, old.models.get(name), new.models.get(name)) for name in _names(old.models, new.models)),
        *(_card(name, old, new) for name in _names(old.cards, new.cards)),
        *(_image(name, old.images.get(name), new.images.get(name)) for name in _names(old.images, new.images)),
    )


def _names(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return sorted(old.keys() | new.keys())


def _kind(before: object, after: object, differences: Sequence[Difference]) -> Kind:
    if before is None:
        return "added"
    if after is None:
        return "removed"
    return "changed" if differences else "unchanged"


def _model(name: str, old: LockEntry | None, new: LockEntry | None) -> Change:
    differences = tuple(_of_model(old, new))
    kind = _kind(old, new, differences)
    if old and new and old.repo == new.repo and old.revision != new.revision:
        kind = "upgraded"
    return Change("model", name, kind, differences)


def _of_model(old: LockEntry | None, new: LockEntry | None) -> Iterator[Difference]:
    if old and new:
        for field in ("repo", "licence", "revision"):
            yield from _different(field, "", getattr(old, field), getattr(new, field))
    yield from _files(old.files if old else (), new.files if new else ())
    if old and new:
        yield from _different("argv", "", old.argv, new.argv)
        was, now = (_flat(entry.intent.model_dump(mode="json")) for entry in (old, new))
        for key in dict.fromkeys((*was, *now)):
            yield from _different("intent", key, was.get(key), now.get(key))
    had, has = (Seat(seat.seat_mib(entry), seat.basis(entry)) if entry else None for entry in (old, new))
    yield from _different("seat", "", had, has)
    if old and new and had == has and old.predicted != new.predicted:
        yield Difference("prediction", "", old.predicted, new.predicted)


def _files(old: Sequence[LockedFile], new: Sequence[LockedFile]) -> Iterator[Difference]:
    was, now = ({file.path: file for file in files} for files in (old, new))
    for path in dict.fromkeys((*(path for path in was if path not in now), *now)):
        yield from _different("file", path, was.get(path), now.get(path))


def _card(name: str, old: Lock, new: Lock) -> Change:
    before, after = old.cards.get(name), new.cards.get(name)
    was, now = (_flat(card.model_dump(mode="json")) if card else {} for card in (before, after))
    pairs = ((key, was.get(key), now.get(key)) for key in dict.fromkeys((*was, *now)))
    differences = tuple(itertools.chain.from_iterable(_different("card", *pair) for pair in pairs))
    return Change("card", name, _kind(before, after, differences), differences)


def _image(name: str, old: str | None, new: str | None) -> Change:
    differences = tuple(_different("image", "", old, new))
    kind = _kind(old, new, differences)
    if old and new and old != new and old.partition("@")[0] == new.partition("@")[0]:
        kind = "upgraded"
    return Change("image", name, kind, differences)


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
            return f"revision {_short(before)} → {_short(after)}"
        case "argv":
            return f"argv {argv_words(before, after)}"
        case "seat":
            return " → ".join(
                f"seat {_seat_words(seat)}" if seat is before or before is None else _seat_words(seat)
                for seat in (before, after)
                if seat is not None
            )
        case "prediction":
            return f"predicted anew by {after.engine}"
        case "image":
            return " → ".join(filter(None, (before, after)))
        case _ if whole:
            return f"{one.key} {shown(before if after is None else after)}"
        case _:
            return f"{one.key or one.field} {shown(before)} → {shown(after)}"


def _seat_words(one: Seat) -> str:
    return f"{one.mib:,} MiB{'' if one.basis == 'predicted' else f' {one.basis}'}"


def _short(revision: str | None) -> str:
    return (revision or "none")[:_SHORT]


def shown(value: Any) -> str:
    """A value of a ``Difference`` in words: a list with commas; ``none`` for None and for an empty list."""
    if value is None:
        return "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def argv_words(old: Sequence[str], new: Sequence[str]) -> str:
    parts = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            parts.append(f"{' '.join(old[a:b]) or 'nothing'} → {' '.join(new[c:d]) or 'nothing'}")
    return ", ".join(parts)


def _file_words(old: LockedFile | None, new: LockedFile | None) -> str:
    if old and new:
        hashes = f"{old.sha256[:_SHORT]} → {new.sha256[:_SHORT]}"
        return f"~ {new.path}: {old.size:,} → {new.size:,} bytes, {hashes}"
    if new:
        return f"+ {new.path} ({new.role}, {new.size:,} bytes)"
    assert old
    return f"- {old.path}"
