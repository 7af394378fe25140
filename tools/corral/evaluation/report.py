"""An evaluation as a document: the verdicts, the models beside each other, what was wrong, and every answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from corral import markdown
from corral.bench import plot, report, saved
from corral.bench.plot import Line
from corral.bench.report import Files, Surroundings, cells
from corral.evaluation import ranking, table
from corral.evaluation.asking import Asked
from corral.evaluation.cases import EvalSet
from corral.evaluation.judging import DEFINITIONS, Judged


def write(
    files: Files,
    title: str,
    date: str,
    of: EvalSet,
    asked: Sequence[Asked],
    judged: Sequence[Judged],
    around: Surroundings,
) -> None:
    """Write *files*: the document with *title*, its plot, and the answers.

    Raises:
        Refused: there is such a document, or the folder cannot be written.
    """
    rounds = asked[0].answers[-1].round
    scores = _scores(of, judged)
    samples, left_out = _samples(of, date, asked, judged)
    report.publish(
        files,
        "evaluation.md.j2",
        title,
        date,
        around,
        pictures={"-scores.svg": scores} if scores else {},
        samples=samples,
        headlines=[markdown.cell(ranking.headline(one)) for one in judged],
        name=markdown.cell(of.name),
        sha256=of.sha256[:12],
        cases=len(of.cases),
        images=sum(len(case.images) for case in of.cases),
        rounds=rounds,
        columns=table.COLUMNS,
        rows=[cells(*row) for one in judged for row in table.rows(one)],
        definitions=[(name, markdown.cell(text)) for name, text in DEFINITIONS],
        models=cells(*(one.model for one in judged)),
        compared=[cells(one.measure, *one.cells, one.better) for one in ranking.compare(judged)] if judged[1:] else [],
        plot=f"{files.stem}-scores.svg" if scores else "",
        top=of.top,
        wrong=[markdown.cell(line) for one in judged for line in table.lines(one, rounds)],
        left_out=left_out,
    )


def _scores(of: EvalSet, judged: Sequence[Judged]) -> str | None:
    """The scores of each model by their ranks; None: none has any, or one is below the axis."""
    known = [one for one in judged if one.ranked]
    if not known or any(score < 0 for one in known for _, score in one.ranked):
        return None
    lines = [Line(one.model, [(at, score) for at, (_, score) in enumerate(one.ranked, 1)]) for one in known]
    last = len(of.cases)
    ticks = [(1.0, "1"), *([(of.top + 0.5, f"top {of.top}")] if of.top else []), (float(last), str(last))]
    return plot.draw(f"{of.name}: scores by rank", lines, ticks, x="rank", y="score")


def _samples(of: EvalSet, date: str, asked: Sequence[Asked], judged: Sequence[Judged]) -> tuple[bytes, str]:
    """Every answer, compressed, and what was left out of it so that it is not too large."""
    found: dict[str, Any] = {"version": 1, "date": date, "set": of.name, "sha256": of.sha256, "models": []}
    for with_texts in (True, False):
        found["models"] = [
            {"verdict": verdict, "answers": list(_answers(one, with_texts=with_texts))}
            for one, verdict in zip(asked, table.as_json(judged), strict=True)
        ]
        if len(packed := saved.pack(found)) <= report.MOST_SAMPLE_BYTES:
            break
    return packed, "" if with_texts else "the texts of the answers"


def _answers(asked: Asked, *, with_texts: bool) -> Iterator[Mapping[str, Any]]:
    for one in asked.answers:
        answer = asdict(one)
        del answer["fields"]  # they follow from the text
        if not with_texts:
            del answer["text"]
        yield answer
