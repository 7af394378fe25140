"""Showing the progress of work that reports ``corral.agent.progress`` events, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from corral import output
from corral.agent.progress import (
    Downloading,
    Event,
    Finished,
    Hashing,
    Lines,
    Overall,
    Planned,
    Report,
    RetryFilter,
    Retrying,
    Warming,
    describe,
)

_TOTAL = "all of it"


@contextmanager
def progress_on_stderr() -> Iterator[Report]:
    """What to report to: bars on a terminal, plain lines elsewhere."""
    if sys.stderr.isatty():
        with ProgressBars() as bars:
            yield bars
    else:
        yield Lines(output.info)


class ProgressBars:
    """One bar for each file and one for all; what has a sentence of its own stands above them."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._overall = Overall()
        self._retries = RetryFilter()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        """Show *event*."""
        self._overall.update(event)
        match event:
            case Planned():
                if event.bytes_missing:
                    self._show(_TOTAL, 0, event.bytes_missing)
            case Downloading():
                self._show(event.name, event.done, event.size)
                self._show(_TOTAL, self._overall.arrived, None)
            case Hashing():
                self._show(f"{event.name}: checking", event.done, event.size)
            case Warming():
                self._show(f"{event.name}: reading", event.done, event.size)
            case Retrying():
                if not self._retries.passes(event):
                    return
            case Finished():
                return
        line = describe(event)
        if line:
            self._progress.console.print(line, markup=False, highlight=False)

    def _show(self, name: str, done: int, size: int | None) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=size)
        self._progress.update(self._tasks[name], completed=done)
        if done == size and name != _TOTAL:
            self._progress.remove_task(self._tasks.pop(name))
