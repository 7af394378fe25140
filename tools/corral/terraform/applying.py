"""Applies a plan and watches the cluster meanwhile: progress as it happens, and an end when the cluster cannot do it.

Terraform waits for a pod that will never start until its time is up.  A finding that stays is the reason: Terraform
then gets SIGINT, as from Ctrl-C, writes its state and releases the lock.  The Kubernetes provider ignores SIGINT and
goes on waiting.  So the guard also ends in the cluster what is waited for; a killed Terraform would lose from its state
the resource that it is making.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from python_terraform import IsFlagged

from corral.cluster.finding import Finding
from corral.errors import CorralError
from corral.terraform import runner
from corral.terraform.runner import Finished, Terraform

if TYPE_CHECKING:
    from corral.terraform.guard import ClusterGuard

_SHOWN = {"apply_start", "apply_progress", "apply_complete", "apply_errored", "provision_errored", "change_summary"}
_STAYS_S = 10.0  # a finding that disappears within this time needs no end
_EVERY_S = 1.0
_AGAIN_S = 5.0  # between two tries to end what is waited for, or to read a signal

_Received: TypeAlias = str | int | Finding | Exception | None
"""A line of Terraform, the number of a signal, a finding that stays, a bug of the watcher, the end of the output."""


class Applied(NamedTuple):
    """How an apply ended, and the finding for which Terraform was stopped."""

    finished: Finished
    stuck: Finding | None


def apply(
    terraform: Terraform,
    plan: Path,
    *,
    guard: ClusterGuard,
    report: Callable[[str], None],
    command: str = "corral apply",
    stays_s: float = _STAYS_S,
    every_s: float = _EVERY_S,
) -> Applied:
    """Apply exactly the plan in the file *plan*; *report* takes Terraform's progress, a line at a time.

    *command* goes on where a signal has stopped this one.

    *guard* inspects the cluster every *every_s* seconds.  A finding that stays for *stays_s* seconds stops Terraform.

    Raises:
        ProgramMissing: Terraform does not start.
        KeyboardInterrupt, SystemExit: Ctrl-C or SIGTERM, after Terraform has ended.
    """
    received: SimpleQueue[_Received] = SimpleQueue()
    ended = threading.Event()
    with _signals_into(received):
        run = _Run(_started(terraform, plan), received, guard, report)
        # The thread of an inspection that hangs must not keep corral from its end.
        watch = threading.Thread(target=run.watch, args=(ended, stays_s, every_s), daemon=True)
        read = threading.Thread(target=run.read, daemon=True)
        read.start()
        watch.start()
        try:
            run.follow()
        finally:
            ended.set()
            watch.join(timeout=stays_s)
            read.join()
            code = run.process.wait()
    if run.signal:
        report(f"Terraform was stopped. What there is: corral status; to go on: {command}")
        raise KeyboardInterrupt if run.signal == signal.SIGINT else SystemExit(128 + run.signal)
    if run.bug:
        raise run.bug
    return Applied(runner.finished(code, "".join(run.lines), ""), run.stuck)


def _started(terraform: Terraform, plan: Path) -> subprocess.Popen[str]:
    command = terraform.generate_cmd_string("apply", str(plan), json=IsFlagged, no_color=IsFlagged, input=False)
    with runner.starting(command[0]):
        # In a session of its own: the terminal's Ctrl-C reaches corral alone, which passes it on once.
        return subprocess.Popen(
            command,
            cwd=terraform.working_dir,
            env=terraform.environment,
            umask=runner.UMASK,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
        )


class _Run:
    def __init__(
        self,
        process: subprocess.Popen[str],
        received: SimpleQueue[_Received],
        guard: ClusterGuard,
        report: Callable[[str], None],
    ) -> None:
        self.process = process
        self.lines: list[str] = []
        self.stuck: Finding | None = None
        self.bug: Exception | None = None
        self.signal = 0
        self._received, self._guard, self._report = received, guard, report
        self._active: dict[str, str] = {}  # what Terraform is making or changing now: resource types by address
        self._is_stopping = False

    def read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self._received.put(line)
        self._received.put(None)

    def watch(self, ended: threading.Event, stays_s: float, every_s: float) -> None:
        """Report the first stuck finding that stays for *stays_s*."""
        since: dict[str, float] = {}
        while not ended.wait(every_s):
            try:
                found = self._guard.inspect(frozenset(self._active.copy().values()))
            except CorralError:
                since = {}  # Terraform meets the same trouble and names it
                continue
            except Exception as bug:  # noqa: BLE001 - it is raised where Terraform has ended in order
                self._received.put(bug)
                return
            stuck = {one.subject: one for one in found if one.is_stuck}
            now = time.monotonic()
            since = {subject: since.get(subject, now) for subject in stuck}
            for subject, first in since.items():
                if now - first >= stays_s and not ended.is_set():
                    self._received.put(stuck[subject])
                    return

    def follow(self) -> None:
        """Return when Terraform has ended."""
        while True:
            try:
                received = self._received.get(timeout=_AGAIN_S)  # without one, a signal may not wake it
            except Empty:
                if self._is_stopping:
                    self._end_waiting()
                continue
            if received is None:
                return
            if isinstance(received, str):
                self._line(received)
            elif isinstance(received, int):
                self._interrupt(received)
            elif isinstance(received, Exception):
                self.bug = received
            elif not self._is_stopping:
                self.stuck = received
                self._report(f"{received.subject} {received.what}")
                self._report("This does not heal by itself: Terraform is stopped, and writes its state first.")
                self._stop()

    def _line(self, line: str) -> None:
        self.lines.append(line)
        event = runner.event_of(line)
        if event is None:
            return
        resource, kind = event.get("hook", {}).get("resource", {}), event.get("type")
        if kind == "apply_start" and event["hook"].get("action") != "delete":
            self._active[resource["addr"]] = resource["resource_type"]
        elif kind in ("apply_complete", "apply_errored"):
            self._active.pop(resource["addr"], None)
        if kind in _SHOWN:
            self._report(event["@message"])

    def _interrupt(self, number: int) -> None:
        if self.signal:
            self.process.send_signal(signal.SIGINT)
            return
        self.signal = number
        self._report("Terraform is stopped, and writes its state first. Once more loses the resource that it makes.")
        if not self._is_stopping:  # Terraform does not wait after a second SIGINT
            self._stop()

    def _stop(self) -> None:
        self._is_stopping = True
        self.process.send_signal(signal.SIGINT)
        self._end_waiting()

    def _end_waiting(self) -> None:
        if not self._active:
            return
        try:
            self._guard.end(frozenset(self._active.values()))
        except CorralError as error:
            self._report(f"{error.message} Terraform goes on waiting until its own time is up.")


@contextmanager
def _signals_into(received: SimpleQueue[_Received]) -> Iterator[None]:
    """Receive SIGINT and SIGTERM like the rest: an exception at any point could lose what was received before."""
    before = {
        number: signal.signal(number, lambda caught, _frame: received.put(caught))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
