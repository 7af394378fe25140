"""Builds llama-swap, which publishes no package, from the version that ``tools/engine/go.mod`` pins.

``tools/engine/llama-swap.patch`` is the upstream change without which a failed load can leave its requests, and all
later ones of that model, without an answer.
"""

from __future__ import annotations

import re
from pathlib import Path

from corral import paths
from corral.engine.go_build import Programs, Report, pinned

MODULE = "github.com/mostlygeek/llama-swap"
PINS = paths.REPOSITORY / "tools" / "engine"
_OWN_GO = "Install Go (https://go.dev/dl), or build llama-swap yourself and name it: LLAMA_SWAP=/path/to/llama-swap"


def pinned_version() -> str:
    """The version of llama-swap that go.mod requires."""
    return pinned(rf"{re.escape(MODULE)} (v\S+)", PINS / "go.mod")


def cached_path() -> Path:
    """The path of the built program, whether it exists or not: one per version, patch and platform."""
    return _programs().folder / "llama-swap"


def build(report: Report) -> Path:
    """The path of llama-swap in the cache, built now when it is missing.

    Raises:
        Refused, ProgramMissing, CannotRun: as ``Programs.build``.
    """
    return _programs().build(report) / "llama-swap"


def _programs() -> Programs:
    version = pinned_version()
    return Programs(
        name=f"llama-swap-{version}",
        pins=PINS,
        packages=(MODULE,),
        stamps={"main.version": version, "main.commit": version.rpartition("-")[2]},
        minutes=1,
        settings={"CGO_ENABLED": "0"},
        way_out=_OWN_GO,
        patch=PINS / "llama-swap.patch",
    )
