"""Simulate 1 to 10,000 users on one to many cards, fed by measured speeds; and measure how far the simulation is off.

    answers a second and the median time    within 20 % of what corral bench measures, for 1 to 50 users

It measures the speeds of a real model (as corral bench --speeds does), then lets users in a closed loop ask it (as
corral bench --users does), simulates the same users, and prints both.  Then it prints how many cards keep the time of
95 of 100 answers, for more and more users who think between their requests.

    python tools/benchmarks/scale.py [--small]

Nothing is measured for a model of a catalog that has its speeds (corral bench --speeds):

    python tools/benchmarks/scale.py --catalog terraform/catalog qwen3-8b

The tables of docs/architecture/scale.md come from speeds that were measured once and kept (--save, on a quiet
machine), so that they can be made again on any machine:

    python tools/benchmarks/scale.py --save          measure the speeds alone, and keep them
    python tools/benchmarks/scale.py --page          write them
    python tools/benchmarks/scale.py --page --check  compare them: exit code 1 where they differ
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from scale_support import page  # noqa: E402
from scale_support.card import Model  # noqa: E402
from scale_support.fleet import Load, Outcome, simulate  # noqa: E402
from scale_support.table import TABLE_USERS, table  # noqa: E402

from corral.bench import figures, speeds  # noqa: E402
from corral.bench.exchange import Client  # noqa: E402
from corral.bench.load import Level  # noqa: E402
from corral.bench.measuring import Question, measure  # noqa: E402
from corral.catalog import ledger  # noqa: E402
from corral.catalog.intent import Model as Intent  # noqa: E402
from corral.catalog.ledger import CPU, Speed  # noqa: E402
from corral.demo.smollm2 import SMOLLM2  # noqa: E402
from corral.errors import CannotRun, CorralError, Refused  # noqa: E402
from corral.lock import lock  # noqa: E402
from tests.support.engine_process import engine  # noqa: E402

GOAL = 0.20
SLOTS = 4
CONTEXT, SMALL_CONTEXT = 512, 256
PROMPT, ANSWER = 48, 16
USERS, SMALL_USERS = (1, 2, 5, 10, 20, 50), (1, 4, 10)
NAMES = {"model": "smollm2", "card": "none", "argv_sha256": "0" * 64, "engine": "the embedded one", "device": CPU}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="up to ten users, as CI runs it")
    parser.add_argument("--catalog", type=Path, metavar="DIR", help="with a model: its speeds, and no measurement")
    parser.add_argument(
        "--save", action="store_true", help=f"measure the speeds alone, and keep them for --page: {page.SPEEDS.name}"
    )
    parser.add_argument("--page", action="store_true", help=f"make the tables of {page.PAGE.name} again")
    parser.add_argument("--check", action="store_true", help="of --page: only compare")
    parser.add_argument("model", nargs="?", metavar="MODEL", help="of that catalog")
    args = parser.parse_args()
    if (args.catalog is None) != (args.model is None):
        parser.error("--catalog DIR and MODEL go together")
    if args.check and not args.page:
        parser.error("--check is for --page")
    try:
        if args.page:
            return page.compare() if args.check else page.write()
        return (
            of_catalog(args.catalog, args.model)
            if args.catalog
            else kept()
            if args.save
            else measured(small=args.small)
        )
    except CorralError as error:
        sys.exit(f"scale: {error.message}  {error.next_step}")


def of_catalog(catalog: Path, model: str) -> int:
    """The table of a *model* of the folder *catalog*, by the speed of its locked command line."""
    if (entry := lock.require(catalog).models.get(model)) is None:
        raise Refused(f"The lock of {catalog} has no model {model}.", next_step="corral validate")
    if (speed := ledger.read(catalog).speed(model, entry.argv, entry.intent.card)) is None:
        raise CannotRun(f"{model} has no speed of its locked command line.", next_step=f"corral bench --speeds {model}")
    print(table(speed, entry.intent.parallel, TABLE_USERS))
    return 0


def kept() -> int:
    """Measure the speeds and a load, and keep them for the page."""
    before = f"{platform.machine()}, {os.cpu_count()} cores, {load()}"
    with served(CONTEXT) as (root, load_seconds):
        speed = asyncio.run(speeds_alone(root, CONTEXT))
    text = f"measured {datetime.now(UTC):%Y-%m-%d} on {before}, at the end {load()}"
    page.save(speed.model_copy(update={"load_seconds": round(load_seconds, 2)}), SLOTS, text)
    return 0


def measured(*, small: bool) -> int:
    """Measure, simulate and compare; the exit code."""
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {load()}")
    levels, context = (SMALL_USERS, SMALL_CONTEXT) if small else (USERS, CONTEXT)
    with served(context) as (root, _):
        speed, found = asyncio.run(run(root, levels, context))
    print(f"at the end {load()}")
    worst = max(max(abs(one["error_answers"]), abs(one["error_p50"])) for one in found)
    print(f"the largest error is {worst:.0%}; goal: {GOAL:.0%}")
    users = tuple(one for one in TABLE_USERS if one <= 100) if small else TABLE_USERS
    print(table(speed, SLOTS, users))
    return 0 if worst <= GOAL else 1


@contextlib.contextmanager
def served(context: int) -> Iterator[tuple[str, float]]:
    """The address of an engine of the real model, ready, and the seconds that its start took."""
    weights = SMOLLM2.bring(print)
    with tempfile.TemporaryDirectory() as folder:
        flags = ("-m", weights, "--parallel", str(SLOTS), "-c", str(SLOTS * context), "-t", "2")
        began = time.monotonic()
        with engine(Path(folder), *flags) as running:
            running.wait_until_ready()
            yield running.root, time.monotonic() - began


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


async def speeds_alone(root: str, context: int) -> Speed:
    """The speeds of the engine at *root*."""
    async with Client(root, silence_s=600, timeout_s=1200) as client:
        return await speeds_of(client, context)


async def speeds_of(client: Client, context: int) -> Speed:
    """The same of *client*'s engine."""
    plain = {"source": {"path": "model.gguf"}, "card": "none", "context": context, "modalities": ["text"]}
    intent = Intent.model_validate(plain | {"parallel": SLOTS})
    answers = figures.least_samples(0.5)
    found = await speeds.run(client, "m", intent, quiet, seconds=3600, answers=answers, next_step="")
    return speeds.speed(found, date=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", **NAMES)


async def run(root: str, levels: Sequence[int], context: int) -> tuple[Speed, list[dict[str, Any]]]:
    """The speeds of the engine, and of each level of users what was measured beside what is simulated."""
    least = figures.least_samples(0.5)
    found = []
    async with Client(root, silence_s=600, timeout_s=1200) as client:
        speed = await speeds_of(client, context)
        for users in levels:
            level = Level(users=users, seconds=3600, requests=least + 3 * users)
            result = await measure(client, "m", Question(PROMPT, ANSWER), [level], quiet, next_step="")
            samples = sorted(result.runs[0].samples, key=lambda one: one.sent)
            steady = samples[users : len(samples) - users]
            ends = sorted(one.sent + figures.e2e(one) for one in samples)
            window = ends[users:-users]
            simulated = closed_loop(speed, users, statistics.median(one.prompt_tokens or 0 for one in steady))
            one = {
                "users": users,
                "answers": len(steady),
                "p50": statistics.median(map(figures.e2e, steady)),
                "answers_per_second": (len(window) - 1) / (window[-1] - window[0]),
                "simulated_p50": simulated.p50,
                "simulated_answers_per_second": simulated.answers_per_second,
            }
            one["error_p50"] = simulated.p50 / one["p50"] - 1
            one["error_answers"] = simulated.answers_per_second / one["answers_per_second"] - 1
            found.append(one)
            print(
                f"{users:2d} users  p50 {one['p50']:6.2f} s, simulated {simulated.p50:6.2f} s ({one['error_p50']:+.0%})"
                f"  {one['answers_per_second']:5.2f} answers/s, simulated {simulated.answers_per_second:5.2f}"
                f" ({one['error_answers']:+.0%})"
            )
    return speed, found


def closed_loop(speed: Speed, users: int, prompt_tokens: float) -> Outcome:
    """*users* who do not think, on one card that refuses no request."""
    of = Load(users, 0.0, prompt_tokens, ANSWER, {"m": 1.0})
    models = {"m": Model(speed, SLOTS, "m", 0.0)}
    return simulate(of, models, cards=1, requests=max(1000, 20 * users), at_most=users + 1, seed=0)


def quiet(_: str) -> None:
    """What a measurement reports is not of interest."""


if __name__ == "__main__":
    sys.exit(main())
