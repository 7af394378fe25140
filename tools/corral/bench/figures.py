"""What a run shows, by formulas that are printed with it; a figure that it cannot show is None."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from corral.bench.exchange import Sample
from corral.bench.load import Run

FORMULAS = (
    ("TTFT", "arrival of the first content - time at which the request was scheduled (from sent: - time it was sent)"),
    ("TPOT", "(last content - first content) / (output tokens x (pieces - 1) / pieces); one token a piece: / (n - 1)"),
    ("ITL", "seconds between two pieces of content, those of all answers together"),
    ("E2E", "end of the answer - time at which the request was scheduled"),
    ("waiting", "TTFT from sent - the server's own time for the prompt: its queue, a load, the network"),
    (
        "output tokens/s",
        "output tokens of whole answers / seconds from the first request to the end of the last answer",
    ),
    ("prefill, decode", "the server's own (llama.cpp's timings): tokens / seconds, the median of the answers"),
)
"""Each figure as it is computed; tokens are those that the server counted, never pieces."""

QUANTILES = (0.5, 0.95, 0.99)
MOST_LAG_S, LEAST_RATE = 0.010, 0.95
"""Beyond these a run shows its client, and not the server."""


def least_samples(q: float) -> int:
    """How many samples the quantile *q* needs: ten beyond it (p50: 20, p95: 200, p99: 1000)."""
    return math.ceil(round(10 / (1 - q), 6))


def quantile(values: Sequence[float], q: float) -> float:
    """The quantile *q* of *values*, interpolated linearly between two of them."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


@dataclass(frozen=True)
class Spread:
    """How a figure is spread, in seconds: its quantiles by ``QUANTILES``, None where *n* is too small for one."""

    n: int
    quantiles: tuple[float | None, ...]

    @property
    def p50(self) -> float | None:
        """The median."""
        return self.quantiles[0]

    @property
    def p95(self) -> float | None:
        """95 % are at most so large."""
        return self.quantiles[1]

    @property
    def p99(self) -> float | None:
        """99 % are at most so large."""
        return self.quantiles[2]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"n": self.n, "p50": self.p50, "p95": self.p95, "p99": self.p99}


def spread(values: Iterable[float | None]) -> Spread:
    """The quantiles of those of *values* that are known."""
    known = [value for value in values if value is not None]
    found = tuple(quantile(known, q) if len(known) >= least_samples(q) else None for q in QUANTILES)
    return Spread(len(known), found)


def ttft(sample: Sample) -> float | None:
    """Seconds to the first content, from when the request was to be sent."""
    return None if sample.first is None else sample.first - sample.scheduled


def ttft_from_sent(sample: Sample) -> float | None:
    """The same from when it was sent."""
    return None if sample.first is None else sample.first - sample.sent


def tpot(sample: Sample) -> float | None:
    """Seconds for a token of the answer; None: it came in one piece.

    The first piece has its tokens at the first moment, so they do not count: of n tokens in c pieces alike, n / c.
    """
    if sample.first is None or sample.last is None or sample.chunks < 2 or not sample.output_tokens:
        return None
    return (sample.last - sample.first) / (sample.output_tokens * (sample.chunks - 1) / sample.chunks)


def e2e(sample: Sample) -> float:
    """Seconds for the whole answer."""
    return sample.ended - sample.scheduled


def waiting(sample: Sample) -> float | None:
    """Seconds before the first content in which the server did not work on the prompt."""
    arrived = ttft_from_sent(sample)
    if arrived is None or sample.server_prompt_s is None:
        return None
    return max(0.0, arrived - sample.server_prompt_s)


