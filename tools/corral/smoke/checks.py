"""Judging a reply: pure functions from what came back to passed or failed, each failure with its own reason.

A reason says what was seen, what it means, and what to run or change next.  Text from a server is quoted: clipped, and
with control characters escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from corral.smoke import sse
from corral.smoke.endpoint import CutOffError, Reply, TooLargeError, TransportError, UnreachableError

Status = Literal["passed", "failed", "skipped"]

COLOURS = re.compile(
    r"\b(red|green|blue|yellow|orange|purple|violet|magenta|pink|brown|black|white|gr[ae]y|cyan|teal|turquoise)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Asked:
    """What a judge must know beside the reply.

    Attributes:
        model: who was asked.
        logs: the command that shows why it behaves so.
        expect: the exact answer, or None when any non-empty one will do.
    """

    model: str
    logs: str
    expect: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check, and why.

    Attributes:
        status: ``skipped`` only where the question has no meaning.
        reason: for a failure as above; for a pass, the evidence.
        over: the model is not there any more, or never was: another question would only load it once more.
        load_failed: llama-swap could not start its engine; it does not say why, the engine's log does.
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
    return Verdict("failed", f"HTTP {reply.status} from /health: {_error_text(reply)}")


def judge_models(reply: Reply, expected: Iterable[str]) -> Verdict:
    """Whether /v1/models lists exactly the models *expected*."""
    refusal = _refusal(reply, Asked("/v1/models", logs="the log of the endpoint"))
    if refusal:
        return refusal
    listed = _json(reply)
    items = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(items, list):
        return Verdict("failed", f"/v1/models holds no list of models: {_quote(reply.body)}")
    names = [str(item.get("id")) if isinstance(item, dict) else str(item) for item in items]
    wanted = set(expected)
    problems = {
        "missing": sorted(wanted - set(names)),
        "not in the catalog": sorted(set(names) - wanted),
        "listed twice": sorted({name for name in names if names.count(name) > 1}),
    }
    if any(problems.values()):
        found = "; ".join(f"{what}: {', '.join(map(_printable, who))}" for what, who in problems.items() if who)
        again = "start it again, or name its own catalog: --catalog DIR"
        return Verdict("failed", f"/v1/models is not the catalog; {found}; {again}")
    return Verdict("passed", f"/v1/models lists the {len(wanted)} of the catalog")


def judge_answer(reply: Reply, asked: Asked) -> Verdict:
    """A chat completion that has to say something, and to say *asked.expect* where there is one."""
    message = _message(reply, asked)
    if isinstance(message, Verdict):
        return message
    return _wrong(message, asked) or Verdict("passed", f"answered {_quote(message)}")


def judge_images(reply: Reply, asked: Asked, shown: tuple[str, str]) -> Verdict:
    """A chat completion that has to name the two colours *shown*, in that order, and no other colour."""
    if reply.status >= 400 and "image input is not supported" in _error_text(reply):
        return Verdict(
            "failed",
            f"the server runs without a projector (HTTP {reply.status}: {_error_text(reply)}), but the catalog says "
            f"that {asked.model} takes images; write the lock and start again: corral lock && corral down && corral up",
        )
    message = _message(reply, asked)
    if isinstance(message, Verdict):
        return message
    named = [colour.lower() for colour in COLOURS.findall(message)]
    first, second = shown
    if set(named) == {first, second} and named.index(first) < named.index(second):
        return Verdict("passed", f"answered {_quote(message)}")
    return Verdict(
        "failed",
        f"wrong answer: shown {first}, then {second}; got {_quote(message)}: a wrong projector or wrong weights?",
    )


def judge_stream(reply: Reply, asked: Asked) -> Verdict:
    """A streamed chat completion: content, a finish_reason and [DONE] have to come."""
    if reply.status != 200 or reply.content_type in {"text/html", "application/json"}:
        return _refusal(reply, asked) or Verdict(
            "failed", f"asked for a stream, got {reply.content_type}: something in between does not pass streams on"
        )
    stream = sse.read(reply.body)
    if stream.error is not None:
        return _error_in_200(stream.error, asked)
    if stream.malformed is not None:
        return Verdict("failed", f"the stream holds a line that is no event: {_quote(stream.malformed)}")
    if not stream.done:
        return Verdict(
            "failed",
            f"stream ended without [DONE]: the model's process died mid-answer, after {_quote(stream.content)}; "
            f"see: {asked.logs}",
            over=True,
        )
    if stream.finish_reason is None:
        return Verdict("failed", f"the stream has no finish_reason: the answer may be cut short; see: {asked.logs}")
    silent = _empty(stream.content, stream.reasoning, stream.finish_reason, asked)
    return silent or _wrong(stream.content, asked) or Verdict("passed", f"streamed {_quote(stream.content)}")


def judge_silence(silence_s: float, received: int, asked: Asked) -> Verdict:
    """A model that is loaded and sent nothing for *silence_s* seconds; *received* bytes of its answer came before."""
    after = f" after {received} bytes" if received else ""
    return Verdict(
        "failed",
        f"silent for {silence_s:g} s{after}, though its model is loaded: it hangs, or works on other requests; "
        f"see: {asked.logs}",
        over=True,
    )


def judge_time_limit(limit_s: float, arrived: int, asked: Asked, *, loading: bool) -> Verdict:
    """No complete reply came within *limit_s* seconds; *arrived* bytes of one did."""
    within = f"within {limit_s:g} s"
    if loading:
        reason = f'no answer {within}: it said "loading" (503) all the time'
    elif arrived:
        reason = f"no complete answer {within}: {arrived} bytes came, and no end"
    else:
        reason = f"no answer {within}: it hangs, or its load takes longer than that"
    return Verdict("failed", f"{reason}; see: {asked.logs} (or allow more: --timeout SECONDS)", over=True)


def judge_transport(error: TransportError, asked: Asked) -> Verdict:
    """There was no complete HTTP answer."""
    text = _printable(str(error))
    match error:
        case UnreachableError():
            return Verdict("failed", f"nobody listens at the endpoint any more: {text}; see: corral status", over=True)
        case TooLargeError():
            return Verdict(
                "failed", f"{text}: it was cut off there, nothing we asked for is that long; see: {asked.logs}"
            )
        case CutOffError():
            reason = f"the connection was closed before the answer was complete ({text}): the server died over it"
            return Verdict("failed", f"{reason}; see: {asked.logs}", over=True)
        case _:
            return Verdict("failed", text, over=True)


def is_loading(reply: Reply) -> bool:
    """Whether this is llama-server's "come back later" of a model that is being loaded."""
    error = _error_of(_json(reply)) if reply.status == 503 else None
    return isinstance(error, dict) and (
        error.get("type") == "unavailable_error" or error.get("message") == "Loading model"
    )


