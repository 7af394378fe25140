"""lock.json: the facts that belong to a catalog, and whether they still do.

Written by `corral lock`, read by everything downstream (Terraform, the fetch Job, the tables).  The bytes are
deterministic and one fact stands on a line, so that a diff of it reads well.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from corral.agent.lock_file import LockedFile
from corral.catalog.argv import llama_server_argv
from corral.catalog.catalog import Catalog
from corral.catalog.digest import argv_sha256
from corral.catalog.image_reference import PINNED_PATTERN, ImageReference
from corral.catalog.intent import Model
from corral.engine.embedded import ENGINE
from corral.errors import LockStale, Refused
from corral.files import write_atomically
from corral.lock.predicted import RULES_VERSION, Declared, Vram

_Strict = ConfigDict(extra="forbid", frozen=True)
_Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class LockEntry(BaseModel):
    """The facts of one model, as they stand in the lock."""

    model_config = _Strict

    intent_sha256: _Sha256 = Field(description="sha256 of the model's intent, as Terraform computes it from the YAML")
    source_sha256: _Sha256 | None = Field(None, description="the same of its `source` alone: what the files depend on")
    repo: str | None = Field(description="repository on the hub; null for a model that is already on disk")
    revision: Annotated[str, StringConstraints(pattern="^[0-9a-f]{40}$")] | None = Field(
        description="the commit that the files are from; null for a model that is already on disk"
    )
    licence: str | None = Field(description="as the repository names it; null when it names none")
    files: tuple[LockedFile, ...] = Field(
        min_length=1, description="shards in order, the projector last; sizes in bytes"
    )
    argv: tuple[str, ...] = Field(
        min_length=1, description="the exact llama-server command; ${STORE} and ${PORT} are filled when it is rendered"
    )
    vram: Vram | None = Field(None, description="what it takes on the card, as the engine measured it for this argv")


class Lock(BaseModel):
    """All facts of a catalog."""

    model_config = _Strict

    version: Literal[1] = 1
    images: dict[str, Annotated[str, Field(json_schema_extra={"pattern": PINNED_PATTERN})]] | None = Field(
        None, description="container images, name:tag@digest, by their keys in images.yaml"
    )
    models: dict[str, LockEntry]


About = Literal["model", "image"]


@dataclass(frozen=True)
class Stale:
    """One model or image whose facts do not belong to its intent, and why."""

    name: str
    reason: str
    about: About = "model"

    @property
    def subject(self) -> str:
        """What a sentence about it begins with."""
        return called(self.about, self.name)

    def __str__(self) -> str:
        return f"{self.subject} {self.reason}"


def called(about: About, name: str) -> str:
    """A model by its id, an image as one."""
    return name if about == "model" else f"image {name}"


def read(path: Path) -> Lock | None:
    """The lock at *path*; None when there is none.

    Raises:
        Refused: it is not a lock of this version.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path} cannot be read: {error}.", next_step=f"ls -l {path}") from None
    try:
        return Lock.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(["", *(str(step) for step in first["loc"])])
        raise Refused(
            f"{path} is not a lock that this corral can read: {first['msg']}{f' at {where}' if first['loc'] else ''}.",
            next_step=f"Restore it from version control, or write it anew: rm {path} && corral lock",
        ) from None


def text(lock: Lock) -> str:
    """*lock* in its one form: keys of a model in reading order, models sorted."""
    models = {model_id: _plain(lock.models[model_id]) for model_id in sorted(lock.models)}
    images = {} if lock.images is None else {"images": dict(sorted(lock.images.items()))}
    return json.dumps({"version": lock.version, **images, "models": models}, indent=2, ensure_ascii=False) + "\n"


def write(path: Path, lock: Lock) -> None:
    """Replace the lock at *path* at once; where a link stands, the file that it names."""
    write_atomically(path.resolve(), text(lock))


