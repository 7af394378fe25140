"""Builds of llama.cpp: which flags each knows, and how far apart their bytes are, as measured.

``builds.json`` has one entry for each build that was measured (``tools/dev/engine_builds.py`` writes it): the flags
of others that it does not know, and the bytes on the card of the golden command lines.  A seat is
predicted by one build and taken by another where the image has another; ``apart`` bounds what that costs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter

BUILD_PATTERN: Final = r"^b[1-9][0-9]{0,6}$"
BuildName = Annotated[str, StringConstraints(pattern=BUILD_PATTERN)]
"""As llama.cpp's own tags have it, e.g. ``b11549``."""

_IN_A_TAG = re.compile(r"(?:^|[-_.])(b[1-9][0-9]{3,6})(?=$|[-_.])")


_Counted = Mapping[str, Annotated[tuple[int, ...], Field(min_length=1)]]


class Measured(BaseModel):
    """One build that was measured.

    Attributes:
        wheel: the version of the xllamacpp wheel that has it.
        lacks: flags of other measured builds that this one does not know, by their first long names.
        gpu_bytes: bytes on the card for each golden command line of each model; None where the wheel does not state
            them.
        projector_bytes: the same of each golden projector, for each limit of an image's tokens; None likewise.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    build: BuildName
    wheel: str
    lacks: tuple[str, ...]
    gpu_bytes: _Counted | None
    projector_bytes: _Counted | None

    @property
    def number(self) -> int:
        """Of the build."""
        return number(self.build)


@dataclass(frozen=True)
class Distance:
    """What golden lines take with one build, beside another.

    Attributes:
        growth: the largest share by which a line grows; never below 0.
        least_mib, most_mib: the difference of a line at least and at most; MiB.
        lines: how many there are.
        measured: the builds that stand for the one that runs: itself, or the measured ones next to it below and above.
            Empty where it is outside of all measured ones: then the figures are the worst between any two of them.
    """

    growth: Fraction
    least_mib: int
    most_mib: int
    lines: int
    measured: tuple[str, ...]

    def words(self, runs: str, what: str) -> str:
        """The difference of *what*, as a clause."""
        span = f"{_signed(self.least_mib)} to {_signed(self.most_mib)} MiB"
        if not self.measured:
            return f"{what} of {runs} were not measured: between any two measured builds they take {span}"
        others = "" if self.measured == (runs,) else f" with the builds next to it ({', '.join(self.measured)})"
        return f"{self.lines} {what} take {span}{others}"


@dataclass(frozen=True)
class Apart:
    """How far the build that runs is from the one that predicted: of models without their projectors, and of these."""

    predicts: str
    runs: str
    model: Distance
    projector: Distance

    @property
    def sentence(self) -> str:
        """Both builds and what is known of their distance, for a person."""
        lines = self.model.words(self.runs, "golden command lines"), self.projector.words(self.runs, "projector lines")
        return f"the image runs llama.cpp {self.runs}, and {self.predicts} predicted the seats: {', '.join(lines)}"


def number(build: str) -> int:
    """The number of *build*, e.g. 11549 of ``b11549``."""
    return int(build.removeprefix("b"))


def in_tag(tag: str) -> str | None:
    """The build that the tag of an image names, e.g. of ``server-cuda-b11549`` or ``v252-cuda-b10775-non-root``.

    None where it names none, or several.
    """
    found = set(_IN_A_TAG.findall(tag))
    return found.pop() if len(found) == 1 else None


@cache
def table() -> tuple[Measured, ...]:
    """All measured builds, the oldest first."""
    found = TypeAdapter(list[Measured]).validate_json(Path(__file__).with_name("builds.json").read_bytes())
    return tuple(sorted(found, key=lambda one: one.number))


def apart(predicts: str, runs: str) -> Apart | None:
    """How far *runs* is from *predicts*, by what was measured; None where they are the same build.

    Raises:
        KeyError: *predicts* was not measured.
    """
    if predicts == runs:
        return None
    model = _distance(predicts, runs, {one.number: one.gpu_bytes for one in table() if one.gpu_bytes})
    projector = _distance(predicts, runs, {one.number: one.projector_bytes for one in table() if one.projector_bytes})
    return Apart(predicts, runs, model, projector)


def _distance(predicts: str, runs: str, counted: Mapping[int, _Counted]) -> Distance:
    own = counted[number(predicts)]
    near = _near(number(runs), counted)
    pairs = [(own, counted[one]) for one in near] or list(permutations(counted.values(), 2))
    lines = [line for old, new in pairs for name in old for line in zip(old[name], new[name], strict=True)]
    differences = [after - before for before, after in lines]
    return Distance(
        growth=max(Fraction(0), *(Fraction(after - before, before) for before, after in lines)),
        least_mib=_whole_mib(min(differences)),
        most_mib=_whole_mib(max(differences)),
        lines=sum(map(len, own.values())),
        measured=tuple(f"b{one}" for one in near),
    )


def has_known_flags(runs: str) -> bool:
    """Whether the flags of build *runs* are measured, or bounded by measured ones."""
    return number(runs) <= table()[-1].number


def lacking(runs: str, flags: Collection[str]) -> dict[str, str]:
    """Flags (first long names) of *flags* that build *runs* lacks or may lack, each with why, as a clause.

    Nothing is known of a build newer than all measured ones (``has_known_flags``), and nothing is returned for it.
    """
    known = {one.number: one for one in table()}
    near = _near(number(runs), known) or ([min(known)] if number(runs) < min(known) else [])
    found: dict[str, str] = {}
    for flag in sorted(flags):
        without = [known[one].build for one in near if flag in known[one].lacks]
        if without and len(without) == len(near):
            found[flag] = f"{' and '.join(without)} {'does' if len(without) == 1 else 'do'} not know it"
        elif without:
            found[flag] = f"{without[0]} does not know it yet, and {runs} may not either"
    return found


def _near(wanted: int, known: Collection[int]) -> list[int]:
    """*wanted* where it is among *known*, else the nearest below and above; empty where it is outside of them."""
    if wanted in known:
        return [wanted]
    below, above = [one for one in known if one < wanted], [one for one in known if one > wanted]
    return [max(below), min(above)] if below and above else []


def _signed(mib: int) -> str:
    return f"{mib:+,}" if mib else "0"


def _whole_mib(count: int) -> int:
    """*count* bytes in MiB, rounded up: towards more, also below zero."""
    return -(-count // (1 << 20))
