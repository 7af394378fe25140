"""What the document of a benchmark states beside its figures: the machine, the lock, the cards and their holders."""

from __future__ import annotations

import os
import platform
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from corral import __version__, markdown, paths
from corral.bench import budgets, report
from corral.bench.report import Files, Held, Surroundings
from corral.bench.verdict import Goal
from corral.cli import card, options
from corral.engine.stack import Running
from corral.errors import CorralError, Refused
from corral.exporter.account import CardAccount
from corral.lock import lock as locks
from corral.timeline.report import holder_name

if TYPE_CHECKING:
    from corral.bench.measuring import Measured, Question
    from corral.cluster.target import ClusterTarget

FOLDER = paths.REPOSITORY / "docs" / "benchmarks"
_EVERY_S = 5.0
_END_LIMIT_S = 15.0


class Report:
    """The document of one benchmark, under way."""

    def __init__(
        self,
        title: str,
        models: Sequence[str],
        catalog: Path | None,
        local: Running | None,
        target: ClusterTarget | None,
        command: str = "",
    ) -> None:
        """Begin the document with *title* on *models*, measured by *command* on what ``endpoints.named`` gave.

        Raises:
            Refused: the title has no letter or digit, there is such a document, or there is no catalog.
            CannotRun: the cluster cannot be reached.
        """
        name = markdown.slug(title, example='--report "t4, q4"')
        self.files = Files(FOLDER, f"{time.strftime('%Y-%m-%d')}-{name}")
        if self.files.document.exists():
            message = f"{self.files.document} is there already."
            raise Refused(message, next_step=f"Choose another title: {report.OPTION}")
        self._title, self._models, self._local = title, models, local
        self._command = command
        is_ours = local or target
        self._lock = locks.require(options.catalog_of(catalog, is_ours)) if is_ours else None
        self.watch = Watch(card.reader(catalog, target) if is_ours else None)

    def write(self, conditions: Mapping[str, Any], measured: Sequence[Measured], question: Question) -> Path:
        """Write the document of a benchmark; its path.

        Raises:
            Refused: its folder cannot be written.
        """
        around = replace(
            self.surroundings(self._command, str(conditions["endpoint"])),
            goals=self._goals(),
        )
        report.write(self.files, self._title, conditions, measured, question, around)
        return self.files.document

    def surroundings(self, command: str, endpoint: str) -> Surroundings:
        """What the document states about the run of *command* at *endpoint*, which has ended."""
        found = self.watch
        return Surroundings(
            command=command,
            facts=[("endpoint", endpoint), *_machine(self._local), *found.cards(), *self._served()],
            held={name: held for name, held in found.held.items() if any(one.free is not None for one in held)},
            unknown=found.unknown,
        )

    def _goals(self) -> dict[str, list[Goal]]:
        locked = self._lock.models if self._lock else {}
        return {model: budgets.goals(locked[model].intent) for model in self._models if model in locked}

    def _served(self) -> Iterator[tuple[str, str]]:
        if self._local:
            yield "engine", f"build {self._local.engine.build} ({self._local.engine.origin})"
        if self._lock is None:
            yield "lock", "unknown: no catalog belongs to this endpoint"
            return
        yield "lock", self._lock.seal[:12]
        for model in self._models:
            if entry := self._lock.models.get(model):
                source = f"{entry.repo}@{(entry.revision or '')[:12]}" if entry.repo else "a file of this machine"
                files = ", ".join(one.path for one in entry.files)
                slots = f"context {entry.intent.context}, {entry.intent.parallel} slots"
                yield model, f"{source}, {files}; {slots}; predicted with build {entry.predicted.engine}"
            else:
                yield model, "unknown: it is not in the lock"


class Watch:
    """Reads, while a benchmark runs, who holds the cards that the endpoint's models are on."""

    def __init__(self, read: Callable[[], tuple[CardAccount, ...]] | None) -> None:
        self._read = read
        self._ended = threading.Event()
        self.held: dict[str, list[Held]] = {}
        self._names: dict[str, str] = {}
        self.unknown = "" if read else "Not known: no catalog and no exporter belong to this endpoint."

    def cards(self) -> Iterator[tuple[str, str]]:
        """Each card that was read, and the driver's name of it."""
        for name, model in self._names.items():
            yield f"card {name}", model

    @contextmanager
    def running(self) -> Iterator[None]:
        """Read every five seconds, and at the beginning and the end of the block."""
        if self._read is None:
            yield
            return
        began = time.monotonic()
        self._take(began)
        thread = threading.Thread(target=self._repeat, args=(began,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(_END_LIMIT_S)
        self._take(began)

    def _repeat(self, began: float) -> None:
        while not self._ended.wait(_EVERY_S):
            self._take(began)

    def _take(self, began: float) -> None:
        assert self._read
        try:
            accounts = self._read()
        except CorralError as error:
            self.unknown = f"Not known all the time: {error.message}"
            for readings in self.held.values():
                readings.append(Held(time.monotonic() - began, None, None))
            return
        for one in accounts:
            holders = _holders(one)
            if holders is None:
                self.unknown = f"Not known all the time, of {one.name}: {one.problem}"
            if one.driver:
                self._names[one.name] = one.driver.name
            reading = Held(time.monotonic() - began, one.driver.free if one.driver else None, holders)
            self.held.setdefault(one.name, []).append(reading)


def _holders(account: CardAccount) -> dict[str, int | None] | None:
    """Who holds something, and how much; None: nothing is known of the card."""
    if account.unknown:
        return None
    found: dict[str, int | None] = {}
    for row in account.rows:
        if row.kind != "reserve" and row.held != 0:
            name = holder_name(row.kind, row.name)
            found[f"{name} of kind {row.kind}" if name in found else name] = row.held
    return found


def _machine(local: Running | None) -> Iterator[tuple[str, str]]:
    cores, memory = os.cpu_count() or 1, psutil.virtual_memory().total / (1 << 30)
    release = re.match(r"\d+(\.\d+)*", platform.release())
    system = f"{platform.system()} {release[0] if release else ''}".rstrip()
    what = "client and server" if local else "client"
    yield f"machine of the {what}", f"{processor()}, {cores} cores, {memory:.0f} GiB, {system}"
    yield "load of that machine at the end", f"{os.getloadavg()[0]:.1f}"
    yield "corral", __version__


def processor() -> str:
    """The processor of this machine, as it names itself."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()
