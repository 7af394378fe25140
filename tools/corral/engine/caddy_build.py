"""Builds Caddy with the modules that the front door uses, from the version that ``tools/engine/caddy/go.mod`` pins."""

from __future__ import annotations

import re
from pathlib import Path

from corral import paths
from corral.engine.go_build import Programs, Report, pinned

MODULE = "github.com/caddyserver/caddy/v2"
PINS = paths.REPOSITORY / "tools" / "engine" / "caddy"
_OWN_GO = "Install Go (https://go.dev/dl), or install Caddy yourself and name it: CADDY=/path/to/caddy"
_NO_DATABASES = "-tags=nobadger,nomysql,nopgx"  # of the certificate authority's library, which keeps files


def pinned_version() -> str:
    """The version of Caddy that go.mod requires."""
    return pinned(rf"{re.escape(MODULE)} (v\S+)", PINS / "go.mod")


def cached_path() -> Path:
    """The path of the built program, whether it exists or not: one per version, set of modules and platform."""
    return _programs().folder / "caddy"


def build(report: Report) -> Path:
    """The path of Caddy in the cache, built now when it is missing.

    Raises:
        ProgramMissing, CannotRun: as ``Programs.build``.
    """
    return _programs().build(report) / "caddy"


def compile_standard_library(report: Report) -> None:
    """Have Go compile what a build of another server at the same time needs, too; raises as ``build``."""
    _programs().compile_standard_library(report)


def _programs() -> Programs:
    return Programs(
        name=f"caddy-{pinned_version()}",
        pins=PINS,
        packages=(".",),
        stamps={},
        minutes=1,
        settings={"CGO_ENABLED": "0", "GOFLAGS": f"-mod=readonly {_NO_DATABASES}"},
        way_out=_OWN_GO,
    )
