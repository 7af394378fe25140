"""Add a model of the hub to the catalog: its file, its lock and its seat, shown before anything is written.

REPO is a repository of GGUF files; of several models in it, QUANT names one (Q4_K_M, or the path of a file).  Only the
headers are read: they and the list of files give the id, the context (8,192, or what the model was trained for), the
projector and so whether it takes images.  The group is that of the card's other models where they have one, else main;
one model of a group can run at any time, and more where they fit.  Then it is locked as `corral lock` does, and seated
as `corral seat` does.

A model that does not fit its card, or that the engine does not know, is refused.  Whatever fails, and with another
answer than yes, the catalog stays exactly as it was.  HF_TOKEN opens gated repositories.

Without a terminal for the question, --yes is needed.  --json alone changes nothing.

examples:
  corral add Qwen/Qwen3-8B-GGUF                  its models, their sizes, and which fit the card
  corral add Qwen/Qwen3-8B-GGUF:Q4_K_M
  corral add Qwen/Qwen3-8B-GGUF:Q8_0 --name qwen3-8b-precise --context 4096 --yes
"""

from __future__ import annotations

import argparse
import re

from corral import output
from corral.catalog import catalog
from corral.cli import options, relocking
from corral.errors import CorralError, Refused
from corral.lock import lock
from corral.vram.oracle import DECLARE

_ADDRESS = re.compile(r"[a-z]+://[^/]+/(?P<repo>[^/]+/[^/?#:]+(:[^/?#]+)?)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repo", metavar="REPO[:QUANT]", type=options.name, help="e.g. Qwen/Qwen3-8B-GGUF:Q4_K_M")
    parser.add_argument("--name", metavar="ID", type=options.name, help="its id (default: by the repository's name)")
    parser.add_argument("--card", metavar="CARD", type=options.name, help="where the catalog has several")
    parser.add_argument("--group", metavar="GROUP", type=options.name, help="models of which one can run at any time")
    tokens = options.whole_number(1)
    parser.add_argument("--context", metavar="N", type=tokens, dest="tokens", help="tokens per request slot")
    parser.add_argument("--mmproj", metavar="FILE", type=options.name, help="its projector, or none: text alone")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options.add(parser, "--catalog", "--json")


def run(args: argparse.Namespace) -> int:
    relocking.require_answer(args, _again(args, args.repo, args.tokens, args.group))
    directory = options.catalog_dir(args)
    before = catalog.load(directory, may_be_empty=True)
    text = relocking.lock_text(before)
    present = lock.read(before.lock_file)
    from corral.seating import addition

    if found_in := _ADDRESS.match(args.repo):
        step = _again(args, found_in["repo"], args.tokens, args.group)
        raise Refused(f"{args.repo} is an address, and REPO is the name of a repository.", next_step=step)
    repo, _, quant = args.repo.partition(":")
    wish = addition.Wish(
        repo=repo,
        quant=quant or None,
        name=args.name,
        card=args.card,
        group=args.group,
        context=args.tokens,
        mmproj=args.mmproj,
        command=lambda chosen, context, group: _again(
            args, f"{repo}:{chosen}" if chosen else repo, context or args.tokens, group or args.group
        ),
    )
    try:
        found = addition.find(wish, before, present, output.info)
        after = relocking.checked(found.catalog, found.relocked)
    except CorralError as error:
        error.next_step = _next_step(error, args)
        raise
    steps = [*relocking.served_steps(args, directory, after.lock), f"then: corral smoke {found.model_id}"]
    again = _again(args, args.repo, args.tokens, args.group)
    edit = relocking.Edit(before, text, present, after, found.model_id, found.text, again)
    return edit.run(args, f"Add {found.model_id}? Only yes adds it.", steps)


def _next_step(error: CorralError, args: argparse.Namespace) -> str:
    """What to do about *error*, where `corral lock` would have to do with a file that is not written."""
    if DECLARE in error.next_step:
        return f"Choose another model; or write the file yourself (docs/models.md) and {DECLARE.removeprefix('or ')}"
    step = error.next_step.replace("Correct source.repo", "Correct REPO").replace("source.mmproj", "--mmproj")
    step = step.replace("the catalog names", "REPO names")
    return step.replace("corral lock", _again(args, args.repo, args.tokens, args.group))


def _again(args: argparse.Namespace, repo: str, context: int | None, group: str | None) -> str:
    """The command line of *args* with another *repo*, *context* and *group*."""
    named = {"--name": args.name, "--card": args.card, "--group": group, "--context": context}
    words = [
        word for option, value in {**named, "--mmproj": args.mmproj}.items() if value for word in (option, str(value))
    ]
    return options.again(args, "add", repo, *words)
