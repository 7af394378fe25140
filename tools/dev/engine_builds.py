"""Measures builds of llama.cpp for ``corral/engine/builds.json``, each from its xllamacpp wheel.

python tools/dev/engine_builds.py --write                    measure the pinned wheel again
python tools/dev/engine_builds.py --write 2026.9.11063       add this wheel, or measure it again (downloads it)
python tools/dev/engine_builds.py                            exits 1 when the pinned build's own entry has drifted

Both with the table of docs/architecture/vram.md, which is made of the file.
A wheel is installed into a folder of its own; the golden command lines are those of the tests' fixture.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOOLS), str(TOOLS / "dev")]

import engine_flags  # noqa: E402

from corral.engine import builds, embedded, flag_help  # noqa: E402
from corral.errors import CorralError  # noqa: E402
from corral.upgrade.environment import Environment  # noqa: E402

TABLE = TOOLS / "corral" / "engine" / "builds.json"
GOLDEN = TOOLS / "tests" / "fixtures" / "vram-golden-b11549.json"
DOCUMENT = TOOLS.parent / "docs" / "architecture" / "vram.md"
_PINNED = embedded.LLAMA_CPP_BUILD
_HEAD = f"| build | wheel | models beside {_PINNED}, MiB | projectors, MiB | flags of {_PINNED} that it lacks |\n"
_TABLE = re.compile(r"(?m)^\| build \| wheel \|.*\n(?:\|.*\n)+")
PROJECTORS = {
    "mmproj-qwen3vl-4b-f16": "qwen3vl-4b-q4km",
    "mmproj-qwen3vl-8b-f16": "qwen3vl-8b-q4km",
    "mmproj-minicpm-v-4.5-f16": "minicpm-v-4.5-q4km",
    "mmproj-gemma3-4b-f16": "gemma3-4b-q4km",
    "mmproj-qwen2.5vl-7b-f16": "qwen2.5-7b-q4km",
}
LIMITS = ("256", "1024", "4096")
_LINE = ("-c", "8192", "-np", "1", "-fa", "on", "-fit", "off", "-ngl", "99", "--offline")
_COUNTED = ("gpu_bytes", "projector_bytes")
_MOST_FLAGS = 4


def measure_installed() -> dict[str, Any]:
    """Flags and bytes of the wheel that this process imports."""
    from importlib import metadata

    from corral.vram import oracle
    from tests.support import gguf_models

    version = metadata.version("xllamacpp")
    embedded.WHEEL_VERSION = version
    known = {flag["names"][0] for flag in flag_help.parse(_output(sys.executable, __file__, "--help-of-engine"))}
    counted: dict[str, list[int]] | None = {}
    try:
        for model, cells in json.loads(GOLDEN.read_text())["models"].items():
            found = oracle.ask([gguf_models.header(model)], [cell["argv"] for cell in cells])
            counted[model] = [one.gpu.total for one in found]
    except CorralError as error:
        sys.stderr.write(f"{version}: {error.message}\n")
        counted = None
    projectors: dict[str, list[int]] | None = {}
    try:
        for projector, model in PROJECTORS.items():
            own = [gguf_models.header(model), gguf_models.header(projector)]
            lines = [[*_LINE, "-m", model, "--mmproj", projector, "--image-max-tokens", limit] for limit in LIMITS]
            projectors[projector] = [one.gpu.projector for one in oracle.ask(own, lines)]
    except CorralError as error:
        sys.stderr.write(f"{version}, projectors: {error.message}\n")
        projectors = None
    return {
        "build": embedded.build_of(version),
        "wheel": version,
        "flags": sorted(known),
        "gpu_bytes": counted,
        "projector_bytes": projectors,
    }


def measure(version: str) -> dict[str, Any]:
    """The same of the wheel *version*, installed into a folder of its own before this environment's packages."""
    if version == embedded.WHEEL_VERSION:
        return measure_installed()
    with tempfile.TemporaryDirectory(prefix="corral-wheel-") as folder:
        own = Environment(Path(folder))
        own.make(TOOLS)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", own.packages]
        subprocess.run([*pip, f"xllamacpp=={version}"], check=True)
        return json.loads(_output(own.python, __file__, "--installed"))


