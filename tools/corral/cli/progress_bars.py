"""Shows the progress of work that reports ``corral.agent.progress`` events, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich import progress as rich_progress
from rich.console import Console

from corral import output
from corral.agent import progress
from corral.agent.progress import Event, Report

_TOTAL = "all of it"


@contextmanager
def progress_on_stderr() -> Iterator[Report]:
    """Receives the events: bars on a terminal, plain lines elsewhere."""
    if sys.stderr.isatty():
        with ProgressBars() as bars:
            yield bars
    else:
        yield progress.Lines(output.info)


class ProgressBars:
    """One bar for each file and one for all; what has a sentence of its own stands above them."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}", markup=False),
            rich_progress.BarColumn(),
            rich_progress.DownloadColumn(),
            rich_progress.TransferSpeedColumn(),
            rich_progress.TimeRemainingColumn(),
            console=console or Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, rich_progress.TaskID] = {}
        self._overall = progress.Overall()
        self._retries = progress.RetryFilter()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        self._overall.update(event)
        match event:
            case progress.Planned():
                if event.bytes_missing:
                    self._show(_TOTAL, 0, event.bytes_missing)
            case progress.Downloading():
                self._show(event.name, event.done, event.size)
                self._show(_TOTAL, self._overall.arrived, None)
            case progress.Hashing():
                self._show(f"{event.name}: checking", event.done, event.size)
            case progress.Warming():
                self._show(f"{event.name}: reading", event.done, event.size)
            case progress.Retrying():
                if not self._retries.passes(event):
                    return
            case progress.Finished():
                return
        if line := progress.describe(event):
            self._progress.console.print(output.visible(line), markup=False, highlight=False)

    def _show(self, name: str, done: int, size: int | None) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(output.visible(name), total=size)
        self._progress.update(self._tasks[name], completed=done)
        if done == size and name != _TOTAL:
            self._progress.remove_task(self._tasks.pop(name))
