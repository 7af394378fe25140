"""Judges a reply: pure functions from a reply to passed or failed, each failure with its own reason.

A reason has what was received, what it means, and what to run or change next.  Text from a server is quoted: clipped,
and with control characters escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from corral.agent.hub_policy import printable
from corral.smoke import sse
from corral.smoke.endpoint import Reply, TooLargeError, TransportError, UnreachableError

Status = Literal["passed", "failed", "skipped", "error"]
"""``error`` is of a run that could not be made at all."""

COLOURS = re.compile(
    r"\b(red|green|blue|yellow|orange|purple|violet|magenta|pink|brown|black|white|gr[ae]y|cyan|teal|turquoise)\b",
    re.IGNORECASE,
)

SERVE = "corral up --detach, or in a cluster: corral apply"
"""What serves a catalog, where it is not known which one of the two does."""


@dataclass(frozen=True)
class Question:
    """What a judge must know beside the reply.

    Attributes:
        model: its id.
        logs: the command that shows why it behaves so.
        serve: the command that serves what the lock has.
        relock: the command that writes the lock.
        expect: the exact answer, or None when any non-empty one will do.
        shown: the colours of two images, which the answer has to name in that order, and no other colour.
        dimension: numbers of an embedding, by the model's header; None: unknown.
        near_at: the place of the relevant document of a ranking.
    """

    model: str
    logs: str
    expect: str | None = None
    shown: tuple[str, str] | None = None
    dimension: int | None = None
    near_at: int = 0
    serve: str = SERVE
    relock: str = "corral lock"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check, and why.

    Attributes:
        status: ``skipped`` only where the question has no meaning.
        reason: for a failure as above; for a pass, the evidence.
        over: the model is not there any more, or never was: another question would only load it once more.
        load_failed: llama-swap could not start its engine; the reason for that is in the engine's log alone.
    """

    status: Status
    reason: str
    over: bool = False
    load_failed: bool = False


def judge_health(reply: Reply, *, is_llama_swap: bool) -> Verdict:
    """Liveness of the endpoint; llama-swap and llama-server have /health, other gateways may not."""
    if reply.status == 404 and not is_llama_swap:
        return Verdict("skipped", "this endpoint is no llama-swap and has no /health")
    if reply.status == 200:
        return Verdict("passed", "liveness only: this is 200 even when no model can load")
    return _failed(f"HTTP {reply.status} from /health: {_error_text(reply)}")


def judge_models(reply: Reply, expected: Iterable[str]) -> Verdict:
    """Whether /v1/models lists exactly the models *expected*."""
    if obstacle := refusal(reply, Question("/v1/models", logs="the log of the endpoint")):
        return obstacle
    listed = _json(reply)
    items = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(items, list):
        return _failed(f"/v1/models holds no list of models: {_quote(reply.body)}")
    # An adapter, which has a parent, is checked by its answer.
    own = [item for item in items if not (isinstance(item, dict) and item.get("parent"))]
    names = [str(item.get("id")) if isinstance(item, dict) else str(item) for item in own]
    wanted = set(expected)
    problems = {
        "missing": sorted(wanted - set(names)),
        "not in the catalog": sorted(set(names) - wanted),
        "listed twice": sorted({name for name in names if names.count(name) > 1}),
    }
    if found := "; ".join(f"{what}: {', '.join(map(printable, ids))}" for what, ids in problems.items() if ids):
        again = "start it again, or name its own catalog: --catalog DIR"
        return _failed(f"/v1/models is not the catalog; {found}; {again}")
    return Verdict("passed", f"/v1/models lists the {len(wanted)} of the catalog")


def judge_answer(reply: Reply, question: Question) -> Verdict:
    """A chat completion with the right content."""
    if question.shown and reply.status >= 400 and "image input is not supported" in _error_text(reply):
        return _failed(
            f"the server runs without a projector (HTTP {reply.status}: {_error_text(reply)}), but by the catalog "
            f"{question.model} takes images; run: {question.relock} && {question.serve}"
        )
    content = _content(reply, question)
    if isinstance(content, Verdict):
        return content
    return _wrong(content, question) or Verdict("passed", f"answered {_quote(content)}")


