"""Writes ``corral/catalog/llama_server_flags.json`` from the pinned engine's own ``--help``.

python tools/dev/engine_flags.py --write     after moving the engine's pin
python tools/dev/engine_flags.py             exits 1 when the file has drifted (part of `make check`)

Both exit 1 when ``corral/catalog/flag_classes.py`` does not classify exactly these flags.
"""

from __future__ import annotations

import argparse
import difflib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from corral.catalog.flag_classes import mismatches
from corral.engine import flag_help
from corral.engine.embedded import LLAMA_CPP_BUILD

TOOLS = Path(__file__).resolve().parents[1]
TABLE = TOOLS / "corral" / "catalog" / "llama_server_flags.json"


def engine_flags() -> list[dict[str, Any]]:
    """What ``flag_help.parse`` reads in the pinned engine's own ``--help``."""
    server = Path(sys.executable).with_name("corral-llama-server")
    return flag_help.parse(subprocess.run([server, "--help"], capture_output=True, text=True, check=True).stdout)


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
