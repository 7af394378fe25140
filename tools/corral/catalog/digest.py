"""The digests that tie a lock entry to the intent it was made from, and its VRAM rows to their command line.

Each is ``sha256(jsonencode(…))`` as Terraform computes it, so that ``terraform plan`` can refuse a
stale lock without Python: keys sorted, no spaces, and Go's escapes for ``< > &`` and U+2028/U+2029.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

_GO_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"},
)


def terraform_json(value: Any) -> str:
    """*value* (as read by ``yaml_reader``) in the exact bytes of Terraform's ``jsonencode``."""
    if isinstance(value, dict):
        members = (f"{terraform_json(key)}:{terraform_json(value[key])}" for key in sorted(value))
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(terraform_json(item) for item in value) + "]"
    if isinstance(value, float):
        return format(Decimal(repr(value)).normalize(), "f")
    return json.dumps(value, ensure_ascii=False).translate(_GO_ESCAPES)


def intent_sha256(value: Any) -> str:
    """Hex sha256 of *value* in Terraform's JSON."""
    return hashlib.sha256(terraform_json(value).encode()).hexdigest()


def argv_sha256(argv: Sequence[str]) -> str:
    """Hex sha256 of a command line, ``sha256(jsonencode(argv))`` in Terraform."""
    return intent_sha256(list(argv))
