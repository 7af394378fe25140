"""The forms of texts in the catalog, and what every class of its keys has in common."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import ConfigDict, StringConstraints

from corral.exporter import expectations

ID_PATTERN = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
LONGEST_ID = 63
ALIAS_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._:/-]*[A-Za-z0-9])?$"
REPO_PATTERN = r"^[\w.-]+/[\w.-]+$"
REVISION_PATTERN = r"^[\w./-]+$"
QUANT_PATTERN = r"^[A-Za-z0-9_-]+$"
SELECTOR_PATTERN = r"^[\w./-]+=[\w.-]+(,[\w./-]+=[\w.-]+)*$"
UNIT_PATTERN = r"^[A-Za-z0-9:_.\\@-]+\.(service|slice)$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
CONDITION_PATTERN = expectations.PATTERN
CAPABILITY_PATTERN = r"^[0-9]{1,2}\.[0-9]$"
BUILD_PATTERN = r"^b[1-9][0-9]{0,6}$"
FORMS = {
    ID_PATTERN: "lower case letters, digits, dot and dash, with a letter or digit at both ends",
    ALIAS_PATTERN: "letters, digits and . _ : / -, with a letter or digit at both ends",
    REPO_PATTERN: "like org/name",
    REVISION_PATTERN: "a branch, a tag or a commit",
    QUANT_PATTERN: "like Q4_K_M",
    SELECTOR_PATTERN: "a label selector like app=name",
    UNIT_PATTERN: "the name of a service or a slice, like immich-ml.service",
    VARIABLE_PATTERN: "the name of an environment variable",
    CONDITION_PATTERN: 'a comparison in quotes: ">0", ">=600", "<1", "<=10", or "=text"',
    CAPABILITY_PATTERN: 'like "7.5"',
    BUILD_PATTERN: "like b11549",
}
"""What each pattern requires, in words."""
RESERVED_IDS = ("blobs", "sets")
"""Folders of the store: no model can be called so."""

STRICT = ConfigDict(extra="forbid", frozen=True, strict=True)
Text = Annotated[str, StringConstraints(min_length=1)]
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN, max_length=LONGEST_ID)]


def is_id(text: str) -> bool:
    """Whether *text* may name a model or a card: lower case, digits, dot and dash, and not a folder of the store."""
    return text not in RESERVED_IDS and re.fullmatch(ID_PATTERN, text) is not None
