"""Find what a client of the served API can rely on, and whether that has changed.

`corral contract api` sends what a client sends, and judges what comes back: OpenAI's SDK (chat, streams, tools,
schemas, probabilities, images, embeddings, errors, cancellation), Anthropic's SDK on /v1/messages, and plain HTTP for
llama-server's own paths, also while a model is loaded.  Each promise works, differs (with how), or is not there: of
llama-server alone, at its own port, and through llama-swap, at the address of the front door.  It takes the first model
of each kind in the stack: of text, of thoughts, of images; or those that are named.  It unloads the model of text once,
which ends what that answers then.

`corral contract vision MODEL` does the same for a model of images: ten of them in their order, whole, as a stream and
bound by a JSON schema; how many its context takes, and the tokens of one, at 256 and 896 pixels a side; /health during
a load; which layers are on the card, and why.  It unloads the model ten times.  What this machine takes for a load and
an answer stands beside that with its date, and is never a difference.

Both need the local stack, and send nothing anywhere else.  The result is compared with docs/api.md, or with
docs/contracts/vision-MODEL.json; both were made with the demo's models: make demo KEEP=1.  --write writes that file;
--document names another one, for models of your own.

exit codes:
  0  it is as in the document, or was written
  1  it is not: the lines that differ are printed; or the model breaks a promise, and nothing is written

examples:
  corral contract api
  corral contract api --json
  corral contract api qwen3-8b qwen3vl-4b --document my-api.md --write
  corral contract vision tiny-vision
  corral contract vision qwen3vl-4b --write
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from corral import output, paths
from corral.agent.progress import positive_seconds
from corral.catalog import tasks
from corral.cli import contract_vision, endpoints, options
from corral.errors import CannotRun, ExitCode, Refused
from corral.files import refuse_unwritable, require_writable, write_atomically

if TYPE_CHECKING:
    from corral.contract.survey import Kind, Served
    from corral.engine.stack import Running
    from corral.lock.lock import Lock

_ANOTHER = "Name another file with --document"
DOCUMENT = paths.REPOSITORY / "docs" / "api.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", choices=("api", "vision"), help="what to check")
    models = "api: at most one of each kind (default: the first); vision: one"
    parser.add_argument("models", nargs="*", metavar="MODEL", help=models)
    options.add(parser, "--catalog", "--store", "--json")
    parser.add_argument("--write", action="store_true", help="write the document, and compare nothing")
    document = "the document (default: docs/api.md, or docs/contracts/vision-MODEL.json, of the repository)"
    parser.add_argument("--document", metavar="FILE", type=Path, help=document)
    limit = "limit of each check, loading included (default: 300)"
    parser.add_argument("--timeout", metavar="SECONDS", type=positive_seconds, default=300.0, help=limit)


def run(args: argparse.Namespace) -> int:
    """Check, and compare or write."""
    from corral.engine import stack

    if args.subject == "vision" and len(args.models) != 1:
        raise Refused("vision is of one model.", next_step="corral contract vision MODEL")
    default = DOCUMENT if args.subject == "api" else contract_vision.document_of(args.models[0])
    again = _again(args)
    args.document = args.document or default
    local = stack.running(paths.state_dir())
    if args.subject == "vision" and local:
        contract_vision.require_served(args, local)
    if args.write:
        require_writable(args.document, next_step=_ANOTHER)
    committed = None if args.write else _read(args, again)
    if local is None:
        raise CannotRun(
            "No local stack is running.", next_step=f"make demo KEEP=1, or: {stack.start_command(paths.state_dir())}"
        )
    if args.subject == "vision":
        return contract_vision.run(args, local, committed, again)
    return _api(args, local, committed, again)


def _api(args: argparse.Namespace, local: Running, committed: str | None, again: str) -> int:
    from corral.contract import document
    from corral.contract.survey import survey

    served, about = _served(args, local)
    rows = asyncio.run(survey(served, limit_s=args.timeout, report=output.info))
    found = document.text(about, rows)
    differing = [] if committed is None else list(document.drift(committed, found))
    columns = ("promise", "llama-server alone", "through llama-swap")
    cells = [(row.title, str(row.alone), str(row.through)) for row in rows]
    output.result(document.as_json(about, rows, differing), columns, cells, as_json=args.json, title="the API")
    if args.write:
        with refuse_unwritable(args.document, next_step=_ANOTHER):
            write_atomically(args.document, found)
        output.info(f"Written: {args.document}")
        return ExitCode.OK
    if differing:
        output.info("\n".join([f"It is not as in {args.document}:", *differing]))
        output.info(f"  → If that is right: {again} --write")
        return ExitCode.FAILED
    output.info(f"It is as in {args.document}.")
    return ExitCode.OK


def _again(args: argparse.Namespace) -> str:
    document = ["--document", shlex.quote(str(args.document))] if args.document else []
    return " ".join([options.again(args, "contract", args.subject, *args.models), *document])


def _read(args: argparse.Namespace, again: str) -> str:
    """The committed document.

    Raises:
        Refused: there is none, or it cannot be read.
    """
    from corral.contract.document import MOST_BYTES

    try:
        with args.document.open("rb") as file:
            return str(file.read(MOST_BYTES).decode())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise Refused(f"{args.document} cannot be read: {why}.", next_step=f"{again} --write") from None


def _served(args: argparse.Namespace, local: Running) -> tuple[Served, dict[str, str]]:
    """The stack as the survey reaches it, and what the document is made with."""
    from corral.agent import warm
    from corral.contract import document
    from corral.contract.survey import Served
    from corral.engine import binaries
    from corral.lock import lock as locks

    lock, store = options.lock_and_store(args, local)
    models = _models(args, locks.require(options.catalog_dir(args, local)))
    (text,) = lock.select([models["text"]])
    with endpoints.opened(argparse.Namespace(endpoint=None), local, None, command="contract api") as place:
        client = local.client()
        served = Served(
            root=place.root,
            key=place.key,
            trust=place.trust,
            engine_key=client.api_key,
            models=models,
            weights=warm.files_of(store, text)[0],
            unload=client.unload,
        )
    files = {model: ", ".join(file.name for file in lock.models[model].files) for model in models.values()}
    named = {f"model of {kind}": f"{model} ({files[model]})" for kind, model in models.items()}
    engine = f"build {local.engine.build}" + (f" ({local.engine.origin})" if local.engine.origin == "embedded" else "")
    return served, document.facts(engine, binaries.find_llama_swap().build, named)


def _models(args: argparse.Namespace, lock: Lock) -> dict[Kind, str]:
    """The model of each kind that is named or, where none is, the first of the lock.

    Raises:
        Refused: a name is not in the lock, two are of one kind, or there is none of text.
    """
    from corral.contract.survey import kind_of

    if unknown := [model for model in args.models if model not in lock.models]:
        raise Refused(f"The lock has no model {unknown[0]}.", next_step="corral status lists the models")
    kinds: dict[Kind, list[str]] = {"text": [], "thinking": [], "vision": []}
    intents = {model: entry.intent for model, entry in lock.models.items()}
    for model in tasks.chats(intents, args.models, "contract api"):
        kinds[kind_of(lock.models[model].intent)].append(model)
    many = next((found for found in kinds.values() if args.models and len(found) > 1), None)
    if many or not kinds["text"]:
        what = f"{many[0]} and {many[1]} are of one kind" if many else "None of them answers without thoughts or images"
        raise Refused(f"{what}.", next_step="Name one model of text, and one of thoughts and of images where there is")
    return {kind: found[0] for kind, found in kinds.items() if found}
