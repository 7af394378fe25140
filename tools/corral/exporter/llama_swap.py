"""Reads llama-swap and the engines of its loaded models; no request of this file loads one, or keeps one loaded."""

from __future__ import annotations

import http.client
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from .errors import LlamaSwapUnknown

LIMIT_S = 1.0
"""Seconds for one answer."""
LISTED = 999
"""Requests that llama-swap lists at most."""
_MOST_BYTES = 8 << 20
# How llama-swap words it: proxy/process.go of the pinned build.
_LOAD_ERRORS = {
    "process-ended": re.compile(r"unspecific error: upstream command exited prematurely"),
    "timeout": re.compile(r"unspecific error: health check timed out after [0-9a-z.]+"),
}
LOAD_FAILURES = tuple(_LOAD_ERRORS)
"""How a load fails: the process ended before it was ready, or was not ready in time."""
_SAMPLE = re.compile(r"llamacpp:(\w+) ([0-9.eE+-]+)")


@dataclass(frozen=True)
class Resident:
    """A model that has a process: ``starting``, ``ready`` or ``stopping``, and the address of its engine."""

    model: str
    state: str
    proxy: str


@dataclass(frozen=True)
class Request:
    """A request that is over.

    Attributes:
        number: llama-swap's own; it grows by 1, and begins again with llama-swap.
        status: of the HTTP answer.
        seconds: from the request to the end of its answer.
        prompt_s: seconds for the prompt; None: not reported.
        prompt_tokens: that were not in a cache.
        output_tokens: of the answer.
        load_failure: one of ``LOAD_FAILURES``, where the model's load failed; else empty.
    """

    number: int
    model: str
    status: int
    seconds: float
    prompt_s: float | None
    prompt_tokens: int
    output_tokens: int
    load_failure: str = ""


@dataclass(frozen=True)
class LlamaSwap:
    """The llama-swap at *endpoint* (``http://host:port``), and the headers that it and its engines require.

    With *is_door* the guard is there, which reads an engine's metrics itself.
    """

    endpoint: str
    headers: Mapping[str, str]
    is_door: bool = False

    def residents(self) -> tuple[Resident, ...]:
        """The models that have a process now.

        Raises:
            LlamaSwapUnknown: it did not answer, or not as llama-swap does.
        """
        try:
            listed = json.loads(_get(self.endpoint, "/running", self.headers))["running"]
            return tuple(Resident(str(one["model"]), str(one["state"]), str(one["proxy"])) for one in listed)
        except (ValueError, KeyError, TypeError):
            raise LlamaSwapUnknown("llama-swap's /running is no list of models.") from None

    def requests(self) -> tuple[Request, ...]:
        """The last requests that are over, the oldest first, ``LISTED`` at most.

        Raises:
            LlamaSwapUnknown: it did not answer, or not as llama-swap does.
        """
        try:
            listed = json.loads(_get(self.endpoint, f"/api/metrics/activity?limit={LISTED}", self.headers))["data"]
            return tuple(sorted(map(_request, listed or ()), key=lambda one: one.number))
        except (ValueError, KeyError, TypeError):
            raise LlamaSwapUnknown("llama-swap's list of requests is none.") from None

    def engine(self, resident: Resident) -> dict[str, float]:
        """The figures that the engine of *resident* reports, without their prefix ``llamacpp:``.

        Raises:
            LlamaSwapUnknown: it did not answer, or with no figure.
        """
        found = dict(_SAMPLE.findall(self._engine_metrics(resident)))
        try:
            figures = {name: float(value) for name, value in found.items()}
        except ValueError:
            figures = {}
        if not figures:
            raise LlamaSwapUnknown(f"The engine of {resident.model} reports no figure.")
        return figures

    def _engine_metrics(self, resident: Resident) -> str:
        if self.is_door:
            return _get(self.endpoint, f"/engine-metrics/{quote(resident.model, safe='')}", self.headers)
        if urlsplit(resident.proxy).hostname != urlsplit(self.endpoint).hostname:
            raise LlamaSwapUnknown(f"The engine of {resident.model} is at another address than llama-swap.")
        return _get(resident.proxy, "/metrics", self.headers)


def _request(listed: Mapping[str, Any]) -> Request:
    tokens = listed.get("tokens") or {}
    prompt, rate = _count(tokens.get("input_tokens")), float(tokens.get("prompt_per_second") or 0)
    seconds = int(listed["duration_ms"]) / 1000
    prompt_s = prompt / rate if prompt and rate > 0 and math.isfinite(rate) else None
    return Request(
        int(listed["id"]),
        str(listed["model"]),
        int(listed["resp_status_code"]),
        seconds,
        None if prompt_s is None else min(prompt_s, seconds),
        prompt,
        _count(tokens.get("output_tokens")),
        _load_failure(str(listed.get("error_msg") or "")),
    )


def _load_failure(error: str) -> str:
    return next((reason for reason, form in _LOAD_ERRORS.items() if form.fullmatch(error)), "")


def _count(value: object) -> int:
    """*value*, where it is a count of tokens: llama-swap reports -1 for what it does not know."""
    return max(0, int(value)) if isinstance(value, int) else 0


def _get(base: str, path: str, headers: Mapping[str, str]) -> str:
    parts = urlsplit(base)
    if parts.scheme != "http" or not parts.hostname or not parts.port:
        raise LlamaSwapUnknown(f"{base!r} is no address of this machine's llama-swap.")
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=LIMIT_S)
    try:
        connection.request("GET", path, headers=dict(headers))
        response = connection.getresponse()
        body = response.read(_MOST_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise LlamaSwapUnknown(f"{base}{path} gave no answer: {error}.") from None
    finally:
        connection.close()
    if response.status != 200 or len(body) > _MOST_BYTES:
        raise LlamaSwapUnknown(f"{base}{path} answered with HTTP {response.status} and {len(body)} bytes.")
    return body.decode("utf-8", errors="replace")


def new(requests: Iterable[Request], last: int) -> list[Request]:
    """Those of *requests* (the oldest first) after number *last*; all of them where llama-swap has begun again."""
    listed = list(requests)
    if listed and listed[-1].number < last:
        return listed
    return [one for one in listed if one.number > last]
