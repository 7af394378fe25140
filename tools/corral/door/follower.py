"""Follows llama-swap's stream of events, from the first question on; that loads no model and keeps none loaded."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from . import llama_swap
from .changes import Changes
from .config import Config
from .llama_swap import FAULTS
from .refusals import Refusal, json_answer

_PAUSE_S = 0.5
_BYTES = 4 << 20  # of an event: the first two have 100 KiB of a log each
_STATES = ("starting", "ready", "stopping")


class Follower:
    """The changes of the models of one llama-swap.  ``listed`` may be called in another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: Changes | None = None
        self._is_following = False
        self._task: asyncio.Task[None] | None = None

    def answer(self, config: Config) -> bytes:
        """The answer with the last changes; the first question begins the following.

        Raises:
            Refusal: llama-swap is not followed now.
        """
        self._task = self._task or asyncio.get_running_loop().create_task(self._keep_following(config))
        changes = self.listed()
        if changes is None:
            rule = "The changes of models are not known: llama-swap's events are not followed now."
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "not-followed", rule, headers={"Retry-After": "1"})
        return json_answer(HTTPStatus.OK, {"changes": changes})

    def listed(self) -> list[dict[str, Any]] | None:
        """The last changes, the oldest first; None: llama-swap is not followed now."""
        with self._lock:
            return self._changes.listed() if self._changes and self._is_following else None

    async def follow(self, config: Config) -> None:
        """Follow the llama-swap of *config* until its stream ends.

        Raises:
            FAULTS: it broke off, or is none.
        """
        self._changes = changes = self._changes or Changes(config.models)
        try:
            async with llama_swap.opened_for(config, "/api/events") as (head, reader):
                if head.status != HTTPStatus.OK:
                    raise ValueError(f"status {head.status}")
                async for line in _lines(reader):
                    if line.startswith(b"data:"):
                        event = json.loads(line[5:])
                        with self._lock:
                            self._take(changes, event["type"], event["data"])
            with self._lock:
                changes.end()
        finally:
            with self._lock:
                self._is_following = False
                changes.lose()

    def _take(self, changes: Changes, kind: str, data: str) -> None:
        if kind == "modelStatus":
            found = {str(one["id"]): one["state"] for one in json.loads(data) if one["state"] in _STATES}
            (changes.states if self._is_following else changes.resume)(found)
            self._is_following = True
        elif kind == "logData" and self._is_following:  # what comes before is older than the first states
            log = json.loads(data)
            (changes.log if log["source"] == "proxy" else changes.engine_log)(str(log["data"]))

    async def _keep_following(self, config: Config) -> None:
        while True:
            with suppress(*FAULTS):
                await self.follow(config)
            await asyncio.sleep(_PAUSE_S)


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a body in chunks, which ends with an empty one; raises FAULTS where it breaks off."""
    rest = b""
    while size := int(await reader.readline(), 16):
        if size + len(rest) > _BYTES:
            raise ValueError(f"more than {_BYTES} bytes")
        *lines, rest = (rest + (await reader.readexactly(size + 2))[:-2]).split(b"\n")
        for line in lines:
            yield line
