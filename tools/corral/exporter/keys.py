"""Who may read the page, the account and the records: those who send the operator's key."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from .errors import KeysUnknown

_OPERATOR = "operator"  # as corral.keys names it
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class OperatorKeys:
    """The operator's keys, by their sha256 in a document of `corral keys`; during a rotation both.

    Attributes:
        path: of the document, which is read at each request: Kubernetes replaces it by a link that flips, `corral keys`
            by a rename.
        command: prints the operator's key.
    """

    path: Path
    command: str

    def accepts(self, authorization: Sequence[str]) -> bool:
        """Whether the one field *authorization* of a request has a key of the operator.

        A browser sends it as ``Basic``, the password of any user name, a program as ``Bearer``.

        Raises:
            KeysUnknown: the document cannot be read, or has no key of the operator.
        """
        known = self._read()
        key = _sent(authorization[0]) if len(authorization) == 1 else b""
        digest = sha256(key).hexdigest()
        matches = sum(compare_digest(one, digest) for one in known)  # of all: the time does not depend on the key
        return bool(key) and matches > 0

    def _read(self) -> tuple[str, ...]:
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            found = tuple(map(_digest, document["clients"][_OPERATOR]))
            is_ours = document["version"] == 1 and bool(found)
        except OSError as error:
            raise KeysUnknown(f"The keys cannot be read: {error.strerror}.") from None
        except (ValueError, KeyError, TypeError, RecursionError):  # the text of such an error may quote the file
            is_ours, found = False, ()
        if not is_ours:
            raise KeysUnknown("The file of the keys is not what `corral keys` writes, or has no key of the operator.")
        return found


def _digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise ValueError("it is no sha256 in hexadecimal")
    return text


def _sent(authorization: str) -> bytes:
    """The key in a field ``Authorization``; empty without one."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("latin-1", errors="replace")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
        except ValueError:
            return b""
    return b""
