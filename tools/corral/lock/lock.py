"""lock.json: everything that is downstream of a catalog, and whether it still belongs to it.

Written by `corral lock`, read by everything else (Terraform, the fetch Job, the tables).  The bytes are deterministic,
one fact stands on a line so that a diff of it reads well, and a seal over them all shows an accident or a merge.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from corral.agent import lock_file
from corral.agent.lock_file import LockedFile, sealed
from corral.catalog import invalid_values
from corral.catalog.card import Card
from corral.catalog.catalog import Catalog
from corral.catalog.clients import Client
from corral.catalog.image_reference import PINNED_PATTERN
from corral.catalog.intent import Model
from corral.catalog.ledger import OnCard
from corral.engine.embedded import LLAMA_CPP_BUILD
from corral.errors import LockStale
from corral.files import write_atomically
from corral.lock.engines import argv_of, predictor_of
from corral.lock.image_build import EngineBuilds, engine_image
from corral.vram.prediction import Prediction, mib
from corral.vram.rules import ENGINE_DRIFT, drift_of, expected_drift

VERSION: Literal[2] = 2

_Strict = ConfigDict(extra="forbid", frozen=True)
_Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
COMMIT_PATTERN = "^[0-9a-f]{40}$"
Basis = Literal["predicted", "declared", "measured"]


@dataclass(frozen=True)
class Seat:
    """What a card must hold for one model: bytes, and which figure decides them."""

    bytes: int
    basis: Basis

    @property
    def mib(self) -> int:
        """Whole MiB, rounded up."""
        return mib(self.bytes)


class Placed(BaseModel):
    """Why a model with several possible cards is on the one that its intent names in the lock."""

    model_config = _Strict

    short_mib: dict[str, int] = Field(
        description="the cards that come before it in `cards`, and the MiB that each was short of when it was placed"
    )


class LockEntry(BaseModel):
    """The facts of one model, as they stand in the lock."""

    model_config = _Strict

    intent: Model = Field(description="what the operator wants, every default filled; of several cards the chosen one")
    repo: str | None = Field(description="repository on the hub; null for a model that is already on disk")
    revision: Annotated[str, StringConstraints(pattern=COMMIT_PATTERN)] | None = Field(
        description="the commit that the files are from; null for a model that is already on disk"
    )
    licence: str | None = Field(description="as the repository names it; null when it names none")
    files: tuple[LockedFile, ...] = Field(
        min_length=1,
        description="shards in order, draft model, adapters, the projector last; for vLLM the parts of a folder; sizes "
        "in bytes; repo and revision where they are not the model's",
    )
    argv: tuple[str, ...] = Field(
        min_length=1,
        description="the exact command of llama-server or vLLM; ${STORE} and ${PORT} are filled when it is rendered",
    )
    predicted: Prediction = Field(description="what it takes, as the engine predicts it for this argv")
    measured: OnCard | None = Field(
        description="what it took on a card, for exactly this argv: the largest of measured.json; null without one"
    )
    placed: Placed | None = Field(
        default=None, exclude_if=lambda value: value is None, description="why it is on its card, where it has `cards`"
    )

    @property
    def seat(self) -> Seat:
        """The largest claim, of equal ones the first; ``terraform/modules/seating`` has the same rule."""
        claims: dict[Basis, int] = {
            "predicted": self.predicted.gpu_bytes or 0,
            "declared": self.intent.vram.bytes if self.intent.vram else 0,
            "measured": self.measured.gpu_bytes if self.measured else 0,
        }
        basis = max(claims, key=claims.__getitem__)
        return Seat(claims[basis], basis)

    @property
    def has_projector(self) -> bool:
        """Whether a projector is among the files; it is the last."""
        return self.files[-1].role == "projector"

    @model_validator(mode="after")
    def _declaration_covers_prediction(self) -> Self:
        declared, predicted = self.intent.vram, self.predicted.gpu_bytes
        if declared is None and predicted is None:
            raise ValueError("is not predicted, and its intent declares nothing in its place.")
        if declared and predicted and declared.bytes < predicted:
            raise ValueError(f"declares {declared.declared_mib} MiB, less than the {mib(predicted)} MiB predicted.")
        return self


class Lock(BaseModel):
    """Everything that is downstream of a catalog."""

    model_config = _Strict

    version: Literal[2] = VERSION
    seal: _Sha256 | Literal[""] = Field(
        default="",
        description="sha256 of this file's own bytes with the seal's value empty: shows an accident or a merge",
    )
    sources: dict[str, _Sha256] = Field(
        description="sha256 of the bytes of each file of the catalog that this was made from, by path in its folder"
    )
    images: dict[str, Annotated[str, Field(json_schema_extra={"pattern": PINNED_PATTERN})]] = Field(
        description="container images, name:tag@digest, by their keys in images.yaml"
    )
    engine: EngineBuilds | None = Field(
        default=None, description="the builds of llama.cpp that predict and run; null in a lock of an older corral"
    )
    cards: dict[str, Card] = Field(description="each physical GPU with its tenants")
    clients: dict[str, Client] = Field(
        default_factory=dict, description="who may send requests with a key, and what it permits"
    )
    models: dict[str, LockEntry]

    @property
    def engine_image(self) -> str | None:
        """The image whose llama-server answers in a cluster; None where none is named."""
        return engine_image(self.images)

    def text(self) -> str:
        """The file's text, sealed: keys in reading order, names sorted, always the same for the same facts."""
        plain = self.model_dump(mode="json") | {"seal": ""}
        for key in ("sources", "images", "cards", "clients", "models"):
            plain[key] = dict(sorted(plain[key].items()))
        for card in plain["cards"].values():
            card["tenants"] = dict(sorted(card["tenants"].items()))
        for model in plain["models"].values():
            if placed := model.get("placed"):
                placed["short_mib"] = dict(sorted(placed["short_mib"].items()))
            for key in ("args", "unsafe"):
                model["intent"][key] = dict(sorted(model["intent"][key].items()))
            for file in model["files"]:
                if file["repo"] is None:  # the model's own
                    del file["repo"], file["revision"]
        # ASCII: Terraform normalises every other text, and would compute another seal.
        return sealed(json.dumps(plain, indent=2) + "\n")


