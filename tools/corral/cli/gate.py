"""Decide by nine boxes whether a model may serve: each is ticked by evidence that has a date, and by nothing else.

  stack       the rule decides for llama.cpp, by stated inputs: the most requests at once, a card or none, a break-even
  latency     each latency budget of the model's file is kept, by 200 answers
  single      one request alone gets a whole answer
  users       10, 50 and 100 users at a time get whole answers, within the budgets
  sdk         the promises of docs/api.md are kept, by OpenAI's and Anthropic's SDKs
  health      every check of `corral smoke` passes
  shutdown    10 of 10 streams are whole when the process that serves them is ended; needs --may-end
  adapters    each with several versions is swapped and rolled back; needs --may-swap, and "not used" without one
  monitoring  the exporter is alive, and counts a request of the gate

A box is passed, failed, unknown or not used; unknown is no tick.  What is measured is kept in the state folder.  With
--only the other boxes have the evidence of earlier runs: of the same lock and the same engine, and not too old.

Without --context it is the local stack, with it the Service in that cluster, through a forwarded port.  What runs must
be what the lock has.  --may-end ends the service for a moment: the local stack is stopped as by `corral down` and
started again as it was, in a cluster the pod is deleted and replaced.  If that fails: corral up --detach.

exit codes:
  0  every box is ticked
  1  one is not

examples:
  corral gate qwen3-8b --may-end
  corral gate qwen3-8b --only users,latency --users 4 --seconds 300
  corral gate qwen3-8b --context homelab --page gate.md --junit gate.xml
"""

from __future__ import annotations

import argparse
import hashlib
import math
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from corral import output, paths
from corral.agent.progress import positive_seconds, seconds_of
from corral.catalog import tasks
from corral.cli import endpoints, options
from corral.cli.adapters import store_of
from corral.cli.contract import DOCUMENT
from corral.cli.exporter import PORT
from corral.engine import stack as local_stack
from corral.errors import CannotRun, CorralError, ExitCode, Failed, Refused
from corral.files import refuse_unwritable, require_writable, write_atomically
from corral.gate import adapters, answers, box, ending, evidence, health, monitoring, page, sdk, shutdown, stack
from corral.gate.box import BOXES, Line, State
from corral.gate.evidence import Evidence, Judged, Kept
from corral.gate.page import Gate
from corral.gate.site import Site
from corral.gate.stack import Inputs
from corral.golden.record import UNKNOWN
from corral.smoke import report
from corral.smoke.endpoint import root_of
from corral.versions import VersionStore

if TYPE_CHECKING:
    from corral.catalog.catalog import Catalog
    from corral.cluster.target import ClusterTarget
    from corral.engine.llama_swap import LlamaSwap
    from corral.engine.stack import Running
    from corral.lock.lock import Lock, LockEntry

