"""The container images of the cluster."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator

from corral.catalog.forms import BUILD_PATTERN, STRICT
from corral.catalog.image_reference import PATTERN as IMAGE_PATTERN
from corral.catalog.image_reference import ImageReference


def _is_image(text: str) -> str:
    ImageReference.parse(text)
    return text


_Image = Annotated[str, AfterValidator(_is_image), Field(json_schema_extra={"pattern": IMAGE_PATTERN})]


class Images(BaseModel):
    """The container images of the cluster; `corral lock` pins each by its digest."""

    model_config = STRICT

    llama_swap: _Image | None = Field(
        None,
        alias="llama-swap",
        description="llama-swap with llama-server in it; may be left out where the stack's variable image names one",
    )
    llama_server: _Image | None = Field(
        None,
        alias="llama-server",
        description=(
            "the engine's own image, e.g. ghcr.io/ggml-org/llama.cpp:server-cuda-b11549; the image llama-swap then "
            "brings the program llama-swap alone"
        ),
    )
    door: _Image | None = Field(
        None,
        description="Caddy, the front door, e.g. caddy:2.11-alpine; only a catalog without a cluster may leave it out",
    )
    vllm: _Image | None = Field(
        None, description="vLLM, for models with engine: vllm in a cluster, e.g. vllm/vllm-openai:v0.32.0"
    )
    fetch: _Image = Field(
        description="Python 3.11 or newer for the download Job and the guard of the door, e.g. python:3.13-slim"
    )
    gateway: _Image | None = Field(
        None,
        description="LiteLLM's proxy, e.g. ghcr.io/berriai/litellm-non_root:1.106.2; where the stack has a gateway",
    )
    llama_cpp_build: Annotated[str, StringConstraints(pattern=BUILD_PATTERN)] | None = Field(
        None,
        alias="llama-cpp-build",
        description="the build of llama.cpp in the server's image, e.g. b11549, where no tag or label of it names one",
    )

    @model_validator(mode="after")
    def _has_llama_swap(self) -> Self:
        if self.llama_server and not self.llama_swap:
            raise ValueError(
                "llama-server is the engine alone: llama-swap must name the image with the program llama-swap."
            )
        return self

    def references(self) -> dict[str, ImageReference]:
        """Every image by its key in images.yaml."""
        named = self.model_dump(by_alias=True, exclude_none=True, exclude={"llama_cpp_build"})
        return {key: ImageReference.parse(text) for key, text in named.items()}
