"""How long an answer takes, by arithmetic from what a benchmark of the model measured.

The engine works on one prompt at a time, and makes the next token of all answers together.  So each of n requests side
by side waits while it reads the n prompts, its own included, and then for its own tokens at the pace of n:

    seconds = n x first(prompt) + (answer - 1) x next(n, prompt + answer / 2)

``first`` is what one request alone waits for its first token, ``next`` what a token takes; both are read off measured
points, with straight lines between them.  Requests beyond the slots of the model wait for one: with r at a time and s
slots, r / s times as long.  ``docs/benchmarks/latency.md`` has the error of this arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from corral.catalog.ledger import Speed

BEYOND = 1.25
"""A prompt or a context may be so many times the largest that was measured; what a larger one takes is unknown."""


def most_prompt_tokens(speed: Speed) -> int:
    """The largest prompt of which *speed* knows something."""
    return int(BEYOND * max(one.prompt_tokens for one in speed.first_token))


def answer_seconds(
    speed: Speed, *, prompt_tokens: float, answer_tokens: float, at_once: int, parallel: int
) -> float | None:
    """The median time of an answer by a loaded model, waiting included; None: *speed* has nothing to tell it from.

    Args:
        speed: what a benchmark measured.
        prompt_tokens: of the prompt.
        answer_tokens: of the answer.
        at_once: requests under way at a time, all alike.
        parallel: slots of the model.
    """
    beside = min(at_once, parallel)
    context = prompt_tokens + answer_tokens / 2
    if prompt_tokens > most_prompt_tokens(speed) or beside > max(one.at_once for one in speed.next_token):
        return None
    if context > BEYOND * max(one.context_tokens for one in speed.next_token):
        return None
    first = first_token_seconds(speed, prompt_tokens)
    seconds = beside * first + (answer_tokens - 1) * next_token_seconds(speed, beside, context)
    return seconds * max(1.0, at_once / parallel)


def first_token_seconds(speed: Speed, prompt_tokens: float) -> float:
    """What one request alone waits for its first token."""
    return _read_off([(one.prompt_tokens, one.seconds) for one in speed.first_token], prompt_tokens)


def next_token_seconds(speed: Speed, beside: int, context: float) -> float:
    """What a token takes with *beside* answers side by side, each with a *context* of so many tokens.

    A longer context costs each answer its own part, which the measurement of one answer alone has.
    """
    alone = [(one.context_tokens, one.seconds) for one in speed.next_token if one.at_once == 1]
    at = min(one.context_tokens for one in speed.next_token)
    pace = _read_off([(one.at_once, one.seconds) for one in speed.next_token if one.context_tokens == at], beside)
    return pace + beside * (_read_off(alone, context) - _read_off(alone, at))


def _read_off(points: Sequence[tuple[float, float]], at: float) -> float:
    """The value at *at* of the straight lines through *points*; the first and the last line go on; never below 0."""
    ordered = sorted(points)
    if len(ordered) == 1:
        return ordered[0][1]
    (x0, y0), (x1, y1) = next((line for line in pairwise(ordered) if at <= line[1][0]), (ordered[-2], ordered[-1]))
    return max(0.0, y0 + (y1 - y0) * (at - x0) / (x1 - x0))
