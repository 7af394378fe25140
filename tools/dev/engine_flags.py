"""Writes ``corral/catalog/llama_server_flags.json`` from the pinned engine's own ``--help``.

python tools/dev/engine_flags.py --write     after moving the engine's pin
python tools/dev/engine_flags.py             exits 1 when the file has drifted (part of `make check`)

Both exit 1 when ``corral/catalog/flag_classes.py`` does not classify exactly these flags.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from corral.catalog.flag_classes import mismatches
from corral.engine.embedded import LLAMA_CPP_BUILD

TOOLS = Path(__file__).resolve().parents[1]
TABLE = TOOLS / "corral" / "catalog" / "llama_server_flags.json"

# "-c,    --ctx-size N      size of the prompt context": names, then the value's hint, then two spaces.
_OPTION = re.compile(r"(?P<names>-{1,2}[\w.-]+(?:,\s*-{1,2}[\w.-]+)*)(?:\s(?P<hint>\S.*?))?(?:\s{2,}(?P<text>.*))?$")
_CHOICES = re.compile(r"[\[{<]([\w-]+(?:[|,][\w-]+)+)[\]}>]")
_ALLOWED = re.compile(r"allowed values: ([\w, ]+)")
_REMOVED = "the argument has been removed"


def parse(help_text: str) -> list[dict[str, Any]]:
    """One entry a flag: ``names`` (long, without dashes), ``negated``, ``short``, ``value`` (hint or null), …."""
    blocks: list[list[str]] = []
    for line in help_text.splitlines():
        if line.startswith("-") and not line.startswith("-----"):
            blocks.append([line])
        elif blocks and line.startswith(" "):
            blocks[-1].append(line.strip())
        elif line.startswith("-----"):
            blocks.append([])
    entries = (_entry(block) for block in blocks if block and _REMOVED not in " ".join(block))
    return sorted(entries, key=lambda entry: str(entry["names"]))


def _entry(block: list[str]) -> dict[str, Any]:
    match = _OPTION.match(block[0])
    if match is None:
        raise SystemExit(f"engine_flags: cannot read this line of --help: {block[0]!r}")
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


def engine_flags() -> list[dict[str, Any]]:
    """``parse`` of the pinned engine's own ``--help``."""
    server = Path(sys.executable).with_name("corral-llama-server")
    return parse(subprocess.run([server, "--help"], capture_output=True, text=True, check=True).stdout)


def table(flags: list[dict[str, Any]]) -> str:
    """The file's text."""
    lines = ",\n".join(f"    {json.dumps(flag)}" for flag in flags)
    return f'{{\n  "build": {json.dumps(LLAMA_CPP_BUILD)},\n  "flags": [\n{lines}\n  ]\n}}\n'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the file instead of comparing")
    write = parser.parse_args().write
    flags = engine_flags()
    wanted = table(flags)
    if write:
        TABLE.write_text(wanted)
    present = TABLE.read_text() if TABLE.exists() else ""
    diff = difflib.unified_diff(present.splitlines(), wanted.splitlines(), str(TABLE), "the engine", lineterm="")
    problems = list(diff)
    if problems:
        problems.append(f"{TABLE.name} has drifted from the engine. Run: make fix")
    problems += mismatches([flag["names"][0] for flag in flags])
    if problems:
        print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
