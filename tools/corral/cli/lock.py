"""Write lock.json: everything that is downstream of the catalog, with the commit, files and sha256 of each model.

The engine itself predicts what each command line takes on the card, in bytes, without weights and without a GPU.  Only
what changed is requested from the hub again, and a pinned commit stays where it is until --upgrade moves it.  Of a GGUF
on the hub only its header is read, once: another context, cache type or number of slots is predicted offline.  A file
on this disk (source.path) is hashed every time: it may have changed under its name.  An image's tag is resolved at its
registry, once, without a password; a digest in images.yaml is taken as it is. HF_ENDPOINT names another hub, HF_TOKEN
opens gated repositories.  When one model or image cannot be resolved or predicted, nothing is written.  Any edit of the
catalog, a comment too, makes the lock stale; where neither files nor images change, this needs no network.  Of a lock
that was edited, merged or written by an older corral only the commits are reused.

Each latency budget is compared with what `corral bench --speeds` measured of exactly this command line; one that cannot
be kept is refused, and one without a benchmark is unknown.  A context without room for images_per_request images of 896
pixels a side is refused too; for a projector whose rule corral does not know, that is unknown.

The lock names the build of llama.cpp that predicts and the one in the server's image: by the image's tag, by its label
org.opencontainers.image.version, or as llama-cpp-build in images.yaml declares it; an unknown one is refused.  Where
the two are not one, each seat gets a row engine-drift, by what was measured of builds, and a flag that the build of the
image does not know is refused.

examples:
  corral lock                      lock what is new or changed
  corral lock --upgrade            move every model to the newest commit of its revision
  corral lock --upgrade qwen3-8b   move one, and show what changed upstream
  corral lock --upgrade llama-swap resolve again which digest the tag of an image has
  corral lock --check              exit 1 when the lock is stale; no network, nothing written
  corral lock --rename-slots       rename the key slot to group in the models' files first
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from corral import output
from corral.catalog import catalog, renamed_keys
from corral.cli import options, relocking, unsafe_flags, vram_table
from corral.errors import CatalogInvalid, ExitCode, LockStale, Refused
from corral.lock import headers, lock, pins


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--catalog", "--json")
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--upgrade",
        nargs="*",
        metavar="NAME",
        help="move these models to newer commits, these images to newer digests (all, when none is named)",
    )
    way.add_argument("--check", action="store_true", help="only report whether the lock is stale; exit 1 when it is")
    way.add_argument(
        "--rename-slots", action="store_true", help="first rename the old key slot to group in the models' files"
    )


def run(args: argparse.Namespace) -> int:
    directory = options.catalog_dir(args)
    wanted = catalog.load(directory) if args.check else _load(directory, rename=args.rename_slots)
    unsafe_flags.warn(wanted.models)
    return _check(wanted, json=args.json) if args.check else _write(wanted, args)


def _load(directory: Path, *, rename: bool) -> catalog.Catalog:
    """The catalog, after old keys are renamed: without a question with *rename*, else by consent."""
    try:
        if not rename:
            return catalog.load(directory)
    except CatalogInvalid as error:
        old = renamed_keys.files(directory)
        if not (old and sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        output.info(error.message)
        output.info(f"Rename slot to group in {len(old)} of these files? Comments stay. [y/N]")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Refused("Nothing was renamed.", next_step=error.next_step) from None
    for file in renamed_keys.files(directory):
        renamed_keys.rename(file)
        output.info(f"{file}: slot is group now")
    return catalog.load(directory)


def _check(wanted: catalog.Catalog, *, json: bool) -> int:
    stale = list(lock.stale(wanted))
    if not stale and (present := lock.read(wanted.lock_file)):
        stale = [
            lock.Stale("model", model_id, "header", f"has no sound header {sha256[:12]} in headers/")
            for model_id, sha256 in headers.missing(wanted.directory, present).items()
        ]
    if json:
        reasons = [{item.about: item.name, "code": item.code, "reason": item.reason} for item in stale]
        output.data_json({"lock": str(wanted.lock_file), "fresh": not stale, "stale": reasons})
    elif stale:
        output.data("\n".join(map(str, stale)))
        output.info(f"The lock is {lock.state(stale)}. Run: {lock.rewrite_step(wanted.lock_file)}")
    else:
        output.data(f"{wanted.lock_file} is fresh")
    return ExitCode.FAILED if stale else ExitCode.OK


def _write(wanted: catalog.Catalog, args: argparse.Namespace) -> int:
    from corral.lock.predict import Predictor
    from corral.lock.relock import relock, resolve_on_hub

    moved, images = _to_upgrade(wanted, args.upgrade)
    text = relocking.lock_text(wanted)
    present, kept = None, {}
    try:
        present = lock.read(wanted.lock_file)
    except LockStale as error:
        kept = pins.pins(wanted.lock_file)
        output.info(f"{error.message} Only its commits are reused.")
    predictor = Predictor(wanted, output.info)
    result = relock(
        wanted, present, resolve_on_hub, predictor, pins=kept, upgrade=moved, upgrade_images=images, info=output.info
    )
    new = relocking.checked(wanted, result)
    again = options.again(args, "lock", *(() if args.upgrade is None else ("--upgrade", *args.upgrade)))
    with relocking.unchanged(wanted, text, again=again):
        written = new.write()
    if args.json:
        rows = {model_id: vram_table.as_json(entry) for model_id, entry in result.lock.models.items()}
        latency = [one.as_json() for one in new.forecasts]
        document = {"lock": str(wanted.lock_file), "written": written, "changes": new.changes_json()}
        room = [one.as_json() for one in new.rooms]
        engine = result.lock.engine.model_dump() if result.lock.engine else None
        output.data_json(document | {"vram": rows, "latency": latency, "images": room, "engine": engine})
        return ExitCode.OK
    new.show_changes(unchanged=sys.stdout.isatty())
    new.show_tables()
    output.info(f"{wanted.lock_file} {'written' if written else 'is unchanged'}")
    return ExitCode.OK


def _to_upgrade(wanted: catalog.Catalog, names: list[str] | None) -> tuple[Sequence[str], Sequence[str]]:
    """Ids of models and keys of images among *names*; all of both when it is empty, nothing when it is None."""
    if names is None:
        return (), ()
    if not names:
        return wanted.select([]), list(wanted.images)
    models = [name for name in names if name in wanted.models or name not in wanted.images]
    return wanted.select(models) if models else (), [name for name in wanted.images if name in names]