def judge_stream(reply: Reply, question: Question) -> Verdict:
    """A streamed chat completion: it needs content, a finish_reason and [DONE]."""
    if reply.status != 200 or reply.content_type in {"text/html", "application/json"}:
        return refusal(reply, question) or _failed(
            f"requested a stream, got {reply.content_type}: something in between does not pass streams on"
        )
    stream = sse.read(reply.body)
    if stream.error is not None:
        return _error_in_200(stream.error, question)
    if stream.malformed is not None:
        return _failed(f"the stream holds a line that is no event: {_quote(stream.malformed)}")
    if not stream.done:
        died = f"the model's process died mid-answer, after {_quote(stream.content)}"
        return _failed(f"stream ended without [DONE]: {died}; see: {question.logs}", over=True)
    unusable = _unusable("stream", stream.content, stream.reasoning, stream.finish_reason, question)
    return unusable or _wrong(stream.content, question) or Verdict("passed", f"streamed {_quote(stream.content)}")


def judge_absence(
    limit_s: float, received: int, question: Question, *, loading: bool = False, silent: bool = False
) -> Verdict:
    """No complete reply within *limit_s* seconds, or *silent* for so long; *received* bytes of one arrived."""
    within, after = f"within {limit_s:g} s", f" after {received} bytes" if received else ""
    if silent:
        hangs = "though its model is loaded: it hangs, or works on other requests"
        return _failed(f"silent for {limit_s:g} s{after}, {hangs}; see: {question.logs}", over=True)
    if loading:
        reason = f'no answer {within}: its status was "loading" (503) all the time'
    elif received:
        reason = f"no complete answer {within}: {received} bytes arrived, and no end"
    else:
        reason = f"no answer {within}: it hangs, or its load takes longer than that"
    return _failed(f"{reason}; see: {question.logs} (or allow more: --timeout SECONDS)", over=True)


def judge_transport(error: TransportError, question: Question) -> Verdict:
    """There was no complete HTTP answer."""
    text, see = printable(str(error)), f"see: {question.logs}"
    match error:
        case UnreachableError():
            return _failed(f"no server listens at the endpoint any more: {text}; see: corral status", over=True)
        case TooLargeError():
            return _failed(f"{text}: it was cut off there, no answer to these questions is that long; {see}")
        case _:
            closed = f"the connection was closed before the answer was complete ({text})"
            return _failed(f"{closed}: the server died over it; {see}", over=True)


def is_loading(reply: Reply) -> bool:
    """Whether this is llama-server's "come back later" of a model that is being loaded."""
    error = _error_of(_json(reply)) if reply.status == 503 else None
    return isinstance(error, dict) and (
        error.get("type") == "unavailable_error" or error.get("message") == "Loading model"
    )


def is_empty_502(reply: Reply) -> bool:
    """Whether the connection to the model broke, as llama-swap answers then, or the guard in its place."""
    return reply.status == 502 and (not reply.body.strip() or _code_of(_json(reply)) == "engine-ended")


def _failed(reason: str, *, over: bool = False) -> Verdict:
    return Verdict("failed", reason, over)


