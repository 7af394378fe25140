"""The account on a terminal: what is promised above what is held, a letter for each holder, then the figures in MiB."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from string import ascii_lowercase

from corral.exporter.account import CardAccount, Row
from corral.seating import terminal
from corral.seating.drawing import FREE, RESERVE, Kind, Part
from corral.seating.terminal import Styled
from corral.vram.prediction import mib

COLUMNS = ("", "holder", "kind", "promised MiB", "predicted", "measured", "held now", "")
"""The headings of ``table``."""

_UNATTRIBUTED = "?"


def draw(account: CardAccount) -> Iterator[Styled]:
    """The headline and the bars of *account*."""
    promised, vram = promises(account), mib(account.vram)
    yield account.name, "bold"
    yield f": {vram:,} MiB, {_headline(account)}\n", ""
    yield "promised  ", "dim"
    yield from terminal.bar(promised, _styles(promised), whole=sum(part.mib for part in promised), end=vram)
    if account.driver and account.driver.total is not None and account.driver.free is not None:
        held = _held(account, letters(account), free=account.driver.free)
        yield "\nheld now  ", "dim"
        yield from terminal.bar(held, _styles(held), whole=sum(part.mib for part in held), end=vram)
    yield "\n", ""


def promises(account: CardAccount) -> list[Part]:
    """The parts of the card that are promised, as ``seating.drawing.parts`` orders them, and what is left."""
    groups: dict[str, int] = {}
    for row in account.rows:
        if row.group:
            groups[row.group] = max(groups.get(row.group, 0), mib(row.promised or 0))
    budgets = {row.name: mib(row.promised or 0) for row in account.rows if row.kind == "tenant"}
    reserve = {row.name: mib(row.promised or 0) for row in account.rows if row.kind == "reserve"}
    kinds: tuple[tuple[Kind, dict[str, int]], ...] = (("group", groups), ("tenant", budgets), ("reserve", reserve))
    taken = [(kind, *one) for kind, sizes in kinds for one in sorted(sizes.items(), key=lambda one: (-one[1], one[0]))]
    left = mib(account.vram) - sum(size for *_, size in taken)
    return [
        Part(
            kind, name, size, 100 * size / mib(account.vram), RESERVE if kind == "reserve" else ascii_lowercase[at % 26]
        )
        for at, (kind, name, size) in enumerate(taken)
    ] + ([Part("free", "free", left, 100 * left / mib(account.vram), FREE)] if left > 0 else [])


def table(account: CardAccount) -> list[tuple[str, ...]]:
    """A line for each holder of *account*, under ``COLUMNS``: ``?`` is unknown, ``-`` is nothing."""
    letter = letters(account)
    return [
        (
            letter[row.kind, row.name],
            row.name,
            row.kind if row.group is None else f"{row.kind} of {row.group}",
            _mib(row.promised, "-"),
            _mib(row.predicted, "-"),
            _mib(row.measured, "-"),
            _mib(row.held, "-" if row.kind == "reserve" else "?"),
            _remark(row),
        )
        for row in account.rows
    ]


def letters(account: CardAccount) -> dict[tuple[str, str], str]:
    """What stands for each holder in the bars, by kind and name; the models of a group share the group's."""
    promised: dict[tuple[str, str], str] = {(part.kind, part.name): part.letter for part in promises(account)}
    free = iter([one for one in ascii_lowercase if one not in promised.values()] * len(account.rows))
    found: dict[tuple[str, str], str] = {}
    for row in account.rows:
        key = ("group", row.group) if row.group else (row.kind, row.name)
        found[row.kind, row.name] = promised.get(key) or (_UNATTRIBUTED if row.kind == "unattributed" else next(free))
    return found


def _headline(account: CardAccount) -> str:
    if account.driver is None:
        return "what is held is unknown"
    if account.driver.free is None:
        return "what is free is unknown"
    free = f"{mib(account.driver.free):,} MiB free now"
    if tenants := [row for row in account.over if row.kind == "tenant"]:
        worst = max(tenants, key=lambda row: row.over)
        return f"{free}; {worst.name} holds {mib(worst.over):,} MiB more than its promise"
    if not account.others_over or account.others is None:
        return free
    kept = f"{mib(account.others_promised):,} MiB of tenants and reserve"
    return f"{free}; other programs hold {mib(account.others):,} MiB, {mib(account.others_over):,} more than the {kept}"


def _remark(row: Row) -> str:
    if row.over:
        since = time.strftime(" since %Y-%m-%d %H:%M", time.localtime(row.over_since)) if row.over_since else ""
        pods = f", in {', '.join(row.pods)}" if row.pods and row.kind == "tenant" else ""
        return f"{mib(row.over):,} MiB over its promise{since}{pods}"
    return f"cannot be loaded: {mib(row.short):,} MiB short" if row.short else ""


def _held(account: CardAccount, letter: dict[tuple[str, str], str], *, free: int) -> list[Part]:
    vram = mib(account.vram)
    taken = [(row, mib(row.held)) for row in account.rows if row.held]
    shown = [_part(row, size, letter[row.kind, row.name], vram) for row, size in taken]
    return [*shown, Part("free", "free", mib(free), 100 * mib(free) / vram, FREE)] if free or not shown else shown


def _part(row: Row, size: int, letter: str, vram: int) -> Part:
    return Part("group" if row.group else "tenant", row.name, size, 100 * size / vram, letter)


def _styles(shown: Sequence[Part]) -> list[str]:
    """The styles of *shown*: a letter has the same one in every bar."""
    return [terminal.style(ord(part.letter) - ord("a"), part) for part in shown]


def _mib(count: int | None, otherwise: str) -> str:
    return otherwise if count is None else f"{mib(count):,}"
