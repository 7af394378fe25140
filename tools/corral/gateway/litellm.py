"""LiteLLM's API for its list of models (https://docs.litellm.ai/docs/proxy/model_management), with its master key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx2

from corral.errors import CannotRun, Refused
from corral.gateway.entries import Change, Entry

_LIMIT_S = 60.0
_NO_DATABASE = ("No DB Connected", "DB not connected", "STORE_MODEL_IN_DB", "DB-stored models")


class LiteLLM:
    """The proxy at *url*; each method raises Refused where it refuses, and CannotRun where it does not answer."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url.rstrip("/")
        self._client = httpx2.Client(headers={"Authorization": f"Bearer {key}"}, timeout=_LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def entries(self) -> Sequence[Entry]:
        """Every entry of its list, without keys."""
        found = self._asked("GET", "/model/info").get("data")
        if not isinstance(found, list) or not all(_is_entry(one) for one in found):
            raise CannotRun(f"{self._url}/model/info has no list of models as LiteLLM has it.", next_step=_NOT_LITELLM)
        return found

    def make(self, change: Change) -> None:
        """Carry out *change*; it holds from the answer on."""
        own = change.entry["model_info"]["id"]
        match change.kind:
            case "add":
                self._asked("POST", "/model/new", change.entry)
            case "change":
                self._asked("PATCH", f"/model/{quote(own, safe='')}/update", change.entry)
            case "remove":
                self._asked("POST", "/model/delete", {"id": own})

    def _asked(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        try:
            answer = self._client.request(method, f"{self._url}{path}", json=body)
        except httpx2.HTTPError as error:
            step = f"Is that LiteLLM's address? curl {self._url}/health/liveliness"
            raise CannotRun(f"LiteLLM at {self._url} does not answer: {error}.", next_step=step) from None
        try:
            found = answer.json()
        except json.JSONDecodeError:
            found = None
        if answer.status_code == 200 and isinstance(found, dict):
            return found
        raise _refusal(f"{method} {self._url}{path}", answer.status_code, found)


_NOT_LITELLM = "Is that LiteLLM's address? It is the one without /v1"


def _is_entry(one: Any) -> bool:
    parts = ("litellm_params", "model_info")
    return (
        isinstance(one, dict)
        and isinstance(one.get("model_name"), str)
        and all(isinstance(one.get(part), dict) for part in parts)
        and isinstance(one["model_info"].get("id"), str)
    )


def _refusal(request: str, status: int, found: Any) -> Refused | CannotRun:
    message = _message(found)
    if any(words in message for words in _NO_DATABASE):
        return Refused(
            f"LiteLLM keeps no models: {request} is {status}, {message}. Its API changes them only where it has "
            "PostgreSQL.",
            next_step="Give it DATABASE_URL and STORE_MODEL_IN_DB=True; or write them into its configuration: "
            "corral render --print litellm",
        )
    if status in (401, 403) or "No connected db" in message:
        step = "Name LiteLLM's master key: in LITELLM_MASTER_KEY, or with --key-file FILE"
        return Refused(f"LiteLLM does not accept the key: {request} is {status}, {message}.", next_step=step)
    if found is None:
        return CannotRun(f"{request} is {status}, and no JSON.", next_step=_NOT_LITELLM)
    return Refused(f"LiteLLM refuses it: {request} is {status}, {message}.", next_step="LiteLLM's log has the reason")


def _message(found: Any) -> str:
    """What LiteLLM states, in one of its forms, on one line."""
    error = found.get("error", found.get("detail")) if isinstance(found, dict) else found
    for key in ("message", "error"):
        if isinstance(error, dict) and key in error:
            error = error[key]
    return " ".join(str(error).split())[:400]
