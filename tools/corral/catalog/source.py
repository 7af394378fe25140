"""Where the files of a model come from, as its file in the catalog has it."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, StringConstraints, field_validator, model_validator

from corral.catalog.forms import QUANT_PATTERN, REPO_PATTERN, REVISION_PATTERN, STRICT, Text

ONE_FILE = "must have exactly one of quant (e.g. Q4_K_M) and file (an exact path in the repository)."


class Source(BaseModel):
    """Where the files come from: a repository of the hub, or a file that is already on disk."""

    model_config = STRICT

    repo: Annotated[str, StringConstraints(pattern=REPO_PATTERN)] | None = Field(
        None, description="repository on the hub, e.g. Qwen/Qwen3-8B-GGUF"
    )
    revision: Annotated[str, StringConstraints(pattern=REVISION_PATTERN)] | None = Field(
        "main", description="branch, tag or commit; the lock pins the commit it meant"
    )
    quant: Annotated[str, StringConstraints(pattern=QUANT_PATTERN)] | None = Field(
        None, description="quantisation, e.g. Q4_K_M; exactly that: UD-Q4_K_XL or i1-Q4_K_M only when named so"
    )
    file: Text | None = Field(
        None, description="exact path of the GGUF in the repository (its first shard), instead of quant"
    )
    path: Text | None = Field(
        None, description="a GGUF that is already on disk: absolute, or relative to the catalog folder"
    )
    mmproj: Text = Field("auto", description="projector: auto (when the model takes images), none, or an exact file")

    @model_validator(mode="before")
    @classmethod
    def _no_revision_on_disk(cls, value: Any) -> Any:
        """The default revision is for the hub: what is on disk has none."""
        return {"revision": None, **value} if isinstance(value, dict) and value.get("path") is not None else value

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.repo is None) == (self.path is None):
            raise ValueError("must have exactly one of repo (on the hub) and path (on disk).")
        if self.path is not None:
            extra = [key for key in ("revision", "quant", "file") if getattr(self, key) is not None]
            if extra:
                raise ValueError(f"path names the file itself: leave out {', '.join(extra)}.")
        elif self.revision is None:
            raise ValueError("revision must be a branch, a tag or a commit, not nothing.")
        elif self.quant is not None and self.file is not None:
            raise ValueError(ONE_FILE)
        return self

    @property
    def names_a_file(self) -> bool:
        """Whether it means one GGUF; otherwise it means the safetensors of a whole repository, which vLLM serves."""
        return self.path is not None or self.quant is not None or self.file is not None

    @field_validator("file", "path", "mmproj")
    @classmethod
    def _names_a_gguf(cls, value: str | None) -> str | None:
        if value is not None and value not in ("auto", "none") and not value.endswith(".gguf"):
            raise ValueError(f"must name a .gguf file, not {value!r}.")
        return value

    @field_validator("file")
    @classmethod
    def _inside_the_repository(cls, value: str | None) -> str | None:
        if value is not None and (value.startswith("/") or ".." in value.split("/")):
            raise ValueError(f"must be a path inside the repository, not {value!r}.")
        return value
