"""The chart on a terminal: a bar for each card, a colour and a letter for each part, so that no colour is needed."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase

from rich.text import Text

from corral.seating.chart import Chart, Part, cells, parts, wanted_or_there

BAR = 72
"""Cells of a bar."""
_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")


def draw(chart: Chart) -> Text:
    """Every card of *chart*: a headline, the bar, and its legend."""
    cards = [_card(name, chart) for name in chart["cards"]]
    return Text("\n\n").join(cards)


def _card(name: str, chart: Chart) -> Text:
    card = chart["cards"][name]
    free, short = card["free_mib"], card["short_mib"]
    verdict = Text(f"{short:,} MiB short", "bold red") if short else Text(f"{free:,} MiB free", "bold green")
    if not short and not card["fits"]:
        verdict.append(", but not every model is seated", "bold red")
    found = parts(name, chart)
    marks = _marks(found)
    lines = [
        Text.assemble((name, "bold"), f": {card['vram_mib']:,} MiB, ", verdict),
        _bar(found, marks, whole=wanted_or_there(card), end=card["vram_mib"]),
        *_legend(found, marks),
    ]
    return Text("\n").join(lines)


def letters(found: Sequence[Part]) -> list[str]:
    """The letter of each part; ``#`` is the reserve, ``.`` is free."""
    fixed = {"reserve": "#", "free": "."}
    return [fixed.get(part.kind, ascii_lowercase[at % 26]) for at, part in enumerate(found)]


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
    names = [f"slot {part.name}" if part.kind == "slot" else part.name for part in found]
    width = max(map(len, names))
    lines = []
    for part, name, (letter, style) in zip(found, names, marks, strict=True):
        line = Text.assemble("  ", (letter, style), f"  {name:<{width}}  {part.mib:>7,} MiB  {part.percent:>5.1f} %")
        line.append(f"  {part.note}" if part.note else "", "dim")
        lines.append(line)
    return lines
