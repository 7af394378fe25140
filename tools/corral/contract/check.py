"""A check of one promise of the API, and what it found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any, NamedTuple

from corral.contract.reach import Way


class State(StrEnum):
    """How the served API stands to a promise."""

    WORKS = "works"
    DIFFERS = "differs"
    ABSENT = "not there"


class Finding(NamedTuple):
    """The state of a promise and, unless it just works, how; nothing in it changes from one run to the next."""

    state: State
    how: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.how}" if self.how else self.state


class Breach(Exception):
    """Raised within a check: the promise is not kept in this way."""

    def __init__(self, how: str, state: State = State.DIFFERS) -> None:
        super().__init__(how)
        self.finding = Finding(state, how)


Ask = Callable[[Way], Awaitable[None]]


@dataclass(frozen=True)
class Check:
    """One row of the table.

    Attributes:
        code: its name, which stays.
        title: what is promised.
        ask: sends what is needed and judges the content of the answers; raises Breach, or what a client raises.
        of: the kind of model that it needs: ``text``, ``thinking`` or ``vision``.
        unless: of a kind that it is not for, too; empty: there is none.
        is_native: a path of llama-server, which llama-swap has below ``/upstream/MODEL`` if it does not route it.
    """

    code: str
    title: str
    ask: Ask
    of: str = "text"
    is_native: bool = False
    unless: str = ""


def check(*, of: str = "text", is_native: bool = False, unless: str = "") -> Callable[[Ask], Check]:
    """Make a check of a function; its name is the code, its docstring the title."""

    def made(ask: Any) -> Check:
        code = ask.__name__.replace("_", "-")
        return Check(code, (ask.__doc__ or "").strip().rstrip("."), ask, of, is_native, unless)

    return made


def checks_of(family: ModuleType) -> Iterator[Check]:
    """The checks of a module, in its order."""
    return (one for one in vars(family).values() if isinstance(one, Check))


def require(holds: object, how: str) -> None:
    """Raise Breach with *how* unless it *holds*."""
    if not holds:
        raise Breach(how)
