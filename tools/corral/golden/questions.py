"""The golden questions: corral's own, and those of the catalog's ``golden.yaml``; the same bytes every time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.catalog.catalog import Catalog
from corral.smoke import images
from corral.smoke.questions import IMAGES_PROMPT, MAX_TOKENS

FIRST_TOKENS = 8
"""Tokens of an answer whose log-probabilities are compared."""
TOP_TOKENS = 10
"""The likeliest tokens at each of these places that are compared."""
SEED = 1

_Message = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """A conversation, and what is asked of its answer.

    Attributes:
        name: unique for a model.
        messages: as the endpoint takes them, images within.
        schema: JSON schema that binds the answer, whose fields are compared; None: only its first tokens are.
    """

    name: str
    messages: tuple[_Message, ...]
    schema: Mapping[str, Any] | None = None

    def body(self, model: str, *, thinks: bool) -> dict[str, Any]:
        """The request to *model*; one that *thinks* answers a question with fields without thoughts.

        Greedy and from no cache, so that nothing but the model decides; whole only where fields need that.
        """
        asked: dict[str, Any] = {
            "model": model,
            "messages": list(self.messages),
            "temperature": 0,
            "seed": SEED,
            "cache_prompt": False,
            "logprobs": True,
            "top_logprobs": TOP_TOKENS,
            "max_tokens": MAX_TOKENS if self.schema else FIRST_TOKENS,
        }
        if self.schema:
            asked |= bound(self.name, self.schema, thinks=thinks)
        return asked

    @property
    def sha256(self) -> str:
        """The digest of all that is sent, the model's name aside: answers to another question are another matter."""
        plain = json.dumps(self.body("", thinks=True), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(plain.encode()).hexdigest()


def bound(name: str, schema: Mapping[str, Any], *, thinks: bool) -> dict[str, Any]:
    """What binds the answer to a request to *schema*; a model that *thinks* answers without thoughts."""
    named = {"name": name, "strict": True, "schema": schema}
    asked: dict[str, Any] = {"response_format": {"type": "json_schema", "json_schema": named}}
    return asked | ({"chat_template_kwargs": {"enable_thinking": False}} if thinks else {})


def of(catalog: Catalog, model: str) -> tuple[Question, ...]:
    """The questions for *model* of *catalog*: corral's own, and the operator's, which may replace one by its name."""
    sees = catalog.models[model].vision
    found = {one.name: one for one in (*TEXT, *(VISION if sees else ()))}
    for name, one in (catalog.golden.questions if catalog.golden else {}).items():
        if model in one.models if one.models is not None else sees or not one.images:
            *before, last = (message.model_dump() for message in one.messages)
            asked = _user(last["content"], one.images)
            found[name] = Question(name, (*before, asked), one.json_schema)
    return tuple(found.values())


def _user(text: str, colours: Sequence[str] = ()) -> _Message:
    if not colours:
        return {"role": "user", "content": text}
    urls = (images.data_url(images.solid_png(colour)) for colour in colours)
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def _fields(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_NUMBER = {"type": "integer", "minimum": 0, "maximum": 999}
TEXT = (
    Question("arithmetic", (_user("How much is 2 + 3?"),), _fields(result=_NUMBER)),
    Question(
        "fields",
        (_user("Anna is 34 years old and lives in Rome. Give her name, age and city as JSON."),),
        _fields(name={"type": "string", "maxLength": 20}, age=_NUMBER, city={"enum": ["Berlin", "Paris", "Rome"]}),
    ),
    Question("format", (_user("Name the four seasons as a Markdown list, one a line, and nothing else."),)),
    Question("prose", (_user("Describe the sea at night in one sentence."),)),
    # What a wrong template breaks: a system message, and turns.
    Question(
        "conversation",
        (
            {"role": "system", "content": "You are a polite assistant. You answer in one short sentence."},
            _user("My dog is called Rex, and my cat is called Tom."),
            {"role": "assistant", "content": "Rex and Tom are lovely names for a dog and a cat."},
            _user("What is my dog called?"),
        ),
    ),
)
_COLOURS = _fields(colours={"type": "string", "maxLength": 40})
VISION = (
    Question("images", (_user(IMAGES_PROMPT, ("red", "blue", "blue")),), _COLOURS),
    Question("images-swapped", (_user(IMAGES_PROMPT, ("blue", "blue", "red")),), _COLOURS),
)
