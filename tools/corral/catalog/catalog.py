"""Reads a catalog folder: every model and card, checked each alone and all together.

``models/<id>.yaml``, ``cards/<card>.yaml``, for a cluster ``images.yaml``, ``measured.json`` where something was
measured, the texts in ``files/`` that flags name, and ``golden.yaml``, which is checked and is no source.  All problems
of the YAML files are found in one pass, each with file and line.  A file or folder whose name begins with a dot is an
editor's, and no source.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from corral.agent.lock_file import content_of
from corral.catalog import flags, invalid_values, ledger, rules, yaml_reader
from corral.catalog.card import Card
from corral.catalog.clients import Client, Clients
from corral.catalog.forms import is_id
from corral.catalog.golden import Golden
from corral.catalog.image_reference import ImageReference
from corral.catalog.images import Images
from corral.catalog.intent import Model
from corral.catalog.ledger import Ledger
from corral.catalog.renamed_keys import RENAMED
from corral.catalog.yaml_reader import Document
from corral.errors import CatalogInvalid, Problem, Refused

_T = TypeVar("_T", Model, Card, Images, Clients, Golden)
_FOLDERS = ("models", "cards")
_FILES = _IMAGES, _CLIENTS, _GOLDEN = "images.yaml", "clients.yaml", "golden.yaml"


@dataclass(frozen=True)
class Catalog:
    """The operator's intent.

    Attributes:
        directory: the folder it was read from.
        models: every model by id, sorted.
        cards: every card by name, sorted.
        images: every container image by its key; empty when there is no ``images.yaml``.
        llama_cpp_build: what it declares of the server's image; None when it does not.
        clients: every client of the front door by name, sorted; empty when there is no ``clients.yaml``.
        measured: what was measured.
        golden: the operator's golden questions; None when there is no ``golden.yaml``.
        sources: hex sha256 of the bytes of each file that the above are from, by path in the folder, sorted.
        documents: the YAML files among them, by the same path, for the lines of their keys.
    """

    directory: Path
    models: Mapping[str, Model]
    cards: Mapping[str, Card]
    images: Mapping[str, ImageReference] = field(default_factory=dict)
    llama_cpp_build: str | None = None
    clients: Mapping[str, Client] = field(default_factory=dict)
    measured: Ledger = field(default_factory=Ledger)
    golden: Golden | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    documents: Mapping[str, Document] = field(default_factory=dict, repr=False)

    @property
    def lock_file(self) -> Path:
        """Where this catalog's lock is, or would be."""
        return self.directory / "lock.json"

    def place(self, model_id: str, *path: str) -> str:
        """``FILE:LINE`` of a key of a model, for messages; the file alone when its text is not known."""
        file = f"models/{model_id}.yaml"
        document = self.documents.get(file)
        return f"{document.file}:{document.line_of(path)}" if document else str(self.directory / file)

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
    directory: Path
    problems: list[Problem] = field(default_factory=list)
    documents: dict[str, Document] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    """sha256 of each file in ``files/`` that a flag names, by its path in the folder."""

    def folder(self, name: str, kind: type[_T]) -> dict[str, _T]:
        """Every file of folder *name* as a *kind*; what is wrong is added to the problems."""
        folder = self.directory / name
        found: dict[str, _T] = {}
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            if file.name.startswith("."):
                continue
            if file.is_symlink() and not file.exists():
                target = file.readlink()
                self.refuse(file, f"is a link that leads nowhere ({target}): restore its target, or remove the link.")
            elif not file.is_file() or file.suffix != ".yaml":
                self.refuse(file, f"{name}/ holds one .yaml file per entry, and nothing else.")
            elif not is_id(file.stem):
                rule = "must be lower case letters, digits, dot and dash, and not blobs or sets."
                self.refuse(file, f"the file's name {rule}")
            elif one := self.file(file, kind):
                found[file.stem] = one
        return found

    def file(self, file: Path, kind: type[_T]) -> _T | None:
        """*file* as a *kind*; None when something is wrong, which is added to the problems."""
        if self.leads_out(file):
            self.refuse(file, "is a link that leads out of the catalog: copy its target into it.")
            return None
        try:
            document = yaml_reader.read(file)
        except CatalogInvalid as error:
            self.problems += error.problems
            return None
        return self.document(file.relative_to(self.directory).as_posix(), document, kind)

    def document(self, source: str, document: Document, kind: type[_T]) -> _T | None:
        """*document*, which is file *source*, as a *kind*; None when something is wrong."""
        try:
            found = kind.model_validate(document.value)
        except ValidationError as error:
            for path, sentence in invalid_values.problems(error, kind):
                is_renamed = kind is Model and len(path) == 1 and path[0] in RENAMED
                message = _renamed(str(path[0]), document) if is_renamed else sentence
                self.problems.append(document.problem(path, message))
            return None
        self.documents[source] = document
        return found

    def with_texts(self, model_id: str, model: Model) -> Model:
        """*model*, with the text of each file that a flag of ``args`` names in place of its path.

        What is wrong with a file is added to the problems; what is wrong with the flag is for the rules.
        """
        args = dict(model.args)
        for name, path in model.args.items():
            takes_text = flags.text_flag(name)
            if takes_text is None or flags.problem_with(name, path):
                continue
            del args[name]
            text, problem = self.text(path)
            problem = problem or flags.problem_with(takes_text, text)
            if takes_text in args:
                problem = f"{name} and {takes_text} are the same flag: keep one."
            if problem:
                self.problems.append(self.documents[f"models/{model_id}.yaml"].problem(("args", name), problem))
            else:
                args[takes_text] = text
        return model.model_copy(update={"args": args}).as_served(model_id)

    def text(self, path: str) -> tuple[str, str | None]:
        """The text of the file at *path* in the catalog's folder, as Terraform would read it, and what is wrong."""
        if self.leads_out(self.directory / path):
            return "", f"{path} is a link that leads out of the catalog: copy its target into files/."
        try:
            content = content_of(self.directory / path)
            self.texts[path] = hashlib.sha256(content).hexdigest()
            return unicodedata.normalize("NFC", content.decode("utf-8")), None
        except UnicodeDecodeError as error:
            return "", f"{path} is not UTF-8 text (byte {error.start})."
        except OSError as error:
            return "", f"{path} cannot be read: {error.strerror}."

    def leads_out(self, file: Path) -> bool:
        """Whether *file* is not in the catalog, whatever links say: a problem with it would quote another's text."""
        return not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(self.directory))

    def refuse(self, file: Path, message: str) -> None:
        self.problems.append(Problem(file, 1, "", message))

    def optional_file(self, name: str, kind: type[_T]) -> _T | None:
        """The file *name* of the folder as a *kind*; None when there is none, or something is wrong."""
        file = self.directory / name
        return self.file(file, kind) if file.exists() or file.is_symlink() else None

    def golden(self, models: Mapping[str, Model]) -> Golden | None:
        """The golden questions; they change nothing that is served, so their file is no source of the lock."""
        found = self.optional_file(_GOLDEN, Golden)
        if found is None:
            return None
        document = self.documents.pop(_GOLDEN)
        files = sorted(file.stem for file in self.directory.glob("models/[!.]*.yaml"))
        for name, question in found.questions.items():
            for model in question.models or ():
                if model not in files:
                    message = f"there is no model {model}; there are: {', '.join(files)}."
                elif model in models and models[model].task != "chat":
                    message = f"the task of {model} is {models[model].task}: it has no answers to compare."
                else:
                    continue
                self.problems.append(document.problem(("questions", name, "models"), message))
        return found

    def check(self, models: Mapping[str, Model], cards: Mapping[str, Card], clients: Mapping[str, Client]) -> None:
        """Check what only all files together show.

        Raises:
            CatalogInvalid: there is a problem, in one file or in several.
        """
        model_files, card_files = (
            sorted(file.stem for file in self.directory.glob(f"{kind}/[!.]*.yaml")) for kind in _FOLDERS
        )
        for source, path, message in rules.problems(
            models, cards, clients, model_files=model_files, card_files=card_files
        ):
            self.problems.append(self.documents[source].problem(path, message))
        if self.problems:
            raise CatalogInvalid(self.problems, self.directory)


