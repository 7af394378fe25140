"""The configuration of the exporter of a node, as ``__init__`` describes it; anything else is refused."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from . import expectations
from .account import CardPromise, ModelPromise
from .budgets import Budget
from .errors import Misconfigured
from .pods import Selector
from .yields import Rule

_T = TypeVar("_T")
_KEYS = {
    *("version", "listen", "operator_keys", "engines", "door", "records", "alertmanager", "driver_pid_namespace"),
    *("seal", "cards"),
}
_MODEL = {"group", "seat_bytes", "predicted_bytes", "measured_bytes", "latency"}
_BUDGET = {"consumer", "prompt_tokens", "answer_tokens", "p95_seconds", "cold"}


@dataclass(frozen=True)
class Door:
    """The front door of a pod of llama-swap: its port, the Host that it serves, and the file with the monitor's key."""

    port: int
    host: str
    key_file: Path


@dataclass(frozen=True)
class Config:
    """What the exporter of a node knows before it reads anything.

    Attributes:
        host: the address that it listens on.
        port: the same; 0: any.
        operator_keys: the file with the hashes of the operator's keys.
        engines: the pods of llama-swap; None: on a machine without Kubernetes.
        door: of each of them; None: there is none.
        engine_units: without Kubernetes, the systemd units of llama-swap or llama-server.
        records: the folder of the recorder.
        alertmanager: its URL; None: there is none.
        driver_pid_namespace: the number of the pid namespace whose pids the driver reports; None: the kernel's first.
        seal: of the lock.
        promises: of the node's cards.
        tenants: the pods of each tenant, None where it names none, by card.
        tenant_units: the systemd unit of each tenant, None where it has none, by card.
        expects: the conditions on variables of each tenant that has some, by card.
        budgets: of the latency of their models.
        yields: when models are unloaded, of each card where they are.
    """

    host: str
    port: int
    operator_keys: Path
    engines: Selector | None
    door: Door | None
    engine_units: frozenset[str]
    records: Path
    alertmanager: str | None
    driver_pid_namespace: int | None
    seal: str
    promises: Mapping[str, CardPromise]
    tenants: Mapping[str, Mapping[str, Selector | None]]
    tenant_units: Mapping[str, Mapping[str, str | None]]
    expects: Mapping[str, Mapping[str, Mapping[str, str]]]
    budgets: tuple[Budget, ...]
    yields: Mapping[str, Rule]

    @property
    def models(self) -> frozenset[str]:
        """The ids of all models."""
        return frozenset(model for card in self.promises.values() for model in card.models)


def read_config(path: Path) -> Config:
    """The configuration in the file *path*.

    Raises:
        Misconfigured: it cannot be read, or breaks a rule.
    """
    try:
        return _config(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Misconfigured(f"{path} is no configuration of the exporter: {error!r}.") from None


def _config(read: Mapping[str, Any]) -> Config:
    _exactly(read, _KEYS)
    if read["version"] != 1:
        raise ValueError(f"version {read['version']!r}")
    _exactly(read["listen"], {"host", "port"})
    engines, cards = read["engines"], read["cards"]
    in_units = "units" in engines
    _exactly(engines, {"units"} if in_units else {"namespace", "selector"})
    if in_units and read["door"] is not None:
        raise ValueError("a door is of engines in pods")
    return Config(
        str(read["listen"]["host"]),
        _count(read["listen"]["port"]),
        Path(_text(read["operator_keys"])),
        None if in_units else Selector.parse(str(engines["namespace"]), str(engines["selector"])),
        None if in_units else _door(read["door"]),
        frozenset(map(_text, engines["units"])) if in_units else frozenset(),
        Path(str(read["records"])),
        _optional(_url, read["alertmanager"]),
        _optional(_count, read["driver_pid_namespace"]),
        str(read["seal"]),
        {name: _promise(card) for name, card in cards.items()},
        {name: _tenants(card["tenants"]) for name, card in cards.items()},
        {name: _units(card["tenants"]) for name, card in cards.items()},
        {name: _expects(card["tenants"]) for name, card in cards.items()},
        tuple(
            _budget(name, model, one)
            for name, card in cards.items()
            for model, promised in card["models"].items()
            for one in promised["latency"]
        ),
        {name: _rule(card["yield"]) for name, card in cards.items() if card["yield"] is not None},
    )


def _door(one: Mapping[str, Any]) -> Door:
    _exactly(one, {"port", "host", "key_file"})
    return Door(_count(one["port"]), str(one["host"]), Path(str(one["key_file"])))


def _promise(card: Mapping[str, Any]) -> CardPromise:
    _exactly(card, {"vram_bytes", "reserve_bytes", "yield", "tenants", "models"})
    return CardPromise(
        _count(card["vram_bytes"]),
        _count(card["reserve_bytes"]),
        {name: _count(tenant["budget_bytes"]) for name, tenant in card["tenants"].items()},
        {model: _model(one) for model, one in card["models"].items()},
    )


def _rule(one: Mapping[str, Any]) -> Rule:
    _exactly(one, {"floor_bytes", "idle_seconds"})
    return Rule(_count(one["floor_bytes"]), _count(one["idle_seconds"]))


def _model(one: Mapping[str, Any]) -> ModelPromise:
    _exactly(one, _MODEL)
    predicted, measured = one["predicted_bytes"], one["measured_bytes"]
    return ModelPromise(
        str(one["group"]), _count(one["seat_bytes"]), _optional(_count, predicted), _optional(_count, measured)
    )


def _tenants(tenants: Mapping[str, Any]) -> dict[str, Selector | None]:
    for tenant in tenants.values():
        _exactly(tenant, {"budget_bytes", "namespace", "selector", "unit", "expects"})
    return {name: _selector(tenant) for name, tenant in tenants.items()}


def _selector(tenant: Mapping[str, Any]) -> Selector | None:
    namespace, labels = _optional(_text, tenant["namespace"]), _optional(_text, tenant["selector"])
    return Selector.parse(namespace, labels) if namespace or labels else None


def _units(tenants: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: _optional(_text, tenant["unit"]) for name, tenant in tenants.items()}


def _expects(tenants: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    found = {name: dict(tenant["expects"]) for name, tenant in tenants.items() if tenant["expects"]}
    for conditions in found.values():
        for condition in conditions.values():
            if not re.fullmatch(expectations.PATTERN, condition):
                raise ValueError(f"{condition!r} is no condition")
    return found


def _budget(card: str, model: str, one: Mapping[str, Any]) -> Budget:
    _exactly(one, _BUDGET)
    if one["cold"] not in ("allowed", "excluded"):
        raise ValueError(f"cold {one['cold']!r}")
    tokens = _count(one["prompt_tokens"]), _count(one["answer_tokens"])
    return Budget(card, model, str(one["consumer"]), *tokens, _seconds(one["p95_seconds"]), one["cold"])


def _exactly(read: Mapping[str, Any], keys: set[str]) -> None:
    if read.keys() != keys:
        raise ValueError(f"the keys {sorted(read.keys() ^ keys)} are missing or unknown")


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no whole number of 0 or more")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not (0 < value < math.inf):
        raise ValueError(f"{value!r} is no time of more than 0 seconds")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no text")
    return value


def _url(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"http://[A-Za-z0-9.-]+:[0-9]{1,5}", value):
        raise ValueError(f"{value!r} is no URL as http://host:port")
    return value


def _optional(parse: Callable[[object], _T], value: object) -> _T | None:
    return None if value is None else parse(value)
