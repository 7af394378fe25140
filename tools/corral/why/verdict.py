"""From what was seen to one reason.  The first rule that has something to say wins; nothing is looked at here."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable

from corral.agent.progress import count, duration
from corral.why.answer import Answer, Reason
from corral.why.engine_words import Said
from corral.why.facts import ModelFacts, Place, StackFacts

_RECENT_S = 300.0  # a refusal that is older explains no request of now
_STUCK_S = 10.0  # a request that old, without a token or any work, is not just slow


def judge(stack: StackFacts, seen: ModelFacts, place: Place) -> Answer:
    """The answer for one model."""
    verdict = _Verdict(stack, seen, place)
    for rule in verdict.rules():
        if answer := rule():
            return answer
    return verdict.healthy()


class _Verdict:
    def __init__(self, stack: StackFacts, seen: ModelFacts, place: Place) -> None:
        self._stack = stack
        self._seen = seen
        self._model = seen.id or seen.model
        self._commands = _Commands(place, self._model)

    def rules(self) -> tuple[Callable[[], Answer | None], ...]:
        return (
            self._not_in_catalog,
            self._stack_down,
            self._stack_silent,
            self._not_served,
            self._hung,
            self._failed,
            self._over_limit,
            self._damaged,
            self._unseen,
            self._waiting_for_rival,
            self._missing,
            self._engine_missing,
            self._port_taken,
        )

    # -- the whole stack ----------------------------------------------------------------------------------

    def _not_in_catalog(self) -> Answer | None:
        if self._seen.id:
            return None
        near = difflib.get_close_matches(self._seen.model, self._seen.catalog_ids, n=1)
        known = f"The catalog has: {', '.join(self._seen.catalog_ids) or 'no model'}."
        steps = [f"corral why {near[0]}"] if near else []
        return self._answer(
            Reason.NOT_IN_CATALOG, f"the name {self._seen.model}", [known], [*steps, self._commands.of("validate")]
        )

    def _stack_down(self) -> Answer | None:
        stack = self._stack
        if stack.state not in ("none", "died"):
            return None
        if stack.no_engine:
            remedy = "unset LLAMA_SERVER" if stack.no_engine.startswith("LLAMA_SERVER ") else "corral engine"
            steps = [remedy, self._commands.up()]
            return self._answer(Reason.ENGINE_MISSING, "llama-server", [stack.no_engine, stack.problem], steps)
        words = [f"llama-swap's log: {line}" for line in stack.last_words]
        evidence = [stack.problem, stack.no_lock, *words, *self._bad_files()]
        steps = ["corral logs -n 50"] if stack.state == "died" else []
        steps += [self._commands.of("lock")] if stack.no_lock else []
        culprit = f"llama-swap (pid {stack.pid}), which died" if stack.state == "died" else "no local stack"
        return self._answer(Reason.STACK_DOWN, culprit, evidence, [*steps, self._commands.up()])

    def _stack_silent(self) -> Answer | None:
        stack = self._stack
        if stack.state != "silent":
            return None
        culprit = f"llama-swap (pid {stack.pid})"
        if stack.is_stopped:
            return self._answer(
                Reason.HUNG, culprit, [f"{culprit} is stopped (SIGSTOP).", stack.problem], [f"kill -CONT {stack.pid}"]
            )
        if stack.overload:
            return self._answer(Reason.UNKNOWN, "", [stack.problem, stack.overload], self._commands.look())
        return self._answer(Reason.HUNG, culprit, [stack.problem], ["corral down --now", self._commands.up()])

    def _not_served(self) -> Answer | None:
        if self._seen.command or self._seen.unseen:
            return None
        said = f"{self._model} is in the catalog, but not in the configuration of {self._stack.endpoint}."
        return self._answer(
            Reason.NOT_IN_CATALOG, "the running stack, which is older", [said], self._commands.restart()
        )

    # -- a model that is loaded, or on its way ------------------------------------------------------------

    def _hung(self) -> Answer | None:
        seen = self._seen
        if not seen.resident or not seen.engine:
            return None
        culprit = f"llama-server of {self._model} (pid {seen.engine.pid})"
        waiting = (
            [f"{count(len(seen.in_flight), 'request')} without an answer, {self._oldest()}."] if seen.in_flight else []
        )
        again = self._commands.of("smoke", self._model)
        if seen.engine.is_stopped:
            said = f"{culprit} is stopped (SIGSTOP); llama-swap calls it {seen.resident.state}."
            return self._answer(Reason.HUNG, culprit, [said, *waiting], [f"kill -CONT {seen.engine.pid}", again])
        if seen.resident.state != "ready" or not seen.pulse:
            return None
        kill = f"kill -9 {seen.engine.pid}"  # it does not listen to less; llama-swap starts it again
        if seen.pulse.problem:
            told = [f"llama-swap calls it ready; {seen.pulse.problem}.", *waiting]
            if self._stack.overload:
                return self._answer(Reason.UNKNOWN, "", [*told, self._stack.overload], self._commands.look())
            return self._answer(Reason.HUNG, culprit, told, [kill, again])
        if not seen.pulse.moves and seen.in_flight and seen.now - seen.in_flight[0].since > _STUCK_S:
            said = f"It works on {count(seen.pulse.busy, 'request')}, and neither tokens nor processor time get on."
            return self._answer(Reason.HUNG, culprit, [said, *waiting], [kill, again])
        return None

    def _over_limit(self) -> Answer | None:
        seen = self._seen
        if not seen.command:
            return None
        limit = seen.command.limit
        refused = [one for one in seen.refused if seen.now - one.ended < _RECENT_S and one.ended >= self._loaded_at()]
        full = len(seen.in_flight) >= limit
        if not refused and not full:
            return None
        evidence = [
            f"llama-swap takes {count(limit, 'request')} of {self._model} at a time; one more is answered 429.",
            f"In flight now: {len(seen.in_flight)}{', ' + self._oldest() if seen.in_flight else ''}.",
        ]
        if refused:
            evidence.insert(
                0, f"{count(len(refused), 'request')} answered 429, the last {self._ago(refused[0].ended)}."
            )
        return self._answer(
            Reason.OVER_CONCURRENCY,
            f"more than {count(limit, 'request')} at once",
            evidence,
            ["corral status", f"corral why {shlex.quote(self._model)}"],
        )

    def _waiting_for_rival(self) -> Answer | None:
        seen = self._seen
        busy = [(model, requests) for model, requests in seen.rivals if requests]
        if seen.resident or not seen.in_flight or not busy:
            return None
        rival, requests = busy[0]
        evidence = [
            f"{count(len(seen.in_flight), 'request')} for {self._model} without an answer, {self._oldest()}.",
            f"{rival} has the slot and {count(requests, 'request')} in flight: llama-swap swaps when it has none.",
        ]
        return self._answer(Reason.OVER_CONCURRENCY, f"{rival}, which is in the same slot", evidence, ["corral status"])

    # -- a model whose last load, or run, ended badly -----------------------------------------------------

    def _failed(self) -> Answer | None:
        seen = self._seen
        history = seen.history
        if seen.resident and seen.resident.state == "ready":
            return None
        abandoned = seen.resident is not None and seen.resident.state == "starting" and seen.engine is None
        if not history.failures and not (abandoned and seen.said):
            return None
        said = seen.said or Said(Reason.UNKNOWN)
        evidence = [f"llama-swap, {self._ago(history.at)}: {history.reason}."] if history.reason else []
        if said.line:
            evidence.insert(0, f"The engine said: {said.line}")
        if history.failures > 1:
            evidence.append(f"It failed {history.failures} times in a row.")
        if seen.resident and history.failures:
            evidence.append(f"It is {seen.resident.state} again now.")
        if abandoned:
            evidence.append("Its process has ended; llama-swap still waits for an answer on its port.")
        if history.failure == "not started":
            return self._no_program(evidence)
        if said.reason is not Reason.UNKNOWN:
            return self._by_words(said, evidence)
        if bad := self._bad_files():
            missing = any(file.state == "missing" for file in seen.files)
            return self._by_files(Reason.FILE_MISSING if missing else Reason.FILE_DAMAGED, bad + evidence)
        if history.failure == "timed out":
            return self._timed_out(evidence)
        if seen.said is None:
            evidence.append("What its engine said could not be read in time.")
        if history.failure == "died":
            return self._crashed("died while it was ready", evidence)
        if seen.said is None:
            return self._answer(Reason.UNKNOWN, "", evidence, self._commands.look())
        if not said.line or said.line.startswith("preflight: "):
            return self._crashed("died while it was loading, without a word: was it killed?", evidence)
        return self._answer(Reason.UNKNOWN, "", evidence, self._commands.look())

    def _by_words(self, said: Said, evidence: list[str]) -> Answer | None:
        if said.reason is Reason.OUT_OF_MEMORY:
            return self._out_of_memory(said, evidence)
        if said.reason is Reason.ENGINE_MISSING:
            return self._no_program(evidence, said.culprit)
        if said.reason is Reason.PORT_IN_USE:
            return self._port(evidence, int(said.culprit))
        if said.reason is Reason.BAD_ARGUMENT:
            steps = [self._commands.of("validate"), self._commands.of("lock"), *self._commands.restart()]
            return self._answer(said.reason, said.culprit, [*evidence, self._where_arguments_come_from()], steps)
        return self._by_files(said.reason, evidence, said.culprit)

    def _out_of_memory(self, said: Said, evidence: list[str]) -> Answer:
        if said.line.startswith("preflight: "):
            culprit = said.culprit
            if culprit.startswith("nobody"):
                culprit = "what holds the card; from here nobody can see who"
            return self._answer(Reason.OUT_OF_MEMORY, culprit, evidence, ["nvidia-smi", "corral seat", "corral status"])
        if "cpu" in f"{said.culprit} {said.line}".lower():
            steps = ["free -h", *self._commands.look()]
            return self._answer(Reason.OUT_OF_MEMORY, "this machine's memory, not a card's", evidence, steps)
        steps = ["nvidia-smi", self._commands.of("lock"), "corral seat"]
        told = "The engine took more than its seat: the preflight found room, or could not tell."
        return self._answer(Reason.OUT_OF_MEMORY, "the card", [*evidence, told], steps)

    def _by_files(self, reason: Reason, evidence: list[str], named: str = "") -> Answer:
        bad = [file for file in self._seen.files if file.is_bad]
        culprit = named or (str(bad[0].path) if bad else f"a file of {self._model}")
        facts = [file.detail for file in self._seen.files]
        if reason is Reason.FILE_MISSING:
            steps = [self._commands.of("fetch", self._model, stored=True)]
        else:
            facts.append("Sizes and dates were compared, the content was not read.")
            steps = [
                self._commands.of("verify", self._model, stored=True),
                self._commands.of("verify", self._model, "--repair", stored=True),
            ]
        return self._answer(reason, culprit, [*evidence, *facts], [*steps, self._commands.of("smoke", self._model)])

    def _timed_out(self, evidence: list[str]) -> Answer:
        limit = self._seen.command.load_limit_s if self._seen.command else 0
        evidence = [*evidence, f"A load may take {limit} s here.", *(file.detail for file in self._seen.files)]
        steps = [self._commands.of("warm", self._model, stored=True), *self._commands.look()]
        return self._answer(Reason.LOAD_TIMEOUT, f"the load of {self._model}, not ready in {limit} s", evidence, steps)

    def _crashed(self, how: str, evidence: list[str]) -> Answer:
        facts = [file.detail for file in self._seen.files]
        steps = [*self._commands.look(), self._commands.of("verify", self._model, stored=True)]
        return self._answer(Reason.CRASHED, f"llama-server of {self._model}, which {how}", [*evidence, *facts], steps)

    # -- what the next load would meet --------------------------------------------------------------------

    def _damaged(self) -> Answer | None:
        damaged = [file.detail for file in self._seen.files if file.state == "damaged"]
        return self._by_files(Reason.FILE_DAMAGED, []) if damaged else None

    def _missing(self) -> Answer | None:
        missing = [file for file in self._seen.files if file.state == "missing"]
        return self._by_files(Reason.FILE_MISSING, []) if missing and not self._seen.resident else None

    def _engine_missing(self) -> Answer | None:
        return self._no_program([]) if self._seen.missing_program and not self._seen.resident else None

    def _port_taken(self) -> Answer | None:
        if not self._seen.port_holder or self._seen.resident or not self._seen.command:
            return None
        return self._port([], self._seen.command.port)

    def _no_program(self, evidence: list[str], named: str = "") -> Answer:
        command = self._seen.command
        program = named or self._seen.missing_program or (command.engine if command else "llama-server")
        told = [*evidence, f"{program} is missing or not executable."] if self._seen.missing_program else evidence
        return self._answer(Reason.ENGINE_MISSING, program, told, ["corral engine", *self._commands.restart()])

    def _port(self, evidence: list[str], port: int) -> Answer:
        holder = self._seen.port_holder
        if not holder:
            told = [*evidence, f"Nobody else listens on port {port} any more."]
            return self._answer(
                Reason.PORT_IN_USE,
                f"port {port}",
                told,
                [self._commands.of("smoke", self._model), f"ss -ltnp sport = :{port}"],
            )
        told = [*evidence, f"{self._model} must listen on port {port}, which {holder} does."]
        return self._answer(Reason.PORT_IN_USE, holder, told, [f"ss -ltnp sport = :{port}", *self._commands.restart()])

    # -- the rest -----------------------------------------------------------------------------------------

    def _unseen(self) -> Answer | None:
        if not self._seen.unseen:
            return None
        return self._answer(Reason.UNKNOWN, "", list(self._seen.unseen), self._commands.look())

    def healthy(self) -> Answer:
        seen = self._seen
        smoke = self._commands.of("smoke", self._model)
        facts = [file.detail for file in seen.files]
        if not seen.resident:
            return self._answer(Reason.HEALTHY, "", ["It is not loaded; the next request loads it.", *facts], [smoke])
        if seen.resident.state != "ready":
            since = f" since {duration(seen.now - seen.history.at)}" if seen.history.state == "loading" else ""
            limit = f", of {seen.command.load_limit_s} s at most" if seen.command else ""
            return self._answer(
                Reason.HEALTHY, "", [f"It is {seen.resident.state}{since}{limit}.", *facts], ["corral status"]
            )
        busy = f"; it works on {count(seen.pulse.busy, 'request')}" if seen.pulse and seen.pulse.busy else ""
        at = f" at {seen.resident.proxy}"
        return self._answer(Reason.HEALTHY, "", [f"It is loaded and answers{at}{busy}.", *facts], [smoke])

    def _answer(self, reason: Reason, culprit: str, evidence: list[str], steps: list[str]) -> Answer:
        told = [line.strip() for line in evidence if line.strip()]
        return Answer(self._seen.model, reason, culprit, tuple(dict.fromkeys(told)), tuple(dict.fromkeys(steps)))

    def _bad_files(self) -> list[str]:
        return [file.detail for file in self._seen.files if file.is_bad]

    def _loaded_at(self) -> float:
        return self._seen.history.at if self._seen.history.state == "ready" else 0.0

    def _oldest(self) -> str:
        return f"the oldest for {duration(max(0.0, self._seen.now - self._seen.in_flight[0].since))}"

    def _ago(self, at: float) -> str:
        return f"{duration(max(0.0, self._seen.now - at))} ago" if at else "at an unknown time"

    def _where_arguments_come_from(self) -> str:
        return f"The arguments come from models/{self._model}.yaml, by way of lock.json."


class _Commands:
    """Commands to be typed as they are."""

    def __init__(self, place: Place, model: str) -> None:
        self._catalog = ["--catalog", str(place.catalog)] if place.catalog else []
        self._store = ["--store", str(place.store)] if place.store else []
        self._model = model

    def of(self, *words: str, stored: bool = False) -> str:
        return shlex.join(["corral", *words, *self._catalog, *(self._store if stored else [])])

    def up(self) -> str:
        return self.of("up", "--detach", stored=True)

    def restart(self) -> list[str]:
        return ["corral down", self.up()]

    def look(self) -> list[str]:
        return [shlex.join(["corral", "logs", self._model, "-n", "50"]), self.of("smoke", self._model)]
