"""Measure how fast a model answers, and for how many at a time.

Each request has a prompt of its own, so that no cache answers it, and asks for exactly so many tokens.  --users is a
closed loop: each user waits for the answer, then sends the next request.  --rate is an open one: requests come at
random times, whatever the answers do, and count from these times.  The formulas are printed with the figures; the
server's own figures stand beside the client's, where it is llama.cpp.  The first request loads the model, and is apart.

An answer counts when it is whole.  A percentile is shown when there are enough answers for it: 20 for p50, 200 for p95,
1000 for p99.  Users begin within a second, or the time of an answer, one after the other.  A run in which this machine
itself was too late shows this machine, and is exit code 4.

Without --endpoint it is the local stack, with --context the llama-swap in that cluster, through a forwarded port, which
adds a few milliseconds.  The key is the operator's own, or CORRAL_API_KEY.  The front door accepts ten requests at a
time for a model; more are 429, and are counted as that.

--budgets measures whether the latency budgets of the models' files are kept: 200 answers for each, with its consumer's
tokens and requests at a time.  One that is not kept gets the shortfall, and what would help.

--speeds measures what the time of any answer is predicted from: prompts of several lengths, and answers side by side up
to the model's slots.  It goes to measured.json and the lock; corral lock and corral plan then state for each latency
budget what it would take, and refuse one that cannot be kept.

--loads also measures loads of a local stack's model: cold ones, whose files are dropped from the page cache before, and
warm ones.  The model is unloaded for each, which ends what it answers then.

--neighbours STATE,... measures each level beside each state of a stand-in for the card's other tenants, on the machine
of the local stack: idle, 50% (computes half of the time on every core), full (all the time, and holds the tenants'
whole budgets).  In a cluster the tenants are real: corral stand-down TENANT --for 1h -- corral bench ... --save FILE,
then --compare with a run beside them.

--report TITLE writes docs/benchmarks/<date>-<title>.md: the figures with plots, a verdict by stated rules against the
model's latency budgets, the machine, the lock, and who held the card meanwhile; every sample lies beside it.

--save keeps every sample, and --compare finds whether a second run differs from a first by more than chance and drift.

exit codes:
  0  measured, and every answer was whole; --compare: no figure is worse; --budgets: all are kept
  1  requests failed; --compare: a figure is worse, or more requests failed; --budgets: one is not kept, or unknown;
     --speeds: a budget cannot be kept
  4  the run is invalid: it shows this client, and not the server

examples:
  corral bench qwen3-8b
  corral bench qwen3-8b --users 1,4,10 --prompt-tokens 800 --answer-tokens 120 --save before.json.gz
  corral bench qwen3-8b --rate 0.5,1 --seconds 120
  corral bench --budgets
  corral bench --speeds qwen3-8b
  corral bench qwen3-8b --users 1 --loads 5
  corral bench qwen3-8b --users 1,2,4,8 --seconds 300 --report "qwen3 8b on the t4"
  corral bench qwen3-8b --users 1,4 --neighbours idle,50%,full --report "qwen3 8b beside tenants"
  corral bench --compare before.json.gz after.json.gz
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corral import __version__, output
from corral.agent.progress import positive_seconds
from corral.cli import endpoints, options
from corral.errors import CannotRun, ExitCode, Refused
from corral.files import refuse_unwritable, require_writable, write_atomically
from corral.smoke.endpoint import require_sendable

if TYPE_CHECKING:
    from corral.bench.figures import Figures
    from corral.bench.load import Level
    from corral.bench.loads import Loader
    from corral.bench.measuring import Measured, Question
    from corral.cli import bench_report
    from corral.cli.endpoints import ServedEndpoint
    from corral.cluster.target import ClusterTarget
    from corral.engine.stack import Running

_MOST_REQUESTS = 1_000_000
_USUAL_SECONDS = 30.0
_MEASURE_AGAIN = (
    "  → Measure again with less other work on this machine, fewer users, a lower --rate, or from another machine"
)
_BESIDE_AGAIN = (
    "  → Measure again with fewer users or a smaller share of the neighbours, or before them, as root: "
    "chrt --reset-on-fork --fifo 5 corral bench …"
)
_LONGER = "  → Measure longer, so that a request is sent: --seconds"
_TOO_FEW = "n too small"
_ANOTHER_FILE = "Name another file with --save"
_OPTIONS = (
    *("users", "rate", "at_most", "seconds", "requests", "prompt_tokens", "answer_tokens", "seed", "loads"),
    *("neighbours", "neighbours_hold"),
)
_LIMITS = {"timeout": 300.0, "silence": 120.0}
"""The usual limits of an answer, in seconds."""
_CONDITIONS = ("prompt_tokens", "answer_tokens", "may_end", "seconds", "requests", "seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL", help="what to measure, one after the other")
    options.add(parser, "--catalog", "--store", "--json")
    endpoints.add_argument(parser)
    load = parser.add_mutually_exclusive_group()
    users = "users at a time, one level after the other (default: 1,10)"
    load.add_argument("--users", type=options.numbers(int, 1, 2000), metavar="N,…", help=users)
    rate = "requests a second, one level after the other"
    load.add_argument("--rate", type=options.numbers(float, 0.001, 10000), metavar="R,…", help=rate)
    most = (
        "with --rate: requests under way at a time; the others wait here, and their wait counts (default: any number)"
    )
    parser.add_argument("--at-most", type=options.whole_number(1, 10000), metavar="N", help=most)
    begin = "time of a level in which requests begin (default: 30; of a budget: 1800)"
    parser.add_argument("--seconds", type=positive_seconds, metavar="SECONDS", help=begin)
    parser.add_argument("--requests", type=options.whole_number(1), metavar="N", help="the most of a level")
    tokens = options.whole_number(1, 1_000_000)
    prompt = "of each prompt, the chat template included (default: 256)"
    parser.add_argument("--prompt-tokens", type=tokens, default=256, metavar="N", help=prompt)
    parser.add_argument("--answer-tokens", type=tokens, default=64, metavar="N", help="of each answer (default: 64)")
    end = "let an answer end by itself before that; for endpoints that refuse ignore_eos"
    parser.add_argument("--may-end", action="store_true", help=end)
    seconds: dict[str, Any] = {"metavar": "SECONDS", "type": positive_seconds}
    parser.add_argument(
        "--timeout", **seconds, default=_LIMITS["timeout"], help="limit of an answer, a load included (default: 300)"
    )
    silence = "an answer without a byte for so long has failed (default: 120)"
    parser.add_argument("--silence", **seconds, default=_LIMITS["silence"], help=silence)
    seed = "of the times of --rate, and of the prompts' words (default: 0)"
    parser.add_argument("--seed", type=options.whole_number(0), default=0, metavar="N", help=seed)
    loads = "so many cold loads and as many warm ones, of a local stack"
    parser.add_argument("--loads", type=options.whole_number(1, 100), metavar="N", help=loads)
    beside = "states of a stand-in for the other tenants, each beside each level: idle, 1%% to 100%%, full"
    parser.add_argument("--neighbours", type=_words, metavar="STATE,…", help=beside)
    hold = "what full holds (default: the budgets of the model's card)"
    parser.add_argument("--neighbours-hold", type=options.whole_number(1), metavar="MIB", help=hold)
    parser.add_argument("--save", metavar="FILE", type=Path, help="keep all samples, as compressed JSON")
    budgets = "measure each latency budget of the models, or of all, with its own tokens and requests at a time"
    parser.add_argument("--budgets", action="store_true", help=budgets)
    speeds = "measure what latency budgets are predicted from, and write it to the catalog's measured.json"
    parser.add_argument("--speeds", action="store_true", help=speeds)
    document = "write docs/benchmarks/<date>-<title>.md, with plots and samples beside it"
    parser.add_argument("--report", metavar="TITLE", type=options.name, help=document)
    compare = "compare two saved runs, and measure nothing"
    parser.add_argument("--compare", nargs=2, metavar=("BEFORE", "AFTER"), type=Path, help=compare)
    options.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, or compare."""
    if args.compare:
        if args.models or args.report or args.budgets or args.speeds:
            nothing = "--compare measures nothing: it has no model, and no --report, --budgets or --speeds."
            raise Refused(nothing, next_step="Leave that out")
        return _compare(*args.compare, as_json=args.json)
    if args.budgets or args.speeds:
        from corral.cli import bench_budgets, bench_speeds

        name = "budgets" if args.budgets else "speeds"
        wrong = ["users", "rate", "at_most", "report", "save", "neighbours", "neighbours_hold"]
        wrong += ["loads", "speeds"] if args.budgets else ["may_end"]
        given = [f"--{option.replace('_', '-')}" for option in wrong if getattr(args, option)]
        if given:
            message = f"--{name} takes users and tokens from the catalog: {given[0]} has no place beside it."
            raise Refused(message, next_step=f"Leave out {given[0]}")
        return bench_budgets.run(args) if args.budgets else bench_speeds.run(args)
    args.seconds = args.seconds or _USUAL_SECONDS
    if not args.models:
        raise Refused("No model was named.", next_step="corral bench MODEL; corral status lists the models")
    if args.save:
        require_writable(args.save, next_step=_ANOTHER_FILE)
    levels, (local, target) = _levels(args), endpoints.named(args)
    options.require_chats(args, local or target, args.models, "bench")
    levels = list(_beside(args, local, target, levels))
    report = _report(args, local, target) if args.report else None
    loaders = _loaders(args, local, target) if args.loads else {}
    with endpoints.opened(args, local, target, command="bench MODEL") as endpoint:
        endpoints.allow_connections(2 * max(args.users or (10,)))
        with report.watch.running() if report else nullcontext():
            measured, error = asyncio.run(_measure(args, endpoint, levels, loaders))
        conditions = _conditions(args, endpoint.url)
        code = _show(args, measured, conditions) if measured else ExitCode.CANNOT_RUN
    if report and measured:
        output.info(f"Written: {report.write(conditions, measured, _question(args))}")
    if error:
        raise error
    return code


