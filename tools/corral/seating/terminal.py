"""The chart on a terminal: a bar for each card, a colour and a letter for each part, so that no colour is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from corral.seating.chart import Chart
from corral.seating.drawing import Part, cells, parts, span_mib, verdict

BAR = 72
"""Cells of a bar."""
_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
_STYLES = {"reserve": "white on bright_black", "free": "dim"}

Styled = tuple[str, str]
"""A text and its style, in rich's notation; empty for none."""


def draw(chart: Chart) -> list[Styled]:
    """Every card of *chart*: a headline, the bar, and its legend; to be printed one after the other."""
    drawn: list[Styled] = []
    for name in chart.cards:
        drawn += [("\n\n", "")] if drawn else []
        drawn += _card(name, chart)
    return drawn


def _card(name: str, chart: Chart) -> Iterator[Styled]:
    card = chart.cards[name]
    found = parts(name, chart)
    styles = [style(at, part) for at, part in enumerate(found)]
    yield name, "bold"
    yield f": {card.vram_mib:,} MiB, ", ""
    yield verdict(card), "bold green" if card.fits else "bold red"
    yield "\n", ""
    yield from bar(found, styles, whole=span_mib(card), end=card.vram_mib)
    label_width = max(len(part.label) for part in found)
    for part, its_style in zip(found, styles, strict=True):
        yield "\n  ", ""
        yield part.letter, its_style
        yield f"  {part.label:<{label_width}}  {part.mib:>7,} MiB  {part.percent:>5.1f} %", ""
        if part.note:
            yield f"  {part.note}", "dim"


def style(at: int, part: Part) -> str:
    """The style of *part*, which is number *at* in its bar, in rich's notation."""
    return _STYLES.get(part.kind, f"black on {_COLOURS[at % len(_COLOURS)]}")


def bar(found: Sequence[Part], styles: Sequence[str], *, whole: int, end: int) -> Iterator[Styled]:
    """A bar of *whole* MiB; where that is more than the card has, a ``|`` stands at the card's *end*."""
    counts = cells(found, whole, BAR)
    mark = min(sum(counts) - 1, BAR * end // whole) if end < whole else None
    at = 0
    for part, count, its_style in zip(found, counts, styles, strict=True):
        before = count if mark is None or not at <= mark < at + count else mark - at
        yield part.letter * before, its_style
        if before < count:
            yield "|", "bold red"
            yield part.letter * (count - before), its_style
        at += count
