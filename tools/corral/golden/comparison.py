"""Whether a model still answers as recorded: its fields exactly, its first tokens within a stated distance.

The distance of two places is the mean difference of the natural logarithms of their tokens' probabilities, without
sign, over the ``TOP_TOKENS`` likeliest recorded ones.  A token that only the record lists counts as likely as the least
likely one of the other list: the true difference is this or more.  An answer is compared up to its first other token,
which is the last that follows the same text.

The mean of all questions has a limit, and so has that of each question, which is wider: it may have one place alone.
The end of an answer is a token, which llama-server lists with an empty text.  Where one answer ends within the first
tokens, the other goes on, and no end is listed, nothing is known of how likely the end was: that is another answer.

The limits are measured (docs/golden.md).  One engine on one machine repeats its numbers exactly, also beside other
requests.  Once anything is rounded otherwise (another way to compute attention, other batches, another processor), the
layers pass it on, and the distance is that of a cache of q8_0: this one can be found where engine and machine are the
same, and not across them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from corral.golden.asking import Asked
from corral.golden.questions import Question
from corral.golden.record import UNKNOWN, Answer, ModelRecord, Place, Serving

SAME_LIMIT = 0.05
"""Of the mean distance of a model's places, in nats: the same engine on the same machine."""
ACROSS_LIMIT = 0.2
"""The same where one of the two is another, or is not known."""

QUESTION = 3.0
"""A question's own limit as a multiple of that: 0.15 and 0.6."""
_END = ""
"""The text of the token that ends an answer, where the server lists it."""

State = Literal["passed", "failed", "unknown"]
_NOT_ASKED = "the record has no answer to it as it is asked now"


@dataclass(frozen=True)
class Compared:
    """One question: its *state*, the *distances* of its places in nats, *differences*, one a line, and both *texts*."""

    question: str
    state: State
    distances: tuple[float, ...] = ()
    differences: tuple[str, ...] = ()
    texts: tuple[str, str] | None = None

    @property
    def distance(self) -> float | None:
        """Their mean; None: nothing was compared."""
        return sum(self.distances) / len(self.distances) if self.distances else None


@dataclass(frozen=True)
class Checked:
    """One model: its questions, what has moved since the record, and the distance of all of its places.

    Attributes:
        model: its id.
        state: ``failed`` when an answer is another or a distance over its limit, else ``unknown`` when one could not be
            compared.
        compared: every question, of the record or asked now.
        moved: what ran then and now, one fact a line; empty: all of it is known and the same.
        distance: mean of all places, nats; None: none was compared.
        limit: of that, and *why* it is this one.
        parsed: answers that are the required JSON, then and now, and how many had to be.
        tokens_per_second: then and now; it is not judged.
    """

    model: str
    state: State
    compared: tuple[Compared, ...] = ()
    moved: tuple[str, ...] = ()
    distance: float | None = None
    limit: float = ACROSS_LIMIT
    why: str = ""
    parsed: tuple[int, int, int] = (0, 0, 0)
    tokens_per_second: tuple[float | None, float | None] = (None, None)


def check(
    model: str, recorded: ModelRecord, asked: Asked, questions: Mapping[str, Question], serving: Serving
) -> Checked:
    """Compare what *model* answered to *questions*, by their names, with what was *recorded*."""
    before = recorded.serving
    is_same = UNKNOWN not in (before.engine, before.machine) and (before.engine, before.machine) == (
        serving.engine,
        serving.machine,
    )
    limit = SAME_LIMIT if is_same else ACROSS_LIMIT
    compared = tuple(
        _compare(name, recorded.answers.get(name), asked, questions.get(name), QUESTION * limit)
        for name in dict.fromkeys((*questions, *recorded.answers))
    )
    distances = [value for one in compared for value in one.distances]
    distance = sum(distances) / len(distances) if distances else None
    states = {one.state for one in compared}
    if distance is not None and distance > limit:
        states.add("failed")
    wanted = [name for name, one in questions.items() if one.schema and name in recorded.answers]
    return Checked(
        model,
        "failed" if "failed" in states else "unknown" if "unknown" in states or distance is None else "passed",
        compared,
        tuple(moved(before, serving)),
        distance,
        limit,
        "the same engine and machine" if is_same else "across engines or machines",
        (
            sum(recorded.answers[name].fields is not None for name in wanted),
            sum(name in asked.answers and asked.answers[name].fields is not None for name in wanted),
            len(wanted),
        ),
        (recorded.tokens_per_second, asked.tokens_per_second),
    )


