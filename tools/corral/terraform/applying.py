"""Applies a plan while someone watches: progress as it happens, and an end when the cluster cannot do what is asked.

Terraform waits for a pod that will never start until its time is up.  Whoever looks at the cluster meanwhile knows
better: a finding that stays is the reason, and Terraform is told to stop as Ctrl-C would.  It writes its state and
lets go of the lock first.  The Kubernetes provider does not listen to that: it goes on waiting.  So the guard also ends
in the cluster what is waited for; killing Terraform instead would lose from its state what it is just making.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol, TypeAlias

from python_terraform import IsFlagged

from corral.errors import CorralError, ProgramMissing
from corral.terraform import runner
from corral.terraform.runner import Finished, Terraform

_SHOWN = {"apply_start", "apply_progress", "apply_complete", "apply_errored", "provision_errored", "change_summary"}
_PATIENCE_S = 10.0  # a finding that goes away by itself within this time is none
_EVERY_S = 1.0
_AGAIN_S = 5.0  # between two tries to end what is waited for


class Finding(Protocol):
    """What ``corral.cluster.diagnosis`` finds; here only its words matter."""

    @property
    def subject(self) -> str:
        """Which object it is about."""

    @property
    def what(self) -> str:
        """The sentence after the subject."""

    @property
    def event(self) -> str:
        """What Kubernetes itself says; empty when it says nothing."""

    @property
    def next_step(self) -> str:
        """The command to type next."""

    @property
    def is_stuck(self) -> bool:
        """Whether it cannot heal by itself."""


Heard: TypeAlias = "SimpleQueue[str | int | Finding | None]"
"""What comes in during an apply: a line of Terraform, the number of a signal, a finding that stays, its end."""


class Guard(Protocol):
    """Who watches the cluster during an apply."""

    def begin(self, kinds: Collection[str]) -> None:
        """Make the cluster forget how workloads of the resource types *kinds*, which will be changed in place, ended.

        Raises:
            CorralError: it cannot be done.
        """

    def look(self, kinds: Collection[str]) -> Sequence[Finding]:
        """What is wrong now with what Terraform waits for: resources of the types *kinds*.

        Called from another thread.  What was wrong before with anything else is what this apply may be about to mend.

        Raises:
            CorralError: it cannot be seen.
        """

    def end(self, kinds: Collection[str]) -> None:
        """Let the workloads of the resource types *kinds* be as failed, so that whoever waits for them need not.

        Raises:
            CorralError: it cannot be done.
        """


class Applied(NamedTuple):
    """How it ended: Terraform's own end, and the finding for which it was told to stop."""

    finished: Finished
    stuck: Finding | None


def apply(
    terraform: Terraform,
    plan: Path,
    *,
    guard: Guard,
    say: Callable[[str], None],
    patience_s: float = _PATIENCE_S,
    every_s: float = _EVERY_S,
) -> Applied:
    """Apply exactly the plan in the file *plan*.

    Args:
        terraform: in the stack that the plan is of.
        plan: from ``terraform plan -out``.
        guard: looks again and again, and ends what is waited for when Terraform is to stop.
        say: hears Terraform's progress, a line at a time.
        patience_s: seconds that a finding must stay before Terraform is told to stop.
        every_s: seconds between two looks.

    Raises:
        ProgramMissing: Terraform does not start.
        KeyboardInterrupt, SystemExit: Ctrl-C or SIGTERM, after Terraform has ended.
    """
    command = terraform.generate_cmd_string("apply", str(plan), json=IsFlagged, no_color=IsFlagged, input=False)
    heard: Heard = SimpleQueue()
    with _signals_into(heard):
        process = _begun(command, terraform)
        run = _Run(process, heard, guard, say)
        watcher = _Watcher(guard, run.at_work, heard, patience_s=patience_s, every_s=every_s)
        reader = threading.Thread(target=_read, args=(process, heard), daemon=True)
        reader.start()
        watcher.start()
        try:
            run.to_its_end()
        finally:
            watcher.stop()
            reader.join()
            process.wait()
    if watcher.bug is not None:
        raise watcher.bug
    return Applied(runner.finished(process.wait(), "".join(run.lines), ""), run.stuck)


