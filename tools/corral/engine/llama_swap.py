"""Reads a running llama-swap over HTTP: the resident and the configured models, requests, logs.

Only ``load`` causes a load, and only it and ``unload`` change anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

from corral.door.paths import UPSTREAM
from corral.errors import CannotRun, Refused

ANSWER_LIMIT_S = 5.0
"""The default limit of a request."""

_UNLOAD_LIMIT_S = 30.0  # an engine that is busy is killed after 10 s
_HISTORY_LIMIT_S = 3.0  # a model that never ran has none, and llama-swap sends nothing

_REASON = 300  # characters
_EXCHANGES = 500  # llama-swap keeps 1000 and gives 999 at most
_IN_FLIGHT = re.compile(r'data: ?\{"type":"inflight","data":("(?:[^"\\]|\\.)*")\}')


@dataclass(frozen=True)
class Resident:
    """A model that has a process."""

    model: str
    state: str  # starting, ready or stopping
    proxy: str  # the address of its engine
    ttl: int  # seconds without a request after which it is unloaded; 0 or less: never
    command: str = ""  # as one line for a shell
    card: str = ""  # where its door is that of another card, which passes requests for it on


@dataclass(frozen=True)
class InFlight:
    """A request without a complete answer, waiting or served."""

    model: str
    since: float  # seconds since 1970


@dataclass(frozen=True)
class Exchange:
    """A request that is over."""

    model: str
    ended: float  # seconds since 1970
    status: int  # of the HTTP answer
    seconds: float = 0.0  # from its arrival to the end of its answer, waiting and a load included
    prompt_tokens: int = 0  # that were not in a cache
    output_tokens: int = 0
    tokens_per_second: float | None = None  # of the answer, once it had begun; None: it has none, or it is not reported


class LlamaSwap:
    """The llama-swap at *endpoint* (``http://host:port``), which has *limit_s* seconds to answer.

    *api_key* is sent with every request; empty: none is.

    Every method but ``is_healthy`` raises CannotRun when it does not answer, or not as llama-swap does.
    """

    def __init__(self, endpoint: str, *, api_key: str = "", limit_s: float = ANSWER_LIMIT_S) -> None:
        self.endpoint, self.api_key, self._limit_s = endpoint, api_key, limit_s
        self.headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def is_healthy(self) -> bool:
        """Whether it answers at all, whatever the state of its models."""
        try:
            return self._get("/health").status_code == HTTPStatus.OK
        except CannotRun:
            return False

    def has_pages(self) -> bool:
        """Whether it has pages for a browser: a build from the Go module alone answers 404, for it has no assets."""
        return self._get("/ui/").status_code == HTTPStatus.OK

    def residents(self) -> list[Resident]:
        """The models that have a process now."""
        answer = self._get("/running")
        try:
            return residents_in(answer.content)
        except ValueError:
            raise self._foreign("/running", answer) from None

    def models(self) -> list[str]:
        """The ids in its configuration, sorted."""
        return sorted(str(one["id"]) for one in self._models())

    def contents(self) -> dict[str, list[str]]:
        """The sha256 of each model's files, as its configuration has them."""
        found = self._metadata()
        return {model: [str(digest) for digest in metadata.get("sha256", [])] for model, metadata in found.items()}

    def on_cpu(self) -> dict[str, str]:
        """The models whose engines get no card, each with the reason, as its configuration has them."""
        return {model: str(data["on_cpu"]) for model, data in self._metadata().items() if "on_cpu" in data}

    def _metadata(self) -> dict[str, dict[str, Any]]:
        return {str(one["id"]): one.get("meta", {}).get("llamaswap", {}) for one in self._models()}

    def _models(self) -> list[dict[str, Any]]:
        """Those in its configuration; a guard lists their adapters, too, each with its parent."""
        return [one for one in self._data("/v1/models") if not one.get("parent")]

    def load(self, model: str) -> str:
        """Load *model* and wait until it is ready, as long as llama-swap does: empty, else llama-swap's reason.

        llama-swap has no request for that alone: it loads a model for any request of its engine, here for /health,
        which needs no key there, computes nothing and exists for every kind of model.
        """
        with self._client(None) as client:
            answer = client.get(f"{UPSTREAM}{model}/health")
        if answer.status_code == HTTPStatus.OK:
            return ""
        return f"HTTP {answer.status_code}: {answer.text[:_REASON].strip()}"

    def unload(self, model: str) -> None:
        """Unload *model*, whatever it is doing; returns when its process has ended."""
        with self._client(_UNLOAD_LIMIT_S) as client:
            answer = client.post(f"/api/models/unload/{model}")
        if answer.status_code != HTTPStatus.OK:
            raise CannotRun(
                f"llama-swap did not unload {model} (HTTP {answer.status_code}): {answer.text[:200].strip()}",
                next_step="corral status",
            )

    def exchanges(self) -> list[Exchange]:
        """The last requests that are over, the newest first; 429 is one that was refused over the limit."""
        return [_exchange(one) for one in self._data(f"/api/metrics/activity?limit={_EXCHANGES}")]

    def in_flight(self) -> list[InFlight]:
        """The requests that have no complete answer yet, oldest first."""
        # The stream of events begins with the state of everything.
        with self._client(self._limit_s) as client, client.stream("GET", "/api/events") as answer:
            try:
                found = in_flight_in(answer.iter_lines())
            except (KeyError, TypeError, ValueError) as error:
                message = f"llama-swap at {self.endpoint} reports requests in flight in an unknown form: {error!r}."
                raise CannotRun(message, next_step="corral engine") from None
        if found is not None:
            return found
        raise CannotRun(f"llama-swap at {self.endpoint} does not report what is in flight.", next_step="corral logs")

    def model_log(self, model: str) -> str:
        """The log of *model*'s engine, as far back as llama-swap keeps it; empty when the model never ran.

        Raises:
            Refused: there is no such model.
        """
        chunks = self._log_chunks(model, limit_s=min(self._limit_s, _HISTORY_LIMIT_S))
        return next(chunks, b"").decode(errors="replace")

    def follow_model_log(self, model: str) -> Iterator[str]:
        """Yield each line that *model*'s engine writes from now on, until llama-swap stops.

        Raises:
            Refused: there is no such model.
        """
        rest = b""
        for chunk in self._log_chunks(model, "?no-history", limit_s=None):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)

    def _log_chunks(self, model: str, query: str = "", *, limit_s: float | None) -> Iterator[bytes]:
        """Yield the stream's chunks, until *limit_s* seconds pass without a byte.

        llama-swap sends the whole history as the first chunk, and the headers with it.
        """
        address = urlsplit(self.endpoint)
        with closing(HTTPConnection(str(address.hostname), address.port, timeout=limit_s)) as connection:
            try:
                connection.request("GET", f"/logs/stream/{quote(model)}{query}", headers=self.headers)
            except OSError as error:
                raise self._silent(error) from None
            try:
                answer = connection.getresponse()
                if answer.status == HTTPStatus.BAD_REQUEST:
                    raise Refused(f"There is no model {model} in the stack.", next_step="corral status")
                chunk = b""
                while part := answer.read1():
                    chunk += part
                    if not answer.chunk_left:
                        yield chunk
                        chunk = b""
            except (OSError, HTTPException):
                return  # no more for now, or llama-swap was stopped

    @contextmanager
    def _client(self, read_limit_s: float | None) -> Iterator[httpx2.Client]:
        # This is loopback: no proxy settings of the environment, and no certificates, which take 30 ms to read.
        limits = httpx2.Timeout(ANSWER_LIMIT_S, read=read_limit_s)
        try:
            with httpx2.Client(
                base_url=self.endpoint, headers=self.headers, timeout=limits, trust_env=False, verify=False
            ) as client:
                yield client
        except httpx2.HTTPError as error:
            raise self._silent(error) from None

    def _get(self, path: str) -> httpx2.Response:
        with self._client(self._limit_s) as client:
            return client.get(path)

    def _data(self, path: str) -> list[dict[str, Any]]:
        answer = self._get(path)
        try:
            found: list[dict[str, Any]] = answer.json()["data"]
        except (ValueError, KeyError, TypeError):
            raise self._foreign(path, answer) from None
        return found

    def _silent(self, error: Exception) -> CannotRun:
        why = str(error) or type(error).__name__
        return CannotRun(f"llama-swap at {self.endpoint} does not answer: {why}.", next_step="corral logs")

    def _foreign(self, path: str, answer: httpx2.Response) -> CannotRun:
        return CannotRun(
            f"{self.endpoint}{path} does not answer as llama-swap does: {answer.text[:200]!r}",
            next_step="corral logs",
        )


