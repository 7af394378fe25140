"""Check every Terraform module and stack: format, length of lines, validity, and that each of its tests passed.

`terraform test` looks at one folder only and calls zero runs a success.  This script visits every folder below
modules/ and stacks/, several at a time, and fails where it found no folder, no run, or a run that was skipped.  Nothing
is written into the tree: Terraform's working folder is a temporary one.

    python tools/dev/terraform_test.py [--root terraform] [--only check|test]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from corral.errors import ProgramMissing
from corral.terraform.program import find_terraform

ROOT = Path(__file__).resolve().parents[2] / "terraform"
LONGEST_LINE = 160
_AT_A_TIME = min(4, os.cpu_count() or 1)
_INIT = threading.Lock()  # a plugin cache of the user's may not be written to by two at a time


def program() -> str:
    """Terraform; OpenTofu only without a Terraform.

    OpenTofu's `test` refuses a run whose variable is made from the file's variable of the same name, as ours are.
    """
    with suppress(ProgramMissing):
        return find_terraform(("terraform",))
    return find_terraform()


def folders(root: Path) -> list[Path]:
    """Every module and stack below *root*."""
    return sorted(folder for kind in ("modules", "stacks") for folder in (root / kind).glob("*/") if folder.is_dir())


def terraform(folder: Path, data: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one Terraform command in *folder* with its working folder at *data*."""
    environment = os.environ | {"TF_DATA_DIR": data, "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}
    command = [program(), f"-chdir={folder}", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@contextmanager
def working_folder(folder: Path) -> Iterator[str]:
    """A temporary folder for Terraform's data about *folder*; removes also the lock that Terraform writes meanwhile."""
    pins = folder / ".terraform.lock.hcl"
    were_there = pins.exists()
    with tempfile.TemporaryDirectory(prefix="corral-terraform-") as data:
        try:
            yield data
        finally:
            if not were_there:
                pins.unlink(missing_ok=True)


def check(folder: Path, data: str) -> str:
    """Faults of *folder* before any test runs; empty without faults."""
    if not any(folder.glob("*.tf")):
        return "holds no *.tf file"
    for file in sorted(folder.rglob("*.tf")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > LONGEST_LINE:
                place = f"{file.relative_to(folder)}:{number}"
                return f"{place} has {len(line)} characters; a line has at most {LONGEST_LINE}"
    with _INIT:
        done = terraform(folder, data, "init", "-backend=false", "-input=false", "-no-color")
    if done.returncode == 0:
        done = terraform(folder, data, "validate", "-no-color")
    if done.returncode != 0:
        return f"terraform {done.args[2]} failed\n{done.stdout}{done.stderr}"
    return ""


def test(folder: Path, data: str) -> tuple[int, str]:
    """Run the tests of *folder*, after ``check``; return the number of passed runs, and the faults (empty without)."""
    done = terraform(folder, data, "test", "-json")
    events = [json.loads(line) for line in done.stdout.split("\n") if line.startswith('{"@')]
    summary: dict[str, Any] = next((event["test_summary"] for event in events if event["type"] == "test_summary"), {})
    passed = int(summary.get("passed", 0))
    if done.returncode != 0 or summary.get("status") != "pass":
        failed = [
            f"{run['path']}: {run['run']}: {run['status']}"
            for event in events
            if (run := event.get("test_run", {})).get("status") in ("fail", "error")
        ]
        reasons = [
            f"{one['summary']}: {one['detail']}"
            for event in events
            if (one := event.get("diagnostic", {})).get("severity") == "error"
        ]
        return passed, "\n".join(["terraform test failed", *failed, *reasons] if events else [done.stdout, done.stderr])
    if summary.get("skipped", 0):
        return passed, f"{summary['skipped']} runs were skipped"
    if passed == 0:
        return 0, "has no tests: not one run in *.tftest.hcl or tests/*.tftest.hcl"
    return passed, ""


def visit(folder: Path, *, only: str) -> tuple[int, str]:
    """Check *folder* and, unless *only* checks are asked for, run its tests; returns as ``test`` does."""
    with working_folder(folder) as data:
        wrong = check(folder, data)
        return (0, wrong) if wrong or only == "check" else test(folder, data)


def problems(root: Path, only: str) -> Iterator[str]:
    """Check every folder below *root*, report the passed ones, and yield the faults."""
    if only != "test":
        unformatted = subprocess.run(
            [program(), "fmt", "-no-color", "-check", "-recursive", str(root)],
            capture_output=True,
            text=True,
            check=False,
        )
        if unformatted.returncode != 0:
            yield f"terraform fmt would change (or cannot read):\n{unformatted.stdout}{unformatted.stderr}"
    found = folders(root)
    if not found:
        yield f"no module and no stack below {root}"
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        for folder, (runs, wrong) in zip(found, pool.map(partial(visit, only=only), found), strict=True):
            name = folder.relative_to(root)
            if wrong:
                yield f"{name}: {wrong}"
            else:
                print(f"{name}: valid" if only == "check" else f"{name}: {runs} runs passed", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 without faults, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="folder with modules/ and stacks/ (default: terraform/)"
    )
    parser.add_argument("--only", choices=("check", "test"), default="", help="check: no tests; test: no fmt")
    args = parser.parse_args(argv)
    found = list(problems(args.root.resolve(), args.only))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
