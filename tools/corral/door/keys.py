"""Keys: which client a request comes from, by hashes that are read again when their file changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest
from http import HTTPStatus
from pathlib import Path

from . import strict_json
from .config import Client, Misconfigured, file_state
from .refusals import Refusal

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Keys:
    """The keys in the file at *path*; without a path, every request is the only client's.

    Args:
        path: keys.json; Kubernetes replaces it by a link that flips, `corral keys` by a rename.
        clients: those of the configuration; a key of another client is no key.
        warn: gets a sentence when a new file cannot be used, and the keys before it stay.

    Raises:
        Misconfigured: there is no file that can be used, at the start.
    """

    def __init__(self, path: Path | None, clients: Mapping[str, Client], warn: Callable[[str], None]) -> None:
        self._path, self._clients, self._warn = path, clients, warn
        self._only = None if path else next(iter(clients.values()))
        self._state: tuple[int, ...] | str = ""
        self._hashes: list[tuple[str, Client]] = []
        if path:
            self._state = file_state(path)
            try:
                self._hashes = self._read(path)
            except (OSError, ValueError) as error:
                raise Misconfigured(f"{path}: {error}") from None

    def client_of(self, fields: Mapping[str, str]) -> Client:
        """The client whose key is in the *fields* of a request, as ``Authorization: Bearer`` or ``x-api-key``.

        Raises:
            Refusal: there is no key, two that differ, or one that is not known.
        """
        if self._only:
            return self._only
        self._refresh()
        scheme, _, bearer = fields.get("authorization", "").partition(" ")
        found = {bearer.strip() if scheme.lower() == "bearer" else "", fields.get("x-api-key", "")} - {""}
        if len(found) != 1:
            raise _unauthorized("key-missing", "One key is required: Authorization: Bearer KEY, or x-api-key: KEY.")
        digest = sha256(found.pop().encode("latin-1")).hexdigest()
        owner = None
        for known, client in self._hashes:  # without an early end: the time does not depend on the key
            if compare_digest(known, digest):
                owner = client
        if owner is None:
            raise _unauthorized("key-unknown", "This key is not known. An operator adds one: corral keys add")
        return owner

    def _refresh(self) -> None:
        assert self._path is not None
        state = file_state(self._path)
        if state == self._state:
            return
        self._state = state
        try:
            self._hashes = self._read(self._path)
        except (OSError, ValueError) as error:
            self._warn(f"{self._path} is not used, the keys before it stay valid: {error}")

    def _read(self, path: Path) -> list[tuple[str, Client]]:
        document = strict_json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or document.keys() != {"version", "clients"} or document["version"] != 1:
            raise ValueError("it must have version 1 and clients, and nothing else")
        if not isinstance(document["clients"], dict):
            raise ValueError("clients must be an object")  # noqa: TRY004 - it is about a file
        owners: dict[str, Client] = {}
        for name, hashes in document["clients"].items():
            if not isinstance(hashes, list) or not all(_DIGEST.fullmatch(str(one)) for one in hashes):
                raise ValueError(f"clients.{name} must be a list of sha256 in hexadecimal")
            if name not in self._clients:
                continue
            if owners.keys() & set(hashes):
                raise ValueError(f"a key of {name} is another client's, too")
            owners |= dict.fromkeys(hashes, self._clients[name])
        return list(owners.items())


def _unauthorized(code: str, rule: str) -> Refusal:
    return Refusal(HTTPStatus.UNAUTHORIZED, code, rule, headers={"WWW-Authenticate": "Bearer"})