_USERS = (10, 50, 100)
_EXPORTER = f"http://127.0.0.1:{PORT}"
_LAST = "shutdown"
"""What interrupts the service is measured when all else is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the id of one model")
    options.add(parser, "--catalog", "--json")
    parser.add_argument("--only", type=_boxes, metavar="BOX,…", help="measure these boxes (default: all)")
    users = options.numbers(int, 1, 2000)
    parser.add_argument(
        "--users", type=users, default=_USERS, metavar="N,…", help="at a time, one level each (default: 10,50,100)"
    )
    seconds = f"of each level of users (default: {answers.SECONDS:g}; with a latency budget until 200 answers)"
    parser.add_argument("--seconds", type=positive_seconds, metavar="SECONDS", help=seconds)
    may_end = "end the service while ten streams are under way, and have it back"
    parser.add_argument("--may-end", action="store_true", help=may_end)
    may_swap = "have another version of each adapter serve for a moment, and roll that back"
    parser.add_argument("--may-swap", action="store_true", help=may_swap)
    even = "users from which on vLLM serves more than llama.cpp: the file of corral compare-stacks --save, or a number"
    parser.add_argument("--break-even", type=_break_even, metavar="FILE|USERS", help=even)
    exporter = f"the exporter of the local stack (default: {_EXPORTER})"
    parser.add_argument(
        "--exporter", type=partial(root_of, option="--exporter"), default=_EXPORTER, metavar="URL", help=exporter
    )
    contract = "the promises of the API (default: docs/api.md of the repository)"
    parser.add_argument("--contract", type=Path, default=DOCUMENT, metavar="FILE", help=contract)
    age = "evidence of an earlier run counts for so long (default: 7d)"
    parser.add_argument("--max-age", type=seconds_of, default=seconds_of("7d"), metavar="TIME", help=age)
    limit = "limit of an answer, a load included, and of a pod's replacement (default: 300)"
    parser.add_argument("--timeout", type=positive_seconds, default=300.0, metavar="SECONDS", help=limit)
    silence = "an answer without a byte for so long has failed (default: 120)"
    parser.add_argument("--silence", type=positive_seconds, default=120.0, metavar="SECONDS", help=silence)
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the boxes as JUnit XML too")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write them as a Markdown page for a pull request")
    options.add_cluster(parser)
    parser.set_defaults(endpoint=None)


def run(args: argparse.Namespace) -> int:
    """Measure the boxes, keep what was found, and judge all nine."""
    for file, option in ((args.junit, "--junit"), (args.page, "--page")):
        if file:
            require_writable(file, next_step=f"Name another file with {option}")
    try:
        found = _gate(args)
    except BaseException as error:  # an old report left in place would be read as this run's
        reason = error.message if isinstance(error, CorralError) else f"it was interrupted ({type(error).__name__})"
        _write(args, report.junit_of_error(reason, name=page.SUITE), page.undecided(args.model, reason))
        raise
    _write(args, found.junit(), found.page())
    title = f"the gate of {args.model}"
    output.result(found.as_json(), page.COLUMNS, list(found.rows()), as_json=args.json, title=title)
    output.info(found.summary)
    return ExitCode.OK if found.is_open else ExitCode.FAILED


def _write(args: argparse.Namespace, junit: bytes, text: str) -> None:
    if args.junit:
        report.write(args.junit, junit)
    if args.page:
        with refuse_unwritable(args.page, next_step="Name another file with --page"):
            write_atomically(args.page, text)


def _gate(args: argparse.Namespace) -> Gate:
    if args.only and _LAST in args.only and not args.may_end:
        raise Refused("The box shutdown ends the service for a moment.", next_step="Allow that with --may-end")
    local, target = endpoints.named(args)
    if not (local or target):
        message = "No local stack is running, and no cluster was named or applied to."
        raise CannotRun(message, next_step=f"corral up --detach, or: corral gate {args.model} --context NAME")
    wanted, lock = options.locked_catalog(options.catalog_dir(args, local or target))
    if args.model not in lock.models:
        raise Refused(f"{args.model} is not in the lock.", next_step=f"It has: {', '.join(sorted(lock.models))}")
    tasks.require_chat(args.model, lock.models[args.model].intent, "gate")
    endpoints.allow_connections(4 * max(args.users))
    target = target and _of_its_card(target, lock.models[args.model].intent.card)
    with _site(args, wanted, lock, local, target) as (site, place, words):
        store = store_of(target if local is None else None)
        return _judged(args, site, store, place, _engine(site.require_locked(), site.entry, lock, local), words)


def _of_its_card(target: ClusterTarget, card: str) -> ClusterTarget:
    """*target* with the Service of *card*: its llama-swap knows the model's requests, and its pod is what ends."""
    from corral.cluster.client import connect
    from corral.cluster.served import of_card

    return of_card(connect(target.kubeconfig, target.context), target, card)


@contextmanager
def _site(
    args: argparse.Namespace, wanted: Catalog, lock: Lock, local: Running | None, target: ClusterTarget | None
) -> Iterator[tuple[Site, str, list[str]]]:
    """What is measured, where it is, and the options that name that."""
    state = paths.state_dir()
    with endpoints.opened(args, local, target, command=f"gate {args.model}") as served:
        if target is None:
            place, words = "local", shlex.split(options.again(args))[1:]
            exporter: Callable[[], AbstractContextManager[str]] = partial(_at, args.exporter)
            ends: ending.Ending = ending.LocalEnding(state, output.info)
            llama_swap = _local_llama_swap
        else:
            from corral.cluster.client import connect

            cluster = connect(target.kubeconfig, target.context)
            place = f"{cluster.context}/{target.namespace}"
            words = options.target_words(replace(target, context=cluster.context, catalog=args.catalog))
            exporter = partial(monitoring.in_cluster, cluster, target)
            ends = ending.PodEnding(cluster, target, output.info, limit_s=args.timeout)
            assert served.client
            client = served.client
            llama_swap = lambda: client  # noqa: E731
        yield (
            Site(
                model=args.model,
                catalog=wanted,
                lock=lock,
                root=served.root,
                key=served.api_key,
                trust=served.trust,
                llama_swap=llama_swap,
                exporter=exporter,
                ending=ends,
                report=output.info,
                timeout_s=args.timeout,
                silence_s=args.silence,
                logs=served.logs or f"corral logs {args.model}",
                why=shlex.join(["corral", "why", args.model, *words]),
                apply=served.start,
                again=shlex.join(["corral", "gate", args.model, *words]),
            ),
            place,
            words,
        )