def _content(reply: Reply, question: Question) -> str | Verdict:
    """The answer in a chat completion, or why there is none."""
    if obstacle := refusal(reply, question):
        return obstacle
    completion = _json(reply)
    choices = completion.get("choices") if isinstance(completion, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return _failed(f"this is no chat completion, it has no choices[0].message: {_quote(reply.body)}")
    content = message.get("content") or ""
    if not isinstance(content, str):
        return _failed(f"the answer's content is no text: {_quote(json.dumps(content))}")
    return (
        _unusable("answer", content, message.get("reasoning_content"), choice.get("finish_reason"), question) or content
    )


def _unusable(what: str, content: str, reasoning: Any, finish_reason: Any, question: Question) -> Verdict | None:
    """Why the *content* of an answer or a stream is nothing to judge, or None."""
    if content.strip():
        cut = f"the {what} has no finish_reason: it may be cut short; see: {question.logs}"
        return None if finish_reason else _failed(cut)
    if isinstance(reasoning, str) and reasoning.strip():
        return _failed(
            f"empty answer: all tokens went to thinking (finish_reason {finish_reason}); raise max_tokens where you "
            f'ask, or set reasoning: "off" for {question.model} and run: {question.relock} && {question.serve}'
        )
    if content:
        return _failed(f"the answer is only whitespace: a wrong chat template or broken weights; see: {question.logs}")
    return _failed(f"empty answer, and no thoughts either (finish_reason {finish_reason}); see: {question.logs}")


def _wrong(answer: str, question: Question) -> Verdict | None:
    if question.shown:
        named, (first, second) = [colour.lower() for colour in COLOURS.findall(answer)], question.shown
        if set(named) == {first, second} and named.index(first) < named.index(second):
            return None
        both = f"shown {first}, then {second}; got {_quote(answer)}"
        return _failed(f"wrong answer: {both}: a wrong projector or wrong weights?")
    if question.expect is None or answer.strip() == question.expect.strip():
        return None
    both = f"expected {_quote(question.expect)}, got {_quote(answer)}"
    return _failed(f"wrong answer: {both}; are the weights whole? corral verify")


def refusal(reply: Reply, question: Question) -> Verdict | None:
    """Why *reply* is no answer at all, or None when it is JSON without an error in it."""
    text, see = _error_text(reply), f"see: {question.logs}"
    match reply.status:
        case 200:
            return _not_json(reply, question)
        case 401 | 403:
            reason = f"the endpoint refuses our API key ({text}); set it: CORRAL_API_KEY=… corral smoke"
        case 404:
            reason = f"the endpoint does not know {question.model} ({text}); to have it served: {question.serve}"
        case 429:
            more = "more requests at a time than its concurrencyLimit"
            return _failed(f"HTTP 429: {more} ({text}); try again when it is quiet")
        case 500 if _is_llama_swaps_own(_json(reply)):
            return Verdict("failed", f"failed to load: {text}; {see}", over=True, load_failed=True)
        case 503 if _code_of(_json(reply)) in {"load-failed", "no-room"}:  # the guard's, in place of that
            return Verdict("failed", f"failed to load: {text}; {see}", over=True, load_failed=True)
        case 502 if is_empty_502(reply):
            died = "the model's process died after it was ready"
            return _failed(f"HTTP 502 with {_error_text(reply)}: {died}; {see}", over=True)
        case 503 if is_loading(reply):
            reason = f"it is still loading ({text}); {see}"
        case status if 300 <= status < 400:
            reason = f"it sends us to {printable(reply.location)}; give that address: --endpoint URL"
        case _:
            reason = f"{text}; {see}"
    return _failed(f"HTTP {reply.status}: {reason}", over=True)


def _not_json(reply: Reply, question: Question) -> Verdict | None:
    if reply.content_type == "text/html" or reply.body.lstrip()[:1] == b"<":
        page = f"HTTP 200 with a web page, no answer: {_quote(reply.body)}"
        return _failed(f"{page}; is --endpoint the right address?", over=True)
    value = _json(reply)
    if value is None:
        return _failed(f"HTTP 200 with invalid JSON: {_quote(reply.body)}; see: {question.logs}")
    return None if _error_of(value) is None else _error_in_200(value, question)


def _error_in_200(value: Any, question: Question) -> Verdict:
    is_load = _is_llama_swaps_own(value)
    what = "; failed to load" if is_load else ""
    text = f"HTTP 200 with an error in it{what}: {_quote(_message_of(value))}"
    return _failed(f"{text}; see: {question.logs}", over=is_load)


def _is_llama_swaps_own(value: Any) -> bool:
    return isinstance(value, dict) and value.get("src") == "llama-swap"


def _error_text(reply: Reply) -> str:
    value = _json(reply)
    if _error_of(value) is not None:
        return _quote(_message_of(value))
    return _quote(reply.body) if reply.body.strip() else "an empty body"


def _error_of(value: Any) -> Any:
    """The error object or text in a JSON body, or None."""
    return (value.get("error") or None) if isinstance(value, dict) else None


def _code_of(value: Any) -> Any:
    """The code of a refusal of the guard; None in any other answer."""
    error = _error_of(value)
    return error.get("code") if isinstance(error, dict) else None


def _message_of(value: Any) -> str:
    """An error's text: llama-swap sends a text or an object, by build; llama-server sends an object."""
    error = _error_of(value) or value
    if isinstance(error, dict) and error.get("message"):
        error = error["message"]
    return error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)


def _json(reply: Reply) -> Any:
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        return None


def _quote(text: str | bytes, limit: int = 240) -> str:
    """*text* in quotes, on one line, at most *limit* characters of it."""
    words = text.decode("utf-8", errors="replace") if isinstance(text, bytes) else text
    return f'"{printable(words, limit)}"'
