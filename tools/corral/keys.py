"""Keys of the front door: who has one, and the sha256 of each.

A key is shown once, when it is made; only its hash is kept, in the document that the guard reads.  The operator's own
key is the exception: corral's own requests need it, so it is in a file beside the hashes.

Rotation has no clock: the old key stays valid until it is revoked, because only the operator knows when the last
program has the new one.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import secrets
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from corral.errors import CorralError, Refused
from corral.files import OwnFolder, refuse_unwritable, write_atomically

OPERATOR = "operator"
"""The name of the operator's own key."""
MONITOR = "monitor"
"""The name of the key with which an exporter reads what llama-swap runs."""
GATEWAY = "gateway"
"""The name of the key with which a gateway of the stack asks the models."""

_VERSION = 1
_BYTES = 32  # of randomness in a key
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BUSY_LIMIT_S = 10.0


@dataclass(frozen=True)
class Keys:
    """The sha256 of every key, in hexadecimal, by the name of its client; the newest last."""

    of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def added(self, name: str) -> tuple[Keys, str]:
        """These and a first key of *name*, which is returned too.

        Raises:
            Refused: it has one.
        """
        if self.of.get(name):
            raise Refused(f"{name} has a key already.", next_step=f"corral keys rotate {name}")
        return self._with_new(name)

    def rotated(self, name: str) -> tuple[Keys, str]:
        """These and a second key of *name*, which is returned too; the first stays valid.

        Raises:
            Refused: it has none, or its last rotation has not ended.
        """
        match len(self.of.get(name, ())):
            case 0:
                raise Refused(f"{name} has no key.", next_step=f"corral keys add {name}")
            case 1:
                return self._with_new(name)
            case _:
                raise Refused(
                    f"The key of {name} was rotated, and the old one is still valid.",
                    next_step=f"When every program has the new key: corral keys revoke {name} --old",
                )

    def revoked(self, name: str, *, only_old: bool) -> Keys:
        """These without those of *name*; with *only_old*, its newest stays.

        Raises:
            Refused: there is none to revoke, or it is the operator's last.
        """
        present = self.of.get(name, ())
        if len(present) <= only_old:
            why = f"{name} has no old key." if present else f"{name} has no key."
            raise Refused(why, next_step="corral keys list")
        if name == OPERATOR and not only_old:
            raise Refused(
                "corral's own requests need the operator's key.",
                next_step="Replace it: corral keys rotate operator, then: corral keys revoke operator --old",
            )
        rest = {other: hashes for other, hashes in self.of.items() if other != name}
        return Keys(rest | ({name: present[-1:]} if only_old else {}))

    def has(self, name: str, key: str) -> bool:
        """Whether *key* is one of *name*."""
        return _digest(key) in self.of.get(name, ())

    def of_only(self, name: str) -> Keys:
        """Those of *name* alone."""
        return Keys({name: self.of[name]} if name in self.of else {})

    def replaced(self, name: str, keys: Iterable[str]) -> Keys:
        """These, where *name* has *keys* and no other."""
        return Keys({**self.of, name: tuple(map(_digest, keys))})

    def _with_new(self, name: str) -> tuple[Keys, str]:
        key = generate()
        return Keys({**self.of, name: (*self.of.get(name, ()), _digest(key))}), key


HandOver = Callable[[str], None]
"""Takes a key that was made, and raises where it cannot."""


class KeyStore(Protocol):
    """Where keys are kept: files of this machine, or a Secret of a cluster; each method raises CorralErrors."""

    def exclusive_lock(self) -> AbstractContextManager[None]:
        """Keep out everything else that changes the keys."""

    def read(self) -> Keys:
        """The keys; none where nothing was ever written."""

    def operator_key(self) -> str | None:
        """The operator's own key; None when there is none."""

    def write(self, keys: Keys, operator_key: str | None = None) -> None:
        """Replace the keys, and the operator's own where it is given."""


def add(store: KeyStore, name: str, hand_over: HandOver = lambda _key: None) -> str:
    """Give *name* its first key, and return it; raises as ``Keys.added``, the store and *hand_over*.

    *hand_over* gets the key before it is valid: one that could not be read must not be.
    """
    return _changed(store, name, Keys.added, hand_over)


