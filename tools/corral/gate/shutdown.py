"""Box 7: graceful shutdown, done for real.  Ten streams are under way when the serving process ends; all must be whole.

Each of ten users has one stream after the other, of a length that takes a few seconds for all.  When all ten have one
under way by the server's own count, none begins another, and the process is ended.  What is judged is the ten streams
that were begun before that and ended after it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from corral.bench.exchange import Client, Sample, described
from corral.bench.prompts import Prompts, body
from corral.engine.processes import signals_to_stop
from corral.errors import CannotRun
from corral.gate import box, health
from corral.gate.box import Line, State
from corral.gate.ending import Ending
from corral.gate.site import Site

STREAMS = 10
_PROMPT_TOKENS = 16
_FIRST_TOKENS = 16
_WANTED_S = 5.0
"""Seconds for all streams together: llama-swap has 30 s for them."""
_MOST_TOKENS = 2000
_TEMPLATE_TOKENS = 64
_ATTEMPTS = 3
_POLL_S = 0.002


class _NotUnderWayError(Exception):
    """The streams are not under way, so that nothing is to be ended."""


@dataclass(frozen=True)
class Ended:
    """What became of the streams.

    Attributes:
        under_way: the streams that were begun before the end began and ended after it.
        seconds: from the beginning of the end to the end of the last stream.
        trouble: what was not graceful about the end; empty: nothing.
        failed: the first stream that failed before; None: none did.
    """

    under_way: Sequence[Sample] = ()
    seconds: float = 0.0
    trouble: str = ""
    failed: Sample | None = None


def shutdown(site: Site) -> tuple[Line, ...]:
    """End what serves *site* while ten streams are under way, have it back, and prove it by an answer.

    A signal to stop ends the wait for the streams, has the process back all the same, and is raised then.

    Raises:
        Failed: it did not come back; the next step starts it.
        CannotRun: it cannot be ended, or ten streams cannot be brought under way.
        KeyboardInterrupt: a signal to stop came.
    """
    ending, found = site.ending, Ended()
    with signals_to_stop() as received:
        for _ in range(_ATTEMPTS):
            ending.prepare()
            try:
                found = asyncio.run(_streams(site, ending, lambda: bool(received)))
            finally:
                ending.restore()
            if received:
                raise KeyboardInterrupt
            if found.failed or len(found.under_way) == STREAMS or not _is_graceful(found):
                break  # only a shutdown with too few streams, all of them whole, shows nothing and is done again
    return judge(found, site.why) if found.failed else _and_back(judge(found, site.why), health.answers(site))


def _is_graceful(found: Ended) -> bool:
    return not found.trouble and all(one.is_ok for one in found.under_way)


def judge(found: Ended, step: str) -> tuple[Line, ...]:
    """The box by what became of the streams."""
    if (sample := found.failed) is not None:
        text = f"before anything ended a stream failed: {described(sample.outcome)}"
        if sample.outcome == "http-429":
            limit = (
                f"{STREAMS} streams are all that the door accepts at a time, so that another client had one, or fewer"
            )
            return box.line(State.UNKNOWN, f"{text}; {limit} are accepted", "Measure again while no other client asks")
        return box.line(State.FAILED, f"{text} {sample.example}".strip(), step)
    whole = sum(one.is_ok for one in found.under_way)
    text = f"{whole} of {len(found.under_way)} streams whole, the last {found.seconds:.1f} s after the end began"
    causes = Counter(described(one.outcome) for one in found.under_way if not one.is_ok)
    if problems := [f"{times} {cause}" for cause, times in causes.items()] + [found.trouble] * bool(found.trouble):
        return box.line(State.FAILED, f"{text}: {'; '.join(problems)}", step)
    if len(found.under_way) < STREAMS:
        text = f"{text}; {STREAMS} must be under way, and its answers end too soon"
        return box.line(State.UNKNOWN, text, "Measure again, or give the model a larger context")
    return box.line(State.PASSED, text)


def _and_back(lines: tuple[Line, ...], answers: tuple[Line, ...]) -> tuple[Line, ...]:
    """*lines* of the streams, and whether the model answers right since."""
    state = box.worst(answers)
    text = "; ".join(one.text for one in answers)
    if state is State.PASSED:
        return tuple(back for one in lines for back in box.line(one.state, f"{one.text}; back, {text}", one.next_step))
    return (*lines, *box.line(state, f"it is back, and does not answer right: {text}", answers[0].next_step))


async def _streams(site: Site, ending: Ending, is_stopped: Callable[[], bool]) -> Ended:
    async with site.client() as client:
        prompts = Prompts(_PROMPT_TOKENS)
        tokens, failed = await _length(site, client, prompts)
        if failed:
            return Ended(failed=failed)
        crowd = _Crowd(client, site.model, prompts, tokens)
        users = [asyncio.create_task(crowd.user(number)) for number in range(STREAMS)]
        began: list[float] = []
        trouble, loop = "", asyncio.get_running_loop()

        def ready() -> None:
            """Return, in the thread that ends the process, when all streams are under way."""
            asyncio.run_coroutine_threadsafe(_until_all(site, crowd, is_stopped), loop).result()

        try:
            site.report(f"{STREAMS} streams at a time, then {ending.what} …")
            with suppress(_NotUnderWayError):
                trouble = await asyncio.to_thread(ending.end, ready, lambda: _mark(began), is_stopped)
            crowd.leave()
            if not is_stopped():
                await asyncio.gather(*users)
        finally:
            for user in users:
                user.cancel()
            await asyncio.gather(*users, return_exceptions=True)
    if crowd.failed or not began:
        return Ended(failed=crowd.failed)
    under_way = [one for one in crowd.last.values() if one.sent < began[0] < one.ended]
    last = max((one.ended for one in under_way), default=began[0])
    return Ended(under_way, last - began[0], trouble)


def _mark(began: list[float]) -> None:
    if not began:
        began.append(time.perf_counter())


async def _length(site: Site, client: Client, prompts: Prompts) -> tuple[int, Sample | None]:
    """Tokens with which ten streams take ``_WANTED_S`` seconds, by ten short ones; and the first of these that failed.

    The fastest of them counts, by the server's own time where it is known: on a machine that is busy for a moment the
    streams would otherwise be too short.  No answer is longer than the context.
    """
    before = time.perf_counter()
    asked = (body(site.model, prompts.next(), _FIRST_TOKENS, may_end=False) for _ in range(STREAMS))
    found = await asyncio.gather(*map(client.send, asked))
    took = time.perf_counter() - before
    slots = min(STREAMS, site.entry.intent.parallel)
    own = [one.server_output_s / one.output_tokens for one in found if one.server_output_s and one.output_tokens]
    of_a_token = min(own) * STREAMS / slots if own else took / _FIRST_TOKENS
    most = min(_MOST_TOKENS, site.entry.intent.context - 2 * _PROMPT_TOKENS - _TEMPLATE_TOKENS)
    tokens = max(1, min(most, max(_FIRST_TOKENS, round(_WANTED_S / of_a_token))))
    return tokens, next((one for one in found if not one.is_ok), None)


async def _until_all(site: Site, crowd: _Crowd, is_stopped: Callable[[], bool]) -> None:
    """Return when every user has a stream under way, by the server's own count, and none begins another.

    That is just after a stream has ended and another was begun: the next one that is served has all its time left.

    Raises:
        _NotUnderWayError: a stream failed, or a signal to stop came.
        CannotRun: it does not happen within the time limit.
    """
    ends = time.monotonic() + site.timeout_s
    llama_swap = site.llama_swap()
    while not (crowd.failed or is_stopped()):
        if crowd.has_turned:
            crowd.hold()
            while crowd.busy == STREAMS:
                listed = await asyncio.to_thread(llama_swap.in_flight)
                if sum(one.model == site.model for one in listed) >= STREAMS and crowd.busy == STREAMS:
                    crowd.is_ending = True
                    return
        crowd.go_on()
        if time.monotonic() > ends:
            message = f"{STREAMS} streams of {site.model} were not under way at a time within {site.timeout_s:g} s."
            raise CannotRun(message, next_step=site.why)
        await asyncio.sleep(_POLL_S)
    raise _NotUnderWayError


@dataclass
class _Crowd:
    """Users, each of whom has one stream after the other, unless they are held.

    Attributes:
        busy: users with a stream under way.
        has_turned: whether a user has begun a stream after another one since the last ``go_on``.
        last: the last stream of each user that has ended.
        failed: the first one that failed before the end.
        is_ending: whether the end has begun: how streams end now is what is measured.
    """

    client: Client
    model: str
    prompts: Prompts
    tokens: int
    busy: int = 0
    has_turned: bool = False
    last: dict[int, Sample] = field(default_factory=dict)
    failed: Sample | None = None
    is_ending: bool = False
    _going: asyncio.Event = field(default_factory=asyncio.Event)
    _is_over: bool = False

    def hold(self) -> None:
        """Let no stream begin."""
        self._going.clear()

    def go_on(self) -> None:
        """Let streams begin."""
        self.has_turned = False
        self._going.set()

    def leave(self) -> None:
        """Let each user go who has no stream under way, and the others when theirs has ended."""
        self._is_over = True
        self._going.set()

    async def user(self, number: int) -> None:
        """One of them."""
        while True:
            await self._going.wait()
            if self._is_over:
                return
            self.busy += 1
            self.has_turned |= number in self.last
            asked = body(self.model, self.prompts.next(), self.tokens, may_end=False)
            sample = await self.client.send(asked)
            self.busy -= 1
            self.last[number] = sample
            if not (sample.is_ok or self.is_ending or self.failed):
                self.failed = sample
