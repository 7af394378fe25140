"""Adapters as a front door serves them, and another version in the place of the one that serves."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from corral.errors import CannotRun
from corral.smoke.endpoint import Endpoint, TransportError

TAKES_OVER_S = 120.0
"""A kubelet that was not woken reads a changed ConfigMap after a minute or two."""
_ANSWER_LIMIT_S = 10.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Served:
    """An adapter as the door reports it."""

    version: str | None  # None: the door does not know which
    versions: tuple[str, ...]


async def listed(api: Endpoint) -> dict[str, Served]:
    """The adapters that the door at *api* serves, by MODEL:NAME.

    Raises:
        CannotRun: it does not answer as the guard does.
    """
    try:
        async with asyncio.timeout(_ANSWER_LIMIT_S):
            reply = await api.request("/v1/models")
        if reply.status == HTTPStatus.OK:
            entries = [one for one in json.loads(reply.body)["data"] if one.get("parent")]
            return {str(one["id"]): Served(one["version"], tuple(map(str, one["versions"]))) for one in entries}
        problem = f"HTTP {reply.status}: {reply.body[:200].decode(errors='replace').strip()}"
    except TimeoutError:
        problem = f"no answer within {_ANSWER_LIMIT_S:g} s"
    except TransportError as error:
        problem = str(error)
    except (ValueError, KeyError, TypeError, AttributeError):
        problem = "its list of models has another form"
    message = f"The front door at {api.root} does not report its adapters: {problem}."
    raise CannotRun(message, next_step="corral status")


async def changed(api: Endpoint, name: str, change: Callable[[], str]) -> tuple[str, float]:
    """Make *change*, which returns the version of the adapter *name* that is to serve, and wait until it does.

    That version, and the seconds from the beginning to the door's report.

    Raises:
        CannotRun: the door does not take it over; and what *change* raises.
    """
    began = time.monotonic()
    version = await asyncio.to_thread(change)
    while True:
        present = (await listed(api)).get(name)
        seconds = time.monotonic() - began
        if present and present.version == version:
            return version, seconds
        if seconds > TAKES_OVER_S:
            message = f"{version} of {name} was chosen, and the front door does not serve it after {TAKES_OVER_S:g} s."
            raise CannotRun(message, next_step="corral adapters list")
        await asyncio.sleep(_POLL_S)
