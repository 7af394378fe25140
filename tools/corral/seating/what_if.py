"""The catalog and its lock as they would be with other values of some keys: changed in memory, predicted offline.

The rules of the catalog and of `corral lock` apply; what is predicted again is predicted over the headers beside the
lock.  Nothing is written.
"""

from __future__ import annotations

import copy
import difflib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.catalog import catalog as catalogs
from corral.catalog import yaml_reader
from corral.catalog.card import Card, Tenant
from corral.catalog.catalog import Catalog
from corral.catalog.intent import Model
from corral.catalog.invalid_values import fields_of
from corral.catalog.renamed_keys import RENAMED
from corral.errors import CatalogInvalid, Refused
from corral.hub.resolved import Resolved
from corral.lock.lock import Lock
from corral.lock.predict import Predictor
from corral.lock.relock import LEFT_AS_IT_WAS, Resolver, relock

_AS_IT_WAS = "The catalog is as it was. Try another value"
_EDIT_AND_LOCK = "Edit the model, then run: corral lock"
_EXAMPLE = "For example: corral seat --what-if context=32768 MODEL"


@dataclass(frozen=True)
class Change:
    """One key with another value.

    Attributes:
        source: the file of the model or the card, by its path in the catalog's folder.
        path: the key, from the top of the file down.
        value: the value in question; None leaves the key out.
        was: the present value; None where the key is left out.
    """

    source: str
    path: tuple[str, ...]
    value: Any
    was: Any

    def __str__(self) -> str:
        was, value = ("not set" if one is None else one for one in (self.was, self.value))
        return f"{Path(self.source).stem}: {'.'.join(self.path)} {was} → {value}"


def parse(texts: Sequence[str], target: str | None, catalog: Catalog) -> list[Change]:
    """The changes that *texts* (``KEY=VALUE``) describe.

    Args:
        texts: a key of a model (``context=32768``, ``args.cache-type-k=q8_0``) or of a card
            (``tenants.immich-ml.budget_mib=10726``, ``reserve_mib=0``), or a whole tenant
            (``tenants.backup={budget_mib: 2048}``), which may be a new one.
        target: the model, or the card; may be left out where only one can be meant.
        catalog: of the models and cards.

    Raises:
        Refused: a text is no ``KEY=VALUE``, no file has such a key, or the target is unknown or missing.
    """
    if target is not None and target not in catalog.models and target not in catalog.cards:
        known = ", ".join([*catalog.models, *catalog.cards])
        raise Refused(f"No model and no card {target} in {catalog.directory}. It has: {known}.")
    return [_change(text, target, catalog) for text in texts]


def applied(changes: Sequence[Change], catalog: Catalog, lock: Lock) -> tuple[Catalog, Lock]:
    """*catalog* with *changes*, and the lock that it would have, made from its present *lock*.

    Raises:
        Refused: the changed catalog breaks a rule, or its files are only known to the hub.
        EngineCannotPredict, ProgramMissing: as ``corral lock``.
    """
    values: dict[str, Any] = {}
    for change in changes:
        value = values.setdefault(change.source, copy.deepcopy(catalog.documents[change.source].value))
        _set(value, change.path, change.value)
    try:
        changed = catalogs.with_values(catalog, values)
        return changed, relock(changed, lock, _as_locked(catalog, lock), Predictor(changed)).lock
    except CatalogInvalid as error:
        lines = "\n".join(": ".join(filter(None, (problem.where, problem.message))) for problem in error.problems)
        raise Refused(lines, next_step=_AS_IT_WAS) from None
    except Refused as error:
        # Its own next step speaks of edits, and nothing was edited.
        raise Refused(error.message.removeprefix(f"{LEFT_AS_IT_WAS}\n").strip(), next_step=_AS_IT_WAS) from None


def _as_locked(catalog: Catalog, lock: Lock) -> Resolver:
    """Resolves without the hub: the files of a model are those in the lock."""
    entries = {model.weights: lock.models[model_id] for model_id, model in catalog.models.items()}

    def resolve(model: Model, catalog_dir: Path, commit: str | None) -> Resolved:  # noqa: ARG001
        entry = entries.get(model.weights)
        if entry is None:
            raise Refused("another engine has other files, and only the hub knows them.", next_step=_EDIT_AND_LOCK)
        if entry.has_projector != model.vision:
            raise Refused(
                "with other modalities it has other files, and only the hub knows them.", next_step=_EDIT_AND_LOCK
            )
        return Resolved(entry.repo, entry.revision, entry.licence, entry.files)

    return resolve