def _report(args: argparse.Namespace, local: Running | None, target: ClusterTarget | None) -> bench_report.Report:
    from corral.cli import bench_report

    given = [(f"--{name.replace('_', '-')}", getattr(args, name)) for name in _OPTIONS]
    words = [word for name, value in given if value for word in (name, _word(value))]
    words += ["--may-end"] * args.may_end
    words += [word for name, usual in _LIMITS.items() for word in _unusual(name, getattr(args, name), usual)]
    command = options.again(args, "bench", *args.models, *words, "--report", args.report)
    return bench_report.Report(args.report, args.models, args.catalog, local, target, command)


def _unusual(name: str, value: float, usual: float) -> list[str]:
    return [] if value == usual else [f"--{name}", _word(value)]


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_word, value))
    return value if isinstance(value, str) else f"{value:g}"


async def _measure(
    args: argparse.Namespace, endpoint: ServedEndpoint, levels: Sequence[Level], loaders: Mapping[str, Loader]
) -> tuple[list[Measured], CannotRun | None]:
    """What was measured, and the error of the model that ended it."""
    from corral.bench.exchange import Client
    from corral.bench.measuring import measure

    require_sendable(endpoint.api_key)
    limits = {"silence_s": args.silence, "timeout_s": args.timeout}
    found: list[Measured] = []
    async with Client(endpoint.root, api_key=endpoint.api_key, trust=endpoint.trust, **limits) as client:
        for model in args.models:
            step = f"corral why {model}"
            if args.endpoint:
                step = "Check the address, the model's name, and CORRAL_API_KEY"
            try:
                loads: dict[str, Any] = {"loader": loaders.get(model), "loads_each": args.loads or 0}
                found.append(
                    await measure(client, model, _question(args), levels, output.info, next_step=step, **loads)
                )
            except CannotRun as error:
                return found, error
    return found, None


