"""What ends a serving process gracefully, and has it back afterwards: the local stack's llama-swap, or a pod."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from corral.cluster.client import Cluster, Conflict, NotFound, Object
from corral.cluster.port_forward import ready_pod
from corral.cluster.snapshot import at, name_of
from corral.cluster.target import ClusterTarget
from corral.engine import restart, stack
from corral.engine.restart import Again
from corral.errors import CannotRun, CorralError, Failed

_POLL_S = 0.2
_BEYOND_GRACE_S = 60.0
_CONFLICTS = 10


class Ending(Protocol):
    """Ends what serves, and has it back."""

    @property
    def what(self) -> str:
        """What is ended, in a sentence."""

    def prepare(self) -> None:
        """Make sure, before anything ends, that it can be had back.

        Raises:
            CorralError: it cannot.
        """

    def end(self, ready: Callable[[], None], begun: Callable[[], None], hurry: Callable[[], bool]) -> str:
        """End it as usual; call *ready* immediately before and *begun* once it has begun; do not wait once *hurry* is.

        Nothing is ended where *ready* raises.

        Returns:
            What was not graceful about its end, in words; empty when nothing was.
        """

    def restore(self) -> None:
        """Return when it serves again, where ``end`` was called.

        Raises:
            Failed: it does not; the message has the reason, and the next step starts it.
        """


class LocalEnding:
    """Of the local stack in *state*, which is stopped as by `corral down`, and started as it was."""

    what = "the local stack is stopped as by corral down, and started again as it was"

    def __init__(self, state: Path, report: Callable[[str], None]) -> None:
        self._state, self._report = state, report
        self._again: Again | None = None
        self._has_ended = False

    def prepare(self) -> None:
        """As ``Ending``."""
        present = stack.running(self._state)
        if present is None:
            raise CannotRun("No local stack is running.", next_step=stack.start_command(self._state))
        self._again, self._has_ended = restart.prepare(self._state, present), False

    def end(self, ready: Callable[[], None], begun: Callable[[], None], hurry: Callable[[], bool]) -> str:
        """As ``Ending``."""
        assert self._again

        def before() -> None:
            ready()
            self._has_ended = True

        def has_begun() -> bool:  # asked for the first time when the signals are sent
            begun()
            return hurry()

        present = self._again.present
        stopped = stack.stop(self._state, only=present, report=self._report, before=before, hurry=has_begun)
        if stopped is None:
            self._has_ended = False  # that command decides whether it runs
            raise CannotRun("The local stack was stopped by another command.", next_step="corral status")
        orphans = f"; {stopped.orphans} engines were left" if stopped.orphans else ""
        return "" if stopped.drained and not stopped.orphans else f"llama-swap did not end by itself{orphans}"

    def restore(self) -> None:
        """As ``Ending``."""
        if not (self._again and self._has_ended):
            return
        self._has_ended = False
        self._report("Starting the local stack again …")
        try:
            self._again.start(self._report)
        except CorralError as error:
            message = f"The local stack was stopped for the gate, and did NOT start again: {error.message}"
            raise Failed(message, next_step=self._again.present.start_command()) from error


class PodEnding:
    """Of the pod of *target*, which is deleted; its Deployment makes another one, for which *limit_s* seconds are."""

    what = "the pod of the Service is deleted, and replaced by its Deployment"

    def __init__(
        self, cluster: Cluster, target: ClusterTarget, report: Callable[[str], None], *, limit_s: float
    ) -> None:
        self._cluster, self._target, self._report, self._limit_s = cluster, target, report, limit_s
        self._pod: Object | None = None
        self._has_ended = False

    def prepare(self) -> None:
        """As ``Ending``."""
        self._pod, self._has_ended = self._ready(), False

    def end(self, ready: Callable[[], None], begun: Callable[[], None], hurry: Callable[[], bool]) -> str:
        """As ``Ending``."""
        assert self._pod
        path = f"/api/v1/namespaces/{self._target.namespace}/pods/{name_of(self._pod)}"
        ready()
        self._has_ended = True
        self._delete(path)
        begun()
        grace_s = float(at(self._pod, "spec", "terminationGracePeriodSeconds") or 30)
        ends = time.monotonic() + grace_s + _BEYOND_GRACE_S
        while self._is_there(path):
            if hurry():
                return "it was not waited for"
            if time.monotonic() > ends:
                return f"the pod {name_of(self._pod)} was there {_BEYOND_GRACE_S:.0f} s after its grace period"
            time.sleep(_POLL_S)
        return ""

    def restore(self) -> None:
        """As ``Ending``."""
        if not (self._pod and self._has_ended):
            return
        self._has_ended = False
        self._report("Waiting for the pod that replaces it …")
        ends = time.monotonic() + self._limit_s
        while True:
            try:
                if _uid(self._ready()) != _uid(self._pod):
                    return
                problem = "the pod that was deleted is still ready"
            except CannotRun as error:
                problem = error.message
            if time.monotonic() > ends:
                message = (
                    f"The pod was deleted for the gate, and NO other is ready after {self._limit_s:g} s: {problem}"
                )
                step = f"corral status --context {self._cluster.context} --namespace {self._target.namespace}"
                raise Failed(message, next_step=step)
            time.sleep(_POLL_S)

    def _ready(self) -> Object:
        return ready_pod(self._cluster, self._target.namespace, self._target.service)

    def _delete(self, path: str) -> None:
        """Delete the pod, whose status may change between reading and deleting it."""
        for _ in range(_CONFLICTS):
            found = self._cluster.get(path)
            if _uid(found) != _uid(self._pod):
                break
            try:
                self._cluster.delete(found, path)
            except Conflict:
                continue
            return
        message = "The pod of the Service changes all the time, and was not deleted."
        raise CannotRun(message, next_step=self._cluster.kubectl("get", "pods", namespace=self._target.namespace))

    def _is_there(self, path: str) -> bool:
        try:
            return _uid(self._cluster.get(path)) == _uid(self._pod)
        except NotFound:
            return False


def _uid(pod: Object | None) -> str | None:
    found: str | None = at(pod, "metadata", "uid")
    return found
