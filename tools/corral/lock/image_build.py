"""Which build of llama.cpp the server's image runs, and which flags of a command line that build does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from corral.catalog.image_reference import ImageReference
from corral.engine import builds
from corral.engine.builds import Apart, BuildName
from corral.engine.embedded import LLAMA_CPP_BUILD
from corral.errors import CorralError, Refused
from corral.vram.server_flags import by_flag

DECLARATION: Final = "llama-cpp-build"
"""The key of images.yaml that states the build."""
LABEL: Final = "org.opencontainers.image.version"
"""The label that states it."""
_DECLARE: Final = f"Declare it in images.yaml: {DECLARATION}: bNNNNN (llama-server --version in that image prints it)"

_T = TypeVar("_T")

KnownBy = Literal["tag", "label", "declared"]


class EngineBuilds(BaseModel):
    """The builds of llama.cpp that a lock is about."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    predicts: BuildName = Field(description="the build that predicts the seats")
    runs: BuildName | None = Field(description="the build in the server's image; null where no image is named")
    known_by: KnownBy | None = Field(description="how that is known: by the image's tag, its label, or as declared")

    @model_validator(mode="after")
    def _known_if_run(self) -> Self:
        if (self.runs is None) != (self.known_by is None):
            raise ValueError("must have runs and known_by, or neither.")
        return self

    @property
    def warning(self) -> str | None:
        """That two builds predict and run, as a sentence; None where they are one, or no image is named."""
        if self.apart is None:
            return None
        flags = "" if builds.has_known_flags(str(self.runs)) else f", and which flags {self.runs} has is not known"
        why = f"{self.apart.sentence[0].upper()}{self.apart.sentence[1:]}{flags}."
        return f"{why} For one build: corral upgrade engine --to {self.runs}, or an image with {self.predicts}."

    @property
    def apart(self) -> Apart | None:
        """How far the two builds are apart; None where they are one, or no image is named."""
        return builds.apart(self.predicts, self.runs) if self.runs else None


def engine_image(images: Mapping[str, _T]) -> _T | None:
    """The one of *images* (by key) that has llama-server: an image of its own, else the one of llama-swap."""
    return images.get("llama-server") or images.get("llama-swap")


class _Present(Protocol):
    """Of a lock, what is needed here."""

    @property
    def engine(self) -> EngineBuilds | None: ...

    @property
    def images(self) -> Mapping[str, str]: ...


def find(
    images: Mapping[str, str],
    *,
    declared: str | None,
    labels: Callable[[ImageReference], Mapping[str, str]],
    present: _Present | None = None,
) -> EngineBuilds:
    """The builds of a lock with *images*.

    Args:
        images: images by key, pinned.
        declared: what images.yaml declares.
        labels: reads the labels of an image from its registry.
        present: the present lock: the registry of an image that it has is not asked again.

    Raises:
        Refused: neither tag nor label names it and nothing is declared, or the declaration contradicts the tag.
        CannotRun: the registry does not answer.
    """
    pinned = engine_image(images)
    if pinned is None:
        return _builds(None, None)
    image = ImageReference.parse(pinned)
    in_tag = builds.in_tag(image.tag)
    if declared is not None:
        if in_tag not in (None, declared):
            message = f"images.yaml declares {DECLARATION} {declared}, and the tag of {image.tagged} names {in_tag}."
            raise Refused(message, next_step=f"Remove {DECLARATION} from images.yaml, or correct the tag")
        return _builds(declared, "declared" if in_tag is None else "tag")
    if in_tag is not None:
        return _builds(in_tag, "tag")
    if present and present.engine and present.engine.known_by == "label" and engine_image(present.images) == pinned:
        return _builds(present.engine.runs, "label")
    try:
        label = labels(image).get(LABEL, "")
    except CorralError as error:
        raise type(error)(error.message, next_step=f"{error.next_step}, or: {_DECLARE}") from None
    if (found := builds.in_tag(label)) is None:
        raise Refused(
            f"Which build of llama.cpp runs is not known: neither the tag of {image.tagged} nor its label {LABEL} "
            "names one, like b11549.",
            next_step=_DECLARE,
        )
    return _builds(found, "label")


def _builds(runs: BuildName | None, known_by: KnownBy | None) -> EngineBuilds:
    return EngineBuilds(predicts=LLAMA_CPP_BUILD, runs=runs, known_by=known_by)


def require_known_flags(runs: str | None, model_id: str, argv: tuple[str, ...]) -> None:
    """Return when the server's image takes every flag of *argv*, as far as its builds were measured.

    Raises:
        Refused: build *runs* lacks one, or may lack it.
    """
    if runs is None:
        return
    unknown = builds.lacking(runs, set(_flags(argv)))
    if unknown:
        what = "; ".join(f"--{flag}: {why}" for flag, why in unknown.items())
        raise Refused(
            f"its command line has flags that the llama-server of the image lacks: {what}.",
            next_step=f"Remove {', '.join(unknown)} from {model_id}.yaml, or name an image with another build",
        )


def _flags(argv: tuple[str, ...]) -> Iterator[str]:
    return (name for name, _ in by_flag(argv[1:]) if name)
