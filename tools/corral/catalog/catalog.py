"""Reads a catalog folder: every model and card, checked each alone and all together.

``models/<id>.yaml``, ``cards/<card>.yaml`` and, for a cluster, ``images.yaml``.  All problems are found in one pass,
each with file and line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from corral.catalog import flags, yaml_reader
from corral.catalog.digest import intent_sha256
from corral.catalog.image_reference import ImageReference
from corral.catalog.intent import FORMS, Card, Images, Model, is_id
from corral.catalog.yaml_reader import Document, KeyPath
from corral.errors import CatalogInvalid, Problem, Refused

_T = TypeVar("_T", Model, Card, Images)
_FOLDERS = ("models", "cards")
_IMAGES = "images.yaml"


@dataclass(frozen=True)
class Catalog:
    """The operator's intent.

    Attributes:
        directory: the folder it was read from.
        models: every model by id, sorted.
        cards: every card by name, sorted.
        digests: hex sha256 of each model's intent, as Terraform computes it (``corral.catalog.digest``).
        source_digests: the same of each model's ``source`` alone.
        images: every container image by its key; None when there is no ``images.yaml``.
    """

    directory: Path
    models: Mapping[str, Model]
    cards: Mapping[str, Card]
    digests: Mapping[str, str]
    source_digests: Mapping[str, str]
    images: Mapping[str, ImageReference] | None = None

    @property
    def lock_file(self) -> Path:
        """Where this catalog's lock is, or would be."""
        return self.directory / "lock.json"

    def select(self, wanted: list[str]) -> list[str]:
        """The ids in *wanted*, or all when it is empty.

        Raises:
            Refused: one of them is not in the catalog.
        """
        for name in wanted:
            if name not in self.models:
                raise Refused(
                    f"No model {name} in {self.directory}. It has: {', '.join(self.models)}.",
                    next_step=f"To add it, write {self.directory / 'models' / name}.yaml",
                )
        return list(dict.fromkeys(wanted)) or list(self.models)


@dataclass
class _Reading:
    problems: list[Problem] = field(default_factory=list)
    documents: dict[str, Document] = field(default_factory=dict)

    def folder(self, folder: Path, kind: type[_T]) -> dict[str, _T]:
        """Every file of *folder* as a *kind*; what is wrong is added to the problems."""
        found: dict[str, _T] = {}
        for file in _yaml_files(folder, self.problems):
            if (one := self.file(file, kind)) is not None:
                found[file.stem] = one
        return found

    def file(self, file: Path, kind: type[_T]) -> _T | None:
        """*file* as a *kind*; None when something is wrong, which is added to the problems."""
        try:
            document = yaml_reader.read(file)
            found = kind.model_validate(document.value)
        except CatalogInvalid as error:
            self.problems += error.problems
        except ValidationError as error:
            self.problems += _explain(error, document, kind)
        else:
            self.documents[f"{kind.__name__} {file.stem}"] = document
            return found
        return None

    def complain(self, kind: type[BaseModel], name: str, path: KeyPath, message: str) -> None:
        document = self.documents[f"{kind.__name__} {name}"]
        self.problems.append(Problem(document.file, document.line_of(path), _dotted(path), message))


def load(directory: Path) -> Catalog:
    """Read and check the catalog in *directory*; needs no network, no GPU, no engine.

    Raises:
        Refused: there is no such folder, or it has no models.
        CatalogInvalid: with every problem found.
    """
    try:
        return _load(directory)
    except PermissionError as error:
        raise Refused(f"{error.filename} cannot be read: {error.strerror}.", next_step=f"ls -l {directory}") from None


def _load(directory: Path) -> Catalog:
    if not (directory / "models").is_dir():
        raise Refused(
            f"{directory} is not a catalog: it has no folder models.",
            next_step="Name the folder that holds models/ and cards/ with: --catalog DIR",
        )
    reading = _Reading()
    for stray in sorted([*directory.glob("*.y*ml"), *directory.glob("*/*.y*ml")]):
        if stray.parent.name not in _FOLDERS and stray != directory / _IMAGES:
            what = "would be overlooked: it belongs in models/ or cards/, or is images.yaml."
            reading.problems.append(Problem(stray, 1, "", what))
    cards = reading.folder(directory / "cards", Card)
    models = reading.folder(directory / "models", Model)
    file = directory / _IMAGES
    images = reading.file(file, Images) if file.exists() or file.is_symlink() else None
    _check_cards(reading, models, directory / "cards")
    _check_args(reading, models)
    _check_names(reading, models)
    if reading.problems:
        raise CatalogInvalid(reading.problems, directory)
    if not models:
        raise Refused(f"{directory / 'models'} holds no model.", next_step="Write one: docs/models.md shows how")
    raw = {model_id: reading.documents[f"Model {model_id}"].value for model_id in models}
    return Catalog(
        directory=directory,
        models=models,
        cards=cards,
        digests={model_id: intent_sha256(value) for model_id, value in raw.items()},
        source_digests={model_id: intent_sha256(value["source"]) for model_id, value in raw.items()},
        images=images.references() if images else None,
    )


