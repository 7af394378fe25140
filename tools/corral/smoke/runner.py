"""Whom to ask, in which order, and for how long.

Models that are resident come first, and all questions to one model come together, so that each is loaded at most once.
A model that failed to load, or died, or hangs, is asked nothing more: the next question would load it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from corral.errors import CannotRun
from corral.smoke import checks, residency
from corral.smoke.checks import Asked, Verdict
from corral.smoke.endpoint import Arriving, Endpoint, Reply, TransportError
from corral.smoke.questions import IMAGE_ORDERS, Subject
from corral.smoke.report import ENDPOINT, CheckResult, Report, report_of
from corral.smoke.residency import Residency

SUPERVISOR_LIMIT_S = 30.0
"""llama-swap answers for itself in milliseconds; only models need the whole time limit."""

SILENCE_LIMIT_S = 60.0
"""A model that is loaded sends its first token much earlier, also on a processor alone."""

_LOADING_POLL_S = 0.5
_SETTLE_S = 0.3
"""How long llama-swap may take to notice that a process has exited."""


class Watcher(Protocol):
    """Told what happens while it happens."""

    def loading(self, model: str) -> None:
        """*model* is not resident: the next check waits for its load."""

    def checked(self, result: CheckResult) -> None:
        """A check is over."""


@dataclass
class _Attempt:
    """How far a question has come; read when its time is up."""

    arriving: Arriving = field(default_factory=Arriving)
    loading: bool = False
    asked_twice: bool = False


async def run(
    api: Endpoint,
    subjects: Sequence[Subject],
    catalog: Collection[str],
    *,
    watcher: Watcher,
    limit_s: float,
    silence_s: float = SILENCE_LIMIT_S,
    resident_only: bool = False,
    is_local: bool = False,
    logs: Callable[[str], str] | None = None,
    why_not_loaded: Callable[[str], str] = lambda _model: "",
) -> Report:
    """Check the endpoint, then each of *subjects*.

    Args:
        api: where to ask.
        subjects: the models to ask.
        catalog: every id that /v1/models has to list, and no other.
        watcher: told of each result.
        limit_s: seconds that each check may take, loading included.
        silence_s: seconds without a byte after which a model that is loaded has failed.
        resident_only: ask only models that are in memory, so that nothing is loaded and nothing evicted.
        is_local: the endpoint is the local stack, so ``corral logs`` shows its logs.
        logs: gives the command that shows a model's log, where the endpoint's own address is not for the operator.
        why_not_loaded: asked, in a thread, for what an engine said when its model failed to load; may be empty.

    Raises:
        CannotRun: nobody listens at the endpoint, or *resident_only* and nobody can tell what is resident.
    """
    one = _Run(
        api, watcher, limit_s, silence_s, why_not_loaded, resident_only=resident_only, is_local=is_local, logs=logs
    )
    return await one.all(subjects, catalog)


class _SilentError(Exception):
    """A model that is loaded sends nothing."""


class _Run:
    def __init__(
        self,
        api: Endpoint,
        watcher: Watcher,
        limit_s: float,
        silence_s: float,
        why_not_loaded: Callable[[str], str],
        *,
        resident_only: bool,
        is_local: bool,
        logs: Callable[[str], str] | None,
    ) -> None:
        self._api = api
        self._watcher = watcher
        self._limit_s = limit_s
        self._silence_s = silence_s
        self._why_not_loaded = why_not_loaded
        self._supervisor_limit_s = min(limit_s, SUPERVISOR_LIMIT_S)
        self._resident_only = resident_only
        self._is_local = is_local
        self._show_log = logs
        self._is_llama_swap = True
        self._results: list[CheckResult] = []

    async def all(self, subjects: Sequence[Subject], catalog: Collection[str]) -> Report:
        await self._first_contact()
        await self._endpoint(
            "liveness", "/health", lambda reply: checks.judge_health(reply, is_llama_swap=self._is_llama_swap)
        )
        await self._endpoint("catalog", "/v1/models", lambda reply: checks.judge_models(reply, catalog))
        waiting = list(subjects)
        while waiting:
            now = await self._residency()
            subject = next((subject for subject in waiting if now.holds(subject.model)), waiting[0])
            waiting.remove(subject)
            if now.states is not None and not (now.holds(subject.model) or self._resident_only):
                self._watcher.loading(subject.model)
            await self._model(subject)
        return report_of(self._api.root, tuple(self._results))

    async def _first_contact(self) -> None:
        """Ask /running before anything else: it is the one question that can never cause a load."""
        try:
            now = await residency.read(self._api, self._supervisor_limit_s)
        except TransportError as error:
            raise CannotRun(
                f"Nobody answers at {self._api.root}: {error}.",
                next_step="corral up --detach" if self._is_local else "Start it, or name another: --endpoint URL",
            ) from error
        self._is_llama_swap = now.states is not None
        if self._resident_only and not self._is_llama_swap:
            raise CannotRun(
                f"--resident-only cannot be kept at {self._api.root}: {now.why_unknown}, so nobody can tell which "
                "models are in memory, and any question might load one.",
                next_step="Name a llama-swap (and set CORRAL_API_KEY if it wants one), or leave out --resident-only",
            )

    async def _endpoint(self, check: str, path: str, judge: Callable[[Reply], Verdict]) -> None:
        started = time.monotonic()
        verdict = await self._within(self._supervisor_limit_s, Asked(path, self._logs("")), self._api.get(path), judge)
        self._record(ENDPOINT, check, verdict, time.monotonic() - started)

    async def _model(self, subject: Subject) -> None:
        over = ""
        for check in subject.checks:
            obstacle = Verdict("skipped", over) if over else await self._obstacle(subject.model)
            if obstacle:
                self._record(subject.model, check, obstacle)
                continue
            started = time.monotonic()
            verdict = await self._ask(subject, check)
            self._record(subject.model, check, verdict, time.monotonic() - started)
            if verdict.over:
                over = f"not asked: the model is not there after the check {check}, and a question would load it again"

    async def _obstacle(self, model: str) -> Verdict | None:
        """What keeps --resident-only from asking *model* now."""
        if not self._resident_only:
            return None
        now = await self._residency()
        if now.states is None:
            return Verdict("failed", f"not asked: nobody can tell any more whether it is resident; {now.why_unknown}")
        return None if now.holds(model) else Verdict("skipped", "not resident, and --resident-only never causes a load")

    async def _ask(self, subject: Subject, check: str) -> Verdict:
        asked = Asked(subject.model, self._logs(subject.model), subject.expect)
        attempt = _Attempt()

        def judge(reply: Reply) -> Verdict:
            if check in IMAGE_ORDERS:
                return checks.judge_images(reply, asked, IMAGE_ORDERS[check])
            return checks.judge_stream(reply, asked) if check == "stream" else checks.judge_answer(reply, asked)

        verdict = await self._within(self._limit_s, asked, self._reply(subject, check, attempt), judge, attempt)
        if verdict.load_failed and (cause := await asyncio.to_thread(self._why_not_loaded, subject.model)):
            return replace(verdict, reason=f"{verdict.reason} (its engine: {cause})")
        if attempt.asked_twice:
            twice = " (asked twice: the first answer was an empty 502 while llama-swap called the model ready)"
            return replace(verdict, reason=verdict.reason + twice)
        return verdict

    async def _reply(self, subject: Subject, check: str, attempt: _Attempt) -> Reply:
        """The model's reply; asked again while it says that it is loading, and once more after a stale connection.

        llama-server closes its connection after a stream, and llama-swap may send the next request into it: an empty
        502 from a model that is alive.  /running tells that apart from a process that died.
        """
        while True:
            attempt.arriving.body.clear()
            reply = await self._api.post("/v1/chat/completions", subject.body(check), attempt.arriving)
            attempt.loading = checks.is_loading(reply)
            if attempt.loading:
                await asyncio.sleep(_LOADING_POLL_S)
            elif checks.is_empty_502(reply) and not attempt.asked_twice and await self._is_still_ready(subject.model):
                attempt.asked_twice = True
            else:
                return reply

    async def _unless_silent(self, reply: Awaitable[Reply], model: str, attempt: _Attempt) -> Reply:
        """*reply*, unless its model is loaded and silent for too long.

        Raises:
            _SilentError: it is.
        """
        answer = asyncio.ensure_future(reply)
        silence = asyncio.ensure_future(self._silence(model, attempt))
        try:
            await asyncio.wait({answer, silence}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            raise _SilentError
        finally:
            for task in (answer, silence):
                task.cancel()
            await asyncio.gather(answer, silence, return_exceptions=True)

    async def _silence(self, model: str, attempt: _Attempt) -> None:
        """Return once *model*, which is loaded by its first bytes or by /running, has sent nothing for too long."""
        loop = asyncio.get_running_loop()
        is_loaded, pieces, since = False, 0, loop.time()
        while not is_loaded or loop.time() - since < self._silence_s:
            await asyncio.sleep(min(_LOADING_POLL_S, self._silence_s / 4))
            if attempt.arriving.pieces > pieces:
                is_loaded = is_loaded or not attempt.loading  # an answer that only says so is no sign of a model
                pieces, since = attempt.arriving.pieces, loop.time()
            elif not is_loaded and (await self._residency()).is_ready(model):
                is_loaded, since = True, loop.time()

    async def _is_still_ready(self, model: str) -> bool:
        await asyncio.sleep(_SETTLE_S)
        return (await self._residency()).is_ready(model)

    async def _residency(self) -> Residency:
        if not self._is_llama_swap:
            return Residency(None, "this endpoint is no llama-swap")
        try:
            return await residency.read(self._api, self._supervisor_limit_s)
        except TransportError as error:
            return Residency(None, f"/running: {error}")

    async def _within(
        self,
        limit_s: float,
        asked: Asked,
        reply: Awaitable[Reply],
        judge: Callable[[Reply], Verdict],
        attempt: _Attempt | None = None,
    ) -> Verdict:
        """The judgement of *reply*, or of its absence."""
        is_of_model, attempt = attempt is not None, attempt or _Attempt()
        try:
            async with asyncio.timeout(limit_s):
                received = await (self._unless_silent(reply, asked.model, attempt) if is_of_model else reply)
        except _SilentError:
            return checks.judge_silence(self._silence_s, len(attempt.arriving.body), asked)
        except TimeoutError:
            return checks.judge_time_limit(limit_s, len(attempt.arriving.body), asked, loading=attempt.loading)
        except TransportError as error:
            return checks.judge_transport(error, asked)
        return judge(received)

    def _logs(self, model: str) -> str:
        if self._show_log:
            return self._show_log(model)
        if self._is_local:
            return f"corral logs {model}".rstrip()
        if self._is_llama_swap:
            return f"curl -N {self._api.root}/logs/stream/{model or 'proxy'}"
        return f"the log of the server at {self._api.root}"

    def _record(self, model: str, check: str, verdict: Verdict, seconds: float = 0.0) -> None:
        result = CheckResult(model, check, verdict.status, verdict.reason, round(seconds, 3))
        self._results.append(result)
        self._watcher.checked(result)