_LockCode = Literal["missing", "unreadable", "merge", "version", "seal", "content"]
_SourceCode = Literal["added", "changed", "removed"]
_ModelCode = Literal["derived", "engine", "rules", "disk", "header"]
StaleCode = _LockCode | _SourceCode | _ModelCode


@dataclass(frozen=True)
class Stale:
    """One reason why a lock cannot be relied on.

    Attributes:
        about: what ``name`` is: the lock itself, a source file of the catalog, or a model.
        name: the file by its path in the catalog's folder, or the model's id.
        code: the reason, for programs.
        reason: the same for people, as the end of a sentence that begins with ``name``.
    """

    about: Literal["lock", "source", "model"]
    name: str
    code: StaleCode
    reason: str

    def __str__(self) -> str:
        return f"{self.name} {self.reason}"


def read(path: Path) -> Lock | None:
    """The lock at *path*; None when there is none.

    Raises:
        LockStale: it is not as this corral wrote it; `corral lock` writes it anew.
        Refused: the file cannot be opened, or a newer corral wrote it.
    """
    found = _read(path)
    if isinstance(found, Stale):
        raise LockStale(f"{path} {found.reason}.", next_step=rewrite_step(path))
    return found


def require(directory: Path) -> Lock:
    """The lock of the catalog in *directory*, which may be stale.

    Raises:
        LockStale: there is none, or it is not as this corral wrote it; `corral lock` writes it anew.
        Refused: the file cannot be opened, or a newer corral wrote it.
    """
    path = directory / "lock.json"
    if lock := read(path):
        return lock
    raise LockStale(f"{path} does not exist.", next_step=rewrite_step(path))


def stale(catalog: Catalog) -> Iterator[Stale]:
    """Every reason why the lock of *catalog* does not belong to it; needs no network.

    The same test as Terraform's (seal, and sha256 of each source), and what Terraform cannot see: another corral would
    write it otherwise, and files of models on disk have changed.

    Raises:
        Refused: lock.json cannot be opened, or a newer corral wrote it.
    """
    lock = _read(catalog.lock_file)
    if lock is None:
        yield Stale("lock", "lock.json", "missing", "does not exist")
    elif isinstance(lock, Stale):
        yield lock
    else:
        yield from _stale_sources(catalog, lock) if lock.sources != catalog.sources else _outdated(catalog, lock)


def require_fresh(catalog: Catalog, *, except_for: str = "") -> Lock:
    """The lock of *catalog*, which must exist and belong to it; the source *except_for* may have changed.

    Raises:
        LockStale: it does not; every reason is named.
        Refused: lock.json cannot be opened, or a newer corral wrote it.
    """
    reasons = [item for item in stale(catalog) if item.name != except_for]
    if not reasons and (lock := read(catalog.lock_file)):
        return lock
    why = f"{catalog.lock_file} does not exist."
    if state(reasons) == "stale":
        why = "\n".join([f"{catalog.lock_file} is stale:", *(f"  {item}" for item in reasons)])
    raise LockStale(why, next_step=rewrite_step(catalog.lock_file))


def state(reasons: Sequence[Stale]) -> Literal["missing", "stale"]:
    """What a lock with these *reasons* is, in a word."""
    return "missing" if any(item.code == "missing" for item in reasons) else "stale"


