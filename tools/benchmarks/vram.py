"""Compare corral's prediction of a model's memory with the engine's own figures, to the byte, and time it.

    golden cells        weights, context and compute equal in bytes, on the card and on the host; projectors too
    rules on top        never more than 0.1 % below the engine's own figure
    Qwen3-8B, 16k       within 3 % of the 6996 MiB of a live Tesla T4
    time                <= 0.5 s for a model, <= 0.5 s with its ladder of contexts, <= 5 s for its 15 cells

    python tools/benchmarks/vram.py [--small] [--rounds 5] [--golden FILE [--models DIR]]

--golden names another file of the same form, --models a folder with its models (<name>.gguf, complete or header-only);
without it, they are written from their published shapes.  A table at the end compares corral with other estimators.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1])]

from corral.agent.lock_file import LockedFile  # noqa: E402
from corral.catalog.argv import llama_server_argv  # noqa: E402
from corral.catalog.intent import Model  # noqa: E402
from corral.vram import oracle  # noqa: E402
from corral.vram.gguf_header import GgufHeader, HeaderIncomplete, canonical, parse  # noqa: E402
from corral.vram.predict import predict_model, total  # noqa: E402
from corral.vram.rules import rules  # noqa: E402
from tests.support import gguf_models  # noqa: E402

MIB = 1 << 20
GOLDEN = Path(__file__).parents[1] / "tests" / "fixtures" / "vram-golden-b11549.json"
LIVE_MODEL, LIVE_CONTEXT, LIVE_MIB = "qwen3-8b-q4km", 16384, 6996
GOAL_BELOW, GOAL_LIVE, GOAL_MODEL_S, GOAL_CELLS_S = 0.001, 0.03, 0.5, 5.0

# Errors in percent of llama.cpp's own total at b11434, without the CUDA context, -np 1 -fa on -ub 512: fit-params,
# gguf-parser-go (2026-07-13, without its constant of 250 MiB), Ollama (2026-08-21), 1.2 x the file.
# docs/benchmarks/vram.md has their sources.
ESTIMATORS = ("fit-params", "gguf-parser", "Ollama", "1.2 x file")
FIELD: dict[str, tuple[int, tuple[float | None, ...]]] = {
    "qwen3-8b-q4km": (16384, (3.3, 7.7, 3.1, -16.5)),
    "qwen3-4b-q4km": (16384, (5.0, 11.5, -20.1, -40.3)),
    "qwen3vl-8b-q4km": (16384, (4.2, 5.7, 1.2, -18.0)),
    "llama-3.1-8b-q4km": (16384, (2.5, 6.5, 2.3, -14.6)),
    "qwen2.5-7b-q4km": (16384, (3.6, 9.4, 2.6, 2.6)),
    "gemma3-4b-q4km": (16384, (15.3, 40.5, 71.9, -4.0)),
    "gpt-oss-20b-mxfp4": (32768, (2.7, 12.6, 6.4, 16.7)),
    "qwen3-30b-a3b-q4km": (16384, (1.2, 2.8, -3.7, 10.8)),
    "qwen3.6-27b-q2k": (32768, (3.2, 56.5, 39.8, 0.6)),
    "deepseek-v2-lite-q4km": (32768, (1.3, -0.7, -5.4, 8.4)),
    "qwen3-0.6b-q8": (8192, (18.0, 37.9, None, None)),
}


@dataclass
class Equality:
    """The number of equal cells, and the worst unequal one."""

    cells: int = 0
    equal: int = 0
    different: list[str] = field(default_factory=list)
    lowest: float = 1.0

    def add(self, name: str, found: Any, expected: Any) -> None:
        self.cells += 1
        self.equal += found == expected
        if found != expected:
            self.different.append(f"{name}: {found} instead of {expected}")


def header_of(name: str, folder: Path | None) -> GgufHeader:
    """The stripped header of a model, as the lock would keep it."""
    whole = gguf_models.header(name) if folder is None else read_header(folder / f"{name}.gguf")
    return parse(canonical(whole))


def read_header(path: Path) -> GgufHeader:
    """The header of a file; the rest is not read."""
    size, length = path.stat().st_size, 1 << 20
    with path.open("rb") as file:
        while True:
            file.seek(0)
            try:
                return parse(file.read(length), file_size=size)
            except HeaderIncomplete as error:
                length = max(2 * length, error.needed_at_least)


def argv_of(*more: str, context: int = LIVE_CONTEXT) -> list[str]:
    """A command line for the table."""
    return [
        "-m",
        "m.gguf",
        "-c",
        str(context),
        "-np",
        "1",
        "-fa",
        "on",
        "-fit",
        "off",
        "-ngl",
        "99",
        "--offline",
        *more,
    ]


def compare(golden: dict[str, Any], folder: Path | None) -> Equality:
    """Every cell of every model, and of every projector."""
    result = Equality()
    for name, cells in golden["models"].items():
        header = header_of(name, folder)
        argvs = [cell["argv"] for cell in cells]
        for cell, found in zip(cells, oracle.ask([header], argvs), strict=True):
            result.add(f"{name} {' '.join(cell['argv'][2:])}", sides(found), (cell["gpu"], cell["host"]))
            own = max(sum(cell["gpu"].values()), found.cuda.total if found.cuda else 0)
            result.lowest = min(result.lowest, total(found, rules([header], found)) / own)
    for name, cells in golden.get("mmproj", {}).items():
        # A projector's memory does not depend on its model.
        headers = [header_of(next(iter(golden["models"])), folder), header_of(name, folder)]
        for cell in cells:
            limit = cell["image_max_tokens"]
            argv = argv_of("--mmproj", "p.gguf", *([] if limit is None else ["--image-max-tokens", str(limit)]))
            (found,) = oracle.ask(headers, [argv])
            host = cell["bytes"]["CPU"]
            card = sum(cell["bytes"].values()) - host
            result.add(f"{name} {limit}", (found.gpu.projector, found.host.projector), (card, host))
    return result


def sides(found: oracle.Breakdown) -> tuple[dict[str, int], dict[str, int]]:
    """The card's and the host's bytes by the names of the golden file."""
    card, host = (
        {"model": side.weights, "context": side.context, "compute": side.compute} for side in (found.gpu, found.host)
    )
    return card, host


def seconds(rounds: int, work: Callable[[], object]) -> tuple[float, float]:
    """Medians of *work*: wall-clock time, and the processor's."""
    taken = []
    for _ in range(rounds):
        start, busy = time.perf_counter(), processor()
        work()
        taken.append((time.perf_counter() - start, processor() - busy))
    wall, cpu = zip(*taken, strict=True)
    return statistics.median(wall), statistics.median(cpu)


