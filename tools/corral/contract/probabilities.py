"""Token probabilities, as a chat completion with ``logprobs`` has them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

_LONGEST_TOKEN = 200  # characters


@dataclass(frozen=True)
class Share:
    """A token, and its probability from 0 to 1."""

    text: str
    probability: float


@dataclass(frozen=True)
class Chosen(Share):
    """The token of a position, and the likeliest ones there, the likeliest first."""

    top: tuple[Share, ...]


def question(model: str, prompt: str, *, tokens: int, top: int) -> dict[str, Any]:
    """The chat completion with *top* alternatives for each of *tokens* tokens, always the likeliest."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": top,
    }


def read(completion: Any) -> list[Chosen]:
    """The tokens of the first choice of *completion*.

    Raises:
        ValueError: it has no such list, or a value in it is no logarithm of a probability.
    """
    try:
        found = completion["choices"][0]["logprobs"]["content"]
        return [Chosen(**vars(_share(one)), top=tuple(_share(top) for top in one["top_logprobs"])) for one in found]
    except (LookupError, TypeError):
        raise ValueError("the answer has no logprobs") from None


def _share(entry: Any) -> Share:
    token, logarithm = entry["token"], entry["logprob"]
    is_number = isinstance(logarithm, (int, float)) and not isinstance(logarithm, bool)
    if not isinstance(token, str) or not is_number or not logarithm <= 1e-6:  # also NaN
        raise ValueError("a logprob is not of a token, or no logarithm of a probability")
    return Share(token[:_LONGEST_TOKEN], min(1.0, math.exp(logarithm)))
