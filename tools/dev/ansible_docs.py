"""Write the table of variables in the README of every Ansible role, and compare the role's defaults with it.

python tools/dev/ansible_docs.py            name the roles that are out of date; exit 1 when there are any
python tools/dev/ansible_docs.py --write    bring their READMEs up to date
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2] / "ansible" / "roles"
HEAD = "| name | type | default | description |\n| --- | --- | --- | --- |\n"

KEYS = ("description", "type", "elements", "required", "default", "choices", "options")

_ROWS = re.compile(r"\A(\|.*\n)*")


def rows(options: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The table's rows for *options*, those of their elements after them.

    Raises:
        ValueError: a description is missing or no sentence, or the keys of an option do not stand in the order of KEYS.
    """
    for name, option in sorted(options.items()):
        if list(option) != [key for key in KEYS if key in option]:
            raise ValueError(f"{prefix}{name} needs its keys in this order: {', '.join(KEYS)}")
        text = " ".join(str(option.get("description", "")).split())
        if not text.endswith("."):
            raise ValueError(f"{prefix}{name} needs a description that ends with a full stop")
        if "choices" in option:
            text += f" One of {', '.join(f'`{choice}`' for choice in option['choices'])}."
        kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
        default = (
            "required" if option.get("required") else f"`{shown(option['default'])}`" if "default" in option else ""
        )
        yield f"| `{prefix}{name}` | {kind} | {default} | {text} |\n".replace("||", "\\|\\|")
        yield from rows(option.get("options", {}), f"{prefix}{name}{'[]' if 'elements' in option else ''}.")


def shown(value: object) -> str:
    """A default as YAML in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
    return text.removesuffix("\n...\n").strip().replace("|", "\\|")


def faults(role: Path, options: dict[str, Any]) -> Iterator[str]:
    """Differences between the specification and ``defaults/main.yml``."""
    file = role / "defaults" / "main.yml"
    defaults = (yaml.safe_load(file.read_text(encoding="utf-8")) or {}) if file.exists() else {}
    promised = {name: option["default"] for name, option in options.items() if "default" in option}
    for name in sorted(promised.keys() | defaults.keys()):
        if name not in promised and name in options and "{{" in str(defaults[name]):
            continue  # computed on the host: its description says from what
        if name not in promised or name not in defaults or promised[name] != defaults[name]:
            yield f"{role.name}: the default of {name} differs between meta/argument_specs.yml and defaults/main.yml"
    for name in sorted(options):
        if not name.startswith(f"{role.name}_"):
            yield f"{role.name}: {name} has to begin with {role.name}_"


def documented(role: Path, options: dict[str, Any]) -> str:
    """The README of *role* with a new table.

    Raises:
        ValueError: a description or the table's heading is missing.
    """
    text = (role / "README.md").read_text(encoding="utf-8")
    if HEAD not in text:
        raise ValueError(f"README.md has no table headed:\n{HEAD}")
    before, _, after = text.partition(HEAD)
    return before + HEAD + "".join(rows(options)) + _ROWS.sub("", after, count=1)


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when every README is up to date or was updated, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the tables instead of comparing them")
    args = parser.parse_args(argv)
    found = sorted(role for role in ROOT.iterdir() if role.is_dir())
    bad = [] if found else [f"no role below {ROOT}"]
    for role in found:
        readme = role / "README.md"
        try:
            spec = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
            options = spec["argument_specs"]["main"].get("options") or {}
            bad += faults(role, options)
            text = documented(role, options)
        except (OSError, ValueError, KeyError) as error:
            bad.append(f"{role.name}: {error}")
            continue
        if text == readme.read_text(encoding="utf-8"):
            continue
        if args.write:
            readme.write_text(text, encoding="utf-8")
        else:
            bad.append(f"{readme}: its table is out of date. Run: make fix")
    for line in bad:
        print(line, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
