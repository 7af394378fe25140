"""Reads llama-swap and the engines of its loaded models; no request of this file loads one, or keeps one loaded."""

from __future__ import annotations

import http.client
import json
import math
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlsplit

from .errors import LlamaSwapUnknown

LIMIT_S = 1.0
"""Seconds for one answer."""
PROBE_LIMIT_S = 90.0
"""Seconds for the answer to a probe, of an engine that serves nothing else."""
UNLOAD_LIMIT_S = 60.0
"""Seconds until the guard has had an idle model unloaded, or has found it busy."""
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
CAUSES = ("idle", "evicted", "yielded", "requested", "died", "unknown")
"""Why a model was unloaded."""
_WARM, _COLD = 0.9, 0.1
_CHAT = {"messages": [{"role": "user", "content": "Reply with one word."}], "max_tokens": 4, "temperature": 0}
_QUESTIONS: Mapping[str, tuple[str, Any, str]] = {
    "--embedding": ("/v1/embeddings", {"input": "One word."}, "prompt_tokens"),
    "--rerank": ("/v1/rerank", {"query": "One word.", "documents": ["One word."]}, "prompt_tokens"),
}
"""As the guard of the door has them (``corral.door.engines``)."""
_SAMPLE = re.compile(r"llamacpp:(\w+) ([0-9.eE+-]+)")


