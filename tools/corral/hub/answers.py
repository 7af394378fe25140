"""What hubs and registries answer in JSON: the fields that are used, strictly typed and bounded.

All other fields are left out, and need not even be sound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from corral.agent.hub_policy import printable
from corral.agent.lock_file import is_repo_path

MOST_FILE_BYTES = 1 << 50

_MOST_NODES = 100_000
"""Lists and objects in one answer: each takes hundreds of bytes of memory, and two in the answer."""

_T = TypeVar("_T")
_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")
CONFIG = "config.json"
_PARTS = frozenset(
    {
        CONFIG,
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "generation_config.json",
        "merges.txt",
        "model.safetensors.index.json",
        "quant_config.json",
        "quantize_config.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "vocab.json",
    }
)


def is_weights(path: str) -> bool:
    """Whether *path* in a repository names safetensors of the model itself, whole or one of several files."""
    return _WEIGHTS.fullmatch(path) is not None


def is_part(path: str) -> bool:
    """Whether vLLM may get the file at *path* of a repository: weights without code, configuration, tokenizer.

    Programs (``*.py``) and pickled weights (``*.bin``), which run code when they are read, are none.
    """
    return path in _PARTS or is_weights(path)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{printable(text)} has characters that cannot be printed")
    return text


_Text = Annotated[str, StringConstraints(max_length=200), AfterValidator(_printable)]
_Size = Annotated[int, Field(ge=0, le=MOST_FILE_BYTES)]

_Bearer = Annotated[str, StringConstraints(max_length=1 << 14, pattern="^[ -~]*$")]


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Card(_Answer):
    """The model card's own data."""

    license: _Text | list[_Text] | None = None


def _licences(tags: list[str] | None) -> list[str]:
    return [_printable(tag) for tag in tags or [] if tag.startswith("license:")]


class Report(_Answer):
    """A repository at a revision; of its tags only the licences."""

    id: _Text
    sha: Annotated[str, StringConstraints(pattern="^[0-9a-f]{40}$")]
    tags: Annotated[list[str] | None, AfterValidator(_licences)] = None
    card_data: Card | None = Field(None, alias="cardData")


class Lfs(_Answer):
    """Where Git has a pointer, what it points to."""

    oid: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    size: _Size
    pointer_size: int = Field(alias="pointerSize")


class File(_Answer):
    """A file of a listing."""

    type: Literal["file"]
    path: str
    size: _Size
    oid: str
    lfs: Lfs | None = None


class Folder(_Answer):
    """A folder of a listing."""

    type: Literal["directory"]
    path: str
    oid: str


def _only_gguf(entries: list[File | Folder]) -> list[File]:
    """The files that a model can have: what the others are called does not matter."""
    return _proper(entry for entry in entries if isinstance(entry, File) and entry.path.lower().endswith(".gguf"))


def _only_parts(entries: list[File | Folder]) -> list[File]:
    """The files that a folder of safetensors can have."""
    return _proper(entry for entry in entries if isinstance(entry, File) and is_part(entry.path))


def _proper(found: Iterable[File]) -> list[File]:
    files = list(found)
    for file in files:
        if not is_repo_path(file.path):
            raise ValueError(f"{printable(file.path)!r} is no path that a file of a repository may have")
    return files


_Entry = Annotated[File | Folder, Field(discriminator="type")]


class Token(_Answer):
    """What a registry gives without a password, by either name."""

    token: _Bearer | None = None
    access_token: _Bearer | None = None


class Platform(_Answer):
    """What an image is for."""

    os: _Text
    architecture: _Text


class Part(_Answer):
    """A manifest in an index, or the configuration in a manifest."""

    digest: Annotated[str, StringConstraints(pattern="^sha256:[0-9a-f]{64}$")]
    platform: Platform | None = None


class ImageManifest(_Answer):
    """Of one image, which has a configuration, or of several, one for each platform."""

    config: Part | None = None
    manifests: list[Part] | None = None


class _Labelled(_Answer):
    labels: dict[_Text, Annotated[str, StringConstraints(max_length=4096)]] | None = Field(None, alias="Labels")


class ImageConfig(_Answer):
    """The configuration of an image: of it only the labels."""

    config: _Labelled


class Tags(_Answer):
    """The tags of a repository, or one page of them."""

    tags: list[Annotated[str, StringConstraints(max_length=128)]]


REPORT: TypeAdapter[Report] = TypeAdapter(Report)
PAGE: TypeAdapter[list[File | Folder]] = TypeAdapter(Annotated[list[_Entry], FailFast(), AfterValidator(_only_gguf)])
"""A page of a listing: its GGUF files."""
PARTS: TypeAdapter[list[File | Folder]] = TypeAdapter(Annotated[list[_Entry], FailFast(), AfterValidator(_only_parts)])
"""A page of a listing: its files that a model on vLLM can have."""
TOKEN: TypeAdapter[Token] = TypeAdapter(Token)
IMAGE_MANIFEST: TypeAdapter[ImageManifest] = TypeAdapter(ImageManifest)
IMAGE_CONFIG: TypeAdapter[ImageConfig] = TypeAdapter(ImageConfig)
TAGS: TypeAdapter[Tags] = TypeAdapter(Tags)


def parse(form: TypeAdapter[_T], body: bytes) -> _T:
    """The JSON text *body*, of the given *form*.

    Raises:
        ValueError: it is not; the message is a clause that can be printed.
    """
    if body.count(b"[") + body.count(b"{") > _MOST_NODES:
        raise ValueError(f"more than {_MOST_NODES:,} lists and objects")
    try:
        return form.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(printable(f"{where}: {first['msg']}" if where else first["msg"])) from None
