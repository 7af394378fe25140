"""The front door of the local stack: Caddy, then the guard, as ``terraform/modules/door`` configures them."""

from __future__ import annotations

import contextlib
import ssl
import sys
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from corral.engine import environment, ports
from corral.engine.stack_folder import versions_beside

SWAP_KEY = "CORRAL_SWAP_KEY"
"""The variable of llama-swap's environment that has its key; ``terraform/stacks/local`` names it, too."""

_LOOPBACK = (ports.HOST, "localhost", "::1")
_ANSWER_LIMIT_S = 2.0


@dataclass(frozen=True)
class Tls:
    """Which certificate the door shows."""

    certificate: Path | None = None  # with its chain; None: one by an authority that Caddy makes for itself
    key: Path | None = None


@dataclass(frozen=True)
class Door:
    """How the local stack is reached, and who gets in."""

    port: int  # on 127.0.0.1
    swap_port: int  # of llama-swap, on 127.0.0.1; it accepts only requests with its own key
    keys: Path | None = None  # the hashes of the clients' keys; None: every request has the operator's rights
    tls: Tls | None = None
    names: tuple[str, ...] = ()  # that requests may be for, beside those of loopback

    @classmethod
    def from_json(cls, read: dict[str, Any]) -> Door:
        """The door that ``dataclasses.asdict`` and JSON made *read* of, paths as texts.

        Raises:
            TypeError: it has other keys.
        """
        tls = read.pop("tls")
        paths = {name: path and Path(path) for name, path in (tls or {}).items()}
        keys, names = read.pop("keys"), tuple(read.pop("names"))
        return cls(keys=keys and Path(keys), tls=None if tls is None else Tls(**paths), names=names, **read)

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:<port>``, for clients, without ``/v1``."""
        return f"{'http' if self.tls is None else 'https'}://{ports.HOST}:{self.port}"

    def inputs(self, folder: Path) -> dict[str, Any]:
        """The variable ``door`` of ``terraform/stacks/local``; *folder* has the socket and the key of llama-swap."""
        tls = self.tls and {name: str(path) for name, path in vars(self.tls).items() if path}
        return {
            "folder": str(folder),
            "hosts": [*_LOOPBACK, *self.names],
            "keys": str(self.keys) if self.keys else None,
            "port": self.port,
            "swap_port": self.swap_port,
            "tls": tls,
            "versions": str(versions_beside(folder)),
        }

    @property
    def is_certified(self) -> bool:
        """Whether it shows a certificate of the operator's own."""
        return self.tls is not None and self.tls.certificate is not None

    def certificate(self, folder: Path) -> Path | None:
        """The certificate by which the door is known, where *folder* is Caddy's own; None without TLS."""
        return None if self.tls is None else self.tls.certificate or authority(folder)

    def trust(self, folder: Path) -> ssl.SSLContext | None:
        """What a client needs to trust exactly this door; None without TLS.

        Raises:
            OSError: its certificate cannot be read, or does not exist yet.
        """
        if self.tls is None:
            return None
        context = ssl.create_default_context(cafile=str(self.certificate(folder)))
        if self.tls.certificate:  # it may be for another name than 127.0.0.1, and from any authority: this one is meant
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    def answers(self, folder: Path) -> bool:
        """Whether a request gets through Caddy and the guard to llama-swap, and its answer back."""
        try:
            with contextlib.closing(self.connection(folder)) as connection:
                connection.request("GET", "/health")
                return connection.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False

    def connection(self, folder: Path, limit_s: float = _ANSWER_LIMIT_S) -> HTTPConnection:
        """A connection that is opened by its first request; *folder* is Caddy's own.

        Raises:
            OSError: the certificate cannot be read, or does not exist yet.
        """
        trust = self.trust(folder)
        if trust is None:
            return HTTPConnection(ports.HOST, self.port, timeout=limit_s)
        return HTTPSConnection(ports.HOST, self.port, timeout=limit_s, context=trust)


def caddy_command(caddy: Path, config: Path) -> list[str]:
    """The command of *caddy* with *config*; it runs in the folder of the guard's socket."""
    return [str(caddy), "run", "--config", str(config)]


def caddy_environment(folder: Path, **added: str) -> dict[str, str]:
    """Caddy's variables with *added*: what it writes, its own authority's key above all, is below *folder*."""
    kinds = ("DATA", "CONFIG", "CACHE")
    return environment.allowed(**{f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in kinds}, **added)


def authority(folder: Path) -> Path:
    """The certificate of the authority that a Caddy with ``caddy_environment(folder)`` makes when it needs one."""
    return folder / "data" / "caddy" / "pki" / "authorities" / "local" / "root.crt"


def guard_command(config: Path) -> list[str]:
    """The command of the guard with *config*."""
    return [sys.executable, "-I", "-m", "corral.door", str(config)]
