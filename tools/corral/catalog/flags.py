"""Which llama-server flags a catalog may pass on, and how they are written.

``llama_server_flags.json`` is the pinned engine's own ``--help`` (``tools/dev/engine_flags.py`` writes it and
`make check` compares).  A flag is allowed by its class (``flag_classes``): memory, sampling and template in ``args``,
the rest only in ``unsafe``, with a reason.  Refused by name is what corral sets itself, what would break a promise of
the lock, what executes programs, and what the engine does not know.
"""

from __future__ import annotations

import difflib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from corral.catalog.flag_classes import ACCEPTED, GROUP_OF, REFUSED, Group, group_of

FlagValue = str | int | float | bool

TEXT_FILE = r"^files/[A-Za-z0-9][A-Za-z0-9._-]*$"
"""A file of the catalog, as a flag names it."""
LARGEST_TEXT = 64 << 10
"""Bytes of a value: half of what Linux takes as one word of a command line."""

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_INSTEAD_OF_A_NUMBER = ("auto", "all")
_STORE = "${STORE}/"
_GONE = {"no-mmap": "load-mode: none", "mmap": "load-mode: mmap", "mlock": "load-mode: mlock"}


@dataclass(frozen=True)
class Flag:
    """One flag of the engine: its long names, ``--no-`` forms and short names; ``value`` is None for a switch."""

    names: tuple[str, ...]
    negated: tuple[str, ...]
    short: tuple[str, ...]
    value: str | None
    choices: tuple[str, ...]

    @property
    def name(self) -> str:
        """The first long name."""
        return self.names[0]

    @property
    def group(self) -> Group:
        """Its class, and what else is true of it."""
        return group_of(self.name)


@cache
def table() -> tuple[Flag, ...]:
    """All flags of the pinned engine."""
    document = json.loads(Path(__file__).with_name("llama_server_flags.json").read_text())
    return TypeAdapter(tuple[Flag, ...]).validate_python(document["flags"])


@cache
def _by_spelling() -> dict[str, Flag]:
    """Each flag by each of its spellings, without dashes before it."""
    short = {name: flag for flag in table() for name in flag.short}
    return short | {name: flag for flag in table() for name in (*flag.names, *flag.negated)}


def text_flag(name: str) -> str | None:
    """The flag that takes as a text what is in the file that flag *name* takes; None when *name* is no such flag."""
    flag = _by_spelling().get(name)
    return (flag and flag.group.text_flag) or None


def problem_with(name: str, value: object, *, unsafe: bool = False) -> str | None:
    """Why ``args: {name: value}`` is not allowed, in one sentence with the remedy; None when it is.

    Args:
        name: as it is written; every spelling that the engine takes is found.
        value: the same.
        unsafe: it stands in ``unsafe`` instead.
    """
    bare = name.lstrip("-").replace("_", "-")  # as the engine reads it
    flag = _by_spelling().get(bare)
    if flag is None:
        return _unknown(name)
    is_long = bare in (*flag.names, *flag.negated)
    if refusal := _refusal(bare if is_long else flag.name, flag.group, unsafe=unsafe):
        return refusal
    if not is_long:
        return f"use the long name: {flag.names[-1]}."
    if bare != name:
        return f"write the flag without dashes before it: {bare}."
    if name in flag.negated:
        return f"write it without the no-: `{name.removeprefix('no-')}: false`."
    return _value_problem(name, flag, value)


def _refusal(name: str, group: Group, *, unsafe: bool) -> str | None:
    if group.owned:
        return f"corral sets --{name} itself: {group.owned}."
    if group.never:
        return f"--{name} is not allowed: {group.never}."
    if group.of in ACCEPTED or group.text_flag:
        return f"--{name} needs no `unsafe`: write it in `args`." if unsafe else None
    why = f"{REFUSED[group.of]} (class {group.of})"
    if group.of in ("executes", "unclassified"):
        return f"--{name} is not allowed, not in `unsafe` either: {why}."
    return None if unsafe else f"--{name} is not allowed in `args`: {why}. `unsafe` takes it, with the reason."


