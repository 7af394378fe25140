"""Evidence that earlier runs of the gate kept, in a file of the state folder, and what it is worth now.

The file has what was measured, of which lock and engine, and when.  Whether that still ticks a box is computed when it
is read: evidence of another lock or engine, or of too long ago, is unknown.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from corral.agent.lock_file import content_of
from corral.agent.progress import duration
from corral.errors import Refused
from corral.files import OwnFolder, refuse_unwritable, write_atomically
from corral.gate import box
from corral.gate.box import BOXES, NOT_USABLE, Line, State

MOST_BYTES = 4 << 20
_BUSY_LIMIT_S = 60.0
_AHEAD_S = 60.0  # by which the clock of another measurement may be ahead
_DATE = "%Y-%m-%dT%H:%M:%SZ"
_Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class Evidence(BaseModel):
    """What one measurement of a box showed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    place: _Text = Field(description="local, or the context and namespace of a cluster")
    model: _Text
    box: str
    seal: _Text = Field(description="of the lock that was served")
    engine: _Text = Field(description="the engine's build")
    date: str = Field(description="UTC")
    command: Annotated[str, StringConstraints(max_length=2000)] = Field(description="that makes it again")
    lines: Annotated[tuple[Line, ...], Field(min_length=1, max_length=100)]

    @field_validator("box")
    @classmethod
    def _is_a_box(cls, value: str) -> str:
        if value not in BOXES:
            raise ValueError("is no box of the gate.")
        return value

    @field_validator("date")
    @classmethod
    def _is_a_date(cls, value: str) -> str:
        datetime.strptime(value, _DATE)  # noqa: DTZ007 - its Z is UTC
        return value

    @model_validator(mode="after")
    def _is_measured(self) -> Self:
        if self.box not in NOT_USABLE and State.NOT_USED in {one.state for one in self.lines}:
            raise ValueError(f"the box {self.box} is never {State.NOT_USED}.")
        return self

    @property
    def key(self) -> tuple[str, str, str]:
        """What a newer measurement replaces."""
        return self.place, self.model, self.box

    @property
    def at(self) -> datetime:
        """When it was made."""
        return datetime.strptime(self.date, _DATE).replace(tzinfo=UTC)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    evidence: Annotated[tuple[Evidence, ...], Field(max_length=10_000)] = ()


def now() -> str:
    """The date of evidence that is made now."""
    return datetime.now(UTC).strftime(_DATE)


class Kept:
    """The evidence in the state folder *state*."""

    def __init__(self, state: Path) -> None:
        self._own = OwnFolder(state, "CORRAL_STATE")
        self._file = state / "gate" / "evidence.json"

    def of(self, place: str, model: str) -> dict[str, Evidence]:
        """What is kept of *model* at *place*, by box.

        Raises:
            Refused: the file cannot be read, or is none of the gate's.
        """
        found = (one for one in self._read().evidence if (one.place, one.model) == (place, model))
        return {one.box: one for one in found}

    def keep(self, new: Evidence) -> None:
        """Keep *new* in the place of older evidence of the same box.

        Raises:
            Refused: as ``of``, or the folder cannot be written.
            CannotRun: another corral changes it for too long.
        """
        with (
            self._own.exclusive_lock(self._file.parent, timeout_s=_BUSY_LIMIT_S),
            refuse_unwritable(self._file, next_step="Choose another folder: CORRAL_STATE=DIR"),
        ):
            others = [one for one in self._read().evidence if one.key != new.key]
            whole = _File(evidence=tuple(sorted([*others, new], key=lambda one: one.key)))
            write_atomically(self._file, whole.model_dump_json(indent=1) + "\n", mode=0o600)

    def _read(self) -> _File:
        aside = [str(self._file), f"{self._file}.old"]
        again = f"{shlex.join(['mv', *aside])}, and measure again"
        try:
            content = content_of(self._file, at_most=MOST_BYTES)
        except FileNotFoundError:
            return _File()
        except OSError as error:
            raise Refused(f"{self._file} cannot be read: {error.strerror}.", next_step=again) from None
        try:
            return _File.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            why = f"{'.'.join(map(str, first['loc'])) or 'the document'}: {first['msg']}"
        except ValueError as error:
            why = str(error)
        raise Refused(f"{self._file} is no evidence that corral kept: {why}.", next_step=again)


@dataclass(frozen=True)
class Judged:
    """A box now: its state and lines, the date of its evidence (empty without any), and the command that makes it."""

    box: str
    state: State
    lines: Sequence[Line]
    date: str
    command: str

    @property
    def title(self) -> str:
        """For people."""
        return BOXES[self.box]


def judge(
    name: str, found: Evidence | None, *, seal: str, engine: str, max_age_s: float, at: datetime, command: str
) -> Judged:
    """The box *name* by its evidence at a moment, for what is served now.

    Args:
        name: of the box.
        found: its evidence; None: it was never measured.
        seal: of the lock now.
        engine: its build now.
        max_age_s: seconds for which evidence counts.
        at: the moment.
        command: that measures it now.
    """
    if found is None:
        return Judged(name, State.UNKNOWN, box.line(State.UNKNOWN, "not measured", command), "", command)
    age_s = (at - found.at).total_seconds()
    why = ""
    if found.seal != seal:
        why = f"measured of another lock ({found.seal[:12]}, and {seal[:12]} is served)"
    elif found.engine != engine:
        why = f"measured of another engine ({found.engine}, and {engine} runs)"
    elif age_s > max_age_s:
        why = f"measured {duration(age_s)} ago; {duration(max_age_s)} are the most"
    elif age_s < -_AHEAD_S:
        why = "dated in the future: a clock is wrong"
    if why:
        return Judged(name, State.UNKNOWN, box.line(State.UNKNOWN, why, command), found.date, command)
    return Judged(name, box.worst(found.lines), found.lines, found.date, found.command)
