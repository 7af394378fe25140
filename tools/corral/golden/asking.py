"""Asks a model its golden questions, and reads the answers; what they hold is bounded and typed, whatever was sent."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from corral.agent.hub_policy import printable
from corral.golden.questions import FIRST_TOKENS, TOP_TOKENS, Question
from corral.golden.record import UNKNOWN, Answer, Place
from corral.smoke import checks
from corral.smoke.endpoint import Endpoint, Reply, TransportError

_POLL_S = 0.5
_MOST_CHARACTERS = 4000
"""Of an answer and of all of its fields: more than the tokens of a question allow."""
_DIGITS = 4
_LEAST = -99.0  # a token that has no probability


class NoAnswer(Exception):
    """There is no answer that could be compared.

    *is_over*: the model is not there any more, or never was; *is_unknown*: it may answer as it did; *status*: of HTTP,
    where there was one.
    """

    def __init__(
        self, reason: str, *, is_over: bool = False, is_unknown: bool = False, status: int | None = None
    ) -> None:
        super().__init__(reason)
        self.is_over, self.is_unknown, self.status = is_over, is_unknown, status


@dataclass(frozen=True)
class Asked:
    """What a model answered.

    Attributes:
        answers: by the question's name.
        problems: why there is no answer to a question that could be compared, by its name.
        tokens_per_second: of all answers together, by the server's own timings; None without any.
        engine: the build, as the server names it.
    """

    answers: Mapping[str, Answer]
    problems: Mapping[str, NoAnswer]
    tokens_per_second: float | None
    engine: str


async def ask(
    api: Endpoint, model: str, questions: Sequence[Question], *, thinks: bool, limit_s: float, logs: str
) -> Asked:
    """Ask *model* each of *questions*, each within *limit_s* seconds, a load included; *logs* shows its log."""
    answers: dict[str, Answer] = {}
    problems: dict[str, NoAnswer] = {}
    tokens, seconds, engine, over = 0, 0.0, UNKNOWN, ""
    for question in questions:
        if over:
            problems[question.name] = NoAnswer(over, is_unknown=True)
            continue
        try:
            document = await completion(api, question.body(model, thinks=thinks), limit_s, logs)
            answers[question.name] = read(document, question)
        except NoAnswer as error:
            problems[question.name] = error
            over = f"not asked: the model is not there after the question {question.name}" if error.is_over else ""
        else:
            count, took = _timings(document)
            tokens, seconds = tokens + count, seconds + took
            engine = engine_of(document.get("system_fingerprint"))
    return Asked(answers, problems, round(tokens / seconds, 1) if seconds else None, engine)


async def completion(api: Endpoint, body: dict[str, Any], limit_s: float, logs: str) -> Any:
    """The JSON of the answer to *body*, within *limit_s* seconds, a load included; *logs* shows the model's log.

    Raises:
        NoAnswer: there is none; its cause is the error of the connection, where it is that.
    """
    reply = await _reply(api, body, limit_s)
    if verdict := checks.refusal(reply, checks.Question(body["model"], logs)):
        # An engine of broken weights answers 500, and goes on with the next question.
        is_over = verdict.load_failed or (verdict.over and reply.status != 500)
        raise NoAnswer(verdict.reason, is_over=is_over, status=reply.status)
    return json.loads(reply.body)


async def _reply(api: Endpoint, body: dict[str, Any], limit_s: float) -> Reply:
    """The reply to *body*; asked again while the model is loading, and once more after a stale connection."""
    is_repeated = False
    try:
        async with asyncio.timeout(limit_s):
            while True:
                reply = await api.request("/v1/chat/completions", body)
                if not checks.is_loading(reply) and (is_repeated or not checks.is_empty_502(reply)):
                    return reply
                is_repeated = is_repeated or not checks.is_loading(reply)
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise NoAnswer(f"no answer within {limit_s:g} s (or allow more: --timeout SECONDS)", is_over=True) from None
    except TransportError as error:
        raise NoAnswer(f"the connection broke: {printable(str(error))}", is_over=True) from error


def read(document: Any, question: Question) -> Answer:
    """The answer to *question* in the chat completion *document*.

    Raises:
        NoAnswer: it is none, or has no log-probabilities.
    """
    try:
        choice = document["choices"][0]
        message = choice["message"]
        content = message.get("content") or ""
        if not isinstance(content, str):
            raise TypeError("content is no text")  # noqa: TRY301 - as all that is no completion
        text = f"{message.get('reasoning_content') or ''}{content}"
        listed = (choice.get("logprobs") or {}).get("content") or []
        places = tuple(_place(one) for one in listed[:FIRST_TOKENS])
        usage = document.get("usage") or {}
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        raise NoAnswer(f"this is no chat completion with log-probabilities: {_shown(document)}") from None
    if not places:
        message = "the answer has no log-probabilities: this endpoint cannot be compared"
        raise NoAnswer(message, is_unknown=True)
    try:
        return Answer(
            question_sha256=question.sha256,
            prompt_tokens=usage.get("prompt_tokens"),
            text=text[:_MOST_CHARACTERS],
            fields=_fields(content, question.schema) if question.schema else None,
            tokens=places,
        )
    except (ValidationError, AttributeError):
        raise NoAnswer(f"this is no chat completion with log-probabilities: {_shown(document)}") from None


def _place(one: Any) -> Place:
    """One entry of OpenAI's ``logprobs.content``; raises ValueError and the like where it is none."""
    sums: dict[str, float] = {}
    for each in one["top_logprobs"][:TOP_TOKENS]:
        if each["logprob"] is None:  # as llama-server writes what is no number
            raise _no_numbers()
        token, value = _token(each), float(each["logprob"])
        if math.isnan(value) or value > 0:
            raise _no_numbers()
        sums[token] = sums.get(token, 0.0) + math.exp(value)  # parts of a character may read alike
    top = {token: max(_LEAST, round(math.log(p), _DIGITS)) if p else _LEAST for token, p in sums.items()}
    return Place(token=_token(one), top={token: min(0.0, value) for token, value in top.items()})