def _output(*command: str | Path) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def with_measured(entries: dict[str, dict[str, Any]], found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """*entries* by wheel with what was *found* of one wheel: what one lacks is known to another of them."""
    pinned = {flag["names"][0] for flag in json.loads(engine_flags.TABLE.read_text())["flags"]}
    known = set(found.pop("flags"))
    others = {wheel: entry for wheel, entry in entries.items() if wheel != found["wheel"]}
    before = pinned.union(*(entry["lacks"] for entry in entries.values()))
    lacks = {wheel: sorted({*entry["lacks"], *(known - before)}) for wheel, entry in others.items()}
    own = {"build": found["build"], "wheel": found["wheel"], "lacks": sorted(before - known)}
    return {
        **{wheel: entry | {"lacks": lacks[wheel]} for wheel, entry in others.items()},
        found["wheel"]: own | {key: found[key] for key in _COUNTED},
    }


def text(entries: list[dict[str, Any]]) -> str:
    """The file's text: one line a model."""
    ordered = sorted(entries, key=lambda entry: builds.number(entry["build"]))
    parts = []
    for entry in ordered:
        lines = [f"    {json.dumps(key)}: {json.dumps(entry[key])}" for key in ("build", "wheel", "lacks")]
        parts.append(",\n".join([*lines, *(f'    "{key}": {_rows_of(entry[key])}' for key in _COUNTED)]))
    return "[\n" + ",\n".join(f"  {{\n{part}\n  }}" for part in parts) + "\n]\n"


def _rows_of(counted: dict[str, list[int]] | None) -> str:
    if counted is None:
        return "null"
    rows = ",\n".join(f"      {json.dumps(name)}: {json.dumps(row)}" for name, row in counted.items())
    return f"{{\n{rows}\n    }}"


def rows() -> str:
    """The document's table."""
    [pinned] = [one.lacks for one in builds.table() if one.build == _PINNED]
    lines = [_HEAD, "| --- | --- | --- | --- | --- |\n"]
    for one in reversed(builds.table()):
        lacks = [flag for flag in one.lacks if flag not in pinned]
        shown = ", ".join(f"`{flag}`" for flag in lacks[:_MOST_FLAGS])
        more = f" and {len(lacks) - _MOST_FLAGS} more" if len(lacks) > _MOST_FLAGS else ""
        lines.append(f"| {one.build} | {one.wheel} | {_difference(one)} | {shown}{more or '' if shown else 'none'} |\n")
    return "".join(lines)


def _difference(one: builds.Measured) -> str:
    distance = builds.apart(_PINNED, one.build)
    if distance is None:
        return "0 | 0"
    sides = (one.gpu_bytes, distance.model), (one.projector_bytes, distance.projector)
    return " | ".join(f"{side.least_mib:,} to {side.most_mib:,}" if counted else "unknown" for counted, side in sides)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the file instead of comparing")
    parser.add_argument("--installed", action="store_true", help="print the entry of the installed wheel")
    parser.add_argument("--help-of-engine", action="store_true", help="print the --help of the installed wheel")
    parser.add_argument("version", nargs="*", help="versions of the wheel")
    args = parser.parse_args()
    if args.help_of_engine:
        embedded.parse(["--help"])
    if args.installed:
        sys.stdout.write(json.dumps(measure_installed()))
        return 0
    present = {entry["wheel"]: entry for entry in json.loads(TABLE.read_text())} if TABLE.exists() else {}
    if args.write:
        for version in args.version or [embedded.WHEEL_VERSION]:
            sys.stderr.write(f"xllamacpp {version}\n")
            found = measure(version)
            if version == embedded.WHEEL_VERSION and None in (found[key] for key in _COUNTED):
                return 1  # the reason is printed: the pinned build must be one that corral can read
            present = with_measured(present, found)
        TABLE.write_text(text(list(present.values())))
        builds.table.cache_clear()
        DOCUMENT.write_text(_TABLE.sub(lambda _: rows(), DOCUMENT.read_text()))
        return 0
    if with_measured(present, measure_installed()) != present:
        sys.stderr.write(
            f"{TABLE.name} has another entry for {embedded.WHEEL_VERSION} than the engine. Run: make fix\n"
        )
        return 1
    if _TABLE.findall(DOCUMENT.read_text()) != [rows()]:
        sys.stderr.write(f"{DOCUMENT.name} has another table of builds than {TABLE.name} makes. Run: make fix\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
