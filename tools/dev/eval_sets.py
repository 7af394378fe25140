"""Writes the demo's sets of cases, ``terraform/catalog-demo/evals``, or exits 1 when a file there is another.

    python tools/dev/eval_sets.py --write

*digests* are thirty candidates for a job, of whom five fit; *colours* are images with known answers.  The same bytes
every time: from a fixed seed, by ``random()`` alone, which Python keeps as it is.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from corral.paths import REPOSITORY
from corral.smoke.images import solid_png

FOLDER = REPOSITORY / "terraform" / "catalog-demo" / "evals"
COUNT, FITTING, SEED = 30, 5, 17
_T = TypeVar("_T")

_DIGESTS = """\
# Made by tools/dev/eval_sets.py.
system: |
  You screen candidates for a recruiter. The job: backend engineer in Berlin. It requires at least five years of work,
  Python, Kubernetes, and German. Read the candidate's digest, and answer with JSON: years of work, whether the
  candidate has Python, Kubernetes and German, the city, and a score from 0 to 100. A candidate who meets all
  requirements scores 90 or more; each one that is not met costs 20.
schema:
  type: object
  properties:
    years: {{type: integer, minimum: 0, maximum: 60}}
    python: {{type: boolean}}
    kubernetes: {{type: boolean}}
    german: {{type: boolean}}
    city: {{enum: [{cities}]}}
    score: {{type: integer, minimum: 0, maximum: 100}}
  required: [years, python, kubernetes, german, city, score]
  additionalProperties: false
answer_tokens: 128
score:
  field: score
  best: [{best}]
verdict: {{parsed: 1, right: 0.9, p50_seconds: 3.55}}
"""
_DIGEST = """\
prompt: |
  Candidate {number}. {text}
expect: {{python: {python}, kubernetes: {kubernetes}, german: {german}, city: {city}}}
between: {{years: [{least}, {most}]}}
"""
_COLOURS = """\
# Made by tools/dev/eval_sets.py.
schema:
  type: object
  properties:
    colours: {type: string, maxLength: 40}
  required: [colours]
  additionalProperties: false
verdict: {parsed: 1, right: 1, p50_seconds: 3.55}
"""
_COLOUR = """\
prompt: Name the colour of each image, in their order, separated by commas.
images: [{images}]
expect: {{colours: "{colours}"}}
"""

_CITIES = ("Berlin", "Hamburg", "Munich", "Vienna", "Zurich")
_OTHER_LANGUAGES = ("Java and Kotlin", "Go", "C# and TypeScript", "Ruby", "PHP and JavaScript")
_OTHER_OPERATIONS = (
    "runs services on plain virtual machines",
    "has worked with Docker Compose, and not with Kubernetes",
    "leaves operations to another team",
)
_OTHER_TONGUES = ("speaks English and Spanish", "speaks English and Polish, and has begun to learn German")
_WORK = ("payment services", "a booking platform", "a warehouse system", "an electronic health record", "a news site")
_REST = ("Plays chess in a club.", "Can start in March.", "Has led a team of four.", "Prefers to work four days.")
_SHOWN = (("red",), ("blue",), ("red", "blue"), ("blue", "red"), ("red", "blue", "blue"), ("blue", "red", "red", "red"))


class Candidate(NamedTuple):
    """What is true of a candidate; *more* than so many *years*, or exactly."""

    years: int
    more: bool
    python: bool
    kubernetes: bool
    german: bool
    city: str

    @property
    def fits(self) -> bool:
        return self.years >= 5 and self.python and self.kubernetes and self.german and self.city == "Berlin"


def files() -> dict[str, bytes]:
    """Every file of the sets by its path."""
    texts = dict(_digests())
    texts["colours/set.yaml"] = _COLOURS
    for shown in _SHOWN:
        names = ", ".join(f"images/{colour}.png" for colour in shown)
        text = _COLOUR.format(images=names, colours=", ".join(shown))
        texts[f"colours/cases/{'-'.join(shown)}.yaml"] = text
    images = {f"colours/images/{colour}.png": solid_png(colour, 64) for colour in ("red", "blue")}
    return {name: text.encode() for name, text in texts.items()} | images


def _digests() -> Iterator[tuple[str, str]]:
    source = random.Random(SEED)  # noqa: S311 - no secret
    best = []
    for number, one in enumerate(candidates(source), 1):
        id_ = f"c{number:02d}"
        best += [id_] * one.fits
        values = {name: str(getattr(one, name)).lower() for name in ("python", "kubernetes", "german")}
        text = "\n  ".join(_sentences(one, source))
        years = {"least": one.years, "most": one.years + one.more}
        yield f"digests/cases/{id_}.yaml", _DIGEST.format(number=number, text=text, city=one.city, **values, **years)
    yield "digests/set.yaml", _DIGESTS.format(cities=", ".join(_CITIES), best=", ".join(best))


def candidates(source: random.Random) -> list[Candidate]:
    """``COUNT`` of them, of whom ``FITTING`` fit, in no order."""
    found: list[Candidate] = []
    while len(found) < COUNT:
        one = Candidate(
            years=int(source.random() * 14) + 1,
            more=source.random() < 0.3,
            python=source.random() < 0.6,
            kubernetes=source.random() < 0.5,
            german=source.random() < 0.6,
            city=_CITIES[0] if source.random() < 0.4 else _one_of(_CITIES, source),
        )
        if len(found) < FITTING:
            years = 5 + int(source.random() * 9)
            one = one._replace(years=years, python=True, kubernetes=True, german=True, city=_CITIES[0])
        elif one.fits:
            continue
        found.append(one)
    return [one for _, one in sorted((source.random(), one) for one in found)]


def _sentences(one: Candidate, source: random.Random) -> Iterator[str]:
    years = f"{'more than ' if one.more else ''}{one.years} year{'' if one.years == 1 else 's'}"
    yield f"Lives in {one.city}, and has worked on {_one_of(_WORK, source)} for {years}."
    language = "Python" if one.python else _one_of(_OTHER_LANGUAGES, source)
    operations = "deploys to Kubernetes every week" if one.kubernetes else _one_of(_OTHER_OPERATIONS, source)
    yield f"Writes {language}, and {operations}."
    tongue = "speaks German and English" if one.german else _one_of(_OTHER_TONGUES, source)
    yield f"The candidate {tongue}. {_one_of(_REST, source)}"


def _one_of(choices: Sequence[_T], source: random.Random) -> _T:
    return choices[int(source.random() * len(choices))]


def stale(folder: Path) -> list[str]:
    """The paths of files in *folder* that are missing, are others, or belong to no set."""
    found = {one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    wanted = files()
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the files instead of comparing")
    if parser.parse_args().write:
        for name, content in files().items():
            (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
            (FOLDER / name).write_bytes(content)
        return 0
    for name in (others := stale(FOLDER)):
        print(f"{FOLDER / name} is another. Run: .venv/bin/python tools/dev/eval_sets.py --write", file=sys.stderr)
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
