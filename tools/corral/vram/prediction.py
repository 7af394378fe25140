"""What one command line takes in memory, as the engine predicts it: the rows that the lock keeps of a model.

Bytes everywhere; MiB is for what people read (``mib``).
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

MIB = 1 << 20

_Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
_Text = Annotated[str, StringConstraints(min_length=1)]
_Bytes = Annotated[int, Field(ge=0)]


def mib(count: int) -> int:
    """*count* bytes in whole MiB, rounded up: what is promised must hold."""
    return -(-count // MIB)


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Bytes(_Row):
    """Bytes on one side, the card's or the host's, by what they are for."""

    weights: _Bytes = Field(description="tensors of the model")
    context: _Bytes = Field(description="KV cache and recurrent state")
    compute: _Bytes = Field(description="buffers of the largest graph")
    projector: _Bytes = Field(description="weights and buffers of the projector; 0 without one")
    adapters: _Bytes = Field(default=0, description="matrices of the adapters; 0 without one")
    draft: _Bytes = Field(default=0, description="weights, context and buffers of the draft model; 0 without one")

    @property
    def total(self) -> int:
        """Bytes of all parts."""
        return self.weights + self.context + self.compute + self.projector + self.adapters + self.draft


class Rule(_Row):
    """Bytes on the card that the engine cannot know beforehand, and where the rule is from."""

    name: _Text
    bytes: _Bytes
    source: _Text


class Rung(_Row):
    """What the same model takes with another context."""

    context: int = Field(gt=0, description="tokens per request slot")
    gpu_bytes: _Bytes = Field(description="bytes on the card, rules included")
    host_bytes: _Bytes = Field(description="bytes of host memory")


class Prediction(_Row):
    """What a model takes, for exactly one command line and one build of the engine."""

    engine: _Text = Field(description="the build that was asked")
    rules_version: int = Field(ge=1, description="of the rules that were applied (corral.vram.rules)")
    headers: tuple[_Sha256, ...] = Field(description="the files' headers in headers/, in the order of `files`")
    context_trained: int | None = Field(
        default=None, gt=0, description="tokens that the model was trained for; null when unknown"
    )
    gpu: Bytes | None = Field(
        default=None, description="bytes on the card, as the engine counts them; null when it could not"
    )
    host: Bytes | None = Field(default=None, description="bytes of host memory; null when the engine could not")
    rules: tuple[Rule, ...] = Field(default=(), description="further bytes on the card, each by a rule")
    gpu_bytes: int | None = Field(
        default=None, gt=0, description="bytes on the card in all: gpu and rules; null without gpu"
    )
    ladder: tuple[Rung, ...] = Field(default=(), description="the same with other contexts; smallest first")
    projector_type: str | None = Field(default=None, description="number format of most of the projector, e.g. F16")
    unmeasured: _Text | None = Field(
        default=None, description="why the engine could not predict it; then the intent declares what it takes"
    )

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if (self.gpu is None) != (self.host is None) or (self.gpu is None) != (self.unmeasured is not None):
            raise ValueError("must have gpu and host, or state why they are unmeasured.")
        total = None if self.gpu is None else self.gpu.total + sum(rule.bytes for rule in self.rules)
        if self.gpu_bytes != total:
            raise ValueError(f"gpu and rules add up to {total}, not to gpu_bytes {self.gpu_bytes}.")
        return self
