"""Judges the replies of models without answers in words: embeddings and rankings.

As in ``checks``: pure functions, each failure with its own reason, and text from a server only quoted.
"""

from __future__ import annotations

import json
import math
from operator import mul
from typing import Any, Final

from corral.agent.hub_policy import printable
from corral.smoke.checks import Question, Verdict, refusal
from corral.smoke.endpoint import Reply

_SAME: Final = 0.999
"""Cosine of two vectors of one text: texts beside it in a batch change the last digits."""
_WRONG_WEIGHTS = "wrong pooling or wrong weights? corral verify"

_Vector = list[float]


def judge_vector(reply: Reply, question: Question) -> Verdict:
    """The embedding of one text: a vector of the header's dimension, finite, and not zero."""
    found = _vectors(reply, question, 1)
    if isinstance(found, Verdict):
        return found
    compared = "as its header has" if question.dimension else "which no header is there to compare with"
    return Verdict("passed", f"a vector of {len(found[0])} numbers, {compared}")


def judge_vectors(reply: Reply, question: Question) -> Verdict:
    """The embeddings of a text, a near one, a far one, and the first text again: same and near before far."""
    found = _vectors(reply, question, 4)
    if isinstance(found, Verdict):
        return found
    first, near, far, again = found
    if (same := _cosine(first, again)) < _SAME:
        return _failed(f"the same text has two vectors, with a cosine of {same:.4f}; see: {question.logs}")
    close, distant = _cosine(first, near), _cosine(first, far)
    cosines = f"cosine {close:.4f} to the near text, {distant:.4f} to the far one"
    if close <= distant:
        return _failed(f"the near text is not the closer one: {cosines}: {_WRONG_WEIGHTS}")
    return Verdict("passed", f"the same text has the same vector, and {cosines}")


def judge_ranking(reply: Reply, question: Question) -> Verdict:
    """The scores of two documents: finite, and the relevant one, at ``question.near_at``, is first."""
    if obstacle := refusal(reply, question):
        return obstacle
    results = _member(json.loads(reply.body), "results")
    if not isinstance(results, list) or len(results) != 2:
        return _failed(f"this is no ranking of two documents: {_quote(reply.body)}")
    scores = {_member(one, "index"): _member(one, "relevance_score") for one in results}
    if scores.keys() != {0, 1}:
        return _failed(f"the ranking does not name documents 0 and 1, each once: {_quote(reply.body)}")
    if not all(map(_is_finite, scores.values())):
        return _failed(f"a score is no finite number: {_quote(reply.body)}; see: {question.logs}")
    near, far = scores[question.near_at], scores[1 - question.near_at]
    shown = f"score {near:.4g} of the relevant document, {far:.4g} of the other"
    if near <= far:
        return _failed(f"the relevant document is not first: {shown}: wrong weights? corral verify")
    if _member(results[0], "index") != question.near_at:
        return _failed(f"the ranking is not sorted by its scores: {shown}; see: {question.logs}")
    return Verdict("passed", shown)


def _vectors(reply: Reply, question: Question, count: int) -> list[_Vector] | Verdict:
    """The *count* vectors of an answer in the order of the texts, each sound; or why there are none."""
    if obstacle := refusal(reply, question):
        return obstacle
    data = _member(json.loads(reply.body), "data")
    places = [_member(one, "index") for one in data] if isinstance(data, list) else []
    if sorted(places, key=str) != list(range(count)):
        return _failed(f"this is no answer with {count} embeddings: {_quote(reply.body)}")
    vectors = [_member(one, "embedding") for one in sorted(data, key=lambda one: one["index"])]
    if not all(isinstance(one, list) and one for one in vectors):
        return _failed(f"an embedding is no list of numbers: {_quote(reply.body)}")
    if not all(_is_finite(number) for one in vectors for number in one):
        return _failed(f"an embedding has what is no finite number; see: {question.logs}")
    wanted = question.dimension or len(vectors[0])
    if wrong := next((len(one) for one in vectors if len(one) != wanted), 0):
        return _failed(f"an embedding has {wrong} numbers, and its model's header has {wanted}: {_WRONG_WEIGHTS}")
    if not all(any(one) for one in vectors):
        return _failed(f"an embedding is zero: {_WRONG_WEIGHTS}")
    return vectors


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _cosine(one: _Vector, other: _Vector) -> float:
    product: float = sum(map(mul, one, other))
    return product / (math.hypot(*one) * math.hypot(*other))


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _failed(reason: str) -> Verdict:
    return Verdict("failed", reason)


def _quote(body: bytes) -> str:
    return f'"{printable(body.decode("utf-8", errors="replace"), 240)}"'
