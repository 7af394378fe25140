"""A benchmark as a document: its verdict, its figures, what held the card meanwhile, and every sample beside it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from corral import markdown, templates
from corral.bench import figures, loads, plot, saved, table, verdict
from corral.bench.figures import QUANTILES, Figures
from corral.bench.measuring import Measured, Question
from corral.bench.plot import Line
from corral.bench.verdict import Goal, Verdict
from corral.files import refuse_unwritable, write_atomically

MOST_SAMPLE_BYTES = 2_000_000
"""Of the file of samples, compressed: it is committed."""
OPTION = "--report TITLE"
_MIB = 1 << 20
_MOST_HOLDERS = 8


@dataclass(frozen=True)
class Held:
    """What is held on a card, so many *seconds* after the beginning; bytes, None: unknown.

    *holders* has those that hold something, or of which that is unknown; None: nothing was known then.
    """

    seconds: float
    free: int | None
    holders: Mapping[str, int | None] | None

    def of(self, name: str) -> int | None:
        """What the holder *name* has."""
        return None if self.holders is None else self.holders.get(name, 0)


@dataclass(frozen=True)
class Surroundings:
    """What else a document states.

    Attributes:
        command: the command line.
        facts: of the machine, the lock and the engine: names and values.
        goals: the latency budgets of each model.
        held: the readings of each card.
        unknown: why there are none; empty: there are.
    """

    command: str
    facts: Sequence[tuple[str, str]] = ()
    goals: Mapping[str, Sequence[Goal]] = field(default_factory=dict)
    held: Mapping[str, Sequence[Held]] = field(default_factory=dict)
    unknown: str = ""


@dataclass(frozen=True)
class Files:
    """The files of one document, which begin with *stem*."""

    folder: Path
    stem: str

    @property
    def document(self) -> Path:
        """The document."""
        return self.folder / f"{self.stem}.md"

    def beside(self, suffix: str) -> Path:
        """The file with *suffix* that the document links to."""
        return self.folder / f"{self.stem}{suffix}"


def write(
    files: Files,
    title: str,
    conditions: Mapping[str, Any],
    measured: Sequence[Measured],
    question: Question,
    around: Surroundings,
) -> None:
    """Write *files*: the document with *title*, its plots, and the samples.

    Raises:
        Refused: there is such a document, or the folder cannot be written.
    """
    found = {one.model: [figures.of(run) for run in one.runs] for one in measured}
    series = list(_series(found))
    verdicts = [
        verdict.of(
            one.levels,
            around.goals.get(one.model, ()),
            prompt_tokens=question.prompt_tokens,
            answer_tokens=question.answer_tokens,
        )
        for one in series
    ]
    plots = {f"-latency-{at}": drawn for at, drawn in enumerate(filter(None, map(_latency, series)), 1)}
    beside = [(one.model, figures.of(run)) for one in measured for run in one.runs if run.beside]
    drawn_beside = filter(None, (_latency_beside(model, levels) for model, levels in found.items()))
    plots |= {f"-neighbours-{at}": drawn for at, drawn in enumerate(drawn_beside, 1)}
    samples, left_out = _samples(dict(conditions), measured)
    publish(
        files,
        "benchmark.md.j2",
        title,
        str(conditions["at"])[:10],
        around,
        pictures={f"{suffix}.svg": drawn for suffix, drawn in plots.items()},
        samples=samples,
        headlines=list(map(_headline, series, verdicts)),
        decisions=[
            cells(one.model, *vars(decision).values())
            for one, of in zip(series, verdicts, strict=True)
            for decision in of.decisions
        ],
        rules=verdict.RULES,
        columns=table.COLUMNS,
        rows=[cells(*table.row(model, one)) for model, levels in found.items() for one in levels],
        explained=list(table.explained()),
        load_columns=loads.COLUMNS,
        load_rows=[cells(*row) for one in measured for row in loads.rows(one.model, one.loads)],
        load_notes=[markdown.cell(note) for one in measured for note in loads.notes(one.model, one.loads)],
        plots=[f"{files.stem}{suffix}.svg" for suffix in plots],
        beside_columns=table.BESIDE_COLUMNS,
        beside_rows=[cells(*row) for row in table.beside(beside)],
        left_out=left_out,
    )


def publish(
    files: Files,
    template: str,
    title: str,
    date: str,
    around: Surroundings,
    *,
    pictures: Mapping[str, str],
    samples: bytes,
    **values: Any,
) -> None:
    """Write *files*: the document, and beside it *pictures* by the ends of their names, and *samples*.

    *template* gets *values*, and what it and ``surroundings.md.j2`` state about the run.

    Raises:
        Refused: there is such a document, or the folder cannot be written.
    """
    memory = {
        f"-card-{markdown.slug(card, example=OPTION)}.svg": _memory(card, held) for card, held in around.held.items()
    }
    text = templates.render(
        template,
        title=markdown.cell(title),
        date=date,
        command=markdown.one_line(around.command),
        unknown=around.unknown,
        cards=[
            (markdown.cell(card), f"{files.stem}{suffix}", list(_held_rows(held)))
            for (card, held), suffix in zip(around.held.items(), memory, strict=True)
        ],
        facts=[cells(*one) for one in around.facts],
        samples=files.beside(".json.gz").name,
        **values,
    )
    with refuse_unwritable(files.folder, next_step=f"ls -ld {shlex.quote(str(files.folder.parent))}"):
        files.folder.mkdir(parents=True, exist_ok=True)
    beside: dict[str, str | bytes] = {".json.gz": samples, **pictures, **memory}
    for suffix, content in beside.items():
        with refuse_unwritable(files.beside(suffix), next_step=f"Name another title with {OPTION}"):
            write_atomically(files.beside(suffix), content)
    markdown.create(files.document, text, another=OPTION)


class _Series(NamedTuple):
    """The levels of a model beside the same neighbours."""

    model: str
    neighbours: str
    levels: Sequence[Figures]

    @property
    def name(self) -> str:
        return self.model + (f" beside neighbours {self.neighbours}" if self.neighbours else "")


def _series(found: Mapping[str, Sequence[Figures]]) -> Iterator[_Series]:
    for model, levels in found.items():
        for state in dict.fromkeys(one.neighbours for one in levels):
            yield _Series(model, state, [one for one in levels if one.neighbours == state])


def _headline(series: _Series, found: Verdict) -> str:
    name = markdown.cell(series.model)
    first = next((one for one in found.decisions if one.level != found.serves and one.state != "holds"), None)
    serves = f"{name} serves {found.serves}" if found.serves else f"Of {name}, no level holds"
    reason = f"; {first.level}: {markdown.cell(first.reason)}" if first else ""
    saturated = f"; it is saturated from {found.saturated} on" if found.saturated else ""
    return f"{serves}{reason}{saturated}."


def cells(*values: object) -> tuple[str, ...]:
    """*values* as cells of a table."""
    return tuple(markdown.cell(str(value)) for value in values)


def _latency(series: _Series) -> str | None:
    """Latencies against load; None: no level has enough answers for a median."""
    levels = series.levels
    lines = [
        Line(f"{name} p{100 * q:g}", [(at, one.quantiles[number]) for at, one in enumerate(spreads)])
        for name, spreads in (("TTFT", [one.ttft for one in levels]), ("E2E", [one.e2e for one in levels]))
        for number, q in enumerate(QUANTILES[:2])
    ]
    known = [one for one in lines if any(value is not None for _, value in one.points)]
    if not known:
        return None
    ticks = [(float(at), one.load) for at, one in enumerate(levels)]
    return plot.draw(f"{series.name}: latency against load", known, ticks, x="load", y="seconds")


def _latency_beside(model: str, levels: Sequence[Figures]) -> str | None:
    """Latencies against the cores that the neighbours kept busy; None: there were none, or too few answers."""
    states = {one.neighbours: one for one in levels if one.neighbours}
    lines = [
        Line(f"E2E p50, {load}", [(at, _of(levels, load, state).e2e.p50) for at, state in enumerate(states)])
        for load in dict.fromkeys(one.load for one in levels)
    ]
    if not states or not any(value is not None for one in lines for _, value in one.points):
        return None
    ticks = [(float(at), f"{state}: {one.neighbour_cores:.1f}") for at, (state, one) in enumerate(states.items())]
    return plot.draw(f"{model}: latency beside neighbours", lines, ticks, x="cores that they keep busy", y="seconds")


def _of(levels: Sequence[Figures], load: str, neighbours: str) -> Figures:
    return next(one for one in levels if (one.load, one.neighbours) == (load, neighbours))


def _memory(card: str, held: Sequence[Held]) -> str:
    names = sorted(_holders(held), key=lambda name: (-max(one.of(name) or 0 for one in held), name))
    lines = [Line("free", [(one.seconds, _mib(one.free)) for one in held])] + [
        Line(name, [(one.seconds, _mib(one.of(name))) for one in held]) for name in names[:_MOST_HOLDERS]
    ]
    end = held[-1].seconds
    ticks = [(end * part / 4, f"{end * part / 4:.0f} s") for part in range(5)]
    return plot.draw(f"{card}: memory held during the benchmark", lines, ticks, x="time", y="MiB")


def _held_rows(held: Sequence[Held]) -> Iterator[tuple[str, ...]]:
    for name in _holders(held):
        most = max((value for one in held if (value := one.of(name)) is not None), default=None)
        values = (held[0].of(name), most, held[-1].of(name))
        yield (markdown.cell(name), *(f"{value // _MIB:,}" if value is not None else "?" for value in values))


def _holders(held: Sequence[Held]) -> list[str]:
    return list(dict.fromkeys(name for one in held for name in one.holders or ()))


def _mib(value: int | None) -> float | None:
    return None if value is None else value / _MIB


def _samples(conditions: dict[str, Any], measured: Sequence[Measured]) -> tuple[bytes, str]:
    """The file of samples, and what was left out of it so that it is not too large."""
    found = saved.document(conditions, measured, with_samples=True)
    if len(packed := saved.pack(found)) <= MOST_SAMPLE_BYTES:
        return packed, ""
    for one in found["levels"]:
        one["samples"]["gaps"] = []
    if len(packed := saved.pack(found)) <= MOST_SAMPLE_BYTES:
        return packed, "the times between pieces of content"
    return saved.pack(saved.document(conditions, measured, with_samples=False)), "the samples; it has the figures"