def is_empty_502(reply: Reply) -> bool:
    """Whether this is what llama-swap's proxy says when its connection to the model breaks."""
    return reply.status == 502 and not reply.body.strip()


def _message(reply: Reply, asked: Asked) -> str | Verdict:
    """The answer in a chat completion, or why there is none."""
    refusal = _refusal(reply, asked)
    if refusal:
        return refusal
    completion = _json(reply)
    choices = completion.get("choices") if isinstance(completion, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return Verdict("failed", f"this is no chat completion, it has no choices[0].message: {_quote(reply.body)}")
    content = message.get("content")
    if content is not None and not isinstance(content, str):
        return Verdict("failed", f"the answer's content is no text: {_quote(json.dumps(content))}")
    reasoning = message.get("reasoning_content")
    finish_reason = choice.get("finish_reason")
    silent = _empty(content or "", reasoning if isinstance(reasoning, str) else "", finish_reason, asked)
    if silent:
        return silent
    if not finish_reason:
        return Verdict("failed", f"the answer has no finish_reason: it may be cut short; see: {asked.logs}")
    return content or ""


def _empty(content: str, reasoning: str, finish_reason: Any, asked: Asked) -> Verdict | None:
    if content.strip():
        return None
    if reasoning.strip():
        return Verdict(
            "failed",
            f"empty answer: all tokens went to thinking (finish_reason {finish_reason}); raise max_tokens where you "
            f'ask, or set reasoning: "off" for {asked.model} and run: corral lock && corral down && corral up',
        )
    if content:
        return Verdict(
            "failed", f"the answer is only whitespace: a wrong chat template or broken weights; see: {asked.logs}"
        )
    return Verdict("failed", f"empty answer, and no thoughts either (finish_reason {finish_reason}); see: {asked.logs}")


def _wrong(answer: str, asked: Asked) -> Verdict | None:
    if asked.expect is None or answer.strip() == asked.expect.strip():
        return None
    return Verdict(
        "failed",
        f"wrong answer: expected {_quote(asked.expect)}, got {_quote(answer)}; are the weights whole? corral verify",
    )


def _refusal(reply: Reply, asked: Asked) -> Verdict | None:
    """Why *reply* is no answer at all, or None when it is JSON without an error in it."""
    text = _error_text(reply)
    match reply.status:
        case 200:
            return _not_json(reply, asked)
        case 401 | 403:
            reason = (
                f"HTTP {reply.status}: the endpoint refuses our API key ({text}); set it: CORRAL_API_KEY=… corral smoke"
            )
        case 404:
            reason = (
                f"HTTP 404: the endpoint does not know {asked.model} ({text}); start it again: "
                "corral down && corral up, or in a cluster: corral apply"
            )
        case 429:
            reason = f"HTTP 429: more requests at once than its concurrencyLimit ({text}); ask again when it is quiet"
            return Verdict("failed", reason)
        case 500 if _is_llama_swaps_own(_json(reply)):
            return Verdict("failed", f"failed to load: {text}; see: {asked.logs}", over=True, load_failed=True)
        case 502 if is_empty_502(reply):
            reason = f"HTTP 502 with an empty body: the model's process died after it was ready; see: {asked.logs}"
        case 503 if is_loading(reply):
            reason = f"HTTP 503: it is still loading ({text}); see: {asked.logs}"
        case status if 300 <= status < 400:
            reason = f"HTTP {status}: it sends us to {_printable(reply.location)}; give that address: --endpoint URL"
        case _:
            reason = f"HTTP {reply.status}: {text}; see: {asked.logs}"
    return Verdict("failed", reason, over=True)


def _not_json(reply: Reply, asked: Asked) -> Verdict | None:
    if reply.content_type == "text/html" or reply.body.lstrip()[:1] == b"<":
        reason = f"HTTP 200 with a web page, no answer: {_quote(reply.body)}; is --endpoint the right address?"
        return Verdict("failed", reason, over=True)
    value = _json(reply)
    if value is None:
        return Verdict("failed", f"HTTP 200 with invalid JSON: {_quote(reply.body)}; see: {asked.logs}")
    if _error_of(value) is not None:
        return _error_in_200(value, asked)
    return None


def _error_in_200(value: Any, asked: Asked) -> Verdict:
    text = _quote(_message_of(value))
    if _is_llama_swaps_own(value):
        return Verdict("failed", f"HTTP 200 with an error in it; failed to load: {text}; see: {asked.logs}", over=True)
    return Verdict("failed", f"HTTP 200 with an error in it: {text}; see: {asked.logs}")


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


def _message_of(value: Any) -> str:
    """An error's words: llama-swap sends a text or an object, by build; llama-server sends an object."""
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
    clipped = words if len(words) <= limit else words[:limit] + "…"
    return f'"{_printable(clipped)}"'


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