def load(directory: Path, *, may_be_empty: bool = False) -> Catalog:
    """Read and check the catalog in *directory*; needs no network, no GPU, no engine.

    Raises:
        Refused: there is no such folder, it has no models and not *may_be_empty*, or its measured.json cannot be read.
        CatalogInvalid: with every problem found in its YAML files.
    """
    try:
        return _load(directory, may_be_empty=may_be_empty)
    except PermissionError as error:
        raise Refused(
            f"{error.filename} cannot be read: {error.strerror}.", next_step=f"ls -l {shlex.quote(str(directory))}"
        ) from None


def _load(directory: Path, *, may_be_empty: bool) -> Catalog:
    if not (directory / "models").is_dir():
        raise Refused(
            f"{directory} is not a catalog: it has no folder models.",
            next_step="Name the folder that holds models/ and cards/ with: --catalog DIR",
        )
    reading = _Reading(directory)
    known = [directory / name for name in _FILES]
    for stray in sorted([*directory.glob("[!.]*.y*ml"), *directory.glob("[!.]*/[!.]*.y*ml")]):
        if stray.parent.name not in _FOLDERS and stray not in known:
            rule = f"would be overlooked: it belongs in models/ or cards/, or is {' or '.join(_FILES)}."
            reading.refuse(stray, rule)
    cards = reading.folder("cards", Card)
    models = {name: reading.with_texts(name, model) for name, model in reading.folder("models", Model).items()}
    images = reading.optional_file(_IMAGES, Images)
    found = reading.optional_file(_CLIENTS, Clients)
    clients = dict(sorted(found.clients.items())) if found else {}
    questions = reading.golden(models)
    reading.check(models, cards, clients)
    if not models and not may_be_empty:
        raise Refused(
            f"{directory / 'models'} holds no model.",
            next_step=f"corral add ORG/NAME-GGUF --catalog {shlex.quote(str(directory))}",
        )
    sources = {source: document.sha256 for source, document in reading.documents.items()} | reading.texts
    measured = ledger.content(directory)
    if measured is not None:  # before it is read: should it change in between, the lock is stale and not wrong
        sources[ledger.FILE_NAME] = hashlib.sha256(measured).hexdigest()
    return Catalog(
        directory=directory,
        models=models,
        cards=cards,
        images=images.references() if images else {},
        llama_cpp_build=images.llama_cpp_build if images else None,
        clients=clients,
        measured=ledger.read(directory),
        golden=questions,
        sources=dict(sorted(sources.items())),
        documents=reading.documents,
    )


