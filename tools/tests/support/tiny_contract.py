"""The promises of docs/api.md as the tiny model of text keeps them."""

from __future__ import annotations

from pathlib import Path

from corral.cli.contract import DOCUMENT

_OTHERWISE = {
    "| `POST /completion`: `content`, `tokens_predicted`": "**differs**: another number of tokens",
    "| `POST /completion` with `n_probs`": "**differs**: another token than the likeliest at temperature 0",
}
"""Beginning of a line → what happens through llama-swap: the tiny model ends its answer early, and has few tokens."""


def write_tiny_contract(folder: Path) -> Path:
    """Write the committed document with these lines changed; its path."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    for start, found in _OTHERWISE.items():
        (at,) = (at for at, line in enumerate(lines) if line.startswith(start))
        lines[at] = f"{lines[at].rpartition(' | ')[0]} | {found} |"
    file = folder / "tiny-api.md"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file
