"""Which llama-server flags the engine's own count covers, and which it does not.

The count is of one model with one context (and one projector) on one card.  A flag that brings something else into the
card's memory is refused by name: a number without it would be too small.  Names as in ``llama_server_flags.json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from corral.catalog import flags
from corral.catalog.flags import Flag

_DRAFT = "a draft model, or speculation, takes memory of its own"
_ADAPTER = "an adapter takes memory of its own"
_DEVICES = "the count is for one card"
_UNCOUNTED = {
    "lora": _ADAPTER,
    "lora-scaled": _ADAPTER,
    "control-vector": _ADAPTER,
    "control-vector-scaled": _ADAPTER,
    "control-vector-layer-range": _ADAPTER,
    "device": _DEVICES,
    "mmproj-device": _DEVICES,
    "main-gpu": _DEVICES,
    "split-mode": _DEVICES,
    "tensor-split": _DEVICES,
    "rpc": _DEVICES,
    "backend-sampling": "samplers on the card take memory of their own",
    "moe-cache-mib": "a cache of experts takes memory of its own",
    "draft": _DRAFT,
    "draft-min": _DRAFT,
}
_UNCOUNTED_FAMILIES = {"spec-": _DRAFT}
_HARMLESS = {("split-mode", "none"), ("split-mode", "layer"), ("main-gpu", "0"), ("spec-type", "none")}
"""Values of those flags that change nothing on one card."""

_NO_MEMORY = frozenset(
    {
        *("alias", "api-key", "api-key-file", "chat-template-file", "grammar-file", "host", "json-schema-file"),
        *("log-disable", "log-file", "log-prompts-dir", "lookup-cache-dynamic", "lookup-cache-static"),
        *("mcp-servers-config", "media-path", "path", "port", "slot-save-path", "ssl-cert-file", "ssl-key-file"),
        *("ui-config-file", "verbose", "verbosity", "video-ffmpeg-dir"),
    }
)
"""Flags without an influence on memory for which the parser would look at other files, write a log, or be silent."""


def uncounted(argv: Sequence[str]) -> str | None:
    """Why the engine's count for *argv* would be too small, naming the flag; None when it would not."""
    for flag, words in _flags(argv):
        if flag is None:
            continue
        value = words[1] if len(words) > 1 else ""
        if any((name, value) in _HARMLESS for name in flag.names):
            continue
        for name in flag.names:
            reason = _UNCOUNTED.get(name)
            reason = reason or next((why for start, why in _UNCOUNTED_FAMILIES.items() if name.startswith(start)), None)
            if reason:
                return f"{words[0]} is not counted: {reason}"
    return None


def without_side_effects(argv: Sequence[str]) -> list[str]:
    """*argv* without flags that have no influence on memory and look at other files."""
    kept: list[str] = []
    for flag, words in _flags(argv):
        if flag is None or not _NO_MEMORY.intersection(flag.names):
            kept += words
    return kept


def _flags(argv: Sequence[str]) -> Iterator[tuple[Flag | None, list[str]]]:
    """*argv* by flag, each with its value; a word that is no flag stands alone."""
    by_word = {
        **{f"--{name}": flag for flag in flags.table() for name in (*flag.names, *flag.negated)},
        **{f"-{name}": flag for flag in flags.table() for name in flag.short},
    }
    words = list(argv)
    while words:
        flag = by_word.get(words[0])
        count = 1 + len(flag.value.split()) if flag and flag.value and words[0].lstrip("-") not in flag.negated else 1
        yield flag, words[:count]
        words = words[count:]
