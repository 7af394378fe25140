"""Move the engine to another build of llama.cpp: wheel, image and predictions together, as one commit to go back on.

The wheel's build predicts the seats, and the image's build takes them.  This makes a branch with one commit in which
both are moved, with the lock of the Python packages, the engine's flags, its measured bytes and every lock predicted
again; it shows what changes, and asks before the branch is taken over.  Until then nothing of the clone is changed, and
what fails leaves nothing behind.

Golden answers: a local stack with the present engine answers first, one with the new engine after it, both from the
store; another answer ends the upgrade with the difference (--accept records it instead).  Where the models' files are
not on this machine, use --no-golden, and after the apply: corral golden check.

Moved is the image under llama-server in images.yaml; an image with both programs, under llama-swap, stays, and the
seats keep a row engine-drift while its build is another.  A flag of the catalog that the new engine does not have, a
build that this corral cannot read and a tag that the registry does not have (the nearest are named) are refused.

examples:
  corral upgrade engine                      to the newest build that has a wheel
  corral upgrade engine --to b11063          to this one, e.g. that of the image
  corral upgrade engine --list               the builds that have a wheel
  git revert HEAD && make setup              back, after it was taken over
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from corral import output, paths
from corral.cli import options
from corral.errors import ExitCode

if TYPE_CHECKING:
    from corral.upgrade.engine import Moved


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("engine",), help="what to move")
    parser.add_argument("--to", metavar="BUILD", type=_build, help="e.g. b11549 (default: the newest with a wheel)")
    parser.add_argument("--list", action="store_true", help="list the builds that have a wheel; change nothing")
    parser.add_argument("--no-golden", action="store_true", help="ask no golden answers before and after")
    parser.add_argument("--accept", action="store_true", help="record the new engine's answers where they are others")
    parser.add_argument("--yes", action="store_true", help="take the branch over without a question")
    options.add(parser, "--catalog", "--store", "--json")


def run(args: argparse.Namespace) -> int:
    from corral.catalog import catalog
    from corral.engine import embedded
    from corral.upgrade import trial, wheels
    from corral.upgrade.engine import Upgrade

    versions = wheels.listed()
    if args.list:
        rows = [(embedded.build_of(one), one, "pinned" if one == embedded.WHEEL_VERSION else "") for one in versions]
        output.result([list(row) for row in rows], ("build", "xllamacpp", ""), rows, as_json=args.json)
        return ExitCode.OK
    version = wheels.choose(versions, args.to)
    if version == embedded.WHEEL_VERSION:
        output.info(f"The engine is {embedded.ENGINE} already.")
        return ExitCode.OK
    wanted = catalog.load(options.catalog_dir(args))
    store = None if args.no_golden else (args.store or paths.default_store()).absolute()
    upgrade = Upgrade(wanted, version, store, accept=args.accept, info=output.info)
    moved = upgrade.try_it()
    if args.json:
        output.data_json(moved.as_json())
    else:
        _show(moved)
    take_over = f"git -C {paths.REPOSITORY} merge --ff-only {moved.branch}"
    if not (args.yes or _agreed(moved.branch)):
        output.info(f"The branch {moved.branch} has the commit; nothing else was changed.")
        output.info(f"  → Take it over: {take_over} && make setup; or remove it: git branch -D {moved.branch}")
        return ExitCode.OK
    trial.git("merge", "--quiet", "--ff-only", moved.branch)
    trial.git("branch", "-d", moved.branch)
    output.info(f"The engine is {moved.after} now (commit {moved.commit[:12]}).")
    output.info("  → make setup, then corral plan; to go back: git revert HEAD && make setup")
    return ExitCode.OK


def _build(text: str) -> str:
    if not re.fullmatch(r"b?[1-9][0-9]{3,6}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no build of llama.cpp, like b11549")
    return f"b{text.removeprefix('b')}"


def _agreed(branch: str) -> bool:
    if not sys.stdin.isatty():
        return False
    output.info(f"Take the branch {branch} over? Only yes does.")
    return sys.stdin.readline().strip() == "yes"


def _show(moved: Moved) -> None:
    output.data(f"engine: {moved.before} → {moved.after}")
    if moved.image:
        output.data(f"image: {' → '.join(moved.image)}")
    for title, flags in (("flags gone", moved.flags.gone), ("new flags", moved.flags.new)):
        if flags:
            output.data(f"{title}: {', '.join(f'--{flag}' for flag in flags)}")
    for flag, (was, now) in moved.flags.defaults.items():
        output.data(f"default of --{flag}: {was or 'not stated'} → {now or 'not stated'}")
    for change in moved.models:
        output.data(f"{change.subject}: {change.kind}")
        for detail in change.details:
            output.data(f"  {detail}")
    if moved.golden is not None:
        output.data("golden answers:")
        output.data("\n".join(f"  {line}" for line in moved.golden.splitlines() if "first tokens" in line))
    for note in moved.notes:
        output.warn(note)
