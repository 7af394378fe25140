"""The pinned commits of a lock that cannot be trusted otherwise: edited, merged, damaged or of an older corral."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Annotated

from pydantic import AliasPath, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from corral.agent import lock_file, merge_markers
from corral.catalog.source import Source
from corral.errors import Refused
from corral.lock.lock import COMMIT_PATTERN, rewrite_step


class Pin(BaseModel):
    """A model's commit in a lock that is not trusted otherwise.

    ``revision`` is what the intent called it when it was locked; None when the lock does not hold that.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    repo: str
    commit: Annotated[str, StringConstraints(pattern=COMMIT_PATTERN)] = Field(validation_alias="revision")
    revision: str | None = Field(None, validation_alias=AliasPath("intent", "source", "revision"))

    def belongs_to(self, source: Source) -> bool:
        """Whether *source* means the same repository and, as far as it is known, the same revision."""
        if source.repo != self.repo or self.revision not in (None, source.revision):
            return False
        return source.revision == self.commit or not re.match(COMMIT_PATTERN, source.revision or "")


def pins(path: Path) -> dict[str, tuple[Pin, ...]]:
    """The commits of each model in the lock at *path*, where well-formed, whether or not anything else can be trusted.

    A model has several where the sides of a merge name different ones; ours is the first.

    Raises:
        Refused: there is no JSON object in it, or a newer corral wrote it.
    """
    if (text := lock_file.text_of(path)) is None:
        return {}
    documents = lock_file.objects_in(path, text)
    if not documents:
        why = "is not a lock that this corral can read: it is no JSON object."
        if merge_markers.present(text):
            why = "has the conflict markers of a merge, and neither of its sides is JSON."
        raise Refused(f"{path} {why}", next_step=rewrite_step(path))
    found: dict[str, tuple[Pin, ...]] = {}
    for document in documents:
        entries = document.get("models")
        for model_id, entry in entries.items() if isinstance(entries, dict) else ():
            with contextlib.suppress(ValidationError):
                found[model_id] = (*found.get(model_id, ()), Pin.model_validate(entry))
    return found
