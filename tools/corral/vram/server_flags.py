"""The flags of a llama-server command line that decide how much memory the weights and the context take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from corral.vram.ggml_types import BY_NAME

_ALL_ON_CARD: Final = 99

_TAKES_VALUE: Final = {
    "c": ("c", "ctx-size"),
    "np": ("np", "parallel"),
    "b": ("b", "batch-size"),
    "ub": ("ub", "ubatch-size"),
    "k": ("ctk", "cache-type-k"),
    "v": ("ctv", "cache-type-v"),
    "fa": ("fa", "flash-attn"),
    "ngl": ("ngl", "gpu-layers", "n-gpu-layers"),
}
_SWITCHES: Final = {
    "kvu": ("kvu", "kv-unified"),
    "no-kvu": ("no-kvu", "no-kv-unified"),
    "swa-full": ("swa-full",),
}
_ELSEWHERE: Final = frozenset(
    (
        *("cmoe", "cpu-moe", "ncmoe", "n-cpu-moe", "ot", "override-tensor", "nkvo", "no-kv-offload", "no-host"),
        *("dev", "device", "sm", "split-mode", "ts", "tensor-split", "mg", "main-gpu", "rpc"),
        *("override-kv", "lora", "lora-scaled", "control-vector", "control-vector-scaled"),
        *("embedding", "embeddings", "rerank", "reranking", "pooling"),
        *("md", "model-draft", "ctkd", "cache-type-k-draft", "ctvd", "cache-type-v-draft"),
    )
)
"""Flags that put tensors elsewhere, change the model, or load another one: nothing is computed with these."""


@dataclass(frozen=True)
class ServerFlags:
    """What matters of a command line.

    Attributes:
        understood: whether all that matters is covered by the attributes below.
        context: ``-c``, tokens of all sequences together.
        sequences: ``-np``.
        unified: whether all sequences share one cache.
        batch: ``-b``, tokens.
        micro_batch: ``-ub``, tokens.
        cache_type_k: ggml's name of the keys' number format, in small letters.
        cache_type_v: the same of the values.
        flash_attention: whether it is on.
        swa_full: whether layers with a window keep the whole context all the same.
    """

    understood: bool = True
    context: int = 0
    sequences: int = 1
    unified: bool = False
    batch: int = 2048
    micro_batch: int = 512
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attention: bool = True
    swa_full: bool = False

    @classmethod
    def parse(cls, argv: Sequence[str]) -> ServerFlags:
        """Read *argv*; with or without the program's name in front."""
        names = {word.lstrip("-") for word in argv if word.startswith("-")}
        values = {key: _last(argv, spellings) for key, spellings in _TAKES_VALUE.items()}
        switches = {key for key, spellings in _SWITCHES.items() if names & set(spellings)}
        if names & _ELSEWHERE or any(name.startswith("spec-") for name in names) or not _readable(values):
            return cls(understood=False)
        numbers = {key: int(value) for key, value in values.items() if value and key in ("c", "np", "b", "ub")}
        if numbers.get("c", 0) <= 0:  # 0: as the model has it
            return cls(understood=False)
        # Without -np llama-server takes four slots and lets them share one cache.
        alone = "np" in numbers
        return cls(
            context=numbers["c"],
            sequences=numbers.get("np", 4),
            unified="kvu" in switches or (not alone and "no-kvu" not in switches),
            batch=numbers.get("b", cls.batch),
            micro_batch=numbers.get("ub", cls.micro_batch),
            cache_type_k=values["k"] or cls.cache_type_k,
            cache_type_v=values["v"] or cls.cache_type_v,
            flash_attention=values["fa"] in (None, "on", "auto", "1", "true", "enabled"),
            swa_full="swa-full" in switches,
        )

    @property
    def context_per_sequence(self) -> int:
        """Tokens that one sequence can have."""
        padded = -(-self.context // 256) * 256
        return padded if self.unified else padded // self.sequences

    @property
    def ubatch(self) -> int:
        """Tokens of one physical batch, which is never larger than a logical one."""
        return min(self.micro_batch, self.batch)


def _last(argv: Sequence[str], spellings: Sequence[str]) -> str | None:
    """The value after the last of *spellings*, as the engine's parser takes it."""
    found = None
    for word, value in pairwise(argv):
        if word.startswith("-") and word.lstrip("-") in spellings:
            found = value
    return found


def _readable(values: Mapping[str, str | None]) -> bool:
    whole = all(value is None or value.isdigit() for key, value in values.items() if key in ("c", "np", "b", "ub"))
    types = all((values[key] or "f16").upper() in BY_NAME for key in ("k", "v"))
    layers = values["ngl"]
    on_card = layers == "all" or (layers is not None and layers.isdigit() and int(layers) >= _ALL_ON_CARD)
    return whole and types and on_card and values["np"] != "0"