def stale(catalog: Catalog, lock: Lock | None) -> Iterator[Stale]:
    """Every model and image whose facts do not belong to *catalog*; needs no network.

    An edited argv counts, and so does one that an older corral wrote otherwise.
    """
    locked = lock.models if lock else {}
    for model_id, model in catalog.models.items():
        entry = locked.get(model_id)
        if entry is None:
            yield Stale(model_id, "is not in the lock")
        elif entry.intent_sha256 != catalog.digests[model_id]:
            yield Stale(model_id, "has changed in the catalog since it was locked")
        elif list(entry.argv) != llama_server_argv(model_id, model, entry.files):
            why = "has another command line in the lock than its intent gives; an edit by hand belongs in `args`"
            yield Stale(model_id, why)
        elif gone := _changed_on_disk(catalog, entry):
            yield Stale(model_id, f"is not on disk as it was locked: {gone}")
        elif wrong := _wrong_with_vram(model, entry):
            yield Stale(model_id, wrong)
    for model_id in locked:
        if model_id not in catalog.models:
            yield Stale(model_id, "is in the lock, but no longer in the catalog")
    wanted, pinned = catalog.images or {}, (lock.images if lock else None) or {}
    for key in dict.fromkeys((*wanted, *pinned)):
        if wrong := _wrong_with_image(wanted.get(key), pinned.get(key)):
            yield Stale(key, wrong, "image")


def require_fresh(catalog: Catalog) -> Lock:
    """The lock of *catalog*, which must exist and belong to it.

    Raises:
        LockStale: it does not; every model and image is named with its reason.
    """
    lock = read(catalog.lock_file)
    if lock is None:
        raise LockStale(f"{catalog.directory} has no lock.json.", next_step=relock_command(catalog))
    reasons = "\n".join(f"  {item}" for item in stale(catalog, lock))
    if reasons:
        raise LockStale(f"{catalog.lock_file} is stale:\n{reasons}", next_step=relock_command(catalog))
    return lock


def relock_command(catalog: Catalog) -> str:
    """What to run when the lock is missing or stale."""
    return f"corral lock --catalog {shlex.quote(str(catalog.directory))}"


def declared_by(model: Model) -> Declared | None:
    """The operator's figure in *model*, in the form that the lock has."""
    return Declared(mib=model.vram.declared_mib, why=model.vram.why) if model.vram else None


def _wrong_with_vram(model: Model, entry: LockEntry) -> str:
    """Why the VRAM rows of *entry* cannot be relied on, as the end of a sentence; empty when they can."""
    rows = entry.vram
    if rows is None:
        return "has no measurement of its VRAM in the lock"
    if rows.argv_sha256 != argv_sha256(entry.argv):
        return "has VRAM rows in the lock that were measured for another command line"
    if rows.engine != ENGINE:
        return f"was measured by {rows.engine}, and this corral has {ENGINE}"
    if rows.rules_version != RULES_VERSION:
        return f"was measured by rules of version {rows.rules_version}, and this corral has {RULES_VERSION}"
    if rows.declared != declared_by(model):
        return "declares other VRAM in the lock than in the catalog"
    return next((f"has VRAM rows in the lock that {problem}" for problem in rows.problems()), "")


def image_is_current(wanted: ImageReference, pinned: str | None) -> bool:
    """Whether *pinned* (of a lock) is *wanted* at a digest, and at the right one where the intent names it."""
    return pinned is not None and not _wrong_with_image(wanted, pinned)


def _wrong_with_image(wanted: ImageReference | None, pinned: str | None) -> str:
    """Why *pinned* is not *wanted* at a digest, as the end of a sentence; empty when it is."""
    if wanted is None:
        return "is in the lock, but no longer in the catalog"
    if pinned is None:
        return "is not in the lock"
    try:
        locked = ImageReference.parse(pinned)
    except ValueError as error:
        return f"is not an image in the lock: {str(error).rstrip('.')}"
    if locked.digest is None:
        return f"has no digest in the lock: {pinned}"
    if locked.tagged != wanted.tagged:
        return f"is {wanted.tagged} in the catalog and {locked.tagged} in the lock"
    if wanted.digest not in (None, locked.digest):
        return f"has another digest in the catalog than in the lock: {wanted.digest}, not {locked.digest}"
    return ""


def _changed_on_disk(catalog: Catalog, entry: LockEntry) -> str:
    """The first file of a model on disk that is missing or of another size; its content is for a fetch to hash."""
    for file in entry.files if entry.repo is None else ():
        path = catalog.directory / file.path
        if not path.is_file():
            return f"there is no file {path}"
        if path.stat().st_size != file.size:
            return f"{path} has {path.stat().st_size:,} bytes, not {file.size:,}"
    return ""


def _plain(entry: LockEntry) -> dict[str, Any]:
    plain = entry.model_dump(mode="json")
    if plain["source_sha256"] is None:
        del plain["source_sha256"]
    if plain["vram"] is None:
        del plain["vram"]
    else:
        absent = [key for key in ("gpu", "host", "declared", "unmeasured") if plain["vram"][key] is None]
        for key in absent:
            del plain["vram"][key]
    return plain