@dataclass(frozen=True)
class Figures:
    """What one level shows.  Seconds; tokens and requests a second.

    Attributes:
        level: its name.
        load: the requests, without the neighbours.
        neighbours: the state of what ran beside it; empty: nothing was started.
        neighbour_cores, neighbour_mib: cores that they kept busy on average, and MiB that they held.
        requests: that were sent.
        failures: how many ended otherwise than whole, by outcome.
        examples: what the server wrote about one of each.
        retry_after: what refusals asked a client to wait, as the server wrote it.
        seconds: that the level took.
        ttft, ttft_from_sent, tpot, itl, e2e, waiting: of whole answers.
        requests_per_s, output_tokens_per_s: of whole answers.
        prefill_per_s, decode_per_s: the server's own, the median.
        prompt_tokens, output_tokens: the median.
        cached_tokens: of all prompts together.
        users: of a closed loop.
        at_once: requests under way at a time, at most.
        lag_p99: of this process's event loop.
        asked_rate, achieved_rate: of an open loop.
        invalid: why the run shows its client and not the server; none: it is valid.
    """

    level: str
    load: str
    neighbours: str
    neighbour_cores: float | None
    neighbour_mib: float | None
    requests: int
    failures: dict[str, int]
    examples: dict[str, str]
    retry_after: tuple[str, ...]
    seconds: float
    ttft: Spread
    ttft_from_sent: Spread
    tpot: Spread
    itl: Spread
    e2e: Spread
    waiting: Spread
    requests_per_s: float
    output_tokens_per_s: float
    prefill_per_s: float | None
    decode_per_s: float | None
    prompt_tokens: float | None
    output_tokens: float | None
    cached_tokens: int
    users: int | None
    at_once: int
    lag_p99: float
    asked_rate: float | None
    achieved_rate: float | None
    invalid: tuple[str, ...]

    @property
    def ok(self) -> int:
        """Whole answers."""
        return self.requests - sum(self.failures.values())

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            name: value.as_json() if isinstance(value, Spread) else value
            for name, value in (vars(self) | {"ok": self.ok}).items()
        }


def of(run: Run) -> Figures:
    """The figures of *run*."""
    whole = [one for one in run.samples if one.is_ok]
    failed = [one for one in run.samples if not one.is_ok]
    lag = quantile(run.lags, 0.99) if run.lags else 0.0
    return Figures(
        level=run.level.name,
        load=run.level.load,
        neighbours=run.level.neighbours.name if run.level.neighbours else "",
        neighbour_cores=run.beside.cores if run.beside else None,
        neighbour_mib=run.beside.mib if run.beside else None,
        requests=len(run.samples),
        failures=dict(sorted(Counter(one.outcome for one in failed).items())),
        examples={one.outcome: one.example for one in reversed(failed) if one.example},
        retry_after=tuple(sorted({one.retry_after for one in failed if one.retry_after})),
        seconds=run.seconds,
        ttft=spread(map(ttft, whole)),
        ttft_from_sent=spread(map(ttft_from_sent, whole)),
        tpot=spread(map(tpot, whole)),
        itl=spread(gap for one in whole for gap in one.gaps),
        e2e=spread(map(e2e, whole)),
        waiting=spread(map(waiting, whole)),
        requests_per_s=len(whole) / run.seconds if run.seconds else 0.0,
        output_tokens_per_s=sum(one.output_tokens or 0 for one in whole) / run.seconds if run.seconds else 0.0,
        prefill_per_s=_median(_prefill(one) for one in whole),
        decode_per_s=_median(_decode(one) for one in whole),
        prompt_tokens=_median(one.prompt_tokens for one in whole),
        output_tokens=_median(one.output_tokens for one in whole),
        cached_tokens=sum(one.cached_tokens or 0 for one in whole),
        users=run.level.users,
        at_once=_most_at_once(run),
        lag_p99=lag,
        asked_rate=run.level.rate,
        achieved_rate=run.achieved_rate,
        invalid=tuple(_invalid(run, lag)),
    )


def _invalid(run: Run, lag: float) -> Iterable[str]:
    if not run.samples:
        yield "no request was sent"
        return
    if run.level.rate is not None and not run.level.at_most:
        late = quantile([one.sent - one.scheduled for one in run.samples], 0.99)
        if late > MOST_LAG_S:
            yield f"requests were sent {1000 * late:.1f} ms late (p99); {1000 * MOST_LAG_S:.0f} ms are the most"
    if lag > MOST_LAG_S:
        yield f"this process was late by {1000 * lag:.1f} ms (p99); {1000 * MOST_LAG_S:.0f} ms are the most"
    if (achieved := run.achieved_rate) is not None and run.level.rate and achieved < LEAST_RATE * run.level.rate:
        yield f"{achieved:.2f} requests a second were sent of {run.level.rate:g}; {LEAST_RATE:.0%} are the least"


def _most_at_once(run: Run) -> int:
    changes = sorted([(one.sent, 1) for one in run.samples] + [(one.ended, -1) for one in run.samples])
    return max(itertools.accumulate(change for _, change in changes), default=0)


def _prefill(one: Sample) -> float | None:
    if not one.server_prompt_s or one.prompt_tokens is None:
        return None
    return (one.prompt_tokens - (one.cached_tokens or 0)) / one.server_prompt_s


def _decode(one: Sample) -> float | None:
    return one.output_tokens / one.server_output_s if one.server_output_s and one.output_tokens else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