def moved(before: Serving, now: Serving) -> Iterator[str]:
    """What is different between the two, or not known, one fact a line."""
    for name in ("engine", "machine"):
        first, second = getattr(before, name), getattr(now, name)
        if first != second or first == UNKNOWN:
            yield f"{name}: {first} → {second}"
    if before.files is None or now.files is None:
        yield f"files: {UNKNOWN}"
    else:
        for path in sorted(before.files.keys() | now.files.keys()):
            first, second = before.files.get(path, "none"), now.files.get(path, "none")
            if first != second:
                yield f"file {path}: {first[:12]} → {second[:12]}"
    if before.argv_sha256 is None or now.argv_sha256 is None:
        yield f"command line: {UNKNOWN}"
    elif before.argv_sha256 != now.argv_sha256:
        yield f"command line: {before.argv_sha256[:12]} → {now.argv_sha256[:12]}"


def distance(before: Place, now: Place) -> float:
    """The distance of two places in nats, as above."""
    least = min(now.top.values())
    found = [
        abs(value - now.top[token]) if token in now.top else max(0.0, value - least)
        for token, value in before.top.items()
    ]
    return sum(found) / len(found)


def _compare(name: str, before: Answer | None, asked: Asked, question: Question | None, limit: float) -> Compared:
    if question is None:
        return Compared(name, "unknown", differences=("it is recorded, and is not asked any more",))
    if before is None or before.question_sha256 != question.sha256:
        return Compared(name, "unknown", differences=(_NOT_ASKED,))
    now = asked.answers.get(name)
    if now is None:
        problem = asked.problems[name]
        return Compared(name, "unknown" if problem.is_unknown else "failed", differences=(str(problem),))
    wrong = tuple(_other_fields(before, now))
    distances: list[float] = []
    tokens: list[str] = []
    is_over = False
    for at, (first, second) in enumerate(zip_longest(before.tokens, now.tokens), 1):
        if first is None or second is None:
            is_over = (first or second).token != _END  # one server lists the end, and the other does not
            tokens += [f"token {at}: {_likely(first)} → {_likely(second)}"] if is_over else []
            break
        distances.append(distance(first, second))
        if first.token != second.token:
            tokens.append(f"token {at}: {_likely(first)} → {_likely(second)}, distance {distances[-1]:.3f}")
            break
    mean = sum(distances) / len(distances)
    far = (f"its distance is {mean:.3f}, and {limit:g} is the most of one question",) if mean > limit else ()
    state: State = "failed" if wrong or is_over or far else "passed"
    return Compared(name, state, tuple(distances), (*wrong, *tokens, *far), (before.text, now.text))


def _likely(place: Place | None) -> str:
    if place is None:
        return "the end"
    value = place.top.get(place.token)
    return f"{place.token!r} ({'not among the likeliest' if value is None else f'{value:.2f}'})"


def _other_fields(before: Answer, now: Answer) -> Iterator[str]:
    """What must be exactly the same, and is not."""
    if before.prompt_tokens != now.prompt_tokens:
        counts = f"{before.prompt_tokens} → {now.prompt_tokens}"
        yield f"tokens of the prompt: {counts}: another chat template, tokenizer or projector"
    if before.fields is None and now.fields is None:
        return
    if before.fields is None or now.fields is None:
        if now.fields is None:
            yield "the answer is not the required JSON any more"
        return
    for path in dict.fromkeys((*before.fields, *now.fields)):
        first, second = (_field(one, path) for one in (before.fields, now.fields))
        if first != second:
            yield f"field {path}: {first} → {second}"


def _field(fields: Mapping[str, object], path: str) -> str:
    return repr(fields[path]) if path in fields else "none"
