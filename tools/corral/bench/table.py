"""The figures of levels as a table, and what its columns are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from corral.bench import figures
from corral.bench.figures import Figures, Spread

COLUMNS = (
    *("model", "load", "ok", "failed", "TTFT p50", "p95", "p99", "TPOT p50", "p95", "E2E p50", "p95"),
    *("output tokens/s", "prefill tokens/s", "decode tokens/s", "waiting p50"),
)
"""The headings of ``row``."""

BESIDE_COLUMNS = (
    *("model", "load", "neighbours", "cores they kept busy", "MiB they held"),
    *("TTFT p50", "E2E p50", "against the first", "output tokens/s"),
)
"""The headings of ``beside``."""


def row(model: str, one: Figures) -> tuple[str, ...]:
    """The cells of a level of *model*."""
    return (
        *(model, one.level, str(one.ok), str(one.requests - one.ok)),
        *(_time(one.ttft, q) for q in (0, 1, 2)),
        *(_time(one.tpot, q) for q in (0, 1)),
        *(_time(one.e2e, q) for q in (0, 1)),
        f"{one.output_tokens_per_s:.1f}",
        *("-" if value is None else f"{value:.1f}" for value in (one.prefill_per_s, one.decode_per_s)),
        _time(one.waiting, 0) if one.waiting.n else "-",
    )


def beside(levels: Sequence[tuple[str, Figures]]) -> Iterator[tuple[str, ...]]:
    """The cells of each of *levels*, with its model, that ran beside neighbours; times also as shares of the first."""
    firsts: dict[tuple[str, str], float | None] = {}
    for model, one in levels:
        first = firsts.setdefault((model, one.load), one.e2e.p50)
        share = f"{one.e2e.p50 / first:.2f} x" if one.e2e.p50 and first else "n too small"
        yield (
            *(model, one.load, one.neighbours, f"{one.neighbour_cores or 0:.2f}", f"{one.neighbour_mib or 0:.0f}"),
            *(_time(one.ttft, 0), _time(one.e2e, 0), share, f"{one.output_tokens_per_s:.1f}"),
        )


def explained() -> Iterator[str]:
    """The formula of each column, and when a percentile has too few samples."""
    for name, formula in figures.FORMULAS:
        yield f"{name} = {formula}"
    least = ", ".join(f"p{100 * q:g} {figures.least_samples(q)}" for q in figures.QUANTILES)
    yield f"n too small: a percentile needs ten answers beyond it ({least})"


def _time(spread: Spread, q: int) -> str:
    value = spread.quantiles[q]
    if value is None:
        return "n too small"
    return f"{1000 * value:.1f} ms" if value < 10 else f"{value:.1f} s"