def _loaders(args: argparse.Namespace, local: Running | None, target: ClusterTarget | None) -> dict[str, Loader]:
    """What prepares the loads of each model."""
    from corral.cli.local_loader import LocalLoader

    if not (local or target or args.endpoint):
        raise _no_stack("--loads", "the page cache is that of the machine that serves")
    if local is None:
        message = "--loads needs the local stack: the page cache is that of the machine that serves."
        raise Refused(message, next_step="corral up --detach here, or leave out --loads")
    lock, store = options.lock_and_store(args, local)
    return {model: LocalLoader(lock, store, model, local.client()) for model in args.models}


def _no_stack(option: str, why: str) -> CannotRun:
    return CannotRun(f"No local stack is running, and {option} needs it: {why}.", next_step="corral up --detach")


def _question(args: argparse.Namespace) -> Question:
    from corral.bench.measuring import Question

    return Question(args.prompt_tokens, args.answer_tokens, args.may_end, args.seed)


def _levels(args: argparse.Namespace) -> list[Level]:
    from corral.bench.load import Level

    for rate in args.rate or ():
        if not args.requests and rate * args.seconds > _MOST_REQUESTS:
            many = f"{rate:g} requests a second for {args.seconds:g} s are more than {_MOST_REQUESTS:,}."
            raise Refused(many, next_step="Name a lower rate, fewer seconds, or --requests")
    how: dict[str, Any] = {"seconds": args.seconds, "requests": args.requests, "seed": args.seed}
    if args.rate:
        return [Level(rate=rate, at_most=args.at_most, **how) for rate in dict.fromkeys(args.rate)]
    if args.at_most:
        raise Refused("--at-most is a limit of --rate; --users is one itself.", next_step="Leave it out")
    return [Level(users=users, **how) for users in dict.fromkeys(args.users or (1, 10))]


