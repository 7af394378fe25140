"""Reads what `llama-server --help` prints: each flag with its names, its value and its default."""

from __future__ import annotations

import re
from typing import Any

# "-c,    --ctx-size N      size of the prompt context": names, then the value's hint, then two spaces.
_OPTION = re.compile(r"(?P<names>-{1,2}[\w.-]+(?:,\s*-{1,2}[\w.-]+)*)(?:\s(?P<hint>\S.*?))?(?:\s{2,}(?P<text>.*))?$")
_CHOICES = re.compile(r"[\[{<]([\w-]+(?:[|,][\w-]+)+)[\]}>]")
_ALLOWED = re.compile(r"allowed values: ([\w, ]+)")
_DEFAULT = re.compile(r"\(default: ([^()]*(?:\([^()]*\)[^()]*)*)\)")
_REMOVED = "the argument has been removed"


def parse(help_text: str) -> list[dict[str, Any]]:
    """One entry a flag: ``names`` (long, without dashes), ``negated``, ``short``, ``value`` (or null), ``choices``.

    Raises:
        ValueError: a line is not as llama-server writes it.
    """
    entries = (_entry(block) for block in _blocks(help_text))
    return sorted(entries, key=lambda entry: str(entry["names"]))


def defaults(help_text: str) -> dict[str, str]:
    """The default of each flag that states one, by its first long name.

    Raises:
        ValueError: a line is not as llama-server writes it.
    """
    found = {}
    for block in _blocks(help_text):
        if stated := _DEFAULT.search(" ".join(block)):
            found[str(_entry(block)["names"][0])] = stated[1].strip()
    return found


def _blocks(help_text: str) -> list[list[str]]:
    blocks: list[list[str]] = []
    for line in help_text.splitlines():
        if line.startswith("-") and not line.startswith("-----"):
            blocks.append([line])
        elif blocks and line.startswith(" "):
            blocks[-1].append(line.strip())
        elif line.startswith("-----"):
            blocks.append([])
    return [block for block in blocks if block and _REMOVED not in " ".join(block)]


def _entry(block: list[str]) -> dict[str, Any]:
    match = _OPTION.match(block[0])
    if match is None:
        raise ValueError(f"this line of --help cannot be read: {block[0]!r}")
    words = [word.strip() for word in match["names"].split(",")]
    long = [word[2:] for word in words if word.startswith("--")]
    negated = [name for name in long if name.startswith("no-") and len(long) > 1 and name[3:] in long]
    names = [name for name in long if name not in negated]
    text = " ".join([match["text"] or "", *block[1:]])
    hint = match["hint"]
    choices: list[str] = []
    if hint and (found := _CHOICES.fullmatch(hint)):
        choices = re.split(r"[|,]", found[1])
    elif allowed := _ALLOWED.search(text):
        choices = [choice.strip() for choice in allowed[1].split(",")]
        choices = [choice.split(" ")[0] for choice in choices if choice]
    return {
        "names": names,
        "negated": negated,
        "short": [word[1:] for word in words if not word.startswith("--")],
        "value": hint,
        "choices": choices,
    }
