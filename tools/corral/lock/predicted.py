"""The VRAM rows of a locked model: what the engine itself said that one command line takes.

Bytes everywhere; MiB is for what people read (``mib``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from corral.catalog.digest import intent_sha256
from corral.engine import embedded

_Strict = ConfigDict(extra="forbid", frozen=True)
_Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
_Text = Annotated[str, StringConstraints(min_length=1)]
_Bytes = Annotated[int, Field(ge=0)]

ENGINE = embedded.ENGINE
"""The one build that is asked; figures of another one say nothing about it."""

RULES_VERSION = 1
"""Of ``corral.vram.rules`` and the ladder: raised when either would give other bytes for the same model."""

MIB = 1 << 20


def mib(count: int) -> int:
    """*count* bytes in whole MiB, rounded up: what is promised must hold."""
    return -(-count // MIB)


class MemoryParts(BaseModel):
    """Bytes on one side, the card's or the host's, by what they are for."""

    model_config = _Strict

    weights: _Bytes = Field(description="tensors of the model")
    context: _Bytes = Field(description="KV cache and recurrent state")
    compute: _Bytes = Field(description="buffers of the largest graph")
    projector: _Bytes = Field(description="weights and buffers of the projector; 0 without one")

    @property
    def total(self) -> int:
        """Bytes of all parts."""
        return self.weights + self.context + self.compute + self.projector


class RuleRow(BaseModel):
    """Bytes on the card that the engine cannot know beforehand, and where the rule is from."""

    model_config = _Strict

    name: _Text
    bytes: _Bytes
    source: _Text


class Rung(BaseModel):
    """What the same model takes with another context."""

    model_config = _Strict

    context: int = Field(gt=0, description="tokens per request slot")
    gpu_total: _Bytes = Field(description="bytes on the card, rules included")
    host_total: _Bytes = Field(description="bytes of host memory")


class Declared(BaseModel):
    """What the operator states instead of, or on top of, a measurement."""

    model_config = _Strict

    mib: int = Field(gt=0)
    why: _Text

    @property
    def bytes(self) -> int:
        """The same in bytes."""
        return self.mib * MIB


class Vram(BaseModel):
    """What a model takes, for exactly one command line and one build of the engine."""

    model_config = _Strict

    engine: _Text = Field(description="the build that was asked")
    rules_version: int = Field(0, ge=0, description="of the rules that were applied; 0 when it is not known")
    argv_sha256: _Sha256 = Field(description="sha256 of the command line, as Terraform computes it from `argv`")
    headers: tuple[_Sha256, ...] = Field(description="the files' headers in headers/, in the order of `files`")
    context_trained: int | None = Field(None, description="tokens that the model was trained for")
    gpu: MemoryParts | None = Field(None, description="measured bytes on the card")
    host: MemoryParts | None = Field(None, description="measured bytes of host memory")
    rules: tuple[RuleRow, ...] = Field((), description="further bytes on the card, each by a rule")
    gpu_total: int = Field(
        gt=0, description="bytes on the card in all: measured and rules, or declared if that is more"
    )
    ladder: tuple[Rung, ...] = Field((), description="the same with other contexts, measured alike; smallest first")
    projector_type: str | None = Field(None, description="number format of most of the projector, e.g. F16")
    declared: Declared | None = Field(None, description="only when the intent declares")
    unmeasured: _Text | None = Field(None, description="why the engine could not measure; then it is declared")
    rows_sha256: _Sha256 | None = Field(None, description="sha256 of all the other rows: a figure edited by hand shows")

    @property
    def measured(self) -> int | None:
        """Bytes on the card as measured, rules included; None when the engine could not."""
        return None if self.gpu is None else self.gpu.total + sum(rule.bytes for rule in self.rules)

    @property
    def is_declared(self) -> bool:
        """Whether the total is the operator's figure and not the engine's."""
        return self.declared is not None and self.gpu_total != self.measured

    def sealed(self) -> Vram:
        """The same rows with the digest that belongs to them."""
        return self.model_copy(update={"rows_sha256": self._digest()})

    def _digest(self) -> str:
        return intent_sha256(self.model_dump(mode="json", exclude={"rows_sha256"}))

    def problems(self) -> Iterator[str]:
        """Ways in which the rows contradict one another, as the ends of a sentence about them."""
        if (self.gpu is None) != (self.host is None) or (self.gpu is None) != (self.unmeasured is not None):
            yield "must have gpu and host, or say why they are unmeasured"
            return
        floor = self.measured or 0
        if self.gpu is None and self.declared is None:
            yield "are unmeasured, and nothing is declared in their place"
        elif self.declared and self.declared.bytes < floor:
            yield f"declare {self.declared.mib} MiB, less than the {mib(floor)} MiB that were measured"
        elif self.gpu_total != max(floor, self.declared.bytes if self.declared else 0):
            yield f"do not add up to their gpu_total of {self.gpu_total:,} bytes"
        elif self.rows_sha256 != self._digest():
            yield "were edited by hand; what an engine really takes is for `corral measure`, or for vram in the intent"