def _change(text: str, target: str | None, catalog: Catalog) -> Change:
    key, equals, given = text.partition("=")
    if not equals or not key:
        raise Refused(f"{text!r} must be KEY=VALUE.", next_step=_EXAMPLE)
    value = _value(text, given)
    path = _path(key, value)
    _require_known(key, path, given)
    if path[0] in ("source", "draft", "adapters") or path[:2] == ("vllm", "source"):
        raise Refused(f"{key} decides which files a model has, and only the hub knows them.", next_step=_EDIT_AND_LOCK)
    source = _source(path, target, catalog)
    was = catalog.documents[source].value
    for step in path:
        was = was.get(step) if isinstance(was, dict) else None
    return Change(source, path, value, was)


def _require_known(key: str, path: Sequence[str], given: str) -> None:
    """Refuse a key that neither a model nor a card can have; what is below ``args`` the catalog's rules check."""
    if path[0] in RENAMED:
        new = RENAMED[path[0]]
        change = shlex.quote(f"{new}={given}")
        raise Refused(f"{path[0]} is called {new} now.", next_step=f"corral seat --what-if {change} MODEL")
    models, cards = ([name for name in fields_of(kind) if name != "source"] for kind in (Model, Card))
    if path[0] not in (*models, *cards, "source"):
        raise Refused(
            f"Neither a model nor a card has a key {path[0]}. Models have: {', '.join(models)}. "
            f"Cards have: {', '.join(cards)}.{_hint(path[0], [*models, *cards])}",
            next_step=_EXAMPLE,
        )
    if path[0] == "tenants" and not all(path):
        raise Refused(
            f"{key} is no single key: a tenant has the keys {', '.join(Tenant.model_fields)}.",
            next_step="For example: corral seat --what-if tenants.NAME.budget_mib=2048",
        )
    if not all(path):
        raise Refused(f"{key} is no key: a part of it is empty.", next_step=_EXAMPLE)


def _hint(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def _path(key: str, value: Any) -> tuple[str, ...]:
    """*key* in steps; the name of a tenant may hold dots itself, and a whole tenant is a mapping."""
    first, _, rest = key.partition(".")
    if first == "tenants":
        if isinstance(value, dict):
            return (first, rest)
        tenant, _, last = rest.rpartition(".")
        return (first, tenant, last)
    return (first, *rest.split(".")) if rest else (first,)


def _source(path: tuple[str, ...], target: str | None, catalog: Catalog) -> str:
    """The file that has the key *path*: of *target*, or of the only model or card that can be meant."""
    kind, names = ("card", list(catalog.cards)) if path[0] in fields_of(Card) else ("model", list(catalog.models))
    tenant = path[1] if path[0] == "tenants" else None
    able = [name for name, card in catalog.cards.items() if tenant in card.tenants] if tenant else []
    able = [target] if target in names else able or names
    if len(able) > 1 or (kind == "model" and target not in (None, *able)):
        key, known = ".".join(path), ", ".join(names)
        raise Refused(
            f"{key} is a key of a {kind}: which one? There are: {known}.",
            next_step=f"corral seat --what-if {key}=… {kind.upper()}",
        )
    (name,) = able
    if tenant and len(path) == 3 and tenant not in (tenants := catalog.cards[name].tenants):
        raise Refused(
            f"{name} has no tenant {tenant}. It has: {', '.join(sorted(tenants)) or 'none'}.{_hint(tenant, tenants)}",
            next_step=f"For a new tenant: corral seat --what-if 'tenants.{tenant}={{budget_mib: 2048}}' {name}",
        )
    return f"{kind}s/{name}.yaml"


def _value(text: str, value: str) -> Any:
    if value.isalpha() and value.lower() not in ("true", "false", "null"):
        return value  # a shell removes the quotes with which on and off are words in a file
    try:
        return yaml_reader.parse(value, Path("VALUE"))[0]
    except CatalogInvalid as error:
        message = error.problems[0].message
        raise Refused(f"{text!r} must be KEY=VALUE with a plain value: {message}", next_step=_EXAMPLE) from None


def _set(value: dict[str, Any], path: Sequence[str], new: Any) -> None:
    """Put *new* at *path* of a file's *value*; None takes the key out."""
    for step in path[:-1]:
        if not isinstance(value.get(step), dict):
            value[step] = {}
        value = value[step]
    if new is None:
        value.pop(path[-1], None)
    else:
        value[path[-1]] = new
