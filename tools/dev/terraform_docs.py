"""Write the tables of inputs and outputs in the README of every Terraform module and stack.

The tables are made from the `variable` and `output` blocks, so a description has one home.

    python tools/dev/terraform_docs.py            name the READMEs that are out of date; exit 1 when there are any
    python tools/dev/terraform_docs.py --write    bring them up to date
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "terraform"
INPUTS = "| name | type | default | description |\n| --- | --- | --- | --- |\n"
OUTPUTS = "| name | description |\n| --- | --- |\n"

_BLOCK = re.compile(r'^(variable|output) "(\w+)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)
_ROWS = re.compile(r"\A(\|.*\n)*")


def attribute(body: str, name: str) -> str | None:
    """The value of *name* in the body of a block, on one line; None when it is not there."""
    found = re.search(rf"^  {name}\s+= (.*(?:\n    .*|\n  [}})].*)*)$", body, re.MULTILINE)
    if found is None:
        return None
    lines = [" ".join(line.split()) for line in found[1].splitlines()]
    text = ", ".join(lines)
    return re.sub(r"([({]),", r"\1", text).replace(", }", " }")


def description(kind: str, name: str, body: str) -> str:
    """The description of a block, in Markdown.

    Raises:
        ValueError: it is missing, not one quoted line, or no sentence.
    """
    text = attribute(body, "description")
    if text is None or not re.fullmatch(r'".*\."', text):
        raise ValueError(f'{kind} "{name}" needs a description: one quoted line that ends with a full stop')
    return text[1:-1].replace('\\"', '"').replace("|", "\\|")


def tables(folder: Path) -> tuple[str, str]:
    """The rows of both tables of *folder*, sorted by name."""
    inputs, outputs = [], []
    for file in sorted(folder.glob("*.tf")):
        for kind, name, body in _BLOCK.findall(file.read_text(encoding="utf-8")):
            text = description(kind, name, body)
            if kind == "output":
                outputs.append(f"| `{name}` | {text} |\n")
                continue
            default = attribute(body, "default")
            shown = "required" if default is None else f"`{default}`"
            inputs.append(f"| `{name}` | `{attribute(body, 'type')}` | {shown} | {text} |\n")
    return "".join(sorted(inputs)), "".join(sorted(outputs))


def documented(folder: Path) -> str:
    """The README of *folder* with new tables.

    Raises:
        ValueError: a description or a table's heading is missing.
    """
    text = (folder / "README.md").read_text(encoding="utf-8")
    for heading, rows in zip((INPUTS, OUTPUTS), tables(folder), strict=True):
        if heading not in text:
            raise ValueError(f"README.md has no table headed:\n{heading}")
        before, _, after = text.partition(heading)
        text = before + heading + rows + _ROWS.sub("", after, count=1)
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when every README is up to date or was updated, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="folder with modules/ and stacks/ (default: terraform/)"
    )
    parser.add_argument("--write", action="store_true", help="write the tables instead of comparing them")
    args = parser.parse_args(argv)
    found = sorted(folder for kind in ("modules", "stacks") for folder in (args.root / kind).glob("*/"))
    bad = [] if found else [f"no module and no stack below {args.root}"]
    for folder in found:
        readme = folder / "README.md"
        try:
            text = documented(folder)
        except (OSError, ValueError) as error:
            bad.append(f"{folder}: {error}")
            continue
        if text == readme.read_text(encoding="utf-8"):
            continue
        if args.write:
            readme.write_text(text, encoding="utf-8")
        else:
            bad.append(f"{readme}: its tables are out of date. Run: make fix")
    for line in bad:
        print(line, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