def processor() -> float:
    """Seconds of processor that this process and its children have had."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def with_ladder(name: str, header: GgufHeader) -> Callable[[], object]:
    """What `corral lock` does for one model."""
    source = {"repo": "org/name", "quant": "Q4_K_M"}
    intent = {"source": source, "card": "t4", "context": 4096, "modalities": ["text"]}
    model, files = Model.model_validate(intent), [LockedFile(f"{name}.gguf", "model", 1, "0" * 64)]
    argv = llama_server_argv("m", model, files)
    return lambda: predict_model("m", model, files, [header], argv, names=())


def slowest(goal: float, rounds: int, works: dict[str, Callable[[], object]]) -> tuple[str, bool]:
    """A sentence with the largest median and its model, and whether it meets *goal*."""
    (wall, cpu), name = max((seconds(rounds, work), name) for name, work in works.items())
    return f"{wall:.3f} s, {cpu:.3f} s of processor ({name}); goal: {goal:g} s", wall <= goal


def table() -> None:
    """Print corral's errors (without the CUDA context, as for the others) beside those of other estimators."""
    print(
        f"\n{'model':22} {'context':>7} {'engine MiB':>10} {'corral':>8} "
        + " ".join(f"{name:>11}" for name in ESTIMATORS)
    )
    for name, (context, errors) in FIELD.items():
        header, argv = header_of(name, None), argv_of(context=context)
        (found,) = oracle.ask([header], [argv])
        rows = [rule for rule in rules([header], found) if rule.name != "cuda-context-and-pools"]
        own = 100 * (total(found, rows) / found.gpu.total - 1)
        others = " ".join(f"{'-' if error is None else f'{error:+.1f} %':>11}" for error in errors)
        print(f"{name:22} {context:7} {found.gpu.total / MIB:10.1f} {own:+6.1f} % {others}")


def report(goals: Sequence[tuple[str, str, bool]]) -> bool:
    """Print each goal; whether all are met."""
    for what, measured, met in goals:
        print(f"{what:22} {measured}{'' if met else '   MISSED'}")
    return all(met for _, _, met in goals)


def main() -> int:
    """Print the figures; return 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="one round, and two models for the times")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--golden", type=Path, default=GOLDEN)
    parser.add_argument("--models", type=Path, help="a folder with <name>.gguf for every model of --golden")
    args = parser.parse_args()
    rounds = 1 if args.small else args.rounds
    golden = json.loads(args.golden.read_text())
    names = [*golden["models"], *golden.get("mmproj", {})]
    missing = [name for name in names if args.models and not (args.models / f"{name}.gguf").is_file()]
    if missing:
        parser.error(
            f"{args.models} has no {', '.join(f'{name}.gguf' for name in missing)}; every model needs its file"
        )
    equality = compare(golden, args.models)
    names = list(golden["models"])[: 2 if args.small else None]
    headers = {name: header_of(name, args.models) for name in names}
    argvs = {name: [cell["argv"] for cell in golden["models"][name]] for name in names}

    def asking(name: str, count: int | None) -> Callable[[], object]:
        return lambda: oracle.ask([headers[name]], argvs[name][:count])

    one = slowest(GOAL_MODEL_S, rounds, {name: asking(name, 1) for name in names})
    ladder = slowest(GOAL_MODEL_S, rounds, {name: with_ladder(name, headers[name]) for name in names})
    cells = slowest(GOAL_CELLS_S, rounds, {name: asking(name, None) for name in names})
    live_header, live_argv = header_of(LIVE_MODEL, None), argv_of()
    (live,) = oracle.ask([live_header], [live_argv])
    live_mib = total(live, rules([live_header], live)) / MIB

    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{machine}, Python {platform.python_version()}, median of {rounds}")
    print(f"{oracle.ENGINE}; {args.golden.name}: {golden['engine']}")
    for line in equality.different[:10]:
        print(f"  {line}")
    met = report(
        [
            (
                "golden cells",
                f"{equality.equal} of {equality.cells} equal in bytes",
                equality.equal == equality.cells > 0,
            ),
            (
                "rules on top",
                f"at least {100 * (equality.lowest - 1):+.2f} % of the engine's own; goal: -{100 * GOAL_BELOW:g} %",
                equality.lowest >= 1 - GOAL_BELOW,
            ),
            (
                "Qwen3-8B, 16k",
                f"{live_mib:.0f} MiB, {100 * (live_mib / LIVE_MIB - 1):+.2f} % of {LIVE_MIB} MiB live; goal: 3 %",
                abs(live_mib / LIVE_MIB - 1) <= GOAL_LIVE,
            ),
            ("one model", *one),
            ("with its ladder", *ladder),
            ("all its cells", *cells),
        ]
    )
    table()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
