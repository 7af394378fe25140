"""Decides which model is checked when, and for how long.

Models that are resident are first, and all checks of one model are made together, so that each is loaded at most once.
A model that failed to load, or died, or hangs, gets no further request: the next one would load it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from corral.errors import CannotRun
from corral.smoke import checks, residency, vectors
from corral.smoke.checks import Question, Verdict
from corral.smoke.endpoint import Arriving, Endpoint, Reply, TransportError
from corral.smoke.questions import IMAGE_ORDERS, RANKINGS, Subject
from corral.smoke.report import ENDPOINT, CheckResult, Report
from corral.smoke.residency import Residency

SUPERVISOR_LIMIT_S = 30.0
"""llama-swap answers for itself in milliseconds; only models need the whole time limit."""

SILENCE_LIMIT_S = 60.0
"""A model that is loaded sends its first token much earlier, also on a processor alone."""

_LOADING_POLL_S = 0.5
_SETTLE_S = 0.3
"""How long llama-swap may take to notice that a process has exited."""

_JUDGES: Mapping[str, Callable[[Reply, Question], Verdict]] = {
    "stream": checks.judge_stream,
    "vector": vectors.judge_vector,
    "vectors": vectors.judge_vectors,
    **dict.fromkeys(RANKINGS, vectors.judge_ranking),
}


@dataclass
class _Attempt:
    """A request, its time limit in seconds, and its progress, which is read when its time is up."""

    question: Question
    limit_s: float
    arriving: Arriving = field(default_factory=Arriving)
    loading: bool = False
    repeated: bool = False
    silent: bool = False


@dataclass
class Runner:
    """Checks an endpoint, then models behind it.

    Attributes:
        api: the endpoint.
        limit_s: seconds that each check may take, loading included.
        silence_s: seconds without a byte after which a model that is loaded has failed.
        resident_only: check only models that are in memory, so that nothing is loaded and nothing evicted.
        is_local: the endpoint is the local stack, so ``corral logs`` shows its logs.
        start: the command that starts the local stack, and applies a change to it.
        relock: the command that writes the lock.
        report: receives a line for each step.
        logs: the command that shows the logs, where the endpoint's own address is not for the operator; else empty.
        why_not_loaded: gives, in a thread, the reason in an engine's log when its model failed to load; may be empty.
    """

    api: Endpoint
    limit_s: float
    silence_s: float = SILENCE_LIMIT_S
    resident_only: bool = False
    is_local: bool = False
    start: str = "corral up --detach"
    relock: str = "corral lock"
    report: Callable[[str], None] = lambda _line: None
    logs: str = ""
    why_not_loaded: Callable[[str], str] = lambda _model: ""
    _is_llama_swap: bool = field(default=True, init=False)
    _results: list[CheckResult] = field(default_factory=list, init=False)
    _over: dict[str, str] = field(default_factory=dict, init=False)  # why nothing more is asked, by model

    async def run(self, subjects: Sequence[Subject], catalog: Collection[str]) -> Report:
        """Check the endpoint, whose /v1/models has to list exactly *catalog*, then each of *subjects*.

        Raises:
            CannotRun: no server listens at the endpoint, or *resident_only* and what is resident is not known.
        """
        await self._first_contact()
        await self._check_endpoint(
            "liveness", "/health", lambda reply: checks.judge_health(reply, is_llama_swap=self._is_llama_swap)
        )
        await self._check_endpoint("catalog", "/v1/models", lambda reply: checks.judge_models(reply, catalog))
        waiting = list(subjects)
        while waiting:
            now = await self._residency()
            subject = next((subject for subject in waiting if now.holds(subject.model)), waiting[0])
            waiting.remove(subject)
            if now.states is not None and not (now.holds(subject.model) or self.resident_only):
                self.report(f"{subject.model} is not resident: its first check loads it …")
            await self._check_model(subject)
        return Report(self.api.root, tuple(self._results))

    async def _first_contact(self) -> None:
        """Read /running before anything else: it is the one request that can never cause a load."""
        root = self.api.root
        try:
            now = await residency.read(self.api, self._supervisor_limit_s)
        except TransportError as error:
            raise CannotRun(
                f"No server answers at {root}: {error}.",
                next_step=self.start if self.is_local else "Start it, or name another: --endpoint URL",
            ) from error
        self._is_llama_swap = now.states is not None
        if self.resident_only and not self._is_llama_swap:
            raise CannotRun(
                f"--resident-only cannot be kept at {root}: {now.why_unknown}, so it is not known which models are in "
                "memory, and any request might load one.",
                next_step="Name a llama-swap (and set CORRAL_API_KEY if it wants one), or leave out --resident-only",
            )

    async def _check_endpoint(self, check: str, path: str, judge: Callable[[Reply], Verdict]) -> None:
        started, attempt = time.monotonic(), _Attempt(Question(path, self._logs("")), self._supervisor_limit_s)
        verdict = await self._judged(judge, self.api.request(path), attempt)
        self._record(ENDPOINT, check, verdict, time.monotonic() - started)

    async def _check_model(self, subject: Subject) -> None:
        over = self._over.get(subject.base, "")
        for check in subject.checks:
            if obstacle := Verdict("skipped", over) if over else await self._obstacle(subject.model):
                self._record(subject.model, check, obstacle)
                continue
            started = time.monotonic()
            verdict = await self._verdict(subject, check)
            self._record(subject.model, check, verdict, time.monotonic() - started)
            if verdict.over:
                over = self._over[subject.base] = (
                    f"not checked: the model is not there after the check {check}, and a question would load it again"
                )

    async def _obstacle(self, model: str) -> Verdict | None:
        """What keeps --resident-only from a request to *model* now."""
        if not self.resident_only:
            return None
        now = await self._residency()
        if now.states is None:
            return Verdict("failed", f"not checked: it is not known any more whether it is resident; {now.why_unknown}")
        return None if now.holds(model) else Verdict("skipped", "not resident, and --resident-only never causes a load")

    async def _verdict(self, subject: Subject, check: str) -> Verdict:
        question = Question(
            subject.model,
            self._logs(subject.base),
            subject.expect,
            IMAGE_ORDERS.get(check),
            subject.dimension,
            RANKINGS.get(check, 0),
            relock=self.relock,
            serve=self.start if self.is_local else "corral apply" if self.logs else checks.SERVE,
        )
        judge = _JUDGES.get(check, checks.judge_answer)
        attempt = _Attempt(question, self.limit_s)
        reply = self._unless_silent(self._reply(subject, check, attempt), attempt)
        verdict = await self._judged(lambda found: judge(found, question), reply, attempt)
        if verdict.load_failed and (cause := await asyncio.to_thread(self.why_not_loaded, subject.base)):
            return replace(verdict, reason=f"{verdict.reason} (its engine: {cause})")
        if attempt.repeated:
            twice = " (requested twice: the first answer was a 502 while llama-swap called the model ready)"
            return replace(verdict, reason=verdict.reason + twice)
        return verdict

    async def _reply(self, subject: Subject, check: str, attempt: _Attempt) -> Reply:
        """The model's reply; requested again while the model is loading, and once more after a stale connection.

        llama-server closes its connection after a stream, and llama-swap may send the next request into it: an empty
        502 from a model that is alive.  /running tells that apart from a process that died.
        """
        while True:
            attempt.arriving.body.clear()
            reply = await self.api.request(subject.path, subject.body(check), attempt.arriving)
            attempt.loading = checks.is_loading(reply)
            if attempt.loading:
                await asyncio.sleep(_LOADING_POLL_S)
            elif checks.is_empty_502(reply) and not attempt.repeated:
                await asyncio.sleep(_SETTLE_S)
                if not (await self._residency()).is_ready(subject.model):
                    return reply
                attempt.repeated = True
            else:
                return reply

    async def _judged(self, judge: Callable[[Reply], Verdict], reply: Awaitable[Reply], attempt: _Attempt) -> Verdict:
        """The judgement of *reply*, or of its absence."""
        try:
            async with asyncio.timeout(attempt.limit_s):
                received = await reply
        except TimeoutError:
            limit_s, size = self.silence_s if attempt.silent else attempt.limit_s, len(attempt.arriving.body)
            return checks.judge_absence(limit_s, size, attempt.question, loading=attempt.loading, silent=attempt.silent)
        except TransportError as error:
            return checks.judge_transport(error, attempt.question)
        return judge(received)

    async def _unless_silent(self, reply: Awaitable[Reply], attempt: _Attempt) -> Reply:
        """*reply*, unless its model is loaded and silent for too long.

        Raises:
            TimeoutError: it is; *attempt* records it.
        """
        async with asyncio.timeout(None) as deadline:
            watch = asyncio.create_task(self._end_when_silent(attempt, deadline))
            try:
                return await reply
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)

    async def _end_when_silent(self, attempt: _Attempt, deadline: asyncio.Timeout) -> None:
        """End *deadline* once the model, loaded by its first bytes or by /running, sends nothing for too long."""
        loop = asyncio.get_running_loop()
        is_loaded, pieces, since = False, 0, loop.time()
        while not is_loaded or loop.time() - since < self.silence_s:
            await asyncio.sleep(min(_LOADING_POLL_S, self.silence_s / 4))
            if attempt.arriving.pieces > pieces:
                is_loaded = is_loaded or not attempt.loading  # an answer that is only "loading" is no sign of a model
                pieces, since = attempt.arriving.pieces, loop.time()
            elif not is_loaded and (await self._residency()).is_ready(attempt.question.model):
                is_loaded, since = True, loop.time()
        attempt.silent = True
        deadline.reschedule(loop.time())

    async def _residency(self) -> Residency:
        if not self._is_llama_swap:
            return Residency(None, "this endpoint is no llama-swap")
        try:
            return await residency.read(self.api, self._supervisor_limit_s)
        except TransportError as error:
            return Residency(None, f"/running: {error}")

    @property
    def _supervisor_limit_s(self) -> float:
        return min(self.limit_s, SUPERVISOR_LIMIT_S)

    def _logs(self, model: str) -> str:
        if self.logs:
            return self.logs
        if self.is_local:
            return f"corral logs {model}".rstrip()
        if self._is_llama_swap:
            return f"curl -N {self.api.root}/logs/stream/{model or 'proxy'}"
        return f"the log of the server at {self.api.root}"

    def _record(self, model: str, check: str, verdict: Verdict, seconds: float = 0.0) -> None:
        self._results.append(CheckResult(model, check, verdict.status, verdict.reason, round(seconds, 3)))
        reason = "" if verdict.status == "passed" else f"  {verdict.reason}"
        self.report(f"{verdict.status:7}  {model}  {check}  {seconds:.2f} s{reason}")
