"""Remove a model from the catalog: its file, and its part of the lock, shown before anything is written.

It is refused while clients.yaml, golden.yaml or the fallback of another model names it; the error names the line.
Its answers in golden.json go with it: another model of that id would be compared with them.  What was measured of it
stays in measured.json, by its command line.  Its files stay in the store until `corral prune`, and it is served until
the next `corral up` or `corral apply`.

Whatever fails, and with another answer than yes, the catalog stays exactly as it was.

Without a terminal for the question, --yes is needed.  --json alone changes nothing.

examples:
  corral remove qwen3-8b
  corral remove qwen3-8b --json        what would change
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

from corral import output
from corral.catalog import catalog
from corral.catalog.catalog import Catalog
from corral.cli import options, relocking
from corral.errors import Refused
from corral.lock import lock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=options.name, help="its id")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options.add(parser, "--catalog", "--json")


def run(args: argparse.Namespace) -> int:
    relocking.require_answer(args, options.again(args, "remove", args.model))
    directory = options.catalog_dir(args)
    before = catalog.load(directory)
    model_id = _id(before, args)
    if lines := list(_named_by(before, model_id)):
        message = "\n".join([f"{model_id} is named elsewhere in the catalog:", *(f"  {line}" for line in lines)])
        again = options.again(args, "remove", model_id)
        raise Refused(message, next_step=f"Take it out there, then: {again}")
    if len(before.models) == 1:
        raise Refused(
            f"{model_id} is the only model of {directory}, and a catalog has one at least.",
            next_step="Add another one first: corral add ORG/NAME-GGUF; or stop what serves it: corral down, "
            "corral destroy",
        )
    text, again = relocking.lock_text(before), options.again(args, "remove", model_id)
    present = lock.read(before.lock_file)
    from corral.lock.predict import Predictor
    from corral.lock.relock import relock, resolve_on_hub

    wanted = catalog.with_model(before, model_id, None)
    relocked = relock(wanted, present, resolve_on_hub, Predictor(wanted, output.info), info=output.info)
    after = relocking.checked(wanted, relocked)
    edit = relocking.Edit(before, text, present, after, model_id, None, again)
    files = f" --catalog {shlex.quote(str(directory))}" if args.catalog else ""
    prune = f"its files in the store: corral prune{files}; in the homelab's: corral prune --context NAME"
    steps = [*relocking.served_steps(args, directory, after.lock), prune]
    return edit.run(args, f"Remove {model_id}? Only yes removes it.", steps)


def _id(wanted: Catalog, args: argparse.Namespace) -> str:
    """The model that *args* name, by its id; the error for an alias names the id."""
    name: str = args.model
    for model_id, model in wanted.models.items():
        if name in model.aliases:
            raise Refused(f"{name} is an alias of {model_id}.", next_step=options.again(args, "remove", model_id))
    if name not in wanted.models:
        known = ", ".join(wanted.models)
        raise Refused(f"No model {name} in {wanted.directory}. It has: {known}.", next_step="Name one of these")
    return name


def _named_by(wanted: Catalog, model_id: str) -> Iterator[str]:
    """The places, beside its own file, that name the model: what only the whole catalog shows."""
    document = wanted.documents.get("clients.yaml")
    for name, client in wanted.clients.items():
        if document and model_id in (client.models or ()):
            line = document.line_of(("clients", name, "models"))
            yield f"{document.file}:{line}: the client {name} may use it"
    for name, model in wanted.models.items():
        if model.fallback == model_id:
            yield f"{wanted.place(name, 'fallback')}: it is the fallback of {name}"
    for name, question in (wanted.golden.questions if wanted.golden else {}).items():
        if model_id in (question.models or ()):
            yield f"{wanted.directory / 'golden.yaml'}: the question {name} is for it"
