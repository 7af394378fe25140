"""The pinned commits of a lock that cannot be trusted otherwise: edited, merged, damaged or of an older corral."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasPath, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from corral.catalog.intent import Source
from corral.errors import Refused
from corral.lock import merge_markers
from corral.lock.lock import COMMIT_PATTERN, parse, relock_command, text_of


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
    text = text_of(path)
    found: dict[str, tuple[Pin, ...]] = {}
    for document in _documents(path, text) if text is not None else ():
        entries = document.get("models")
        for model_id, entry in entries.items() if isinstance(entries, dict) else ():
            with contextlib.suppress(ValidationError):
                found[model_id] = (*found.get(model_id, ()), Pin.model_validate(entry))
    return found


def _documents(path: Path, text: str) -> list[dict[str, Any]]:
    """What can be read of *text*: of a merge each side that is a JSON object."""
    found: list[dict[str, Any]] = []
    for side in merge_markers.sides(text):
        with contextlib.suppress(ValueError):
            document = parse(path, side.removeprefix("\ufeff"))
            found += [document] if isinstance(document, dict) else []
    if found:
        return found
    folder, again = shlex.quote(str(path.parent)), relock_command(path.parent)
    if merge_markers.present(text):
        raise Refused(
            f"{path} has the conflict markers of a merge, and neither of its sides is JSON.",
            next_step=f"git -C {folder} checkout --ours {path.name} && {again}",
        )
    raise Refused(
        f"{path} is not a lock that this corral can read: it is no JSON object.",
        next_step=f"Restore it from version control, or write it anew: rm {shlex.quote(str(path))} && {again}",
    )
