"""The requests: one body per check, the same every time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from corral.catalog.catalog import Catalog
from corral.catalog.intent import Model, Task
from corral.catalog.tasks import PATHS
from corral.errors import Refused
from corral.smoke import images

DEFAULT_PROMPT = "Reply with the single word OK."
IMAGE_PROMPT = (
    "Name the colour of each image, the first image first. Answer with the two colour names only, separated by a comma."
)
IMAGES_PROMPT = IMAGE_PROMPT.replace("the two colour names", "the colour names")
"""The same for any number of images."""
IMAGE_ORDERS = {"images": ("red", "blue"), "images-swapped": ("blue", "red")}
"""Check name → the colours it shows, in order.  Both ways, so that a fixed answer cannot pass twice."""

TEXTS: Mapping[Task, tuple[str, str, str]] = {
    "embedding": ("A cat sits on the mat.", "The cat sat on a mat.", "Quarterly profits fell by nine percent."),
    "rerank": (
        *("What is the capital of France?", "Paris is the capital of France."),
        "My dog slept on the rug by the door.",
    ),
}
"""A text, one that is near to it, and one that is far: what is sent where the catalog has no texts."""
RANKINGS = {"ranking": 1, "ranking-swapped": 0}
"""Check name → the place of the relevant document.  Both ways, so that a fixed order cannot pass twice."""

MAX_TOKENS = 256
MAX_TOKENS_THINKING = 2048
"""Thoughts count as tokens: with less, a reasoning model is cut off before it begins its answer."""


@dataclass(frozen=True)
class Subject:
    """A model as smoke checks it.

    Attributes:
        model: its id; of an adapter MODEL:NAME, or MODEL:NAME@VERSION.
        sees: whether it takes images.
        thinks: whether it may reason before it answers.
        prompt: the question of the text checks.
        expect: the exact answer, or None when any non-empty one will do.
        task: what it serves.
        near: of another task than chat: the text that is nearer to the prompt than *far*.
        far: the other text.
        dimension: numbers of an embedding, by the model's header; None: unknown.
    """

    model: str
    sees: bool = False
    thinks: bool = True
    prompt: str = DEFAULT_PROMPT
    expect: str | None = None
    task: Task = "chat"
    near: str = ""
    far: str = ""
    dimension: int | None = None

    @property
    def base(self) -> str:
        """The id of the model, whose process and log it has."""
        return self.model.partition(":")[0]

    @property
    def path(self) -> str:
        """Where its requests go."""
        return PATHS[self.task]

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of its checks, in the order they are made.

        The stream is last: llama-server closes the connection after one, and llama-swap may not have noticed yet
        when the next request arrives.
        """
        if self.task != "chat":
            return ("vector", "vectors") if self.task == "embedding" else tuple(RANKINGS)
        return ("answer", *(IMAGE_ORDERS if self.sees else ()), "stream")

    def body(self, check: str) -> dict[str, Any]:
        """The request of *check*."""
        if self.task == "embedding":
            texts = [self.prompt, self.near, self.far, self.prompt]
            return {"model": self.model, "input": texts if check == "vectors" else self.prompt}
        if self.task == "rerank":
            documents = [self.far, self.near] if RANKINGS[check] else [self.near, self.far]
            return {"model": self.model, "query": self.prompt, "documents": documents}
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


def subjects(
    catalog: Catalog, only: Sequence[str] = (), dimensions: Mapping[str, int] | None = None
) -> tuple[Subject, ...]:
    """The models of *catalog* with their adapters, or those named in *only*; *dimensions* of embeddings, where known.

    Raises:
        Refused: a name is neither the id of a model nor an adapter.
    """
    known, found = dimensions or {}, list[Subject]()
    for name in catalog.select(list(dict.fromkeys(name.partition(":")[0] for name in only))):
        own = (_subject(name, catalog.models[name], known.get(name)), *_adapters(name, catalog.models[name]))
        wanted = [each for each in only if each.partition(":")[0] == name]
        names = [one.model for one in own]
        if unknown := next((each for each in wanted if each not in names), None):
            adapters = ", ".join(names[1:]) or "it has none with a name"
            message = f"No adapter {unknown} in {catalog.directory}; of {name}: {adapters}."
            raise Refused(message, next_step="corral adapters list")
        found += own if not wanted or name in wanted else [one for one in own if one.model in wanted]
    return tuple(found)


def _adapters(model_id: str, intent: Model) -> Iterator[Subject]:
    """Each adapter as it serves, and of several versions each; which of them serves is not the catalog's to know."""
    base = _subject(model_id, intent, None)
    for name in intent.adapter_names:
        versions = [one for one in intent.adapters if one.name == name]
        common = versions[0].smoke if len(versions) == 1 else None
        named = [(name, common), *((one.id, one.smoke) for one in versions if len(versions) > 1)]
        for each, smoke in named:
            prompt, expect = (smoke.prompt, smoke.expect) if smoke else (None, None)
            yield replace(base, model=f"{model_id}:{each}", sees=False, prompt=prompt or base.prompt, expect=expect)


def _subject(name: str, intent: Model, dimension: int | None) -> Subject:
    smoke = intent.smoke
    prompt, expect = (smoke.prompt, smoke.expect) if smoke else (None, None)
    if intent.task == "chat":
        return Subject(name, intent.vision, intent.reasoning != "off", prompt or DEFAULT_PROMPT, expect)
    text, near, far = TEXTS[intent.task]
    if smoke and smoke.prompt and smoke.near and smoke.far:
        text, near, far = smoke.prompt, smoke.near, smoke.far
    return Subject(name, thinks=False, prompt=text, task=intent.task, near=near, far=far, dimension=dimension)
