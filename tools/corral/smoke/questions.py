"""The requests: one body per check, the same every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corral.catalog.catalog import Catalog
from corral.catalog.intent import Model
from corral.smoke import images

DEFAULT_PROMPT = "Reply with the single word OK."
IMAGE_PROMPT = (
    "Name the colour of each image, the first image first. Answer with the two colour names only, separated by a comma."
)
IMAGES_PROMPT = IMAGE_PROMPT.replace("the two colour names", "the colour names")
"""The same for any number of images."""
IMAGE_ORDERS = {"images": ("red", "blue"), "images-swapped": ("blue", "red")}
"""Check name → the colours it shows, in order.  Both ways, so that a fixed answer cannot pass twice."""

MAX_TOKENS = 256
MAX_TOKENS_THINKING = 2048
"""Thoughts count as tokens: with less, a reasoning model is cut off before it begins its answer."""


@dataclass(frozen=True)
class Subject:
    """A model as smoke checks it.

    Attributes:
        model: its id.
        sees: whether it takes images.
        thinks: whether it may reason before it answers.
        prompt: the question of the text checks.
        expect: the exact answer, or None when any non-empty one will do.
    """

    model: str
    sees: bool = False
    thinks: bool = True
    prompt: str = DEFAULT_PROMPT
    expect: str | None = None

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of its checks, in the order they are made.

        The stream is last: llama-server closes the connection after one, and llama-swap may not have noticed yet
        when the next request arrives.
        """
        return ("answer", *(IMAGE_ORDERS if self.sees else ()), "stream")

    def body(self, check: str) -> dict[str, Any]:
        """The chat completion request of *check*."""
        content: Any = self.prompt
        if check in IMAGE_ORDERS:
            urls = [images.data_url(images.solid_png(colour)) for colour in IMAGE_ORDERS[check]]
            content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
            content.append({"type": "text", "text": IMAGE_PROMPT})
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": content}],
            "temperature": 0,
            "max_tokens": MAX_TOKENS_THINKING if self.thinks else MAX_TOKENS,
            "stream": check == "stream",
        }


def subjects(catalog: Catalog, only: Sequence[str] = ()) -> tuple[Subject, ...]:
    """The models of *catalog*, or those named in *only*.

    Raises:
        Refused: a name is not the id of a model.
    """
    return tuple(_subject(name, catalog.models[name]) for name in catalog.select(list(only)))


def _subject(name: str, intent: Model) -> Subject:
    prompt, expect = (intent.smoke.prompt, intent.smoke.expect) if intent.smoke else (None, None)
    return Subject(name, intent.vision, intent.reasoning != "off", prompt or DEFAULT_PROMPT, expect)