@dataclass(frozen=True)
class Resident:
    """A model that has a process: ``starting``, ``ready`` or ``stopping``; its engine's address and command line."""

    model: str
    state: str
    proxy: str
    command: str = ""


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
        at: when it was listed, in llama-swap's own words: a number has another one when llama-swap has begun again.
        cached_tokens: of the prompt, that were in a cache; None: not reported.
    """

    number: int
    model: str
    status: int
    seconds: float
    prompt_s: float | None
    prompt_tokens: int
    output_tokens: int
    load_failure: str = ""
    at: str = ""
    cached_tokens: int | None = None


@dataclass(frozen=True)
class Change:
    """A load that ended ready, or an unload.

    Attributes:
        number: the follower's own; it grows by 1, and begins again with the follower.
        at: in seconds since 1970.
        seconds: of a load, from its start on; None: its beginning was missed.
        page_cache: of a load: ``warm`` where 90 % of the model's files or more were in the page cache before it,
            ``cold`` where less than 10 % were, else ``partial``; ``unknown``.
        cause: of an unload, one of ``CAUSES``; empty for a load.
    """

    number: int
    at: float
    model: str
    seconds: float | None = None
    page_cache: str = "unknown"
    cause: str = ""


@dataclass(frozen=True)
class LlamaSwap:
    """The llama-swap at *endpoint* (``http://host:port``), and the headers that it and its engines require.

    With *is_door* the guard is there, which reads an engine's metrics itself, and follows the changes of models.  Else
    *followed* has these; None: they are not followed now.
    """

    endpoint: str
    headers: Mapping[str, str]
    is_door: bool = False
    followed: Callable[[], Sequence[Mapping[str, Any]] | None] = lambda: None

    def residents(self) -> tuple[Resident, ...]:
        """The models that have a process now.

        Raises:
            LlamaSwapUnknown: it did not answer, or not as llama-swap does.
        """
        try:
            listed = json.loads(_get(self.endpoint, "/running", self.headers))["running"]
            return tuple(
                Resident(str(one["model"]), str(one["state"]), str(one["proxy"]), str(one.get("cmd", "")))
                for one in listed
            )
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

    def changes(self) -> tuple[Change, ...]:
        """The last loads and unloads, the oldest first.

        Raises:
            LlamaSwapUnknown: they are not followed now.
        """
        try:
            if self.is_door:
                listed = json.loads(_get(self.endpoint, "/model-changes", self.headers))["changes"]
            else:
                listed = self.followed()
            if listed is not None:
                return tuple(map(_change, listed))
        except (ValueError, KeyError, TypeError):
            raise LlamaSwapUnknown("The list of what was loaded is none of the guard's.") from None
        raise LlamaSwapUnknown("llama-swap's changes are not followed.")

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

    def probe(self, resident: Resident) -> float | None:
        """Seconds of a short answer of the engine of *resident*; None: it serves others, or is not loaded any more.

        Raises:
            LlamaSwapUnknown: it gave no answer, or without a token.
        """
        if self.is_door:
            path = f"/engine-probe/{quote(resident.model, safe='')}"
            status, text = _ask("POST", self.endpoint, path, self.headers, PROBE_LIMIT_S, accepted=(200, 404, 409))
            try:
                return float(json.loads(text)["seconds"]) if status == HTTPStatus.OK else None
            except (ValueError, KeyError, TypeError):
                raise LlamaSwapUnknown(f"The probe of {resident.model} is no answer of the guard.") from None
        figures = self.engine(resident)
        if figures.get("requests_processing", 0) or figures.get("requests_deferred", 0):
            return None
        asked = (one for flag, one in _QUESTIONS.items() if flag in resident.command.split())
        path, question, kind = next(asked, ("/v1/chat/completions", _CHAT, "completion_tokens"))
        began = time.monotonic()
        try:
            _, text = _ask("POST", resident.proxy, path, self.headers, PROBE_LIMIT_S, body=question)
            tokens = int(json.loads(text)["usage"][kind])
        except (LlamaSwapUnknown, ValueError, KeyError, TypeError):
            tokens = 0
        if tokens > 0:
            return time.monotonic() - began
        if resident not in self.residents():  # one that was unloaded meanwhile is no fault
            return None
        raise LlamaSwapUnknown(f"The engine of {resident.model} gave no answer.")

    def unload_idle(self, model: str) -> bool | None:
        """Have the guard unload *model*; None: it is not loaded any more.

        False: it stays, because it serves a request, or does not report that it serves none.

        Raises:
            LlamaSwapUnknown: no guard is there, it does not permit this, or whether the model is unloaded is not known.
        """
        if not self.is_door:
            raise LlamaSwapUnknown("Only the guard of a front door unloads a model without a risk for its requests.")
        path = f"/engine-yield/{quote(model, safe='')}"
        status, text = _ask("POST", self.endpoint, path, self.headers, UNLOAD_LIMIT_S, accepted=(200, 404, 409, 502))
        if status == HTTPStatus.BAD_GATEWAY and _code(text) != "engine-silent":
            raise LlamaSwapUnknown(f"Whether {model} is unloaded is unknown: the guard's code is {_code(text)!r}.")
        return None if status == HTTPStatus.NOT_FOUND else status == HTTPStatus.OK

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
    cached = tokens.get("cache_tokens")
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
        str(listed["timestamp"]),
        cached if isinstance(cached, int) and cached >= 0 else None,
    )


def _change(listed: Mapping[str, Any]) -> Change:
    number, at, model = int(listed["number"]), float(listed["at"]), str(listed["model"])
    if listed["kind"] == "unloaded":
        return Change(number, at, model, cause=CAUSES[CAUSES.index(listed["cause"])])
    if listed["kind"] != "loaded":
        raise ValueError(f"kind {listed['kind']!r}")
    seconds, cached = (None if listed[name] is None else float(listed[name]) for name in ("seconds", "cached"))
    return Change(number, at, model, seconds, _page_cache(cached))


def _page_cache(cached: float | None) -> str:
    if cached is None:
        return "unknown"
    return "warm" if cached >= _WARM else "cold" if cached < _COLD else "partial"


def _load_failure(error: str) -> str:
    return next((reason for reason, form in _LOAD_ERRORS.items() if form.fullmatch(error)), "")


def _code(text: str) -> str:
    """The guard's code for a refusal; empty without one."""
    try:
        return str(json.loads(text)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""


def _count(value: object) -> int:
    """*value*, where it is a count of tokens: llama-swap reports -1 for what it does not know."""
    return max(0, int(value)) if isinstance(value, int) else 0


def _get(base: str, path: str, headers: Mapping[str, str]) -> str:
    return _ask("GET", base, path, headers, LIMIT_S)[1]


def _ask(
    method: str,
    base: str,
    path: str,
    headers: Mapping[str, str],
    limit_s: float,
    *,
    body: Mapping[str, object] | None = None,
    accepted: Collection[int] = (HTTPStatus.OK,),
) -> tuple[int, str]:
    """The status of the answer, one of *accepted*, and its text."""
    parts = urlsplit(base)
    if parts.scheme != "http" or not parts.hostname or not parts.port:
        raise LlamaSwapUnknown(f"{base!r} is no address of this machine's llama-swap.")
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=limit_s)
    sent, kind = (json.dumps(body), {"Content-Type": "application/json"}) if body else (None, {})
    try:
        connection.request(method, path, body=sent, headers={**headers, **kind})
        response = connection.getresponse()
        text = response.read(_MOST_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise LlamaSwapUnknown(f"{base}{path} gave no answer: {error}.") from None
    finally:
        connection.close()
    if response.status not in accepted or len(text) > _MOST_BYTES:
        raise LlamaSwapUnknown(f"{base}{path} answered with HTTP {response.status} and {len(text)} bytes.")
    return response.status, text.decode("utf-8", errors="replace")


class _Numbered(Protocol):
    """One of a list that only grows; its number has another ``at`` when the list has begun again."""

    @property
    def number(self) -> int: ...

    @property
    def at(self) -> object: ...


_One = TypeVar("_One", bound=_Numbered)


class News(Generic[_One]):
    """What is new in each reading of a list; what the first one has is older than the reader, and is not."""

    def __init__(self) -> None:
        self._has_begun = False
        self._last: _One | None = None

    def take(self, listed: Sequence[_One]) -> tuple[Sequence[_One], int]:
        """Those of *listed* that are new, the oldest first, and how many before them were never listed."""
        found = new(listed, self._last) if self._has_begun else ((), 0)
        self._last, self._has_begun = listed[-1] if listed else None, True
        return found


def new(listed: Sequence[_One], last: _One | None) -> tuple[Sequence[_One], int]:
    """Those of *listed* (the oldest first) after *last*, and how many between the two were never listed.

    All of them are, where *last* is None, or where llama-swap has begun again since.
    """
    same = next((one for one in listed if last and one.number == last.number), None)
    if last is None or (same.at != last.at if same else not listed or listed[-1].number < last.number):
        fresh, before = listed, 0
    else:
        fresh, before = [one for one in listed if one.number > last.number], last.number
    return fresh, fresh[0].number - before - 1 if fresh else 0