def _unknown(name: str) -> str:
    if name in _GONE:
        return f"llama-server has no --{name} any more: write `{_GONE[name]}`."
    close = difflib.get_close_matches(name, [known for flag in table() for known in (*flag.names, *flag.negated)], n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else "."
    return f"llama-server has no flag --{name}{hint}"


def _value_problem(name: str, flag: Flag, value: object) -> str | None:
    if flag.value is None:
        if not isinstance(value, bool):
            return f"--{name} takes no value: write `{name}: true`."
        if not value and not flag.negated:
            return f"--{name} can only be turned on: write `{name}: true` or leave it out."
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return f"--{name} takes one value ({flag.value}), not {_kind(value)}."
    text = str(value)
    if flag.group.text_flag:
        is_there = re.fullmatch(TEXT_FILE, text)
        return None if is_there else f"--{name} takes a file in the catalog's folder files: files/NAME, not {text}."
    if flag.value == "N" and not _NUMBER.fullmatch(text) and text not in _INSTEAD_OF_A_NUMBER:
        return f"--{name} takes a number, not {text}."
    if flag.choices and text not in flag.choices:
        return f"--{name} must be one of {', '.join(flag.choices)}, not {text}."
    if what := _unfit(text, flag):
        return f"the value of --{name} must not {what}."
    return None


def _unfit(text: str, flag: Flag) -> str:
    """What is wrong with *text* as one word of a command line; empty when nothing is."""
    is_path, has_lines = flag.group.of == "file", flag.name in (group.text_flag for group in GROUP_OF.values())
    if not text:
        return "be empty"
    if "${" in (text.removeprefix(_STORE) if is_path else text):
        return "hold ${ (llama-swap would expand it)"
    if text.startswith("-") and not _NUMBER.fullmatch(text):
        return "begin with a dash, like another flag"
    if any(unicodedata.category(one) in ("Cc", "Cs") and not (has_lines and one in "\n\t") for one in text):
        return "hold control characters"
    if len(text.encode()) > LARGEST_TEXT:
        return f"have more than {LARGEST_TEXT >> 10} KiB"
    return ""


def _kind(value: object) -> str:
    return {bool: "true or false", list: "a list", dict: "a mapping", type(None): "nothing"}.get(type(value), "this")


def is_spelling_of(name: str, written: str) -> bool:
    """Whether *written* means the flag whose first long name is *name*."""
    flag = _by_spelling().get(written)
    return flag is not None and flag.name == name


def is_for_answers(written: str) -> bool:
    """Whether the flag *written* decides which tokens an answer has, or how it becomes a message."""
    flag = _by_spelling().get(written)
    return flag is not None and (flag.group.of in ("sampling", "template") or bool(flag.group.text_flag))


def is_for_drafts(written: str) -> bool:
    """Whether the flag *written* decides how a draft model is loaded or used."""
    flag = _by_spelling().get(written)
    return flag is not None and flag.name.startswith("spec-draft-")


def repeated(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of *names* that mean the same flag (``gpu-layers`` and ``n-gpu-layers``)."""
    first: dict[Flag, str] = {}
    known = ((name, _by_spelling()[name]) for name in names if name in _by_spelling())
    return [(first[flag], name) for name, flag in known if first.setdefault(flag, name) != name]


def words(args: Mapping[str, FlagValue]) -> list[str]:
    """*args* (already checked) as command-line words, sorted by name: their order must not change the lock."""
    result: list[str] = []
    for name in sorted(args):
        value, flag = args[name], _by_spelling()[name]
        if value is True:
            result.append(f"--{name}")
        elif value is False:
            result.append(f"--no-{name}" if f"no-{name}" in flag.negated else f"--{flag.negated[0]}")
        else:
            whole = isinstance(value, float) and value.is_integer()
            result += [f"--{name}", str(int(value)) if whole else str(value)]
    return result
