"""Whether two runs differ: the interval of a bootstrap on the quotient of their quantiles.

The bootstrap draws n of n samples again and again, and takes the quantile of each draw.  The k-th smallest of n draws
of uniform numbers is distributed as Beta(k, n + 1 - k), so each draw is one number of that distribution
(https://en.wikipedia.org/wiki/Order_statistic), and thousands take milliseconds.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from corral.bench.figures import least_samples, quantile

DRAWS = 4000
CONFIDENCE = 0.99
LEAST_CHANGE = 0.05
"""What a machine drifts by between two runs, whatever the interval within each: a smaller change is none."""


def independent(values: Sequence[float]) -> float:
    """How many independent samples *values*, in the order of their requests, are worth.

    Requests that wait in one queue are late together.  By the correlation r of neighbours, n of them are worth
    n (1 - r) / (1 + r): https://en.wikipedia.org/wiki/Effective_sample_size
    """
    n, mean = len(values), sum(values) / len(values)
    variance = sum((one - mean) ** 2 for one in values)
    if n < 3 or math.isclose(min(values), max(values)):
        return float(n)
    r = sum((one - mean) * (other - mean) for one, other in itertools.pairwise(values)) / variance
    return n * (1 - r) / (1 + r) if r > 0 else float(n)


@dataclass(frozen=True)
class Difference:
    """How much larger a quantile is *after* than *before*; 0.2 is 20 %.  The true change is from low to high."""

    before: float
    after: float
    change: float
    low: float
    high: float

    @property
    def is_real(self) -> bool:
        """Whether it is more than chance and drift."""
        return (self.low > 0 or self.high < 0) and abs(self.change) >= LEAST_CHANGE


NO_QUOTIENT = "it was 0 before"


def compare(before: Sequence[float], after: Sequence[float], q: float = 0.5, *, seed: int = 0) -> Difference | None:
    """The difference of the quantile *q*; None: one has too few samples for it.

    Samples are in the order of their requests, and those that depend on each other count less (``independent``).

    Raises:
        ZeroDivisionError: it is 0 *before*, so that no share of it is a difference.
    """
    if not before or not after:
        return None
    worth = independent(before), independent(after)
    if min(worth) < least_samples(q):
        return None
    first, second = quantile(before, q), quantile(after, q)
    if first <= 0:
        raise ZeroDivisionError(NO_QUOTIENT)
    source = random.Random(seed)  # noqa: S311 - no secret
    ordered = sorted(before), sorted(after)
    quotients = sorted(
        _draw(ordered[1], worth[1], q, source) / drawn - 1
        for _ in range(DRAWS)
        if (drawn := _draw(ordered[0], worth[0], q, source)) > 0
    )
    tail = (1 - CONFIDENCE) / 2
    return Difference(first, second, second / first - 1, quantile(quotients, tail), quantile(quotients, 1 - tail))


def _draw(ordered: Sequence[float], worth: float, q: float, source: random.Random) -> float:
    k = max(1.0, math.ceil(q * worth))
    return ordered[min(len(ordered) - 1, int(len(ordered) * source.betavariate(k, max(1.0, worth + 1 - k))))]