def _yaml_files(folder: Path, problems: list[Problem]) -> Iterator[Path]:
    for file in sorted(folder.iterdir()) if folder.is_dir() else []:
        if file.name.startswith("."):
            continue
        if not file.is_file() or file.suffix != ".yaml":
            problems.append(Problem(file, 1, "", f"{folder.name}/ holds one .yaml file per entry, and nothing else."))
        elif not is_id(file.stem):
            problems.append(
                Problem(
                    file,
                    1,
                    "",
                    "the file's name must be lower case letters, digits, dot and dash, and not blobs or sets.",
                )
            )
        else:
            yield file


def _check_cards(reading: _Reading, models: Mapping[str, Model], folder: Path) -> None:
    present = sorted(file.stem for file in folder.glob("*.yaml"))
    for model_id, model in models.items():
        if model.card not in present:
            known = f"there are: {', '.join(present)}" if present else "cards/ has none"
            reading.complain(Model, model_id, ("card",), f"there is no card {model.card}; {known}.")


def _check_args(reading: _Reading, models: Mapping[str, Model]) -> None:
    for model_id, model in models.items():
        for name, value in model.args.items():
            if problem := flags.problem_with(name, value):
                reading.complain(Model, model_id, ("args", name), problem)
        for first, second in flags.repeated(model.args):
            reading.complain(Model, model_id, ("args", second), f"{first} and {second} are the same flag: keep one.")


def _check_names(reading: _Reading, models: Mapping[str, Model]) -> None:
    owner: dict[str, str] = {}
    for model_id, model in models.items():
        for index, alias in enumerate(model.aliases):
            where = ("aliases", index)
            if alias == model_id:
                reading.complain(Model, model_id, where, f"{alias} is the model's own id: leave it out.")
            elif alias in models:
                reading.complain(Model, model_id, where, f"{alias} is the id of another model.")
            elif alias in owner:
                reading.complain(Model, model_id, where, f"{alias} is already an alias of {owner[alias]}.")
            owner.setdefault(alias, model_id)


def _dotted(path: KeyPath) -> str:
    return ".".join(str(step) for step in path)


def _explain(error: ValidationError, document: Document, kind: type[BaseModel]) -> Iterator[Problem]:
    for detail in error.errors(include_url=False):
        path: KeyPath = tuple(detail["loc"])
        yield Problem(document.file, document.line_of(path), _dotted(path), _sentence(detail, path, kind))


def _sentence(detail: Any, path: KeyPath, kind: type[BaseModel]) -> str:
    given, context = detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            allowed = _keys_at(kind, path[:-1])
            close = difflib.get_close_matches(str(path[-1]), allowed, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            return f"unknown key {path[-1]}; allowed: {', '.join(allowed)}.{hint}"
        case "missing":
            return f"required key {path[-1]} is missing."
        case "value_error":
            return str(context["error"])
        case "literal_error":
            return f"must be one of {context['expected']}, not {_shown(given)}."
        case "int_type" | "int_from_float":
            return f"must be a whole number, not {_shown(given)}."
        case "string_type":
            return f"must be text, not {_shown(given)}; in quotes if need be."
        case "greater_than" | "greater_than_equal" | "less_than_equal":
            sign = {"gt": "more than", "ge": "at least", "le": "at most"}
            limit = next(f"{words} {context[key]}" for key, words in sign.items() if key in context)
            return f"must be {limit}, not {given}."
        case "string_pattern_mismatch":
            return f"{_shown(given)} must be {FORMS[context['pattern']]}."
        case "too_short" | "string_too_short":
            return "must not be empty."
        case "string_too_long":
            return f"must have at most {context['max_length']} characters."
        case "tuple_type":
            return f"must be a list, not {_shown(given)}."
        case "dict_type" | "model_type":
            return f"must be a mapping (key: value), not {_shown(given)}."
        case _:
            return f"{detail['msg']} (given: {_shown(given)})."


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else repr(value)


def _keys_at(kind: type[BaseModel], path: KeyPath) -> list[str]:
    for step in path:
        if not isinstance(step, str) or step not in kind.model_fields:
            continue  # a tenant's name
        annotation = kind.model_fields[step].annotation
        nested = [part for part in (annotation, *get_args(annotation)) if isinstance(part, type)]
        kind = next(part for part in nested if issubclass(part, BaseModel))
    return [field.alias or name for name, field in kind.model_fields.items()]
