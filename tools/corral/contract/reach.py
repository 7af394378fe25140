"""A way to one model: llama-server itself, or llama-swap before it; with the SDKs and with plain HTTP."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from corral.errors import ProgramMissing
from corral.smoke.endpoint import CONNECT_LIMIT_S, LOOPBACK, Endpoint, Reply

_SETTINGS = ("OPENAI_", "ANTHROPIC_", "OTEL_")


@dataclass(frozen=True)
class Way:
    """One model, and one address of it.

    Attributes:
        root: the address, without ``/v1``.
        model: the id.
        openai, anthropic, http: clients of that address.
        native: what stands before a path of llama-server, wherever it is routed.
        prefix: what stands before it in ``get`` and ``post``.
    """

    root: str
    model: str
    openai: Any  # their types refuse what is wrong on purpose
    anthropic: Any
    http: Endpoint = field(repr=False)
    native: str = ""
    prefix: str = ""

    async def get(self, path: str) -> Reply:
        """GET a path of llama-server."""
        return await self.http.request(self.prefix + path)

    async def post(self, path: str, **body: Any) -> Reply:
        """POST *body* and the model's id to a path of llama-server."""
        return await self.http.request(self.prefix + path, {"model": self.model, **body})


def json_of(reply: Reply) -> Any:
    """The JSON of *reply*.

    Raises:
        ValueError: it is none.
    """
    try:
        return json.loads(reply.body)
    except RecursionError:
        raise ValueError("nested too deeply") from None


@asynccontextmanager
async def opened(
    root: str, model: str, *, native: str = "", key: str = "", trust: ssl.SSLContext | None = None
) -> AsyncIterator[Way]:
    """The way to *model* at *root*; no variable of the environment adds a header, a key or a trace to a request.

    Raises:
        ProgramMissing: Anthropic's SDK is not installed.
    """
    anthropic = _anthropic()
    import httpx2
    import openai

    def http_client() -> httpx2.AsyncClient:
        # As smoke.endpoint: llama-server closes a connection that it promised to keep.
        return httpx2.AsyncClient(
            limits=httpx2.Limits(max_keepalive_connections=0),
            timeout=httpx2.Timeout(None, connect=CONNECT_LIMIT_S),
            verify=trust or root.startswith("https:"),
            trust_env=urlsplit(root).hostname not in LOOPBACK,
        )

    shared: dict[str, Any] = {"api_key": key or "none", "max_retries": 0, "timeout": None}
    with _without_settings():
        of_openai = openai.AsyncOpenAI(base_url=f"{root}/v1", http_client=http_client(), **shared)
        of_anthropic = anthropic.AsyncAnthropic(base_url=root, http_client=http_client(), **shared)
    async with of_openai, of_anthropic, Endpoint(root, api_key=key, trust=trust) as http:
        yield Way(root, model, of_openai, of_anthropic, http, native)


def _anthropic() -> Any:
    try:
        import anthropic
    except ImportError:
        message = "Anthropic's SDK is not installed, and /v1/messages is checked with it."
        raise ProgramMissing(
            message, next_step="make setup, or: pip install --group tools/pyproject.toml:contract"
        ) from None
    return anthropic


@contextmanager
def _without_settings() -> Iterator[None]:
    """Hide the SDKs' own variables: they hold keys, headers and addresses for other servers."""
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(_SETTINGS)}
    try:
        yield
    finally:
        os.environ.update(hidden)