def _no_numbers() -> NoAnswer:
    return NoAnswer(
        "its probabilities are no numbers (NaN): damaged weights, or a value that overflowed; corral verify"
    )


def _token(one: Any) -> str:
    raw = one.get("bytes")
    return bytes(raw).decode("utf-8", "backslashreplace") if raw else str(one["token"])


def _fields(content: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Each value of the JSON object *content* by its path; None when it is none, or lacks what *schema* requires."""
    if len(content) > _MOST_CHARACTERS:
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not value.keys() >= set(schema.get("required", ())):
        return None
    return dict(leaves(value))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value of JSON by its path, as ``at.0.city``; an object or list that is empty as its text."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not items:
        yield path, json.dumps(value) if isinstance(value, (dict, list)) else value
    for key, one in items:
        yield from leaves(one, f"{path}.{key}" if path else str(key))


def _timings(document: Any) -> tuple[int, float]:
    """Tokens of the answer and seconds for them, by llama.cpp's ``timings``; zeros without."""
    timings = document.get("timings")
    count, took = (timings.get(key) for key in ("predicted_n", "predicted_ms")) if isinstance(timings, dict) else (0, 0)
    if type(count) is not int or not isinstance(took, (int, float)) or not (count > 0 and 0 < took < math.inf):
        return 0, 0.0
    return count, took / 1000


def engine_of(fingerprint: Any) -> str:
    """The build in ``system_fingerprint``, ``b<number>-<commit>``; a packager may have left out both."""
    if not isinstance(fingerprint, str) or not fingerprint or "unknown" in fingerprint:
        return UNKNOWN
    return printable(fingerprint, 100)


def _shown(document: Any) -> str:
    return printable(json.dumps(document, ensure_ascii=False), 200)
