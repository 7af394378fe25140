"""Lines as a picture (SVG), legible on a light and on a dark page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from corral.templates import render

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 860, 320, 70, 40, 250, 48
_COLOURS = 6
_LABEL_HEIGHT = 18
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Line:
    """A line of a plot: its points as (x, y), None: nothing is known there, and the line has a gap."""

    name: str
    points: Sequence[tuple[float, float | None]]


def draw(title: str, lines: Sequence[Line], ticks: Sequence[tuple[float, str]], *, x: str, y: str) -> str:
    """The picture of *lines*, from y = 0 on.

    Args:
        title: above it.
        lines: at least one of them has a point.
        ticks: places of the x axis with their texts; the first and the last are its ends.
        x: what the x axis shows.
        y: what the y axis shows, with its unit.
    """
    first, last = ticks[0][0], ticks[-1][0]
    marks = _marks(max(value for one in lines for _, value in one.points if value is not None))

    def across(value: float) -> float:
        share = (value - first) / (last - first) if last > first else 0.5
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def up(value: float) -> float:
        return round(_HEIGHT - _BOTTOM - value / marks[-1] * (_HEIGHT - _TOP - _BOTTOM), 1)

    drawn = [
        {
            "name": one.name,
            "style": f"c{at % _COLOURS}",
            "pieces": [[(across(point), up(value)) for point, value in piece] for piece in _pieces(one.points)],
            "label_y": _TOP + 6 + at * _LABEL_HEIGHT,
        }
        for at, one in enumerate(lines)
    ]
    return render(
        "plot.svg.j2",
        title=title,
        x=x,
        y=y,
        width=_WIDTH,
        height=max(_HEIGHT, _TOP + 12 + len(lines) * _LABEL_HEIGHT),
        left=_LEFT,
        right=_WIDTH - _RIGHT,
        bottom=_HEIGHT - _BOTTOM,
        lines=drawn,
        marks=[(up(value), f"{value:,g}") for value in marks],
        ticks=[(across(value), text) for value, text in ticks],
    )


def _marks(highest: float) -> list[float]:
    """Round values from 0 to at least *highest*, at most six of them."""
    if highest <= 0:
        return [0.0, 1.0]
    scale = 10 ** math.floor(math.log10(highest / 5))
    step = next(one * scale for one in _STEPS if one * scale * 5 >= highest)
    return [round(at * step, 12) for at in range(math.ceil(highest / step) + 1)]


def _pieces(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    found: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is not None:
            found[-1].append((x, y))
        elif found[-1]:
            found.append([])
    return [piece for piece in found if piece]
