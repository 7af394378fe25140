"""Asks a model the cases of a set, one after the other, and reads the answers; what they hold is bounded and typed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from corral.agent.hub_policy import printable
from corral.door import strict_json
from corral.errors import CannotRun, Refused
from corral.evaluation.cases import SET, Case, EvalSet, validator
from corral.golden import asking as golden
from corral.golden.asking import NoAnswer
from corral.golden.questions import SEED, bound
from corral.smoke import images
from corral.smoke.endpoint import Endpoint, UnreachableError

_MOST_CHARACTERS = 100_000
"""Of an answer: more than its tokens allow."""
_KEPT_CHARACTERS = 4000
_OF_THIS_CASE = frozenset({400, 413, 422})
"""HTTP statuses that refuse one request: the next case is asked."""
_SCHEMA = re.compile(r"schema|grammar|response_format", re.IGNORECASE)
_STEPS = 10


@dataclass(frozen=True)
class Answer:
    """What a model answered to a case.

    Attributes:
        case: its id.
        round: from 1.
        text: the beginning of the answer; empty where there is none.
        fields: each value of its JSON by its path; None: it was not parsed, or there is none.
        problem: why it was not parsed, is not whole or is not there; empty: it was parsed.
        seconds: from sending the request to the end of the whole answer, parsed or not; None: there is none.
    """

    case: str
    round: int
    text: str = ""
    fields: Mapping[str, Any] | None = None
    problem: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class Asked:
    """All *answers* of a model, in their order, and the seconds of the first request, a load included."""

    model: str
    answers: tuple[Answer, ...]
    first_answer_s: float | None = None


@dataclass(frozen=True)
class Asking:
    """How a model is asked.

    Attributes:
        model: its id.
        thinks: whether it has to be asked for answers without thoughts.
        rounds: how many times it is asked each case.
        limit_s: of each answer, in seconds, a load included.
        logs: the command that shows its log.
        report: gets a line of progress now and then.
        once_loaded: is called when it has answered for the first time.
    """

    model: str
    thinks: bool = False
    rounds: int = 1
    limit_s: float = 300.0
    logs: str = "its log"
    report: Callable[[str], None] = field(default=lambda _: None)
    once_loaded: Callable[[], None] = field(default=lambda: None)


def body(case: Case, of: EvalSet, model: str, *, thinks: bool) -> dict[str, Any]:
    """The request for *case* to *model*: greedy and from no cache, so that every round has the same work to do."""
    text = {"type": "text", "text": case.prompt}
    shown = [images.data_url(image.content, image.kind) for image in case.images]
    content: Any = [*({"type": "image_url", "image_url": {"url": url}} for url in shown), text]
    system = [{"role": "system", "content": of.system}] if of.system else []
    return {
        "model": model,
        "messages": [*system, {"role": "user", "content": content if shown else case.prompt}],
        "temperature": 0,
        "seed": SEED,
        "cache_prompt": False,
        "max_tokens": of.answer_tokens,
    } | bound(case.id, case.schema, thinks=thinks)


async def ask(api: Endpoint, of: EvalSet, how: Asking) -> Asked:
    """Ask each case in each round; the first one once more before, which loads the model and counts for nothing else.

    Raises:
        Refused: the endpoint refuses the schema of a case.
        CannotRun: no server listens at the endpoint.
    """
    how.report(f"{how.model}: its first answer, with any load …")
    loading = await _ask(api, of.cases[0], of, how, 0)
    over = _over(loading)
    if not over:
        how.once_loaded()
    total = how.rounds * len(of.cases)
    found: list[Answer] = []
    for number in range(1, how.rounds + 1):
        for case in of.cases:
            if over:
                found.append(Answer(case.id, number, problem=over))
                continue
            answer = await _ask(api, case, of, how, number)
            over = _over(answer)
            found.append(answer.answer)
            if len(found) * _STEPS // total > (len(found) - 1) * _STEPS // total:
                parsed = sum(one.fields is not None for one in found)
                how.report(f"{how.model}: {len(found)} of {total} answers, {parsed} parsed")
    return Asked(how.model, tuple(found), loading.seconds)


@dataclass(frozen=True)
class _Reply:
    """An answer, the *seconds* of its request, whole or not, and why there is none."""

    answer: Answer
    seconds: float | None = None
    error: NoAnswer | None = None


def _over(reply: _Reply) -> str:
    """Why no other case is asked after *reply*; empty: the model is still there."""
    error = reply.error
    if error is None or not error.is_over or error.status in _OF_THIS_CASE:
        return ""
    return f"not asked: the model was not there any more after {reply.answer.case}: {error}"


async def _ask(api: Endpoint, case: Case, of: EvalSet, how: Asking, number: int) -> _Reply:
    request = body(case, of, how.model, thinks=how.thinks)
    began = time.monotonic()
    try:
        document = await golden.completion(api, request, how.limit_s, how.logs)
    except NoAnswer as error:
        if number == 0 and isinstance(error.__cause__, UnreachableError):
            raise CannotRun(f"{api.root}: {error}.", next_step="corral status, or check the address") from None
        if error.status == 400 and _SCHEMA.search(str(error)):
            raise Refused(
                f"The engine of {how.model} refuses the schema of case {case.id}: {error}.",
                next_step=f"Write it with fewer or smaller limits, in {SET} or in the file of the case",
            ) from None
        return _Reply(Answer(case.id, number, problem=f"no answer: {error}"), error=error)
    seconds = time.monotonic() - began
    try:
        content = _content(document, of.answer_tokens)
    except ValueError as error:
        return _Reply(Answer(case.id, number, problem=f"not whole: {error}"), seconds)
    try:
        fields = read(content, case)
    except ValueError as error:
        text = content[:_KEPT_CHARACTERS]
        problem = f"not parsed: {error}: {printable(content, 120)}"
        return _Reply(Answer(case.id, number, text, problem=problem, seconds=seconds), seconds)
    return _Reply(Answer(case.id, number, content[:_KEPT_CHARACTERS], fields, seconds=seconds), seconds)


def _content(document: Any, tokens: int) -> str:
    """The answer in the chat completion *document*.

    Raises:
        ValueError: there is none, or it is not whole.
    """
    try:
        choice = document["choices"][0]
        content, end = choice["message"].get("content"), choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError):
        content = end = None
    if end == "length":
        raise ValueError(f"it was cut off: an answer has at most {tokens} tokens (answer_tokens in {SET})")
    if not isinstance(content, str) or end != "stop":
        raise ValueError(f"this is no whole chat completion: {printable(str(document), 200)}")
    return content


def read(content: str, case: Case) -> dict[str, Any]:
    """The values in *content*, an answer to *case*, by their paths.

    Raises:
        ValueError: it is no JSON that every parser reads alike, or not as the schema has it.
    """
    if len(content) > _MOST_CHARACTERS:
        raise ValueError(f"it has more than {_MOST_CHARACTERS:,} characters")
    value = strict_json.loads(content)
    if problem := next(_schema_errors(value, case), ""):
        raise ValueError(problem)
    return dict(golden.leaves(value))


def _schema_errors(value: Any, case: Case) -> Iterator[str]:
    try:
        for error in validator(case.schema).iter_errors(value):
            where = ".".join(map(str, error.absolute_path))
            yield f"not by the schema{' at ' if where else ''}{where}: {printable(error.message, 120)}"
    except RecursionError:
        yield "nested too deep"