def _begun(command: Sequence[str], terraform: Terraform) -> subprocess.Popen[str]:
    try:
        # In a session of its own: the terminal's Ctrl-C comes to us alone, and we pass it on once.
        return subprocess.Popen(
            command,
            cwd=terraform.working_dir,
            env=terraform.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise ProgramMissing(f"{command[0]} does not start: {error.strerror}.") from None


class _Run:
    """A Terraform that applies: what it says is passed on, and it can be told to stop."""

    def __init__(self, process: subprocess.Popen[str], heard: Heard, guard: Guard, say: Callable[[str], None]) -> None:
        self.lines: list[str] = []
        self.stuck: Finding | None = None
        self._process, self._heard, self._guard, self._say = process, heard, guard, say
        self._kinds: dict[str, str] = {}
        self._is_stopping = False
        self._signal = 0

    def at_work(self) -> frozenset[str]:
        """Types of the resources that Terraform is making or changing now."""
        return frozenset(self._kinds.copy().values())

    def to_its_end(self) -> None:
        """Follow it until it has ended, also when we are told to stop meanwhile."""
        self._follow()
        if self._signal:
            self._say("Terraform was stopped. What there is: corral status; to go on: corral apply")
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self._signal:
            raise SystemExit(128 + self._signal)

    def _follow(self) -> None:
        while True:
            try:
                one = self._heard.get(timeout=_AGAIN_S if self._is_stopping else None)
            except Empty:
                self._end_waiting()
                continue
            if one is None:
                return
            if isinstance(one, str):
                self._line(one)
            elif isinstance(one, int):
                self._told_to_stop(one)
            elif not self._is_stopping:
                self.stuck = one
                self._say(f"{one.subject} {one.what}")
                self._say("This does not heal by itself: Terraform is told to stop, and writes its state first.")
                self._stop()

    def _told_to_stop(self, number: int) -> None:
        if self._signal:
            self._process.send_signal(signal.SIGINT)
            return
        self._signal = number
        self._say("Terraform is told to stop, and writes its state first. Once more loses what it is just making.")
        if not self._is_stopping:  # a second SIGINT would be taken for "at once"
            self._stop()

    def _line(self, line: str) -> None:
        self.lines.append(line)
        event = runner.event_of(line)
        if event is None:
            return
        resource, kind = event.get("hook", {}).get("resource", {}), event.get("type")
        if kind == "apply_start" and event["hook"].get("action") != "delete":
            self._kinds[resource["addr"]] = resource["resource_type"]
        elif kind in ("apply_complete", "apply_errored"):
            self._kinds.pop(resource["addr"], None)
        if kind in _SHOWN:
            self._say(event["@message"])

    def _stop(self) -> None:
        self._is_stopping = True
        self._process.send_signal(signal.SIGINT)
        self._end_waiting()

    def _end_waiting(self) -> None:
        if not self._kinds:
            return
        try:
            self._guard.end(self.at_work())
        except CorralError as error:
            self._say(f"{error.message} Terraform goes on waiting until its own time is up.")


def _read(process: subprocess.Popen[str], heard: Heard) -> None:
    assert process.stdout is not None
    with process.stdout as told:
        for line in told:
            heard.put(line)
    heard.put(None)


@contextmanager
def _signals_into(heard: Heard) -> Iterator[None]:
    """SIGINT and SIGTERM are heard like everything else: an exception out of nowhere could lose what was just heard.

    Only the main thread can catch signals; elsewhere they do what they did.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, lambda caught, _frame: heard.put(caught))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Watcher:
    """Looks every second, and reports the first stuck finding that has stayed long enough."""

    def __init__(
        self,
        guard: Guard,
        at_work: Callable[[], Collection[str]],
        heard: Heard,
        *,
        patience_s: float,
        every_s: float,
    ) -> None:
        self.bug: Exception | None = None
        self._guard, self._at_work, self._heard = guard, at_work, heard
        self._patience_s, self._every_s = patience_s, every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)  # a look may hang; the end must not

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(timeout=self._patience_s)

    def _run(self) -> None:
        since: dict[str, float] = {}
        while not self._ended.wait(self._every_s):
            try:
                stuck = {one.subject: one for one in self._guard.look(self._at_work()) if one.is_stuck}
            except CorralError:
                since = {}  # what cannot be seen is no finding; Terraform meets the same trouble and names it
                continue
            except Exception as bug:  # noqa: BLE001 - it is raised where Terraform has ended in order
                self.bug = bug
                return
            now = time.monotonic()
            since = {subject: since.get(subject, now) for subject in stuck}
            for subject, first in since.items():
                if now - first >= self._patience_s and not self._ended.is_set():
                    self._heard.put(stuck[subject])
                    return