def _judged(
    args: argparse.Namespace, site: Site, store: VersionStore, place: str, engine: str, words: list[str]
) -> Gate:
    """All boxes, those that are to be measured first, and kept one by one: a later one may be interrupted."""
    kept, measures = Kept(paths.state_dir()), _measures(args, site, store)
    kept.of(place, site.model)  # a damaged file is refused before minutes of measuring
    commands = {name: _command(args, name, words) for name in BOXES}
    wanted = [name for name in BOXES if name in (args.only or BOXES) and (name != _LAST or args.may_end)]
    for name in sorted(wanted, key=lambda name: name == _LAST):
        output.info(f"box {name}: {BOXES[name]} …")

        def keep(lines: tuple[Line, ...], name: str = name) -> None:
            about = {"place": place, "model": site.model, "seal": site.lock.seal, "engine": engine}
            kept.keep(Evidence(box=name, date=evidence.now(), command=commands[name], lines=lines, **about))

        try:
            keep(measures[name]())
        except Failed as error:  # what it ended did not come back: nothing else matters now
            keep(box.line(State.FAILED, error.message, error.next_step))
            raise
        except CorralError as error:
            keep(box.line(State.UNKNOWN, error.message, error.next_step))
    present, at = kept.of(place, site.model), datetime.now(UTC)
    ages = dict.fromkeys(BOXES, args.max_age) | dict.fromkeys(wanted, math.inf)  # what this run measured is not old
    boxes: list[Judged] = [
        evidence.judge(
            *(name, present.get(name)),
            seal=site.lock.seal,
            engine=engine,
            max_age_s=ages[name],
            at=at,
            command=commands[name],
        )
        for name in BOXES
    ]
    return Gate(site.model, place, site.lock.seal, engine, evidence.now(), boxes)


def _engine(reported: str, entry: LockEntry, lock: Lock, local: Running | None) -> str:
    """The engine that runs: its build, as it reported it, with its image or, where it has no build, its program."""
    if entry.intent.engine == "vllm":
        return f"vLLM, {lock.images.get('vllm', UNKNOWN) if local is None else reported}"
    if local is None:
        return f"{reported}, {lock.engine_image or UNKNOWN}"
    build = next((one for one in (local.engine.build, reported) if one != UNKNOWN), None)
    if build:
        return build
    try:
        with local.engine.path.open("rb") as program:
            return f"sha256 {hashlib.file_digest(program, 'sha256').hexdigest()} of {local.engine.path.name}"
    except OSError as error:
        message = f"The engine {local.engine.path} reports no build, and cannot be read: {error.strerror}."
        raise CannotRun(message, next_step="corral engine") from None


def _measures(args: argparse.Namespace, site: Site, store: VersionStore) -> dict[str, Callable[[], tuple[Line, ...]]]:
    """What measures each box."""
    at_once, source = stack.most_at_once(site.entry)
    break_even = stack.given_break_even(args.break_even, site.model) if args.break_even else {}

    def of_stack() -> tuple[Line, ...]:
        card = stack.has_card(site.llama_swap(), site.model, site.entry)
        return stack.judge(site.entry, Inputs(at_once, source, card, **break_even), model=site.model)

    return {
        "stack": of_stack,
        "latency": lambda: answers.latency(site),
        "single": lambda: answers.single(site),
        "users": lambda: answers.users(site, args.users, seconds=args.seconds),
        "sdk": lambda: sdk.sdk(site, args.contract),
        "health": lambda: health.health(site),
        "shutdown": lambda: shutdown.shutdown(site),
        "adapters": lambda: adapters.swap(site, store, may_swap=args.may_swap),
        "monitoring": lambda: monitoring.monitoring(site),
    }


def _command(args: argparse.Namespace, name: str, words: list[str]) -> str:
    """What measures the box *name* again, as it is measured now."""
    own: dict[str, list[str]] = {
        "stack": ["--break-even", str(args.break_even)] if args.break_even else [],
        "users": ["--users", ",".join(map(str, args.users))]
        + (["--seconds", f"{args.seconds:g}"] if args.seconds else []),
        "sdk": [] if args.contract == DOCUMENT else ["--contract", str(args.contract)],
        "shutdown": ["--may-end"],
        "adapters": ["--may-swap"] if args.may_swap else [],
        "monitoring": [] if args.exporter == _EXPORTER else ["--exporter", args.exporter],
    }
    return shlex.join(["corral", "gate", args.model, "--only", name, *own.get(name, ()), *words])


def _local_llama_swap() -> LlamaSwap:
    """That of the local stack as it runs now: each start gives it another key."""
    present = local_stack.running(paths.state_dir())
    if present is None:
        raise CannotRun("No local stack is running any more.", next_step=local_stack.start_command(paths.state_dir()))
    return present.client()


def _at(address: str) -> AbstractContextManager[str]:
    return nullcontext(address)


def _break_even(text: str) -> str:
    if text.lstrip("-").isdecimal():
        options.whole_number(1, stack.MOST_USERS)(text)
    return text


def _boxes(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    if wrong := [name for name in found if name not in BOXES]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is no box: {', '.join(BOXES)}")
    return found
