"""`corral contract vision MODEL`."""

from __future__ import annotations

import argparse
import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corral import output, paths
from corral.cli import bench_report, endpoints, options
from corral.errors import ExitCode, Failed, Refused
from corral.files import refuse_unwritable, write_atomically

if TYPE_CHECKING:
    from corral.contract.vision import Subject
    from corral.engine.stack import Running
    from corral.lock.lock import LockEntry

FOLDER = paths.REPOSITORY / "docs" / "contracts"


def document_of(model: str) -> Path:
    """Where the contract of *model* is, unless another file is named."""
    return FOLDER / f"vision-{model}.json"


def require_served(args: argparse.Namespace, local: Running) -> LockEntry:
    """The entry of the model that *args* name, which *local* serves as it is locked.

    Raises:
        Refused: it is not in the lock, takes no images, or other files than the locked run.
    """
    from corral.lock import lock as locks
    from corral.measure.live import require_locked_files

    (model,) = args.models
    entry = locks.require(options.catalog_dir(args, local)).models.get(model)
    if entry is None:
        raise Refused(f"The lock has no model {model}.", next_step="corral status lists the models")
    if not entry.intent.vision:
        raise Refused(f"{model} takes no images: its modalities are text alone.", next_step="corral contract api")
    require_locked_files(local.client(), model, entry, apply=local.start_command())
    return entry


def run(args: argparse.Namespace, local: Running, committed: str | None, again: str) -> int:
    """Find what *committed* promises, and compare or write; *again* is the command."""
    from corral.contract import vision, vision_document

    (model,) = args.models
    before = None
    if committed is not None:
        try:
            before = vision_document.read(committed, model=model)
        except ValueError as error:
            raise Refused(f"{args.document} cannot be read: {error}.", next_step=f"{again} --write") from None
    entry = require_served(args, local)
    subject, made_of = _subject(args, local, entry)
    output.info(f"{model} is unloaded {vision.UNLOADS} times: what it answers at that moment is cut off.")
    result = asyncio.run(vision.find(subject, limit_s=args.timeout, report=output.info))
    _require_locked(local, model, entry, again)
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    machine = f"{bench_report.processor()}, {os.cpu_count() or 1} cores"
    found = vision_document.contract(model, made_of, result, date=date, machine=machine)
    differing = [] if before is None else vision_document.drift(before, found)
    if args.json:
        output.data_json({"document": found, "drift": differing, "broken": list(result.broken)})
    else:
        output.table(("promise", "found"), vision_document.promise_rows(found), title=f"What {model} promises")
        title = f"What this machine takes ({machine}); it is compared with nothing"
        output.table(("answer", "seconds", "of", "committed"), vision_document.times(found, before), title=title)
    if result.broken:
        what = "\n".join(f"{model}: {one}." for one in result.broken)
        nothing = "\nNothing is written." if args.write else ""
        raise Failed(f"Promises are not kept:\n{what}{nothing}", next_step="docs/vision-contract.md has causes")
    if args.write:
        with refuse_unwritable(args.document, next_step="Name another file with --document"):
            write_atomically(args.document, vision_document.text(found))
        output.info(f"Written: {args.document}")
        return ExitCode.OK
    if differing:
        output.info("\n".join([f"It is not as in {args.document}:", *differing]))
        output.info(f"  → If that is right: {again} --write")
        return ExitCode.FAILED
    output.info(f"It is as in {args.document}.")
    return ExitCode.OK


def _subject(args: argparse.Namespace, local: Running, entry: LockEntry) -> tuple[Subject, dict[str, Any]]:
    """The model as it is reached, and what its promises belong to."""
    from corral.agent import warm
    from corral.catalog import ledger
    from corral.contract.vision import Subject
    from corral.engine import log_lines

    (model,) = args.models
    client = local.client()
    lock, store = options.lock_and_store(args, local)
    (locked,) = lock.select([model])
    with endpoints.opened(argparse.Namespace(endpoint=None), local, None, command="contract vision") as place:
        subject = Subject(
            root=place.root,
            key=place.api_key,
            trust=place.trust,
            engine_key=client.api_key,
            model=model,
            thinks=entry.intent.reasoning != "off",
            context=entry.intent.context,
            images_per_request=entry.intent.images_per_request,
            weights=warm.files_of(store, locked)[0],
            unload=lambda: client.unload(model),
            layers=lambda: log_lines.layers(client.model_log(model)),
        )
    made_of = {
        "engine": {"build": local.engine.build, "origin": local.engine.origin},
        "files": {Path(file.path).name: file.sha256 for file in entry.files},
        "command_line": {
            "sha256": ledger.argv_sha256(entry.argv),
            "context": entry.intent.context,
            "gpu_layers": entry.argv[entry.argv.index("-ngl") + 1] if "-ngl" in entry.argv else None,
        },
    }
    return subject, made_of


def _require_locked(local: Running, model: str, entry: LockEntry, again: str) -> None:
    from corral.measure.live import require_locked_command

    require_locked_command(local.client(), model, entry.argv, again=again, apply=local.start_command())
