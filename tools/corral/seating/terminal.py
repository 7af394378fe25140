"""The chart on a terminal: a bar for each card, a colour and a letter for each part, so that no colour is needed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from corral.seating.chart import Chart
from corral.seating.drawing import Part, cells, letters, parts, span_mib, verdict

BAR = 72
"""Cells of a bar."""
_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")


def draw(chart: Chart) -> Text:
    """Every card of *chart*: a headline, the bar, and its legend."""
    return Text("\n\n").join([_card(name, chart) for name in chart.cards])


def _card(name: str, chart: Chart) -> Text:
    card = chart.cards[name]
    found = parts(name, chart)
    marks = _marks(found)
    left = Text(verdict(card), "bold green" if card.fits else "bold red")
    lines = [
        Text.assemble((name, "bold"), f": {card.vram_mib:,} MiB, ", left),
        _bar(found, marks, whole=span_mib(card), end=card.vram_mib),
        *_legend(found, marks),
    ]
    return Text("\n").join(lines)


def _marks(found: Sequence[Part]) -> list[tuple[str, str]]:
    """A letter and a style for each part."""
    fixed = {"reserve": "white on bright_black", "free": "dim"}
    styles = [fixed.get(part.kind, f"black on {_COLOURS[at % len(_COLOURS)]}") for at, part in enumerate(found)]
    return list(zip(letters(found), styles, strict=True))


def _bar(found: Sequence[Part], marks: Sequence[tuple[str, str]], *, whole: int, end: int) -> Text:
    """A bar of *whole* MiB; where that is more than the card has, a ``|`` stands at the card's *end*."""
    bar = Text()
    for count, (letter, style) in zip(cells(found, whole, BAR), marks, strict=True):
        bar.append(letter * count, style)
    if end == whole:
        return bar
    at = min(len(bar) - 1, BAR * end // whole)
    return Text.assemble(bar[:at], ("|", "bold red"), bar[at:])


def _legend(found: Sequence[Part], marks: Sequence[tuple[str, str]]) -> list[Text]:
    width = max(len(part.label) for part in found)
    lines = []
    for part, (letter, style) in zip(found, marks, strict=True):
        figures = f"  {part.label:<{width}}  {part.mib:>7,} MiB  {part.percent:>5.1f} %"
        line = Text.assemble("  ", (letter, style), figures)
        line.append(f"  {part.note}" if part.note else "", "dim")
        lines.append(line)
    return lines