def _beside(
    args: argparse.Namespace, local: Running | None, target: ClusterTarget | None, levels: Sequence[Level]
) -> Iterator[Level]:
    """Each of *levels* beside each state of the neighbours that *args* name."""
    from corral.bench import neighbours

    if args.neighbours_hold and neighbours.FULL not in (args.neighbours or ()):
        raise Refused("--neighbours-hold says what --neighbours full holds.", next_step="Leave it out, or add full")
    if not args.neighbours:
        yield from levels
        return
    if not (local or target or args.endpoint):
        raise _no_stack("--neighbours", "a stand-in computes on the machine that serves")
    if local is None:
        message = "--neighbours needs the local stack: its stand-in computes on the machine that serves."
        step = "In a cluster: corral stand-down TENANT --for 1h -- corral bench …, and --compare"
        raise Refused(message, next_step=step)
    mib = args.neighbours_hold or _budgets(args, local) if neighbours.FULL in args.neighbours else 0
    neighbours.require_room(mib, next_step="Let them hold less: --neighbours-hold MIB")
    try:
        states = [neighbours.parse(name, mib) for name in dict.fromkeys(args.neighbours)]
    except ValueError as error:
        raise Refused(f"{error}.", next_step="--neighbours idle,50%,full") from None
    for state in states:
        yield from (replace(level, neighbours=state) for level in levels)


def _budgets(args: argparse.Namespace, local: Running) -> int:
    """MiB that the tenants of the models' card were promised.

    Raises:
        Refused: they are on several cards, or nothing was promised there.
    """
    from corral.lock import lock as locks

    lock = locks.require(options.catalog_dir(args, local))
    if unknown := [model for model in args.models if model not in lock.models]:
        raise Refused(f"The lock has no model {unknown[0]}.", next_step="corral status lists the models")
    cards = {lock.models[model].intent.card for model in args.models}
    step = "Name what they hold: --neighbours-hold MIB"
    if len(cards) > 1:
        raise Refused(f"The models are on several cards: {', '.join(sorted(cards))}.", next_step=step)
    (card,) = cards
    if not (mib := sum(one.budget_mib for one in lock.cards[card].tenants.values())):
        raise Refused(f"No tenant of card {card} has a budget.", next_step=step)
    return mib


def _conditions(args: argparse.Namespace, url: str) -> dict[str, Any]:
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "corral": __version__,
        "endpoint": url,
        **{name: getattr(args, name) for name in _CONDITIONS},
    }


def _show(args: argparse.Namespace, measured: Sequence[Measured], conditions: dict[str, Any]) -> int:
    from corral.bench import figures, loads, saved, table

    levels = [(one.model, figures.of(run)) for one in measured for run in one.runs]
    if args.json:
        output.data_json(saved.document(conditions, measured, with_samples=False))
    else:
        output.table(table.COLUMNS, [table.row(model, one) for model, one in levels])
        for line in table.explained():
            output.info(line)
        if rows := [row for one in measured for row in loads.rows(one.model, one.loads)]:
            output.table(loads.COLUMNS, rows)
        if rows := list(table.beside([(model, one) for model, one in levels if one.neighbours])):
            output.table(table.BESIDE_COLUMNS, rows)
    for note in (note for one in measured for note in loads.notes(one.model, one.loads)):
        output.info(note)
    for model, one in levels:
        for note in _notes(args, one):
            output.info(f"{model}, {one.level}: {note}")
    if args.save:
        whole = saved.document(conditions, measured, with_samples=True)
        with refuse_unwritable(args.save, next_step=_ANOTHER_FILE):
            write_atomically(args.save, saved.pack(whole))
    if invalid := [one for _, one in levels if one.invalid]:
        for way_out in dict.fromkeys(map(_way_out, invalid)):
            output.info(way_out)
        return ExitCode.INVALID
    return ExitCode.FAILED if any(one.failures for _, one in levels) else ExitCode.OK


