"""What the gate measures, and how it is reached: the local stack, or the Service of a cluster."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from corral.bench import budgets
from corral.bench.exchange import Client
from corral.bench.measuring import Question
from corral.bench.verdict import Goal
from corral.catalog.catalog import Catalog
from corral.engine.llama_swap import LlamaSwap
from corral.errors import CannotRun
from corral.gate.ending import Ending
from corral.golden.asking import NoAnswer, completion, engine_of
from corral.lock.lock import Lock, LockEntry
from corral.measure.live import require_locked_command, require_locked_files
from corral.smoke.endpoint import Endpoint

_PROMPT_TOKENS, _ANSWER_TOKENS = 256, 64
_TEMPLATE_TOKENS = 32


@dataclass(frozen=True)
class Site:
    """One model where it is served.

    Attributes:
        model: its id.
        catalog, lock: fresh; what is served is theirs.
        root: the front door's address.
        key: of the operator; empty: none is required.
        trust: of the door's certificate.
        llama_swap: llama-swap behind the door, as it runs now.
        exporter: the address of the exporter while the block lasts.
        ending: what ends the serving process, and has it come back.
        report: receives what begins, as a line.
        timeout_s: of an answer, a load included.
        silence_s: an answer without a byte for so long has failed.
        logs: the command that shows the logs.
        why: the command that explains a failure.
        apply: the command that applies the lock to what runs.
        again: the command of the gate.
    """

    model: str
    catalog: Catalog
    lock: Lock
    root: str
    key: str
    trust: ssl.SSLContext | None
    llama_swap: Callable[[], LlamaSwap]
    exporter: Callable[[], AbstractContextManager[str]]
    ending: Ending
    report: Callable[[str], None]
    timeout_s: float
    silence_s: float
    logs: str
    why: str
    apply: str
    again: str

    @property
    def entry(self) -> LockEntry:
        """Of the model, in the lock."""
        return self.lock.models[self.model]

    @property
    def goals(self) -> list[Goal]:
        """The latency budgets of the model, the strictest first."""
        return sorted(budgets.goals(self.entry.intent), key=lambda one: one.p95_seconds)

    @property
    def question(self) -> Question:
        """What is asked: as the strictest budget has it, else a usual one that fits into the context."""
        if self.goals:
            return Question(self.goals[0].prompt_tokens, self.goals[0].answer_tokens)
        room = self.entry.intent.context - _ANSWER_TOKENS - _TEMPLATE_TOKENS
        return Question(max(4, min(_PROMPT_TOKENS, room)), _ANSWER_TOKENS)

    def client(self) -> Client:
        """Sends streamed requests to the door."""
        limits = {"silence_s": self.silence_s, "timeout_s": self.timeout_s}
        return Client(self.root, api_key=self.key, trust=self.trust, **limits)

    def api(self) -> Endpoint:
        """Sends any request to the door."""
        return Endpoint(self.root, api_key=self.key, trust=self.trust)

    def require_locked(self) -> str:
        """The build of the engine, once the model has answered by the files and the command line of the lock.

        Raises:
            Refused: what runs is not what the lock has.
            CannotRun: the model gives no answer.
        """
        require_locked_files(self.llama_swap(), self.model, self.entry, apply=self.apply)
        document = asyncio.run(self._answer())
        require_locked_command(self.llama_swap(), self.model, self.entry.argv, again=self.again, apply=self.apply)
        return engine_of(document.get("system_fingerprint") if isinstance(document, dict) else None)

    async def _answer(self) -> Any:
        """The document of a short answer."""
        body = {"model": self.model, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4}
        try:
            async with self.api() as api:
                return await completion(api, body, self.timeout_s, self.logs)
        except NoAnswer as error:
            raise CannotRun(f"{self.model} gives no answer: {error}.", next_step=self.why) from None
