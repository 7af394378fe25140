"""The llama-server flags that decide memory: what a header computes with, and what the engine's count leaves out.

Names are the first long name of each flag in ``llama_server_flags.json``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from corral.catalog import flags
from corral.catalog.argv import ALL_LAYERS
from corral.catalog.flag_classes import ACCEPTED, GROUP_OF, group_of
from corral.vram.ggml_types import BY_NAME, padded

_HARMLESS = {
    *(("split-mode", "none"), ("split-mode", "layer"), ("main-gpu", "0")),
    *(("spec-type", "none"), ("spec-type", "draft-simple")),
}
"""Values of flags that are not counted, with which nothing changes on one card."""

_NO_RULE = frozenset(
    {
        *("cpu-moe", "n-cpu-ffn", "n-cpu-moe", "override-tensor", "no-host", "override-kv"),
        *("embedding", "pooling", "rerank"),
        *(name for name, group in GROUP_OF.items() if group.not_counted),
    }
)
"""Flags that put tensors elsewhere, change the model, or load another one: a header computes nothing with these."""
_FILES = ("model", "mmproj", "lora", "lora-scaled", "spec-draft-model")
_DEFAULTS = {"ctx-size": "0", "parallel": "4", "batch-size": "2048", "ubatch-size": "512"}
_TEMPLATE = re.compile("<[^>]*>")


@dataclass(frozen=True)
class ServerFlags:
    """What decides how much memory weights and context take.

    Attributes:
        context: ``-c``, tokens of all sequences together.
        sequences: ``-np``.
        unified: whether all sequences share one cache.
        ubatch: tokens of one physical batch, which is never larger than a logical one.
        cache_type_k: ggml's name of the keys' number format, in small letters.
        cache_type_v: the same of the values.
        flash_attention: whether it is on.
        swa_full: whether layers with a window keep the whole context all the same.
    """

    context: int
    sequences: int
    unified: bool
    ubatch: int
    cache_type_k: str
    cache_type_v: str
    flash_attention: bool
    swa_full: bool

    @classmethod
    def parse(cls, argv: Sequence[str]) -> ServerFlags | None:
        """Read *argv*, where the last of two equal flags counts; None where something in it is covered by no rule."""
        given = dict(by_flag(argv))
        value = {name: words[1] for name, words in given.items() if len(words) == 2}
        if not _NO_RULE.isdisjoint(given):
            return None
        if given.get("kv-offload", ["-kvo"])[0] in ("-nkvo", "--no-kv-offload"):
            return None
        layers = value.get("gpu-layers", "")
        if layers != "all" and not (layers.isdigit() and int(layers) >= ALL_LAYERS):
            return None
        numbers = [value.get(name, default) for name, default in _DEFAULTS.items()]
        types = [value.get(name, "f16") for name in ("cache-type-k", "cache-type-v")]
        if not all(word.isdigit() and int(word) for word in numbers) or any(
            kind.upper() not in BY_NAME for kind in types
        ):
            return None
        context, sequences, batch, ubatch = map(int, numbers)
        # Without -np, llama-server takes four slots and lets them share one cache.
        shared = given.get("kv-unified", ["-no-kvu" if "parallel" in given else "-kvu"])[0]
        return cls(
            context=context,
            sequences=sequences,
            unified=shared in ("-kvu", "--kv-unified"),
            ubatch=min(ubatch, batch),
            cache_type_k=types[0],
            cache_type_v=types[1],
            flash_attention=value.get("flash-attn", "auto") in ("on", "auto", "1", "true", "enabled"),
            swa_full="swa-full" in given,
        )

    @property
    def context_per_sequence(self) -> int:
        """Tokens that one sequence can have."""
        whole = padded(self.context, 256)
        return whole if self.unified else whole // self.sequences


def uncounted(argv: Sequence[str]) -> str | None:
    """Why the engine's count for *argv* would be too small, naming the flag; None when it would not.

    The count is of one model with one context on one card, with its draft model, adapters and projector.
    """
    for name, words in by_flag(argv):
        reason = name and group_of(name).not_counted
        if reason and (name, *words[1:]) not in _HARMLESS:
            return f"{words[0]} is not counted: {reason}"
    return None


def without_side_effects(argv: Sequence[str]) -> list[str]:
    """*argv* without the flags that only reach beyond the model: other files, the network, programs, logs."""
    return [
        word
        for name, words in by_flag(argv)
        if name in ("", *_FILES) or group_of(name).of in ACCEPTED
        for word in words
    ]


def by_flag(argv: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The flags of *argv* by name, each with its words; a word that belongs to no flag has an empty name."""
    rest = list(argv)
    while rest:
        name, count = _by_word().get(rest[0], ("", 1))
        yield name, rest[:count]
        del rest[:count]


@cache
def _by_word() -> dict[str, tuple[str, int]]:
    """Each spelling of each flag of the engine, with the flag's name and how many words it takes."""
    found: dict[str, tuple[str, int]] = {}
    for flag in flags.table():
        count = 1 + len(_TEMPLATE.sub("x", flag.value or "").split())  # "<tensor name pattern>" is one word
        found |= {f"-{name}": (flag.name, count) for name in flag.short}
        found |= {f"--{name}": (flag.name, count) for name in flag.names}
        found |= {f"--{name}": (flag.name, 1) for name in flag.negated}
    return found