def rotate(store: KeyStore, name: str, hand_over: HandOver = lambda _key: None) -> str:
    """Give *name* a new key beside the old one, as ``add``; raises also as ``Keys.rotated``."""
    return _changed(store, name, Keys.rotated, hand_over)


def revoke(store: KeyStore, name: str, *, only_old: bool) -> None:
    """Make every key of *name* invalid, or all but the newest; raises as ``Keys.revoked`` and the store."""
    with store.exclusive_lock():
        store.write(store.read().revoked(name, only_old=only_old))


def ensure_operator(store: KeyStore) -> str:
    """The operator's own key, made when there is none that is valid; raises as the store."""
    with store.exclusive_lock():
        keys, key = store.read(), store.operator_key()
        if key and keys.has(OPERATOR, key):
            return key
        others = Keys({name: hashes for name, hashes in keys.of.items() if name != OPERATOR})
        keys, key = others.added(OPERATOR)
        store.write(keys, key)
        return key


def _changed(store: KeyStore, name: str, change: Callable[[Keys, str], tuple[Keys, str]], hand_over: HandOver) -> str:
    with store.exclusive_lock():
        keys, key = change(store.read(), name)
        hand_over(key)
        try:
            store.write(keys, key if name == OPERATOR else None)
        except CorralError as error:
            message = f"{error.message} The key that was printed may not be valid: do not use it."
            raise type(error)(message, next_step=error.next_step) from None
        return key


class LocalKeys:
    """The keys of the local stack, in ``keys/`` of the state folder, which is open to this user alone."""

    def __init__(self, state: Path) -> None:
        self._own, self._folder = OwnFolder(state, "CORRAL_STATE"), state / "keys"
        self.file = self._folder / "keys.json"  # the guard reads it, and reads it again when it changes
        self.operator_file = self._folder / "operator.key"

    def exclusive_lock(self) -> AbstractContextManager[None]:
        """As ``KeyStore``; raises Refused and CannotRun as ``OwnFolder.exclusive_lock``."""
        return self._own.exclusive_lock(self._folder, timeout_s=_BUSY_LIMIT_S)

    def read(self) -> Keys:
        """As ``KeyStore``.

        Raises:
            Refused: keys.json is not what this class writes, or cannot be read.
        """
        text = _text(self.file)
        try:
            return parse(text) if text is not None else Keys()
        except ValueError:
            raise Refused(
                f"{self.file} is not what `corral keys` writes: no key in it can be relied on.",
                next_step=f"mv {shlex.quote(str(self.file))} keys.json.damaged; then give every client a new key: "
                "corral keys add NAME",
            ) from None

    def operator_key(self) -> str | None:
        """As ``KeyStore``; raises Refused when it cannot be read."""
        text = _text(self.operator_file)
        return text.strip() if text else None

    def write(self, keys: Keys, operator_key: str | None = None) -> None:
        """As ``KeyStore``, the hashes first: whatever happens in between, the operator's key on disk is a valid one.

        Raises:
            Refused: the folder cannot be written.
        """
        with refuse_unwritable(self.file, next_step=f"ls -ld {shlex.quote(str(self._folder))}"):
            write_atomically(self.file, text_of(keys), mode=0o600)
            if operator_key:
                write_atomically(self.operator_file, operator_key + "\n", mode=0o600)


def generate() -> str:
    """A key that nothing has yet."""
    return f"corral-{secrets.token_urlsafe(_BYTES)}"


def text_of(keys: Keys) -> str:
    """The document that the guard reads."""
    document = {"version": _VERSION, "clients": {name: list(hashes) for name, hashes in sorted(keys.of.items())}}
    return json.dumps(document, indent=2) + "\n"


def parse(text: str) -> Keys:
    """The keys in a document of ``text_of``.

    Raises:
        ValueError: it is none.
    """
    try:
        document = json.loads(text)
        found = {str(name): tuple(hashes) for name, hashes in document["clients"].items()}
        is_ours = document["version"] == _VERSION
        is_ours = is_ours and all(_DIGEST.fullmatch(one) for one in itertools.chain(*found.values()))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("it has another form") from error
    if not is_ours:
        raise ValueError("it has another form")
    return Keys(found)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Refused(f"{file} cannot be read: {why}.", next_step=f"ls -l {shlex.quote(str(file))}") from None
