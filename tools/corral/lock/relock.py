"""Brings a lock up to its catalog: only what changed is resolved and predicted again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from corral.agent.lock_file import LockedFile, Role
from corral.catalog import ledger
from corral.catalog.argv import llama_server_argv
from corral.catalog.catalog import Catalog, load
from corral.catalog.image_reference import ImageReference
from corral.catalog.intent import Model
from corral.catalog.ledger import Ledger
from corral.catalog.source import Source
from corral.errors import CannotRun, CorralError, HubUnreachable, LockStale, Refused, RevisionMissing
from corral.files import refuse_unwritable
from corral.hub.resolved import Resolved
from corral.lock import image_build, placement
from corral.lock.compare import Change, compare
from corral.lock.engines import argv_of
from corral.lock.image_build import EngineBuilds
from corral.lock.lock import Lock, LockEntry, relock_command, require_fresh, write
from corral.lock.pins import Pin
from corral.lock.predict import Predicted, Predictor, require_declared

LEFT_AS_IT_WAS = "The lock was left as it was:"

Resolver = Callable[[Model, Path, str | None], Resolved]
"""Finds the files of a model of the catalog in a folder, at a commit where one is given."""


def resolve_on_hub(model: Model, catalog_dir: Path, commit: str | None) -> Resolved:
    """``corral.hub.resolve.resolve``, whose client takes half a second to import, imported when it is needed."""
    from corral.hub.resolve import resolve

    return resolve(model, catalog_dir, revision=commit)


def digest_at_registry(image: ImageReference) -> str:
    """``corral.hub.registry.digest_at_registry``, imported when it is needed."""
    from corral.hub import registry

    return registry.digest_at_registry(image)


def labels_at_registry(image: ImageReference) -> Mapping[str, str]:
    """``corral.hub.registry.labels_at_registry``, imported when it is needed."""
    from corral.hub import registry

    return registry.labels_at_registry(image)


@dataclass(frozen=True)
class Relocked:
    """The new lock, what is different in it, and headers by sha256 that it refers to and that were made for it."""

    lock: Lock
    changes: tuple[Change, ...]
    headers: Mapping[str, bytes]


def relock(
    catalog: Catalog,
    lock: Lock | None,
    resolver: Resolver,
    predictor: Predictor,
    *,
    pins: Mapping[str, Sequence[Pin]] | None = None,
    upgrade: Collection[str] = (),
    upgrade_images: Collection[str] = (),
    image_digest: Callable[[ImageReference], str] = digest_at_registry,
    image_labels: Callable[[ImageReference], Mapping[str, str]] = labels_at_registry,
    info: Callable[[str], None] = lambda _: None,
) -> Relocked:
    """A lock for *catalog*, made from the present *lock* and, where that does not suffice, from hub and engine.

    Args:
        catalog: the intent, and what was measured.
        lock: the present lock; None when there is none that can be trusted.
        resolver: finds files.
        predictor: predicts memory.
        pins: commits on which models stay that *lock* does not have: those of a lock that cannot be trusted,
            of several the first that belongs to the model's source.
        upgrade: ids of models that move to the newest commit of their revision.
        upgrade_images: keys of images whose digests are read from the registry again.
        image_digest: reads the digest of an image from its registry.
        image_labels: reads the labels of an image from its registry.
        info: receives a line before each request to the hub or a registry.

    Raises:
        Refused: at least one model or image cannot be resolved or predicted; all of them are named.
        CannotRun: the hub or a registry sends no response, or the engine is missing.
    """
    images: dict[str, str] = {}
    headers: dict[str, bytes] = {}
    errors: list[tuple[str, CorralError]] = []
    of_images: list[tuple[str, CorralError]] = []
    for key, wanted in catalog.images.items():
        pinned = lock.images.get(key) if lock and key not in upgrade_images else None
        try:
            if wanted.digest is not None:
                images[key] = wanted.at(wanted.digest)
            elif pinned is not None and ImageReference.parse(pinned).tagged == wanted.tagged:
                images[key] = pinned
            else:
                info(f"image {key}: {wanted.tagged}")
                images[key] = wanted.at(image_digest(wanted))
        except CorralError as error:
            of_images.append((f"image {key}", error))
    engine: EngineBuilds | None = None
    try:
        engine = image_build.find(images, declared=catalog.llama_cpp_build, labels=image_labels, present=lock)
    except CorralError as error:
        of_images.append(("images.yaml", error))
    runs = engine.runs if engine else None
    relocking = _Relocking(catalog, resolver, predictor, pins or {}, upgrade, runs, info)
    entries: dict[str, LockEntry] = {}
    for model_id, model in catalog.models.items():
        try:
            entries[model_id], made = relocking.entry(model_id, model, lock.models.get(model_id) if lock else None)
            headers |= made
        except HubUnreachable as error:
            raise _all_of([*errors, ("all models", error)]) from None
        except CorralError as error:
            errors.append((model_id, error))
    if errors or of_images:
        raise _all_of([*errors, *of_images])
    entries = placement.place(entries, catalog.cards, lock)
    new = Lock(
        sources=dict(catalog.sources),
        images=images,
        engine=engine,
        cards=dict(catalog.cards),
        clients=dict(catalog.clients),
        models=entries,
    )
    return Relocked(new, compare(lock, new), headers)


def with_measurements(lock: Lock, catalog: Catalog) -> Lock:
    """*lock* with measured.json of *catalog*; nothing is resolved or predicted, and no other source is taken over."""
    entries = {
        model_id: entry.model_copy(update={"measured": catalog.measured.on_card(model_id, entry.argv)})
        for model_id, entry in lock.models.items()
    }
    kept = {source: digest for source, digest in lock.sources.items() if source != ledger.FILE_NAME}
    measured = {source: digest for source, digest in catalog.sources.items() if source == ledger.FILE_NAME}
    return lock.model_copy(update={"sources": kept | measured, "models": entries})


def write_measurements(directory: Path, model_id: str, measured: LockEntry, found: Ledger) -> None:
    """Write *found* as measured.json of the catalog in *directory*, and take it into the lock.

    The lock must still have the entry *measured* of the model.

    Raises:
        LockStale: another source or the model's entry has changed since; the lock stays as it is.
        Refused: a file cannot be read or written.
    """
    ledger.write(directory, found)
    try:
        _take_over(directory, model_id, measured)
    except Refused as error:
        path = directory / "lock.json"
        kept = f"{ledger.path_of(directory)} has the measurement of {model_id}, and {path} was left as it is."
        kind = LockStale if isinstance(error, LockStale) else Refused
        raise kind(f"{error.message}\n{kept}", next_step=error.next_step) from None


def _take_over(directory: Path, model_id: str, measured: LockEntry) -> None:
    catalog = load(directory)
    path, relock_step = catalog.lock_file, relock_command(directory)
    lock = require_fresh(catalog, except_for=ledger.FILE_NAME)
    present = lock.models.get(model_id)
    if present is None or present.model_copy(update={"measured": measured.measured}) != measured:
        raise LockStale(f"{path} has another entry for {model_id} than was measured.", next_step=relock_step)
    with refuse_unwritable(path, next_step=relock_step):
        write(path, with_measurements(lock, catalog))


@dataclass(frozen=True)
class _Relocking:
    catalog: Catalog
    resolver: Resolver
    predictor: Predictor
    pins: Mapping[str, Sequence[Pin]]
    upgrade: Collection[str]
    runs: str | None
    info: Callable[[str], None]

    def entry(self, model_id: str, model: Model, old: LockEntry | None) -> tuple[LockEntry, Mapping[str, bytes]]:
        """The entry of a model whose present one is *old*, and the headers that were made for it."""
        resolved = self._resolved(model_id, model, old)
        if model.engine == "vllm":
            predicted = self._predicted(model_id, model, resolved, None, old)
            argv = tuple(argv_of(model_id, model, resolved.files, predicted.prediction, self.catalog.cards))
        else:
            argv = tuple(llama_server_argv(model_id, model, resolved.files))
            image_build.require_known_flags(self.runs, model_id, argv)
            predicted = self._predicted(model_id, model, resolved, argv, old)
        require_declared(self.catalog, model_id, model, predicted.prediction)
        entry = LockEntry(
            intent=model.normalised(),
            repo=resolved.repo,
            revision=resolved.revision,
            licence=resolved.licence,
            files=resolved.files,
            argv=argv,
            predicted=predicted.prediction,
            measured=self.catalog.measured.on_card(model_id, argv),
        )
        return entry, predicted.headers

    def _resolved(self, model_id: str, model: Model, old: LockEntry | None) -> Resolved:
        if model_id in self.upgrade or (old and old.intent.weights != model.weights):
            return self._resolve_anew(model_id, model, None, {})
        if old is None:
            own = (pin.commit for pin in self.pins.get(model_id, ()) if pin.belongs_to(model.weights))
            return self._resolve_anew(model_id, model, next(own, None), {})
        # What is on disk may have changed under its name; a commit of the hub cannot.
        if old.has_projector == model.vision and old.repo is not None and old.intent.extras == model.extras:
            return Resolved(old.repo, old.revision, old.licence, old.files)
        extras = (file for file in old.files if file.role in ("draft", "adapter"))
        commits = {source: file.revision for (_, source), file in zip(old.intent.extras, extras, strict=True)}
        return self._resolve_anew(model_id, model, old.revision, commits)

    def _resolve_anew(
        self, model_id: str, model: Model, pinned: str | None, commits: Mapping[Source, str | None]
    ) -> Resolved:
        """The files of *model* at the commit *pinned*; those of the extras in *commits* stay at theirs."""
        found = self._resolve_one(model_id, model, pinned)
        if {file.role for file in found.files} & {"draft", "adapter"}:  # as locked, for a question of `corral seat`
            return found
        roles = Counter[Role]()
        extras = []
        for role, source in model.extras:
            where = "draft" if role == "draft" else f"adapters.{roles[role]}"
            extras.append(self._resolve_extra(model_id, model, role, source, commits.get(source), where))
            roles[role] += 1
        at = len(found.files) - (found.files[-1].role == "projector")
        return replace(found, files=(*found.files[:at], *extras, *found.files[at:]))

    def _resolve_extra(
        self, model_id: str, model: Model, role: Role, source: Source, pinned: str | None, where: str
    ) -> LockedFile:
        """The one file of a draft model or an adapter; the error for it names the key *where* of the model's file."""
        plain = {"source": source, "modalities": ("text",), "draft": None, "adapters": ()}
        try:
            found = self._resolve_one(f"{model_id}, its {role}", model.model_copy(update=plain), pinned)
        except Refused as error:
            error.message = f"its {role}: {error.message}"
            step = error.next_step.replace("the model's own file", f"the {role}'s own file")
            error.next_step = step.replace("source.", f"{where}.source.")
            raise
        if len(found.files) > 1:
            problem = (
                f"its {role} has {len(found.files)} files, and only one of a single file is loaded beside a model."
            )
            raise Refused(problem, next_step="Choose another quant or file")
        return replace(found.files[0], role=role, repo=found.repo, revision=found.revision)

    def _resolve_one(self, model_id: str, model: Model, pinned: str | None) -> Resolved:
        source = model.weights
        self.info(f"{model_id}: {source.path or f'{source.repo}@{pinned or source.revision}'}")
        try:
            return self.resolver(model, self.catalog.directory, pinned)
        except RevisionMissing:
            if pinned in (None, source.revision):
                raise
            raise Refused(
                f"{source.repo} no longer has commit {pinned}, on which the lock pins this model.",
                next_step=f"{relock_command(self.catalog.directory)} --upgrade {model_id}",
            ) from None

    def _predicted(
        self, model_id: str, model: Model, resolved: Resolved, argv: tuple[str, ...] | None, old: LockEntry | None
    ) -> Predicted:
        if argv is None:
            known = old.predicted.headers if old and old.files == resolved.files else ()
            return self.predictor.predict_vllm(model_id, model, resolved, known)
        if old is None or old.files != resolved.files:
            return self.predictor.predict(model_id, model, resolved, argv, runs=self.runs)
        usable = old.predicted.gpu_bytes is not None or model.vram is not None
        if usable and old.argv == argv and self.predictor.is_current(old.predicted, self.runs):
            return Predicted(old.predicted)
        return self.predictor.predict(model_id, model, resolved, argv, known=old.predicted.headers, runs=self.runs)


def _all_of(errors: list[tuple[str, CorralError]]) -> CorralError:
    kind = Refused if any(isinstance(error, Refused) for _, error in errors) else CannotRun
    lines = "\n".join(f"  {subject}: {error.message.removeprefix(f'{subject}: ')}" for subject, error in errors)
    steps = dict.fromkeys(error.next_step for _, error in errors if error.next_step)
    return kind(f"{LEFT_AS_IT_WAS}\n{lines}", next_step="\n  → ".join(steps))
