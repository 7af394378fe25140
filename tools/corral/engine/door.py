"""The front door of the local stack: Caddy, then the guard, as ``terraform/modules/door`` configures them."""

from __future__ import annotations

import sys
from pathlib import Path

from corral.engine import environment


def caddy_command(caddy: Path, config: Path) -> list[str]:
    """The command of *caddy* with *config*; it runs in the folder of the guard's socket."""
    return [str(caddy), "run", "--config", str(config)]


def caddy_environment(folder: Path) -> dict[str, str]:
    """Caddy's variables: what it writes, its own authority's key above all, is below *folder*."""
    return environment.allowed(
        **{f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("DATA", "CONFIG", "CACHE")}
    )


def authority(folder: Path) -> Path:
    """The certificate of the authority that a Caddy with ``caddy_environment(folder)`` makes when it needs one."""
    return folder / "data" / "caddy" / "pki" / "authorities" / "local" / "root.crt"


def guard_command(config: Path) -> list[str]:
    """The command of the guard with *config*."""
    return [sys.executable, "-m", "corral.door", str(config)]