def _way_out(one: Figures) -> str:
    """What would make the level valid."""
    if not one.requests:
        return _LONGER
    return _BESIDE_AGAIN if one.neighbours else _MEASURE_AGAIN  # the stand-ins are on this machine by design


def _notes(args: argparse.Namespace, one: Figures) -> Iterator[str]:
    from corral.bench.exchange import described

    for outcome, times in one.failures.items():
        wait = f"; Retry-After: {', '.join(one.retry_after)} s" if outcome == "http-429" and one.retry_after else ""
        example = f", for instance: {one.examples[outcome]}" if outcome in one.examples else ""
        yield f"{times} of {one.requests} requests are {described(outcome)}{wait}{example}"
    if one.users and one.requests and one.at_once < one.users:
        yield f"at most {one.at_once} requests were under way at a time: users begin one after the other"
    for what, asked, median in (
        ("prompt", args.prompt_tokens, one.prompt_tokens),
        ("answer", args.answer_tokens, one.output_tokens),
    ):
        if median is not None and abs(median - asked) > 0.1 * asked:
            yield f"half of the {what}s have {median:g} tokens or more, and {asked} were asked for"
    if one.cached_tokens:
        yield f"{one.cached_tokens} tokens of the prompts were in the server's cache"
    for reason in one.invalid:
        yield f"The run is invalid: {reason}."


def _compare(before: Path, after: Path, *, as_json: bool) -> int:
    """Exit code 1 when a figure is worse."""
    from corral.bench import comparison, saved

    first, second = saved.read(before), saved.read(after)
    common = [key for key in first.levels if key in second.levels]
    if not common:
        raise Refused(
            f"{before} and {after} have no model with the same load.", next_step="Measure both with the same options"
        )
    for name in _CONDITIONS:
        values = [one.conditions.get(name) for one in (first, second)]
        if values[0] != values[1]:
            raise Refused(
                f"{name} is {values[0]} in {before} and {values[1]} in {after}: these runs cannot be compared.",
                next_step="Measure both with the same options",
            )
    left_out = sorted(first.levels.keys() ^ second.levels.keys())
    invalid = [(key, reason) for one in (first, second) for key in common for reason in one.levels[key]["invalid"]]
    found = []
    failing = []
    for model, level in common:
        shares = [
            one.levels[model, level]["failed"] / max(1, one.levels[model, level]["requests"]) for one in (first, second)
        ]
        if shares[1] > shares[0]:
            failing.append(f"{model}, {level}: {shares[1]:.1%} of the requests failed, and {shares[0]:.1%} before")
        for name in saved.SERIES:
            for q in (0.5, 0.95):
                samples = [one.levels[model, level][name] for one in (first, second)]
                figure = f"{name.upper()} p{round(100 * q)}"
                try:
                    found.append((model, level, figure, comparison.compare(samples[0], samples[1], q), _TOO_FEW))
                except ZeroDivisionError as error:
                    found.append((model, level, figure, None, str(error)))
    rows = [(model, level, name, *_difference(one, why)) for model, level, name, one, why in found]
    document = [
        {"model": model, "level": level, "figure": name}
        | ({"not_compared": why} if one is None else vars(one) | {"is_real": one.is_real})
        for model, level, name, one, why in found
    ]
    columns = ("model", "load", "figure", "before", "after", "change", "99 % interval", "verdict")
    output.result(document, columns, rows, as_json=as_json)
    for model, level in left_out:
        output.info(f"{model}, {level}: only one of the runs has it")
    for line in failing:
        output.info(line)
    for (model, level), reason in invalid:
        output.info(f"{model}, {level}: A run is invalid: {reason}.")
    if invalid:
        output.info(_MEASURE_AGAIN)
        return ExitCode.INVALID
    if failing or any(one is not None and one.is_real and one.change > 0 for *_, one, _ in found):
        return ExitCode.FAILED
    if all(one is None for *_, one, _ in found):
        raise CannotRun("Nothing could be compared: there are too few answers.", next_step="Measure longer: --seconds")
    return ExitCode.OK


def _difference(one: Any, why: str) -> tuple[str, ...]:
    if one is None:
        return ("-", "-", "-", "-", why)
    verdict = "no difference" if not one.is_real else "slower" if one.change > 0 else "faster"
    times = (f"{1000 * value:.2f} ms" for value in (one.before, one.after))
    return (*times, f"{one.change:+.1%}", f"{one.low:+.1%} to {one.high:+.1%}", verdict)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))