def with_values(catalog: Catalog, values: Mapping[str, Any]) -> Catalog:
    """*catalog* as it would be read if files of it had other content; nothing is read or written.

    Args:
        catalog: as ``load`` returned it; its ``sources`` stay those of the files that are there.
        values: the content of the other files of models and cards, by path in the folder.

    Raises:
        CatalogInvalid: with every problem found.
    """
    changed = {source: replace(catalog.documents[source], value=value) for source, value in values.items()}
    return replace(_with_documents(catalog, {**catalog.documents, **changed}), sources=catalog.sources)


def with_model(catalog: Catalog, model_id: str, text: str | None) -> Catalog:
    """*catalog* as it would be read with *text* in the file of *model_id*, None: without that file; nothing is written.

    Raises:
        CatalogInvalid: with every problem found.
    """
    source = f"models/{model_id}.yaml"
    documents = {name: document for name, document in catalog.documents.items() if name != source}
    if text is not None:
        documents[source] = yaml_reader.document(text.encode(), catalog.directory / source)
    return _with_documents(catalog, documents)


def _with_documents(catalog: Catalog, documents: Mapping[str, Document]) -> Catalog:
    """*catalog* with the models and cards of *documents*, which are all of its YAML files."""
    reading = _Reading(catalog.directory, documents=dict(documents))
    models: dict[str, Model] = {}
    cards: dict[str, Card] = {}
    for source, document in sorted(documents.items()):
        folder, _, file = source.partition("/")
        name = Path(file).stem
        if folder == "models" and (model := reading.document(source, document, Model)):
            models[name] = reading.with_texts(name, model)
        elif folder == "cards" and (card := reading.document(source, document, Card)):
            cards[name] = card
    reading.check(models, cards, catalog.clients)
    sources = {source: document.sha256 for source, document in documents.items()} | reading.texts
    sources |= {source: digest for source, digest in catalog.sources.items() if source == ledger.FILE_NAME}
    return replace(
        catalog, models=models, cards=cards, documents=reading.documents, sources=dict(sorted(sources.items()))
    )


def _renamed(old: str, document: Document) -> str:
    new = RENAMED[old]
    if isinstance(document.value, Mapping) and new in document.value:
        return f"{old} is called {new} now, and both keys stand here: remove one of them."
    rename = f"corral lock --rename-slots --catalog {shlex.quote(str(document.file.parent.parent))}"
    return f"{old} is called {new} now. Rename the key, or have it renamed: {rename}"
