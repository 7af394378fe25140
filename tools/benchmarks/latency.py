"""Measure how well the time of an answer is predicted from a benchmark: a real model, 12 shapes of a request.

    predicted medians     within 15 % of the measured ones, by the median of the shapes

beside the same shapes predicted from the speeds that an engine reports: prompt / prefill + answer / decode, as if each
request were alone.  What is predicted for 95 of 100 answers stands beside the part of the answers that took no longer.

    python tools/benchmarks/latency.py [--small] [--answers 40]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

from corral.bench import figures, speeds  # noqa: E402
from corral.bench.exchange import Client, Sample  # noqa: E402
from corral.bench.load import Level  # noqa: E402
from corral.bench.measuring import Question, measure  # noqa: E402
from corral.catalog.intent import Model  # noqa: E402
from corral.catalog.ledger import CPU, Speed  # noqa: E402
from corral.demo.smollm2 import SMOLLM2  # noqa: E402
from corral.latency.prediction import answer_seconds  # noqa: E402
from tests.support.engine_process import engine  # noqa: E402

GOAL = 0.15
SLOTS = 2
SHAPES = tuple(itertools.product((48, 200, 700), (8, 48), (1, SLOTS)))
CONTEXT = 1024
SMALL_SHAPES, SMALL_CONTEXT = tuple(itertools.product((48, 120), (8,), (1, SLOTS))), 200
LEAST = figures.least_samples(0.5)
NAMES = {"model": "m", "card": "none", "argv_sha256": "0" * 64, "engine": "the embedded one", "device": CPU}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="four short shapes, as CI runs it")
    parser.add_argument("--answers", type=int, default=40, help="of each shape; from 40 on with a p95 (default: 40)")
    args = parser.parse_args()
    shapes, context = (SMALL_SHAPES, SMALL_CONTEXT) if args.small else (SHAPES, CONTEXT)
    each = LEAST if args.small else args.answers
    weights = SMOLLM2.bring(print)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {load()}")
    flags = ("-m", weights, "--parallel", str(SLOTS), "-t", "2")  # -c is 2048, of all slots
    with tempfile.TemporaryDirectory() as folder, engine(Path(folder), *flags) as running:
        running.wait_until_ready()
        found = asyncio.run(run(running.root, shapes, intent(context), each))
    print(f"at the end {load()}")
    return 0 if found <= GOAL else 1


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def intent(context: int) -> Model:
    """The model as a catalog has it, with slots of *context* tokens."""
    plain = {"source": {"path": "model.gguf"}, "card": "none", "context": context, "modalities": ["text"]}
    return Model.model_validate(plain | {"parallel": SLOTS})


async def run(root: str, shapes: Sequence[tuple[int, int, int]], model: Model, each: int) -> float:
    """The median error over *shapes*, each measured with *each* answers."""
    answers = speeds.ANSWERS if each >= 40 else LEAST
    async with Client(root, silence_s=120, timeout_s=600) as client:
        measured = await speeds.run(client, "m", model, quiet, seconds=3600, answers=answers, next_step="")
        known = speeds.speed(measured, date="2026-01-01T00:00:00Z", **NAMES)
        alone = [one for shape, run in measured.of.items() if shape.at_once == 1 for one in run.samples]
        prefill = statistics.median((one.prompt_tokens or 0) / (one.server_prompt_s or 1) for one in alone)
        decode = statistics.median((one.output_tokens or 0) / (one.server_output_s or 1) for one in alone)
        errors, plain = [], []
        for prompt, answer, users in shapes:
            level = Level(users=users, seconds=3600, requests=each)
            result = await measure(client, "m", Question(prompt, answer), [level], quiet, next_step="")
            samples = sorted(result.runs[0].samples, key=lambda one: one.sent)[users:-users]
            seconds = statistics.median(map(figures.e2e, samples))
            tokens = statistics.median(one.prompt_tokens or 0 for one in samples)
            found = answer_seconds(known, prompt_tokens=tokens, answer_tokens=answer, at_once=users, parallel=SLOTS)
            assert found
            errors.append(found / seconds - 1)
            plain.append((tokens / prefill + answer / decode) / seconds - 1)
            shape = f"prompt {prompt:3d}, answer {answer:2d}, {users} at once"
            times = f"predicted {found:5.2f} s, measured {seconds:5.2f} s ({errors[-1]:+.0%}; alone {plain[-1]:+.0%})"
            print(f"{shape}  {times}{within(known, found, samples)}")
    median, other = (statistics.median(map(abs, one)) for one in (errors, plain))
    print(f"median error {median:.1%}, the largest {max(map(abs, errors)):.1%}; goal: {GOAL:.0%}")
    print(f"as if each request were alone: {other:.1%}; {median / other:.2f} x")
    return median


def within(known: Speed, predicted: float, samples: list[Sample]) -> str:
    """The part of *samples* that took no longer than is predicted for 95 of 100."""
    if known.p95_ratio is None:
        return ""
    most = predicted * known.p95_ratio
    return f"  {sum(figures.e2e(one) <= most for one in samples) / len(samples):4.0%} within {most:5.2f} s"


def quiet(_: str) -> None:
    """What a measurement reports is not of interest."""


if __name__ == "__main__":
    sys.exit(main())
