"""Which llama-server flags a catalog may pass through ``args``, and how they are written.

``llama_server_flags.json`` is the pinned engine's own ``--help`` (``tools/dev/engine_flags.py`` writes it and
`make check` compares).  A flag that corral sets itself, that would break a promise of the lock, or that the engine
does not know is refused by name.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

FlagValue = str | int | float | bool

OWNED = {
    "model": "corral chooses the file from `source`",
    "mmproj": "corral chooses the projector from `source.mmproj`",
    "mmproj-auto": "corral chooses the projector from `source.mmproj`",
    "alias": "a response names the model by its id; write further names under `aliases`",
    "host": "llama-swap reaches the engine on loopback only",
    "port": "llama-swap gives each engine its port",
    "ctx-size": "set `context` (tokens per request slot) instead",
    "parallel": "set `parallel` instead",
    "n-gpu-layers": "a model is on the card as a whole, or not in the catalog",
    "flash-attn": "it is always on: what was measured is what runs",
    "fit": "it is always off: a neighbour's memory must not change what is loaded",
    "fit-target": "fit is always off: a neighbour's memory must not change what is loaded",
    "fit-ctx": "fit is always off: a neighbour's memory must not change what is loaded",
    "context-shift": "it is always off: a request that does not fit gets an error, not a shortened prompt",
    "cache-ram": "set `cache_ram_mib` instead",
    "metrics": "it is always on",
    "offline": "it is always on",
    "image-max-tokens": "set `image_max_tokens` instead",
    "reasoning": "set `reasoning` instead",
}
"""Flags that corral sets, by their canonical long name, and why they are not for ``args``."""

_MODEL_ELSEWHERE = "corral runs the files that the lock names, and no others"
FORBIDDEN = {
    **dict.fromkeys(("model-url", "mmproj-url", "docker-repo", "hf-repo", "hf-file", "hf-token"), _MODEL_ELSEWHERE),
    "spec-draft-hf": _MODEL_ELSEWHERE,
    **dict.fromkeys(
        ("models-dir", "models-preset", "models-max", "models-autoload"),
        "one engine serves one model; llama-swap is the router",
    ),
    **dict.fromkeys(("help", "version", "cache-list", "completion-bash", "list-devices"), "it prints and exits"),
    **dict.fromkeys(
        ("api-prefix", "ssl-key-file", "ssl-cert-file", "api-key-file"),
        "llama-swap reaches the engine over plain HTTP, without a key, at the root",
    ),
    **dict.fromkeys(
        ("embedding", "rerank"),
        "the engine would serve no chat any more, and llama-swap and smoke need one",
    ),
    "reuse-port": "two engines would share a port, and mix up their requests",
    "api-key": "llama-swap shows the whole command line at /running: keep secrets out of it",
    "log-disable": "it would also silence the reason of a failed load",
    "lora-init-without-apply": "llama-server ignores it and applies the adapters: write lora-scaled: 'FILE:0.0'",
    "control-vector-layer-range": "it takes two values, which `args` cannot hold",
}
"""Flags that would break a promise, by their canonical long name, and which."""

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_INSTEAD_OF_A_NUMBER = ("auto", "all")
_GONE = {"no-mmap": "load-mode: none", "mmap": "load-mode: mmap", "mlock": "load-mode: mlock"}


@dataclass(frozen=True)
class Flag:
    """One flag of the engine: its long names, ``--no-`` forms and short names; ``value`` is None for a switch."""

    names: tuple[str, ...]
    negated: tuple[str, ...]
    short: tuple[str, ...]
    value: str | None
    choices: tuple[str, ...]
    removed: bool
    downloads: bool


@cache
def table() -> tuple[Flag, ...]:
    """All flags of the pinned engine."""
    document = json.loads(Path(__file__).with_name("llama_server_flags.json").read_text())
    return TypeAdapter(tuple[Flag, ...]).validate_python(document["flags"])


@cache
def _by_name() -> dict[str, Flag]:
    return {name: flag for flag in table() for name in (*flag.names, *flag.negated)}


def problem_with(name: str, value: object) -> str | None:
    """Why ``args: {name: value}`` is not allowed, in one sentence with the remedy; None when it is."""
    bare = name.lstrip("-")
    if bare != name:
        return f"write the flag without dashes: {bare}."
    flag = _by_name().get(name)
    if flag is None or flag.removed:
        return _unknown(name)
    for reasons, verdict in ((OWNED, "corral sets --{} itself"), (FORBIDDEN, "--{} is not allowed")):
        for known in flag.names:
            if known in reasons:
                return f"{verdict.format(name)}: {reasons[known]}."
    if flag.downloads:
        return f"--{name} is not allowed: {_MODEL_ELSEWHERE}."
    if name in flag.negated:
        return f"write it without the no-: `{name.removeprefix('no-')}: false`."
    return _value_problem(name, flag, value)


def _unknown(name: str) -> str:
    if name in _GONE:
        return f"llama-server has no --{name} any more: write `{_GONE[name]}`."
    for flag in table():
        if name in flag.short:
            return f"use the long name: {flag.names[-1]}."
    close = difflib.get_close_matches(name, [known for known, flag in _by_name().items() if not flag.removed], n=3)
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
    if flag.value == "N" and not _NUMBER.fullmatch(text) and text not in _INSTEAD_OF_A_NUMBER:
        return f"--{name} takes a number, not {text}."
    if flag.choices and text not in flag.choices:
        return f"--{name} must be one of {', '.join(flag.choices)}, not {text}."
    if not text or any(mark in text for mark in ("${", "\n", "\0")):
        return f"the value of --{name} must not be empty, hold a line break, or hold ${{ (llama-swap would expand it)."
    return None


def _kind(value: object) -> str:
    return {bool: "true or false", list: "a list", dict: "a mapping", type(None): "nothing"}.get(type(value), "this")


def repeated(args: Mapping[str, object]) -> list[tuple[str, str]]:
    """Pairs of names in *args* that mean the same flag (``gpu-layers`` and ``n-gpu-layers``)."""
    first: dict[Flag, str] = {}
    known = ((name, _by_name()[name]) for name in args if name in _by_name())
    return [(first[flag], name) for name, flag in known if first.setdefault(flag, name) != name]


def words(args: Mapping[str, FlagValue]) -> list[str]:
    """*args* (already checked) as command-line words, sorted by name: their order must not change the lock."""
    result: list[str] = []
    for name in sorted(args):
        value, flag = args[name], _by_name()[name]
        if value is True:
            result.append(f"--{name}")
        elif value is False:
            result.append(f"--no-{name}" if f"no-{name}" in flag.negated else f"--{flag.negated[0]}")
        else:
            whole = isinstance(value, float) and value.is_integer()
            result += [f"--{name}", str(int(value)) if whole else str(value)]
    return result
