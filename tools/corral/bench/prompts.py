"""Prompts of a length, no two of which begin alike: a server that reads from its cache would look fast."""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping
from typing import Any

_WORDS = (
    *("the", "of", "and", "to", "in", "is", "you", "that", "it", "he", "was", "for", "on", "are", "as", "with", "his"),
    *("they", "at", "be", "this", "have", "from", "or", "one", "had", "by", "but", "not"),
)
_PREFIX_TOKENS = 8
MOST_WORDS_A_TOKEN = 2
"""Whatever a server counts."""


class Prompts:
    """Prompts of about *tokens* tokens; ``correct`` makes that exact within a few, by what a server has counted."""

    def __init__(self, tokens: int, seed: int = 0) -> None:
        self._tokens = tokens
        self._words = max(1, tokens - _PREFIX_TOKENS)
        self._last: tuple[int, int] | None = None
        self._source = random.Random(seed)  # noqa: S311 - no secret

    def next(self) -> str:
        """A prompt that was not used before."""
        words = self._source.choices(_WORDS, k=self._words)
        return f"{secrets.token_hex(8)} {' '.join(words)}"

    def resize(self, tokens: int) -> None:
        """Make prompts of *tokens* tokens from now on; by the last count, none has more."""
        words, counted = self._last or (1, 1)
        self._tokens, self._words, self._last = tokens, max(1, tokens * words // counted), None

    def correct(self, counted: int) -> None:
        """The last prompt had *counted* tokens, the chat template's included.

        With two counts of different lengths, what a word takes is known, and what is there without any.
        """
        words, wanted = self._words, self._tokens - counted
        tokens_a_word = counted / words
        if self._last and self._last[0] != words and (found := (counted - self._last[1]) / (words - self._last[0])) > 0:
            tokens_a_word = found
        self._last = (words, counted)
        self._words = min(max(1, words + round(wanted / tokens_a_word)), MOST_WORDS_A_TOKEN * self._tokens)


def body(model: str, prompt: str, answer_tokens: int, *, may_end: bool) -> Mapping[str, Any]:
    """A request for an answer of *answer_tokens* tokens, streamed, always of the likeliest token.

    Unless it *may_end* by itself, the answer has exactly so many: ``ignore_eos`` is llama.cpp's and vLLM's.
    """
    asked: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": answer_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return asked if may_end else asked | {"ignore_eos": True}
