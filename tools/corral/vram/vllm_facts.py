"""What decides the memory of a model on vLLM: numbers of its config.json, and of its tensors how much of each format.

Both come from a repository of the hub.  The numbers are strictly typed and bounded, everything else is left out, and
the rest of corral reads only the facts, whose canonical bytes are kept beside the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from corral.agent.hub_policy import printable
from corral.catalog import vllm_rules
from corral.errors import EngineCannotPredict, UnreadableHeader
from corral.vram.oracle import DECLARE
from corral.vram.safetensors_header import Tensor

DENSE: Final = frozenset(
    {
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "Phi3ForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "SmolLM3ForCausalLM",
    }
)
"""Decoders in which every layer has the same attention over the whole context, and one MLP: what the rules count."""

_Count = Annotated[int, Field(gt=0, le=1 << 24)]
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]


class _Quantisation(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    quant_method: _Name


class _Config(BaseModel):
    """The fields of config.json that count, by their names in transformers."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    architectures: Annotated[list[_Name], Field(min_length=1, max_length=1)]
    num_hidden_layers: _Count
    num_attention_heads: _Count
    num_key_value_heads: _Count | None = None
    head_dim: _Count | None = None
    hidden_size: _Count
    intermediate_size: _Count
    vocab_size: _Count
    max_position_embeddings: _Count
    tie_word_embeddings: bool = False
    quantization_config: _Quantisation | None = None
    sliding_window: _Count | None = None
    use_sliding_window: bool | None = None


class Stored(BaseModel):
    """The tensors of one number format."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    elements: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]


class Facts(BaseModel):
    """What decides the memory of a model; counts, and bytes of the files' tensors by number format."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    kind: Annotated[str, Field(pattern="^vllm-facts-1$")] = "vllm-facts-1"
    architecture: _Name
    layers: _Count
    heads: _Count
    kv_heads: _Count
    head_dim: _Count
    hidden: _Count
    intermediate: _Count
    vocabulary: _Count
    trained: _Count
    tied: bool
    windowed: bool
    quantisation: _Name | None
    weights: dict[str, Stored]

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError("num_attention_heads is no multiple of num_key_value_heads")
        return self

    def kept(self) -> bytes:
        """The bytes that are kept beside the lock, always the same for the same facts."""
        return self.model_dump_json(indent=1).encode()

    @classmethod
    def parse(cls, kept: bytes) -> Facts:
        """The facts of ``kept``.

        Raises:
            UnreadableHeader: it is something else.
        """
        try:
            return cls.model_validate_json(kept)
        except ValidationError as error:
            raise UnreadableHeader(
                f"what was kept of a model for vLLM cannot be read ({error.error_count()} faults).",
                next_step="corral lock",
            ) from None


def facts_of(model_id: str, config: bytes, tensors: Mapping[str, Tensor]) -> Facts:
    """The facts of a model, of its config.json and its *tensors*.

    Raises:
        EngineCannotPredict: the configuration has not what the rules count; with a declared figure it can be locked.
    """
    try:
        read = _Config.model_validate_json(config)
        return Facts(
            architecture=read.architectures[0],
            layers=read.num_hidden_layers,
            heads=read.num_attention_heads,
            kv_heads=read.num_key_value_heads or read.num_attention_heads,
            head_dim=read.head_dim or read.hidden_size // read.num_attention_heads,
            hidden=read.hidden_size,
            intermediate=read.intermediate_size,
            vocabulary=read.vocab_size,
            trained=read.max_position_embeddings,
            tied=read.tie_word_embeddings,
            windowed=bool(read.sliding_window) and read.use_sliding_window is not False,
            quantisation=read.quantization_config.quant_method if read.quantization_config else None,
            weights=_by_format(
                one for name, one in tensors.items() if not (read.tie_word_embeddings and name == "lm_head.weight")
            ),
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = printable(".".join(map(str, first["loc"])) or "it")
        raise EngineCannotPredict(
            f"{model_id}: config.json is not one that the rules for vLLM read: {where}: {printable(first['msg'])}.",
            next_step=f"Choose another repository, {DECLARE}",
        ) from None


def require_countable(model_id: str, facts: Facts) -> None:
    """Return where the rules count all that a model of *facts* takes.

    Raises:
        EngineCannotPredict: its architecture has parts that the rules do not count.
    """
    what = ""
    if facts.architecture not in DENSE:
        what = f"its architecture is {facts.architecture}, and the rules for vLLM count {', '.join(sorted(DENSE))}"
    elif facts.windowed:
        what = "its attention has a sliding window, and the rules for vLLM count the whole context"
    if what:
        raise EngineCannotPredict(
            f"{model_id}: {what} (vLLM {vllm_rules.VERSION}).", next_step=f"Choose another repository, {DECLARE}"
        )


def _by_format(tensors: Iterable[Tensor]) -> dict[str, Stored]:
    sums: dict[str, list[Any]] = {}
    for one in tensors:
        found = sums.setdefault(one.dtype, [0, 0])
        elements = 1
        for side in one.shape:
            elements *= side
        found[0] += elements
        found[1] += one.size
    return {name: Stored(elements=elements, bytes=size) for name, (elements, size) in sorted(sums.items())}