def relock_command(directory: Path) -> str:
    """The command that locks the catalog in *directory*."""
    return f"corral lock --catalog {shlex.quote(str(directory))}"


def rewrite_step(path: Path) -> str:
    """``lock_file.rewrite_step`` with the catalog that the lock at *path* belongs to."""
    return lock_file.rewrite_step(path, relock_command(path.parent))


def _stale_sources(catalog: Catalog, lock: Lock) -> Iterator[Stale]:
    for source in sorted(catalog.sources.keys() | lock.sources.keys()):
        locked, present = lock.sources.get(source), catalog.sources.get(source)
        if locked is None or present is None:
            code: _SourceCode = "added" if locked is None else "removed"
            yield Stale("source", source, code, f"was {code} since it was locked")
        elif locked != present:
            yield Stale("source", source, "changed", "has changed since it was locked")


def _outdated(catalog: Catalog, lock: Lock) -> Iterator[Stale]:
    """What this corral would write otherwise from the same sources."""
    if lock.engine is None or lock.engine.predicts != LLAMA_CPP_BUILD:
        yield Stale("lock", "lock.json", "engine", f"does not compare the engine of its image with {LLAMA_CPP_BUILD}")
    runs = lock.engine.runs if lock.engine else None
    for model_id, model in catalog.models.items():
        entry = lock.models[model_id]
        engine, rules = entry.predicted.engine, entry.predicted.rules_version
        code: _ModelCode
        argv = argv_of(model_id, model, entry.files, entry.predicted, catalog.cards)
        its_engine, its_rules = predictor_of(model)
        if not model.is_locked_as(entry.intent) or list(entry.argv) != argv:
            code, why = "derived", "was locked by another corral, which made other facts of its file"
            if added := [word for word in entry.argv if word not in argv]:
                why = f"{why}: its command line has {shlex.join(added)}"
        elif engine != its_engine:
            code, why = "engine", f"was predicted by {engine}, and this corral has {its_engine}"
        elif rules != its_rules:
            code, why = "rules", f"was predicted by rules of version {rules}, and this corral has {its_rules}"
        elif model.engine == "llama.cpp" and drift_of(entry.predicted) != expected_drift(entry.predicted, runs):
            code, why = "rules", f"has another row {ENGINE_DRIFT} than this corral computes for {runs or 'no image'}"
        elif changed := _changed_on_disk(catalog, entry):
            code, why = "disk", f"is not on disk as it was locked: {changed}"
        else:
            continue
        yield Stale("model", model_id, code, why)


def _changed_on_disk(catalog: Catalog, entry: LockEntry) -> str:
    """The first file of a model on disk that is missing or of another size; its content is for a fetch to hash."""
    for file in entry.files if entry.repo is None else ():
        path = catalog.directory / file.path
        if not path.is_file():
            return f"there is no file {path}"
        if path.stat().st_size != file.size:
            return f"{path} has {path.stat().st_size:,} bytes, not {file.size:,}"
    return ""


def write(path: Path, lock: Lock) -> bool:
    """Replace the lock at *path* atomically, or the file that it links to; whether its content was another.

    Raises:
        OSError: the folder is not writable.
    """
    text = lock.text()
    if path.exists() and path.read_bytes() == text.encode():
        return False
    write_atomically(path, text)
    return True


def _read(path: Path) -> Lock | Stale | None:
    if (text := lock_file.text_of(path)) is None:
        return None
    try:
        lock_file.models_in(path, text)
    except lock_file.NotALock as error:
        return Stale("lock", path.name, error.code, error.reason)
    try:
        lock = Lock.model_validate_json(text, strict=True)
    except ValidationError as error:
        why = invalid_values.first_problem(error, Lock)
        return Stale("lock", path.name, "content", f"is not a lock that this corral can read: {why}")
    contradiction = next(_contradictions(lock), None)
    return Stale("lock", path.name, "content", f"contradicts itself: {contradiction}") if contradiction else lock


def _contradictions(lock: Lock) -> Iterator[str]:
    """Where models and cards of *lock* are not those of its sources, or a model's card is not there."""
    for kind, present in (("models", lock.models), ("cards", lock.cards)):
        wanted = {PurePosixPath(source).stem for source in lock.sources if source.startswith(f"{kind}/")}
        for name in sorted(wanted - present.keys()):
            yield f"it has {kind}/{name}.yaml in sources, and no {name} in {kind}"
        for name in sorted(present.keys() - wanted):
            yield f"it has {name} in {kind}, and no {kind}/{name}.yaml in sources"
    for model_id, entry in lock.models.items():
        if entry.intent.card not in lock.cards:
            yield f"{model_id} is on card {entry.intent.card}, which is not in cards"
    for name, client in lock.clients.items():
        for model_id in (one for one in client.models or () if one not in lock.models):
            yield f"client {name} may use {model_id}, which is not in models"