def in_flight_in(events: Iterable[str]) -> list[InFlight] | None:
    """The requests of the first complete state in the lines of ``/api/events``; None when there is none.

    From v240 on there are changes beside the states, and a state without requests has no list of them.

    Raises:
        KeyError, TypeError, ValueError: the state has another form.
    """
    for line in events:
        if found := _IN_FLIGHT.fullmatch(line):
            state = json.loads(json.loads(found[1]))
            if state.get("operation", "snapshot") == "snapshot":
                requests = state.get("requests", []) if "operation" in state else state["requests"]
                return [InFlight(one["model"], _seconds(one["timestamp"])) for one in requests]
    return None


def residents_in(body: bytes) -> list[Resident]:
    """The models that have a process, by the *body* of an answer of /running.

    Raises:
        ValueError: it is not llama-swap's.
    """
    try:
        return [
            Resident(
                model=str(one["model"]),
                state=str(one["state"]),
                proxy=str(one.get("proxy", "")),
                ttl=int(one.get("ttl", 0)),
                command=str(one.get("cmd", "")),
                card=str(one.get("card", "")),
            )
            for one in json.loads(body)["running"]
        ]
    except (RecursionError, TypeError, KeyError, AttributeError) as error:
        raise ValueError("no answer of /running") from error


def _exchange(listed: dict[str, Any]) -> Exchange:
    tokens = listed.get("tokens") or {}
    prompt, answer = (max(0, int(tokens.get(f"{kind}_tokens") or 0)) for kind in ("input", "output"))
    rate = float(tokens.get("tokens_per_second") or 0)
    return Exchange(
        listed["model"],
        _seconds(listed["timestamp"]),
        int(listed["resp_status_code"]),
        int(listed.get("duration_ms") or 0) / 1000,
        prompt,
        answer,
        round(rate, 1) if answer and rate > 0 else None,  # -1 is what it does not know
    )


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
