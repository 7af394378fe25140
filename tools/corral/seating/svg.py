"""The chart as a picture: the same bars and letters as on the terminal, legible on a light and on a dark page."""

from __future__ import annotations

from textwrap import shorten
from typing import Any

from corral.seating.chart import Chart
from corral.seating.drawing import cells, parts, span_mib, verdict
from corral.templates import render

_WIDTH = 860
_ROW = 22
_BAR_AT, _LEGEND_AT, _GAP = 34, 94, 26
_LETTER_FITS = 16  # pixels
_NOTE_LENGTH = 50
_COLOURS = 6


def draw(chart: Chart) -> str:
    """The SVG of every card in *chart*."""
    cards: list[dict[str, Any]] = []
    y = 0
    for name, card in chart.cards.items():
        found = parts(name, chart)
        widths = cells(found, span_mib(card), _WIDTH)
        shapes = [
            {
                "part": part,
                "note": shorten(part.note, _NOTE_LENGTH, placeholder=" …"),
                "style": part.kind if part.kind in ("reserve", "free") else f"c{at % _COLOURS}",
                "x": sum(widths[:at]),
                "width": width,
                "y": y + _LEGEND_AT + at * _ROW,
            }
            for at, (part, width) in enumerate(zip(found, widths, strict=True))
        ]
        end = None if card.fits else _WIDTH * card.vram_mib // span_mib(card)
        title = f"{card.vram_mib:,} MiB, {verdict(card)}"
        cards.append({"name": name, "verdict": title, "y": y, "end": end, "shapes": shapes})
        y += _LEGEND_AT + len(shapes) * _ROW + _GAP
    height = max(_ROW, y - _GAP)
    return render("seating.svg.j2", cards=cards, width=_WIDTH, height=height, bar_at=_BAR_AT, letter_fits=_LETTER_FITS)
