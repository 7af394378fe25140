"""The configuration of the guard, as ``__init__`` describes it; anything else is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, get_args

from . import strict_json

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ADAPTER = _VERSION = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,252})(:[0-9]{1,5})?")
_PEER = re.compile(r"[a-z0-9]([a-z0-9.-]{0,252})")
_KEY = re.compile(r"[!-~]{16,512}")
Role = Literal["client", "monitor", "steward", "operator"]
Task = Literal["chat", "embedding", "rerank"]
_KEYS = {
    *("version", "listen", "upstream", "keys", "clients", "models", "adapters", "chosen_versions", "groups", "tasks"),
    *("peers", "image_hosts", "body_mib", "retry_after_seconds", "drain_seconds"),
}
_INTERNAL_KEY = {"internal_key_file", "internal_key_env"}


class Misconfigured(Exception):
    """A file that the guard cannot start with; the message names it and the rule."""


@dataclass(frozen=True)
class Client:
    """Who a key belongs to, and what the key permits."""

    name: str
    models: frozenset[str] | None  # ids; None: every model
    requests: int | None  # at once; None: any number
    role: Role = "client"

    @property
    def is_operator(self) -> bool:
        """Whether it may use every path."""
        return self.role == "operator"

    @property
    def is_monitor(self) -> bool:
        """Whether it watches, and gets no answer of a model."""
        return self.role in ("monitor", "steward")


@dataclass(frozen=True)
class Peer:
    """The door in front of the llama-swap of another card."""

    card: str
    address: tuple[str, int]
    models: frozenset[str]  # ids


@dataclass(frozen=True)
class Adapter:
    """An adapter that requests name."""

    model: str  # id
    versions: tuple[str, ...]


@dataclass(frozen=True)
class Config:
    """The configuration, checked."""

    listen: tuple[str, int] | str  # a path is a Unix socket's
    upstream: tuple[str, int]
    internal_key: str = field(repr=False)
    keys: Path | None
    clients: dict[str, Client]
    models: dict[str, str]  # id or alias → id
    adapters: dict[str, Adapter]  # by MODEL:NAME
    chosen_versions: Path | None
    groups: dict[str, str]  # id → group
    tasks: dict[str, Task]  # id → task, but of chats
    peers: dict[str, Peer]  # by card
    image_hosts: frozenset[str]
    body_bytes: int
    retry_after_s: int
    drain_s: int

    def peer_of(self, model: str) -> Peer | None:
        """The door of the card that has *model*, an id; None: it is on this one."""
        return next((peer for peer in self.peers.values() if model in peer.models), None)

    def model_named(self, name: str) -> str | None:
        """The id of the model that a request names: by its id, an alias, MODEL:ADAPTER, or MODEL:ADAPTER@VERSION."""
        if name in self.models:
            return self.models[name]
        adapter, _, version = name.partition("@")
        found = self.adapters.get(adapter)
        is_known = found is not None and (version in found.versions or name == adapter)
        return found.model if found and is_known else None


def file_state(path: Path) -> tuple[int, ...] | str:
    """What differs when another file is at *path*."""
    try:
        found = path.stat()
    except OSError as error:
        return str(error)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_config(path: Path) -> Config:
    """The configuration in *path*, with the internal key that it names.

    Raises:
        Misconfigured: a file is missing, unreadable, or not as ``__init__`` describes it.
    """
    try:
        document = strict_json.loads(path.read_text(encoding="utf-8"))
        return _config(_Reader("", document))
    except OSError as error:
        raise Misconfigured(f"{error.filename} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise Misconfigured(f"{path}: {error}.") from None


def _config(root: _Reader) -> Config:
    sources = _INTERNAL_KEY & root.names()
    if len(sources) != 1:
        raise ValueError(f"exactly one of {' and '.join(sorted(_INTERNAL_KEY))} is required")
    root.require(_KEYS | sources)
    if root.value("version") != 1:
        raise ValueError(f"version is {root.value('version')!r}; this guard reads version 1")
    model_names, client_names = root.at("models"), root.at("clients")
    models = {name: model_names.text(name) for name in model_names.names()}
    ids = set(models.values())
    clients = {name: _client(client_names.at(name), name, ids) for name in client_names.names()}
    keys = None if root.value("keys") is None else root.absolute_path("keys")
    if keys is None and not (len(clients) == 1 and all(one.is_operator for one in clients.values())):
        raise ValueError("without keys, clients must have exactly one member, and its role must be operator")
    return Config(
        listen=_listen(root.at("listen")),
        upstream=_address(root.at("upstream")),
        internal_key=_internal_key(root, *sources),
        keys=keys,
        clients=clients,
        models=models,
        adapters=_adapters(root.at("adapters"), ids, models),
        chosen_versions=None if root.value("chosen_versions") is None else root.absolute_path("chosen_versions"),
        groups=_of_models(root.at("groups"), ids),
        tasks=_tasks(root.at("tasks"), ids),
        peers=_peers(root.at("peers"), ids),
        image_hosts=frozenset(root.texts("image_hosts", _HOST)),
        body_bytes=root.number("body_mib", least=1) << 20,
        retry_after_s=root.number("retry_after_seconds", least=1),
        drain_s=root.number("drain_seconds", least=0),
    )


def _adapters(found: _Reader, ids: Collection[str], models: Collection[str]) -> dict[str, Adapter]:
    adapters = {}
    for name in found.names():
        one = found.at(name)
        one.require({"model", "versions"})
        model, versions = one.text("model"), tuple(one.texts("versions", _VERSION))
        if model not in ids or name in models or not _ADAPTER.fullmatch(name.removeprefix(f"{model}:")):
            raise ValueError(f"{one.where}model is {model!r}: the name must be the id of a model, a colon, and a name")
        if not versions or len(set(versions)) < len(versions):
            raise ValueError(f"{one.where}versions must have one or more, and none twice")
        adapters[name] = Adapter(model, versions)
    return adapters


def _tasks(found: _Reader, ids: Collection[str]) -> dict[str, Task]:
    tasks: dict[str, Task] = {}
    for model, named in _of_models(found, ids).items():
        if (task := next((one for one in get_args(Task) if one == named), None)) is None:
            raise ValueError(f"{found.where}{model} is {named!r}; it must be one of {', '.join(get_args(Task))}")
        tasks[model] = task
    return tasks


def _of_models(found: _Reader, ids: Collection[str]) -> dict[str, str]:
    if unknown := sorted(found.names().difference(ids)):
        raise ValueError(f"{found.where}{unknown[0]} is not the id of a model")
    return {model: found.text(model) for model in found.names()}


def _client(found: _Reader, name: str, ids: Collection[str]) -> Client:
    if not _NAME.fullmatch(name):
        raise ValueError(f"clients has the name {name!r}; a name has 1 to 63 of A-Z, a-z, 0-9, ., _ and -")
    found.require({"models", "requests", "role"})
    models = None if found.value("models") is None else frozenset(found.texts("models"))
    if unknown := sorted((models or frozenset()).difference(ids)):
        raise ValueError(f"{found.where}models names {unknown[0]!r}, which is not the id of a model")
    requests = None if found.value("requests") is None else found.number("requests", least=1)
    role = found.value("role")
    if role not in get_args(Role):
        raise ValueError(f"{found.where}role is {role!r}; it must be one of {', '.join(get_args(Role))}")
    client = Client(name, models, requests, role)
    if client.is_monitor and models != frozenset():
        raise ValueError(f"{found.where}models must be []: a {role} loads no model")
    return client


def _peers(found: _Reader, ids: Collection[str]) -> dict[str, Peer]:
    peers: dict[str, Peer] = {}
    for card in found.names():
        one = found.at(card)
        one.require({"host", "port", "models"})
        if not _PEER.fullmatch(host := one.text("host")):
            raise ValueError(f"{one.where}host is {host!r}; it must be a name or an address of IPv4, in lower case")
        models = frozenset(one.texts("models"))
        if unknown := sorted(models.difference(ids)):
            raise ValueError(f"{one.where}models names {unknown[0]!r}, which is not the id of a model")
        if twice := sorted(name for peer in peers.values() for name in peer.models & models):
            raise ValueError(f"{one.where}models names {twice[0]!r}, which another card has, too")
        peers[card] = Peer(card, (host, one.number("port", least=1, most=65535)), models)
    return peers


def _listen(found: _Reader) -> tuple[str, int] | str:
    if found.names() == {"unix"}:
        return str(found.absolute_path("unix"))
    return _address(found, least=0)


def _address(found: _Reader, *, least: int = 1) -> tuple[str, int]:
    found.require({"host", "port"})
    host = found.text("host")
    if not _is_loopback(host):
        raise ValueError(f"{found.where}host is {host!r}; it must be an address of loopback")
    return host, found.number("port", least=least, most=65535)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _internal_key(root: _Reader, source: str) -> str:
    if source == "internal_key_file":
        key = root.absolute_path(source).read_text(encoding="utf-8").strip()
    else:
        key = os.environ.get(root.text(source), "")
    if not _KEY.fullmatch(key):
        raise ValueError(f"{source} {root.value(source)!r} has no key: 16 or more visible characters of ASCII")
    return key


class _Reader:
    """A value of the document, and the place where it stands, for messages."""

    def __init__(self, where: str, found: Any) -> None:
        self.where = f"{where}." if where else ""
        self._found = found
        if not isinstance(found, dict):
            raise ValueError(f"{where or 'the document'} must be an object")  # noqa: TRY004 - it is about a file

    def names(self) -> set[str]:
        return set(self._found)

    def require(self, names: set[str]) -> None:
        """Raise ValueError unless exactly *names* are there."""
        for problem, found in (("is missing", names - self.names()), ("is not known", self.names() - names)):
            if found:
                raise ValueError(f"{self.where}{min(found)} {problem}")

    def value(self, name: str) -> Any:
        return self._found[name]

    def at(self, name: str) -> _Reader:
        return _Reader(f"{self.where}{name}", self._found[name])

    def text(self, name: str) -> str:
        found = self._found[name]
        if not isinstance(found, str) or not found:
            raise ValueError(f"{self.where}{name} must be a text that is not empty")
        return found

    def texts(self, name: str, form: re.Pattern[str] = re.compile(".+")) -> list[str]:
        found = self._found[name]
        if not isinstance(found, list) or not all(isinstance(one, str) and form.fullmatch(one) for one in found):
            raise ValueError(f"{self.where}{name} must be a list of texts of the form {form.pattern}")
        return found

    def number(self, name: str, *, least: int, most: int = 1 << 20) -> int:
        found = self._found[name]
        if type(found) is not int or not least <= found <= most:
            raise ValueError(f"{self.where}{name} must be a whole number from {least} to {most}")
        return found

    def absolute_path(self, name: str) -> Path:
        found = Path(self.text(name))
        if not found.is_absolute():
            raise ValueError(f"{self.where}{name} must be an absolute path")
        return found
