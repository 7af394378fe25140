"""How long a load takes: with the model's files in the page cache, and without."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from corral.bench.exchange import Sample, described
from corral.errors import CannotRun

COLUMNS = ("model", "load", "n", "shortest", "median", "longest", "MiB", "in memory before", "MiB/s")
"""The headings of ``rows``."""
_MIB = 1 << 20
_MOST_COLD, _LEAST_WARM = 0.05, 0.95


@dataclass(frozen=True)
class Load:
    """One load.

    Attributes:
        cold: whether the files were to be dropped from the page cache before it.
        bytes: of the files.
        cached: those of them that the page cache had before it, as the kernel reports.
        seconds: from the request that caused it to the first content of its answer.
    """

    cold: bool
    bytes: int
    cached: int
    seconds: float

    @property
    def is_as_wanted(self) -> bool:
        """Whether the page cache had nearly nothing of a cold one, and nearly everything of a warm one."""
        share = self.cached / max(1, self.bytes)
        return share <= _MOST_COLD if self.cold else share >= _LEAST_WARM


class Loader(Protocol):
    """Unloads a model and prepares its files."""

    def prepare(self, *, cold: bool) -> tuple[int, int]:
        """Unload the model, and drop its files from the page cache or read them into it: their bytes, those in it."""


async def measure(
    send: Callable[[], Awaitable[Sample]], loader: Loader, count: int, report: Callable[[str], None], *, model: str
) -> tuple[Load, ...]:
    """*count* cold loads of *model* and as many warm ones, in turn.

    Raises:
        CannotRun: an answer is not whole, or the page cache cannot be read or changed.
    """
    found = []
    for number in range(1, count + 1):
        for cold in (True, False):
            report(f"{model}: {'cold' if cold else 'warm'} load {number} of {count} …")
            size, cached = await asyncio.to_thread(loader.prepare, cold=cold)
            sample = await send()
            if not sample.is_ok or sample.first is None:
                message = f"{model} gave no whole answer while it was loaded, but {described(sample.outcome)}"
                raise CannotRun(message, next_step=f"corral why {model}")
            found.append(Load(cold, size, cached, sample.first - sample.sent))
    return tuple(found)


def summary(loads: Sequence[Load]) -> Iterator[dict[str, Any]]:
    """The cold loads of a model and its warm ones, for programs: seconds, bytes, bytes a second by the median."""
    for cold in (True, False):
        of = [one for one in loads if one.cold is cold]
        if not of:
            continue
        times, median = [one.seconds for one in of], statistics.median(one.seconds for one in of)
        yield {
            "cold": cold,
            "n": len(of),
            "shortest": min(times),
            "median": median,
            "longest": max(times),
            "bytes": of[0].bytes,
            "cached": max(one.cached for one in of) if cold else min(one.cached for one in of),
            "bytes_per_second": of[0].bytes / median if median else None,
            "as_wanted": all(one.is_as_wanted for one in of),
            "loads": [asdict(one) for one in of],
        }


def rows(model: str, loads: Sequence[Load]) -> Iterator[tuple[str, ...]]:
    """The same for people, under ``COLUMNS``."""
    for one in summary(loads):
        share, speed = one["cached"] / max(1, one["bytes"]), one["bytes_per_second"]
        yield (
            model,
            "cold" if one["cold"] else "warm",
            str(one["n"]),
            *(f"{one[name]:.2f} s" for name in ("shortest", "median", "longest")),
            f"{one['bytes'] / _MIB:,.0f}",
            f"{share:.0%}",
            "-" if speed is None else f"{speed / _MIB:,.0f}",
        )


def notes(model: str, loads: Sequence[Load]) -> Iterator[str]:
    """Why a figure is not what its name says."""
    for one in summary(loads):
        if one["as_wanted"]:
            continue
        share, why = one["cached"] / max(1, one["bytes"]), "the page cache kept no more; its warm loads are none"
        if one["cold"]:
            why = "another process has them mapped, or they are in a file system in memory; its cold loads are none"
        yield f"{model}: {share:.0%} of its files were in the page cache: {why}"
