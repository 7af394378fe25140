"""Measure one model on several serving stacks with the same prompts, and find from how many users on vLLM serves more.

Each --endpoint NAME=URL is one stack; NAME is llama.cpp, vllm, sglang, tgi, ollama or another word.  Where the served
name of the model is another one there, add it: NAME=URL#MODEL.  Without an endpoint for the stack that the catalog
serves the model with, that one is the local stack, or with --context the one in a cluster.  The stacks are measured
one after the other, each at every level of --users; nothing else should load their machine.

The break-even is where the output tokens a second of llama.cpp and vLLM cross for good, with a 99 % interval.  Levels
at which requests failed, or which show this client, do not count for it.  A stack that could not be measured has a row
that states so; no figure is taken over from anywhere.

--report TITLE writes docs/benchmarks/<date>-<title>.md with the figures, a plot and the conditions.
--save FILE keeps the result for corral gate MODEL --break-even FILE.

exit codes:
  0  measured, and there is a break-even, or none up to the largest level
  1  llama.cpp and vLLM have no two levels that count
  4  nothing could be measured

examples:
  corral compare-stacks qwen3-8b --endpoint vllm=http://127.0.0.1:8000
  corral compare-stacks qwen3-8b --endpoint vllm=http://gpu:8000#Qwen/Qwen3-8B-AWQ --users 1,10,50 --seconds 120
  corral compare-stacks qwen3-8b --endpoint ollama=http://gpu:11434#qwen3:8b --report "qwen3 8b" --save even.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from corral import __version__, output
from corral.agent.progress import positive_seconds
from corral.cli import endpoints, options
from corral.errors import CannotRun, ExitCode, Refused
from corral.files import refuse_unwritable, require_writable, write_atomically
from corral.smoke.endpoint import require_sendable, root_of

if TYPE_CHECKING:
    from corral.bench.load import Level
    from corral.bench.stacks import Stack
    from corral.cli.endpoints import ServedEndpoint

_LEVELS = (1, 10, 50, 100)
_ANOTHER_FILE = "Name another file with --save"


class _Named(NamedTuple):
    """A stack of the command line: its name, its address, and the name of the model there (empty: the catalog's)."""

    name: str
    url: str
    model: str

    def __str__(self) -> str:
        return f"{self.name}={self.url}{f'#{self.model}' if self.model else ''}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the model of the catalog")
    options.add(parser, "--catalog", "--json")
    stack = "a stack and its OpenAI endpoint; with #MODEL, the model's name there"
    parser.add_argument("--endpoint", action="append", type=_named, default=[], metavar="NAME=URL", help=stack)
    users = "users at a time, one level after the other (default: 1,10,50,100)"
    parser.add_argument("--users", type=options.numbers(int, 1, 2000), default=_LEVELS, metavar="N,…", help=users)
    seconds: dict[str, Any] = {"metavar": "SECONDS", "type": positive_seconds}
    parser.add_argument("--seconds", **seconds, default=60.0, help="time of a level (default: 60)")
    tokens = options.whole_number(1, 1_000_000)
    prompt = "of each prompt, the chat template included (default: 256)"
    parser.add_argument("--prompt-tokens", type=tokens, default=256, metavar="N", help=prompt)
    parser.add_argument("--answer-tokens", type=tokens, default=64, metavar="N", help="of each answer (default: 64)")
    end = "let an answer end by itself before that; for endpoints that refuse ignore_eos"
    parser.add_argument("--may-end", action="store_true", help=end)
    limit = "limit of an answer, a load included (default: 600)"
    parser.add_argument("--timeout", **seconds, default=600.0, help=limit)
    parser.add_argument("--save", metavar="FILE", type=Path, help="keep the result, for corral gate --break-even FILE")
    document = "write docs/benchmarks/<date>-<title>.md, with a plot and the result beside it"
    parser.add_argument("--report", metavar="TITLE", type=options.name, help=document)
    options.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Measure each stack; exit code 1 without a break-even."""
    from corral.bench import stacks
    from corral.bench.load import Level

    names = [one.name for one in args.endpoint]
    if repeated := next((one for one in names if names.count(one) > 1), None):
        raise Refused(f"--endpoint names {repeated} twice.", next_step="Name each stack once")
    if args.save:
        require_writable(args.save, next_step=_ANOTHER_FILE)
    files = _files(args.report) if args.report else None
    levels = [Level(users=users, seconds=args.seconds) for users in sorted(set(args.users))]
    found: list[Stack] = []
    with ExitStack() as until_end:
        for name, endpoint, model in _endpoints(args, until_end):
            found.append(asyncio.run(_measure(args, name, endpoint, model, levels)))
    if all(one.measured is None for one in found):
        raise CannotRun(f"Nothing was measured: {found[0].name}: {found[0].reason}", next_step="corral status")
    even = stacks.of(found)
    document = {"version": 1, "conditions": _conditions(args), **stacks.as_json(found, even)}
    output.result(document, stacks.COLUMNS, list(stacks.rows(found)), as_json=args.json)
    output.info(f"Break-even of llama.cpp and vLLM: {even or 'unknown: they have no two levels that count'}.")
    if args.save:
        with refuse_unwritable(args.save, next_step=_ANOTHER_FILE):
            write_atomically(args.save, json.dumps(document, indent=1) + "\n")
    if files:
        _write(args, files, found, document, str(even or "unknown"))
    return ExitCode.OK if even else ExitCode.FAILED


def _endpoints(args: argparse.Namespace, until_end: ExitStack) -> list[tuple[str, ServedEndpoint, str]]:
    """Each stack with its endpoint and the name of the model there; that of the catalog first."""
    from corral.bench import stacks
    from corral.cli.endpoints import ServedEndpoint
    from corral.engine import stack as local_stack
    from corral.lock import lock as locks
    from corral.paths import state_dir

    found = [
        (one.name, ServedEndpoint(root_of(one.url), root_of(one.url)), one.model or args.model) for one in args.endpoint
    ]
    target = options.cluster(args)
    local = None if target else local_stack.running(state_dir())
    if not (local or target or found):
        target = options.applied()
    if not (local or target):
        if not found:
            raise Refused("No stack was named, and none runs here.", next_step="Name them: --endpoint NAME=URL")
        return found
    lock = locks.require(options.catalog_of(args.catalog, local or target))
    if not (entry := lock.models.get(args.model)):
        raise Refused(f"The lock has no model {args.model}.", next_step="corral status lists the models")
    name = stacks.VLLM if entry.intent.engine == "vllm" else stacks.LLAMA_CPP
    if name in {one for one, *_ in found}:
        return found
    args_of = argparse.Namespace(**{**vars(args), "endpoint": None})
    served = until_end.enter_context(endpoints.opened(args_of, local, target, command="compare-stacks MODEL"))
    return [(name, served, args.model), *found]


async def _measure(
    args: argparse.Namespace, name: str, endpoint: ServedEndpoint, model: str, levels: Sequence[Level]
) -> Stack:
    from corral.bench.exchange import Client
    from corral.bench.measuring import Question, measure
    from corral.bench.stacks import Stack

    require_sendable(endpoint.api_key)
    endpoints.allow_connections(2 * max(args.users))
    question = Question(args.prompt_tokens, args.answer_tokens, args.may_end)
    limits = {"silence_s": args.timeout, "timeout_s": args.timeout}
    try:
        async with Client(endpoint.root, api_key=endpoint.api_key, trust=endpoint.trust, **limits) as client:
            output.info(f"{name}: {endpoint.url}")
            step = "Check the address, the model's name, and CORRAL_API_KEY"
            return Stack(name, await measure(client, model, question, levels, output.info, next_step=step))
    except CannotRun as error:
        output.info(f"{name}: {error.message}")
        return Stack(name, None, f"not measured: {error.message}")


def _conditions(args: argparse.Namespace) -> dict[str, Any]:
    import os

    from corral.cli.bench_report import processor

    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "corral": __version__,
        "model": args.model,
        "users": list(args.users),
        "seconds": args.seconds,
        "prompt_tokens": args.prompt_tokens,
        "answer_tokens": args.answer_tokens,
        "client": f"{processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end",
        "endpoints": [str(one) for one in args.endpoint],
    }


def _files(title: str) -> Any:
    from corral import markdown
    from corral.bench.report import OPTION, Files
    from corral.cli.bench_report import FOLDER

    stem = f"{time.strftime('%Y-%m-%d')}-{markdown.slug(title, example=OPTION)}"
    files = Files(FOLDER, stem)
    if files.document.exists():
        raise Refused(f"{files.document} is there already.", next_step=f"Choose another title: {OPTION}")
    return files


def _write(
    args: argparse.Namespace, files: Any, found: Sequence[Stack], document: Mapping[str, Any], even: str
) -> None:
    from corral import markdown, templates
    from corral.bench import figures, plot, report, stacks

    measured = {one.name: [figures.of(run) for run in one.measured.runs] for one in found if one.measured}
    ticks = [(float(at), str(users)) for at, users in enumerate(sorted(set(args.users)))]
    lines = [
        plot.Line(name, [(at, one.output_tokens_per_s) for at, one in enumerate(levels)])
        for name, levels in measured.items()
    ]
    drawn = plot.draw(f"{args.model}: output tokens a second", lines, ticks, x="users", y="tokens/s")
    words = ["--users", ",".join(map(str, args.users)), "--seconds", f"{args.seconds:g}"]
    words += ["--prompt-tokens", str(args.prompt_tokens), "--answer-tokens", str(args.answer_tokens)]
    words += ["--may-end"] if args.may_end else []
    text = templates.render(
        "compare_stacks.md.j2",
        title=markdown.cell(args.report),
        date=str(document["conditions"]["at"])[:10],
        command=markdown.one_line(options.again(args, "compare-stacks", args.model, *words, "--report", args.report)),
        even=markdown.cell(even),
        columns=stacks.COLUMNS,
        rows=[report.cells(*row) for row in stacks.rows(found)],
        picture=files.beside("-throughput.svg").name,
        result=files.beside(".json").name,
        conditions=[report.cells(*one) for one in document["conditions"].items()],
    )
    markdown.create(files.document, text, another=report.OPTION)
    write_atomically(files.beside("-throughput.svg"), drawn)
    write_atomically(files.beside(".json"), json.dumps(document, indent=1) + "\n")
    output.info(f"Written: {files.document}")


def _named(text: str) -> _Named:
    name, equals, address = text.partition("=")
    url, _, model = address.partition("#")
    if not equals or not name or not url.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=URL, e.g. vllm=http://127.0.0.1:8000")
    return _Named("vllm" if name.lower() == "vllm" else name, url, model)
