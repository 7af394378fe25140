"""Write the facts that the catalog's intent leads to: commit, files, sha256, exact llama-server command, and its VRAM.

The engine itself says what the command line takes on the card, in bytes, without weights and without a GPU.
Only what changed is asked of the hub again, and a pinned commit stays where it is until --upgrade moves it.  Of a GGUF
on the hub only its header is read, once: another context, cache type or number of slots is measured offline.  A
file on this disk (source.path) is hashed every time: it may have changed under its name.
An image's tag is asked at its registry, once, without a password; a digest in images.yaml is taken as it is.
HF_ENDPOINT names another hub, HF_TOKEN opens gated repositories.  When one model or image cannot be resolved or
measured, nothing is written.

examples:
  corral lock                      lock what is new or changed
  corral lock --upgrade            move every model to the newest commit of its revision
  corral lock --upgrade qwen3-8b   move one, and show what changed upstream
  corral lock --upgrade llama-swap ask again which digest the tag of an image has
  corral lock --check              exit 1 when the lock is stale; no network, nothing written
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from corral import output
from corral.catalog import catalog, ledger
from corral.cli import options, vram_table
from corral.errors import ExitCode, Refused
from corral.lock import headers, lock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    options.add_catalog(parser)
    options.add_json(parser)
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--upgrade",
        nargs="*",
        metavar="NAME",
        help="move these models to newer commits, these images to newer digests (all, when none is named)",
    )
    way.add_argument("--check", action="store_true", help="only say whether the lock is stale; exit 1 when it is")


def run(args: argparse.Namespace) -> int:
    """Check, or bring the lock up to the catalog."""
    wanted = catalog.load(options.catalog_dir(args))
    if args.check:
        return _check(wanted, json=args.json)
    return _write(wanted, args.upgrade, json=args.json)


def _check(wanted: catalog.Catalog, *, json: bool) -> int:
    present = lock.read(wanted.lock_file)
    stale = list(lock.stale(wanted, present))
    gone = headers.missing(wanted.directory, present) if present else {}
    named = {item.name for item in stale if item.about == "model"}
    stale += [
        lock.Stale(model, f"has no sound header {sha256[:12]} in headers/")
        for model, sha256 in gone.items()
        if model not in named
    ]
    if json:
        output.data_json(
            {
                "lock": str(wanted.lock_file),
                "fresh": not stale,
                "stale": [{item.about: item.name, "reason": item.reason} for item in stale],
            }
        )
    elif stale:
        for item in stale:
            output.data(str(item))
        output.info(f"The lock is stale. Run: {lock.relock_command(wanted)}")
    else:
        output.data(f"{wanted.lock_file} is fresh")
    return ExitCode.FAILED if stale else ExitCode.OK


def _write(wanted: catalog.Catalog, upgrade: list[str] | None, *, json: bool) -> int:
    from corral.hub.resolve import resolve
    from corral.lock.predict import EngineMeasurer
    from corral.lock.relock import relock

    moved, asked = _to_upgrade(wanted, upgrade)
    present = lock.read(wanted.lock_file)
    seen = ledger.read(wanted.directory)
    measurer = EngineMeasurer(wanted.directory, output.info)
    result = relock(wanted, present, resolve, measurer, upgrade=moved, upgrade_images=asked, say=output.info)
    written = present is None or lock.text(present) != lock.text(result.lock)
    try:
        headers.write(wanted.directory, result.headers)
        if written:
            lock.write(wanted.lock_file, result.lock)
        headers.prune(wanted.directory, result.lock)
    except OSError as error:
        raise Refused(
            f"{error.filename or wanted.lock_file} cannot be written: {error.strerror}.",
            next_step=f"Check who owns {wanted.directory}",
        ) from None
    if json:
        changes = [{item.about: item.name, "change": item.kind, "details": item.details} for item in result.changes]
        rows = {model_id: vram_table.as_json(one, model_id, seen) for model_id, one in result.lock.models.items()}
        output.data_json({"lock": str(wanted.lock_file), "written": written, "changes": changes, "vram": rows})
        return ExitCode.OK
    for item in result.changes:
        if item.kind != "unchanged" or sys.stdout.isatty():
            output.data(f"{item.subject}: {item.kind}")
        for detail in item.details:
            output.data(f"  {detail}")
    vram_table.show(result.lock, seen)
    output.info(f"{wanted.lock_file} {'written' if written else 'is unchanged'}")
    return ExitCode.OK


def _to_upgrade(wanted: catalog.Catalog, names: list[str] | None) -> tuple[Sequence[str], Sequence[str]]:
    """Ids of models and keys of images among *names*; all of both when it is empty, nothing when it is None."""
    if names is None:
        return (), ()
    images = wanted.images or {}
    models = [name for name in names if name in wanted.models or name not in images]
    return (
        () if names and not models else wanted.select(models),
        [name for name in images if name in names or not names],
    )
