"""What the chart would be if a key of the catalog said something else: played through on a copy, offline.

The copy is locked by the same code as the catalog itself; what is asked of the engine again is asked with the headers
that lie beside the lock.  The catalog is only read.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from corral.catalog import catalog as catalogs
from corral.catalog import yaml_reader
from corral.catalog.catalog import Catalog
from corral.catalog.intent import Card, Model
from corral.errors import CatalogInvalid, Refused
from corral.hub.resolve import Resolved
from corral.lock import headers
from corral.lock import lock as locks
from corral.lock.lock import Lock
from corral.lock.predict import EngineMeasurer
from corral.lock.relock import LEFT_AS_IT_WAS, relock

_AS_IT_WAS = "The catalog is as it was. Try another value"
_FILES = ("measured.json", "images.yaml")


@dataclass(frozen=True)
class Change:
    """One key with another value.

    Attributes:
        kind: the folder of the file: ``models`` or ``cards``.
        name: of the model or the card.
        path: the key, from the top of the file down.
        value: what it would say; None leaves it out.
        was: what it says now; None where it is left out.
    """

    kind: str
    name: str
    path: tuple[str, ...]
    value: Any
    was: Any

    def __str__(self) -> str:
        was = "not set" if self.was is None else self.was
        return f"{self.name}: {'.'.join(self.path)} {was} → {'not set' if self.value is None else self.value}"


def parse(texts: Sequence[str], target: str | None, catalog: Catalog) -> list[Change]:
    """The changes that *texts* (``KEY=VALUE``) ask for.

    Args:
        texts: a key of a model (``context=32768``, ``args.cache-type-k=q8_0``) or of a card
            (``tenants.immich-ml.budget_mib=10726``, ``reserve_mib=0``).
        target: the model, or the card; may be left out where only one can be meant.
        catalog: where they are looked up.

    Raises:
        Refused: a text is no ``KEY=VALUE``, no file has such a key, or the target is unknown or missing.
    """
    if target is not None and target not in catalog.models and target not in catalog.cards:
        known = ", ".join([*catalog.models, *catalog.cards])
        raise Refused(f"No model and no card {target} in {catalog.directory}. It has: {known}.")
    return [_change(text, target, catalog) for text in texts]


@contextmanager
def applied(changes: Sequence[Change], catalog: Catalog, lock: Lock) -> Iterator[Catalog]:
    """A temporary copy of *catalog* (with its *lock*) in which *changes* are made, measured and locked.

    Raises:
        Refused: the changed catalog breaks a rule, or only the hub could answer.
        EngineCannotMeasure, ProgramMissing: as ``corral lock``.
    """
    with tempfile.TemporaryDirectory(prefix="corral-what-if-") as folder:
        copy = Path(folder) / catalog.directory.name
        _copy(catalog, copy)
        for change in changes:
            _write(change, copy)
        try:
            changed = catalogs.load(copy)
            relocked = relock(changed, lock, _AsLocked(catalog, lock), EngineMeasurer(copy))
            locks.write(changed.lock_file, relocked.lock)
            yield changed
        except CatalogInvalid as error:
            told = "\n".join(": ".join(filter(None, (problem.where, problem.message))) for problem in error.problems)
            raise Refused(told, next_step=_AS_IT_WAS) from None
        except Refused as error:
            what = error.message.removeprefix(f"{LEFT_AS_IT_WAS}\n").strip()
            raise Refused(what, next_step=_AS_IT_WAS) from None  # its own next step names the copy


class _AsLocked:
    """Stands where the hub is asked: the files of a model are those in the lock."""

    def __init__(self, catalog: Catalog, lock: Lock) -> None:
        self._entries = {model.source: lock.models[model_id] for model_id, model in catalog.models.items()}

    def __call__(self, model: Model, catalog_dir: Path, *, revision: str | None = None) -> Resolved:  # noqa: ARG002
        entry = self._entries[model.source]
        if (entry.files[-1].role == "projector") != model.vision:
            raise Refused(
                "with other modalities it has other files, and only the hub knows them.",
                next_step="Edit the model, then run: corral lock",
            )
        return Resolved(entry.repo, entry.revision, entry.licence, entry.files)


def _change(text: str, target: str | None, catalog: Catalog) -> Change:
    key, equals, value = text.partition("=")
    path = _path(key)
    if not equals or not all(path):
        raise Refused(
            f"{text!r} must be KEY=VALUE.", next_step="For example: corral seat --what-if context=32768 MODEL"
        )
    if path[0] == "source":
        raise Refused(
            f"{key} decides which files a model has, and only the hub knows them.",
            next_step="Edit the model, then run: corral lock",
        )
    if path[0] in Card.model_fields:
        kind, name = "cards", _card(path, target, catalog)
    elif path[0] in Model.model_fields:
        kind, name = "models", _model(key, target, catalog)
    else:
        keys = [field for field in (*Model.model_fields, *Card.model_fields) if field != "source"]
        raise Refused(f"Neither a model nor a card has a key {path[0]}. They have: {', '.join(keys)}.")
    document = yaml_reader.read(catalog.directory / kind / f"{name}.yaml").value
    return Change(kind, name, path, _value(text, value), _look_up(document, path))


def _path(key: str) -> tuple[str, ...]:
    """*key* in steps; the name of a tenant may hold dots itself."""
    first, _, rest = key.partition(".")
    if first == "tenants":
        tenant, _, last = rest.rpartition(".")
        return (first, tenant, last)
    return (first, *rest.split(".")) if rest else (first,)


def _model(key: str, target: str | None, catalog: Catalog) -> str:
    if target in catalog.models:
        return str(target)
    if target is None and len(catalog.models) == 1:
        return next(iter(catalog.models))
    known = ", ".join(catalog.models)
    raise Refused(
        f"{key} is a key of a model: which one? There are: {known}.", next_step=f"corral seat --what-if {key}=… MODEL"
    )


def _card(path: tuple[str, ...], target: str | None, catalog: Catalog) -> str:
    if target in catalog.cards:
        return str(target)
    able = [name for name, card in catalog.cards.items() if path[0] != "tenants" or path[1] in card.tenants]
    if len(able or catalog.cards) == 1:
        return next(iter(able or catalog.cards))
    key, known = ".".join(path), ", ".join(catalog.cards)
    raise Refused(
        f"{key} is a key of a card: which one? There are: {known}.", next_step=f"corral seat --what-if {key}=… CARD"
    )


def _value(text: str, value: str) -> Any:
    try:
        found = yaml.safe_load(value)
    except yaml.YAMLError:
        raise Refused(f"{text!r} must be KEY=VALUE with a plain value.") from None
    # YAML 1.1 takes on and off for truth values; here they are words.
    return value if isinstance(found, bool) and value not in ("true", "false") else found


def _copy(catalog: Catalog, copy: Path) -> None:
    for kind in ("models", "cards"):
        shutil.copytree(catalog.directory / kind, copy / kind)
    for name in _FILES:
        if (catalog.directory / name).is_file():
            shutil.copy(catalog.directory / name, copy / name)
    (copy / "headers").symlink_to(headers.folder(catalog.directory).resolve())


def _write(change: Change, copy: Path) -> None:
    file = copy / change.kind / f"{change.name}.yaml"
    document = yaml_reader.read(file).value
    inner = document
    for step in change.path[:-1]:
        inner = inner.setdefault(step, {})
    if change.value is None:
        inner.pop(change.path[-1], None)
    else:
        inner[change.path[-1]] = change.value
    file.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")  # JSON is YAML


def _look_up(document: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = document
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found
