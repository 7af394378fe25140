"""Adapters: which version of each serves, by a file that is read again when it changes, and its name in a request.

A request names MODEL:NAME.  llama-swap and the engine know MODEL:NAME@VERSION, so that a change of the version that
serves is a change of this file alone: no engine ends, and a request that is under way keeps the version it has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from . import bodies, paths, strict_json
from .config import Adapter, Config, file_state
from .refusals import Refusal

_PATHS = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/completion", "/infill"}
"""Where the engine takes an adapter; on any other path it answers as the model without one."""
_MOST = 16  # versions before the present one


class Versions:
    """The versions of *adapters*, by MODEL:NAME, that serve by the file at *path*; without one the first of each.

    Args:
        path: as ``text_of`` writes it; a file that does not exist names none.
        adapters: those of the configuration; the file may name others, and versions that there are no more.
        warn: gets a sentence when a new file cannot be used, and the versions before it stay.
    """

    def __init__(self, path: Path | None, adapters: Mapping[str, Adapter], warn: Callable[[str], None]) -> None:
        self._path, self._adapters, self._warn = path, adapters, warn
        self._state: tuple[int, ...] | str = ""
        self._chosen: dict[str, list[str]] | None = {}
        if path:
            self._chosen = None
            self._refresh()

    def serving(self, name: str) -> str:
        """The version of the adapter MODEL:NAME that serves.

        Raises:
            Refusal: the file cannot be used, and no other has been since the start.
        """
        if (version := self.listed(name)) is None:
            rule = "The file with the versions that serve cannot be used, so none answers. See: corral adapters list"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "versions-unknown", rule, headers={"Retry-After": "5"})
        return version

    def listed(self, name: str) -> str | None:
        """As ``serving``; None in place of the Refusal."""
        self._refresh()
        return None if self._chosen is None else serving(self._chosen.get(name, ()), self._adapters[name].versions)

    def _refresh(self) -> None:
        if self._path is None or (state := file_state(self._path)) == self._state:
            return
        self._state = state
        try:
            self._chosen = parse(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self._chosen = {}
        except (OSError, ValueError) as error:
            self._warn(f"{self._path} is not used, the versions before it stay: {error}")


def serving(chosen: Sequence[str], versions: Sequence[str]) -> str:
    """Of *versions* the one that was *chosen* last, else the first."""
    return next((one for one in chosen if one in versions), versions[0])


def parse(text: str) -> dict[str, list[str]]:
    """The versions that were chosen, by MODEL:NAME, the latest first, from what ``text_of`` made.

    Raises:
        ValueError: it is something else.
    """
    document = strict_json.loads(text)
    if not isinstance(document, dict) or document.keys() != {"version", "chosen"} or document["version"] != 1:
        raise ValueError("it must have version 1 and chosen, and nothing else")
    chosen = document["chosen"]
    if not isinstance(chosen, dict) or not all(_is_texts(one) for one in chosen.values()):
        raise ValueError("chosen must have a list of versions for each adapter")
    return chosen


def text_of(chosen: Mapping[str, Sequence[str]]) -> str:
    """The file for *chosen*, as ``parse`` reads it."""
    kept = {name: list(versions[:_MOST]) for name, versions in sorted(chosen.items()) if versions}
    return json.dumps({"version": 1, "chosen": kept}, indent=2) + "\n"


def in_request(
    config: Config, versions: Versions, path: str, document: Mapping[str, Any], body: bytearray
) -> tuple[str, bytearray]:
    """The adapter that a request at *path* names, with its version, and the body for the engine; empty: it names none.

    What is for another card is as it came: the door there has the version that serves.

    Raises:
        Refusal: it would be answered without the adapter, its name has escapes, or which version serves is not known.
    """
    name = str(document["model"])
    if name in config.models:
        return "", body
    if path not in _PATHS:
        rule = f"The engine uses no adapter on this path. Those that have them: {', '.join(sorted(_PATHS))}."
        raise Refusal(HTTPStatus.NOT_FOUND, "no-adapter-here", rule)
    if name not in config.adapters or config.peer_of(config.adapters[name].model):
        return name, body
    version = f"{name}@{versions.serving(name)}"
    return version, renamed(body, document, version)


def require_no_adapter_in(path: str, config: Config) -> None:
    """Raise a Refusal when *path* of an operator names an adapter: what is below it knows models alone."""
    name = paths.name_in(path)
    if name not in config.models and (model := config.model_named(name)):
        rule = f"An adapter has no path of its own. That of its model: {path.replace(name, model)}"
        raise Refusal(HTTPStatus.NOT_FOUND, "no-adapter-here", rule)


def require_no_adapter_named(document: Mapping[str, Any], config: Config) -> None:
    """Raise a Refusal when the *document* of an operator's request to the engine itself names an adapter."""
    name = document.get("model")
    if isinstance(name, str) and name not in config.models and config.model_named(name):
        rule = f"The engine would answer without the adapter {name}: ask for it at /v1/chat/completions."
        raise Refusal(HTTPStatus.NOT_FOUND, "no-adapter-here", rule)


def renamed(body: bytearray, document: Mapping[str, Any], new: str) -> bytearray:
    """*body*, of which *document* is the value, with *new* as the name of its model, and not another byte changed.

    Raises:
        Refusal: its model is not written plainly.
    """
    plain = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*"(' + re.escape(str(document["model"]).encode()) + rb')"')
    wanted = {**document, "model": new}
    for found in plain.finditer(body):  # more than one only where a schema or the like has such a member, too
        changed = body[: found.start(1)] + new.encode() + body[found.end(1) :]
        if bodies.read_document(changed) == wanted:
            return changed
    rule = 'The name of an adapter must be written without escapes: "model": "MODEL:NAME".'
    raise Refusal(HTTPStatus.BAD_REQUEST, "model-escaped", rule)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
