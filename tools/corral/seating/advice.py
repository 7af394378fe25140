"""What a catalog should not do and is not refused for, as codes with fields; ``sentence`` puts one into words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from corral.catalog.intent import Model
from corral.lock.lock import Lock
from corral.seating.chart import MOST_MODELS, Chart
from corral.vram.server_flags import by_flag

LEAST_FREE_MIB = 512
"""Less than this beyond the reserve is worth a warning."""

_TURING = "7.5"
_CACHE_TYPES = ("cache-type-k", "cache-type-v")
_NOT_QUANTISED = ("f32", "f16", "bf16")
_ON = ("on", "1", "true", "enabled")
_GRAMMARS = frozenset({"json-schema", "grammar"})

Code = Literal[
    "quantised_cache_on_turing",
    "bf16_projector_on_turing",
    "flash_attention_off",
    "json_with_reasoning_auto",
    "card_nearly_full",
    "too_many_to_combine",
]
_SENTENCES: dict[Code, str] = {
    "quantised_cache_on_turing": "Quantised KV cache on compute capability 7.5: {}. Decoding was measured 40 to 70 "
    "times slower there; leave cache-type-k and cache-type-v out and lower the context instead.",
    "bf16_projector_on_turing": "BF16 projector on compute capability 7.5: {}. Turing has no bf16 arithmetic; name an "
    "F16 or Q8_0 projector in source.mmproj.",
    "flash_attention_off": "Flash attention is not on: {}. Compute buffers take several times the memory without it; "
    "leave flash-attn out of args, corral turns it on.",
    "json_with_reasoning_auto": "JSON answers with reasoning: auto: {}. The chat template may think before it answers, "
    'at the cost of the answer\'s tokens; set reasoning: "off" (or "on", if it is meant).',
    "card_nearly_full": f"Less than {LEAST_FREE_MIB} MiB left beyond the reserve: {{}}. A tenant that grows by so much "
    "makes the next load fail.",
    "too_many_to_combine": f"More than {MOST_MODELS} models on a card: {{}}. Of each group one runs at a time there; "
    "what is left lets no second one run beside it.",
}


@dataclass(frozen=True)
class Advice:
    """One thing that deserves attention.

    Attributes:
        code: which one.
        models: ids of the models that it is about.
        cards: MiB that are free on each card that it is about.
    """

    code: Code
    models: tuple[str, ...] = ()
    cards: Mapping[str, int] = field(default_factory=dict)


def of(lock: Lock, chart: Chart) -> Iterator[Advice]:
    """All advice about *lock*, whose chart is *chart*."""
    values = {  # of a repeated flag the last, which counts for the engine too
        model_id: {name: words[-1] for name, words in by_flag(entry.argv)} for model_id, entry in lock.models.items()
    }
    turing = {
        model_id: entry
        for model_id, entry in lock.models.items()
        if lock.cards[entry.intent.card].compute_capability == _TURING
    }
    affected: dict[Code, list[str]] = {
        "quantised_cache_on_turing": [
            one for one in turing if any(values[one].get(name, "f16") not in _NOT_QUANTISED for name in _CACHE_TYPES)
        ],
        "bf16_projector_on_turing": [one for one, entry in turing.items() if entry.predicted.projector_type == "BF16"],
        "flash_attention_off": [one for one in values if values[one].get("flash-attn") not in _ON],
        "json_with_reasoning_auto": [one for one, entry in lock.models.items() if _json_after_thinking(entry.intent)],
    }
    yield from (Advice(code, tuple(models)) for code, models in affected.items() if models)
    if full := {name: card.free_mib for name, card in chart.cards.items() if 0 <= card.free_mib < LEAST_FREE_MIB}:
        yield Advice("card_nearly_full", cards=full)
    counts = Counter(model.card for model in chart.models.values())
    if crowded := {name: card.free_mib for name, card in chart.cards.items() if counts[name] > MOST_MODELS}:
        yield Advice("too_many_to_combine", cards=crowded)


def sentence(advice: Advice) -> str:
    """*advice* for people: what is so, why it matters, what to do."""
    cards = (f"{name} ({free} MiB)" for name, free in advice.cards.items())
    return _SENTENCES[advice.code].format(", ".join([*advice.models, *cards]))


def _json_after_thinking(model: Model) -> bool:
    """Whether answers are JSON, by a grammar for all of them or by a known answer, and thinking is left open."""
    return model.reasoning == "auto" and (not _GRAMMARS.isdisjoint(model.args) or _expects_json(model))


def _expects_json(model: Model) -> bool:
    try:
        return isinstance(json.loads((model.smoke and model.smoke.expect) or ""), dict | list)
    except ValueError:
        return False
