"""The chart as a picture: the same bars and letters as on the terminal, legible on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import shorten

from corral.seating.chart import Chart
from corral.seating.drawing import Part, cells, parts, span_mib, verdict
from corral.templates import render

_WIDTH = 860
_ROW = 22
_BAR_AT, _LEGEND_AT, _GAP = 34, 94, 26
_LETTER_FITS = 16  # pixels
_NOTE_LENGTH = 50
_COLOURS = 6


@dataclass(frozen=True)
class _Shape:
    """A part with its place: pixels of the bar, and the line of its legend."""

    part: Part
    note: str
    style: str
    x: int
    width: int
    y: int


@dataclass(frozen=True)
class _Card:
    name: str
    verdict: str
    y: int
    end: int | None
    shapes: list[_Shape]


def draw(chart: Chart) -> str:
    """The SVG of every card in *chart*."""
    cards = list(_cards(chart))
    height = cards[-1].shapes[-1].y + _ROW if cards else _ROW
    return render("seating.svg.j2", cards=cards, width=_WIDTH, height=height, bar_at=_BAR_AT, letter_fits=_LETTER_FITS)


def _cards(chart: Chart) -> Iterator[_Card]:
    y = 0
    for name, card in chart.cards.items():
        whole = span_mib(card)
        found = parts(name, chart)
        shapes, x = [], 0
        for at, (part, width) in enumerate(zip(found, cells(found, whole, _WIDTH), strict=True)):
            style = part.kind if part.kind in ("reserve", "free") else f"c{at % _COLOURS}"
            note = shorten(part.note, _NOTE_LENGTH, placeholder=" …")
            shapes.append(_Shape(part, note, style, x, width, y + _LEGEND_AT + at * _ROW))
            x += width
        end = None if card.fits else _WIDTH * card.vram_mib // whole
        yield _Card(name, f"{card.vram_mib:,} MiB, {verdict(card)}", y, end, shapes)
        y = shapes[-1].y + _ROW + _GAP
