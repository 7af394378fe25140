"""Brings a lock up to its catalog: only what changed is asked of hub, registry and engine again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from corral.catalog.argv import llama_server_argv
from corral.catalog.catalog import Catalog
from corral.catalog.image_reference import ImageReference
from corral.catalog.intent import Model
from corral.errors import CannotRun, CorralError, HubUnreachable, Refused, RevisionMissing
from corral.hub.resolved import Resolved
from corral.lock.compare import Change, compare
from corral.lock.lock import Lock, LockEntry, relock_command
from corral.lock.pins import Pin
from corral.lock.predict import Predicted, Predictor, require_declared

LEFT_AS_IT_WAS = "The lock was left as it was:"


class Resolver(Protocol):
    """How the hub is asked: ``corral.hub.resolve.resolve``."""

    def __call__(self, model: Model, catalog_dir: Path, *, revision: str | None = None) -> Resolved:
        """The files of *model*, at commit *revision* where one is given."""


def ask_hub(model: Model, catalog_dir: Path, *, revision: str | None = None) -> Resolved:
    """See ``Resolver``; the hub's client, which takes half a second to import, is loaded when it is needed."""
    from corral.hub.resolve import resolve

    return resolve(model, catalog_dir, revision=revision)


def ask_registry(image: ImageReference) -> str:
    """The digest of *image* at its registry (``corral.hub.registry``)."""
    from corral.hub.registry import digest_at_registry

    return digest_at_registry(image)


@dataclass(frozen=True)
class Relocked:
    """The new lock, what is different in it, and headers by sha256 that it refers to and that were made for it."""

    lock: Lock
    changes: tuple[Change, ...]
    headers: Mapping[str, bytes] = field(default_factory=dict)


def relock(
    catalog: Catalog,
    lock: Lock | None,
    resolver: Resolver,
    predictor: Predictor,
    *,
    pins: Mapping[str, Sequence[Pin]] | None = None,
    upgrade: Collection[str] = (),
    upgrade_images: Collection[str] = (),
    image_digest: Callable[[ImageReference], str] = ask_registry,
    say: Callable[[str], None] = lambda _: None,
) -> Relocked:
    """A lock for *catalog*, made from the present *lock* and, where that does not suffice, from hub and engine.

    Args:
        catalog: the intent, and what was measured.
        lock: the present lock; None when there is none that can be trusted.
        resolver: how the hub is asked.
        predictor: how the engine is asked.
        pins: commits on which models stay that *lock* does not have: those of a lock that cannot be trusted,
            of several the first that belongs to the model's source.
        upgrade: ids of models that move to the newest commit of their revision.
        upgrade_images: keys of images whose tags are asked again.
        image_digest: how a registry is asked.
        say: is called with a line before each question to the hub or a registry.

    Raises:
        Refused: at least one model or image cannot be resolved or predicted; all of them are named.
        CannotRun: the hub or a registry does not answer, or the engine is missing.
    """
    entries: dict[str, LockEntry] = {}
    images: dict[str, str] = {}
    headers: dict[str, bytes] = {}
    errors: list[tuple[str, CorralError]] = []
    for model_id, model in catalog.models.items():
        old = lock.models.get(model_id) if lock else None
        try:
            if model_id in upgrade:
                resolved = _ask(catalog, model_id, model, None, resolver, say)
            else:
                resolved = _resolve(catalog, model_id, model, old, (pins or {}).get(model_id, ()), resolver, say)
            argv = tuple(llama_server_argv(model_id, model, resolved.files))
            predicted = _predict(model_id, model, resolved, argv, old, predictor)
            require_declared(catalog, model_id, model, predicted.prediction)
        except HubUnreachable as error:
            raise _all_of([*errors, ("all models", error)]) from None
        except CorralError as error:
            errors.append((model_id, error))
            continue
        headers |= predicted.headers
        entries[model_id] = LockEntry(
            intent=model.normalised(),
            repo=resolved.repo,
            revision=resolved.revision,
            licence=resolved.licence,
            files=resolved.files,
            argv=argv,
            predicted=predicted.prediction,
            measured=catalog.measured.on_card(model_id, argv),
        )
    for key, wanted in catalog.images.items():
        pinned = lock.images.get(key) if lock else None
        try:
            images[key] = _pin(key, wanted, None if key in upgrade_images else pinned, image_digest, say)
        except CorralError as error:
            errors.append((f"image {key}", error))
    if errors:
        raise _all_of(errors)
    new = Lock(sources=dict(catalog.sources), images=images, cards=dict(catalog.cards), models=entries)
    return Relocked(new, compare(lock, new), headers)


def with_measurements(lock: Lock, catalog: Catalog) -> Lock:
    """*lock* with what *catalog* has measured since: all else is as it was, and nothing is asked.

    Args:
        lock: fresh but for measured.json.
        catalog: read after measured.json was written.
    """
    entries = {
        model_id: entry.model_copy(update={"measured": catalog.measured.on_card(model_id, entry.argv)})
        for model_id, entry in lock.models.items()
    }
    return lock.model_copy(update={"sources": dict(catalog.sources), "models": entries})


def _pin(
    key: str,
    wanted: ImageReference,
    pinned: str | None,
    ask: Callable[[ImageReference], str],
    say: Callable[[str], None],
) -> str:
    """*wanted* at its digest: the intent's own, else the lock's where it has the same tag, else the registry's."""
    if wanted.digest is not None:
        return wanted.at(wanted.digest)
    if pinned is not None and ImageReference.parse(pinned).tagged == wanted.tagged:
        return pinned
    say(f"image {key}: {wanted.tagged}")
    return wanted.at(ask(wanted))


def _resolve(
    catalog: Catalog,
    model_id: str,
    model: Model,
    old: LockEntry | None,
    pins: Sequence[Pin],
    resolver: Resolver,
    say: Callable[[str], None],
) -> Resolved:
    if old is not None and old.intent.source == model.source:
        has_projector = old.files[-1].role == "projector"
        # What is on disk may have changed under its name; a commit of the hub cannot.
        if has_projector == model.vision and old.repo is not None:
            return Resolved(old.repo, old.revision, old.licence, old.files)
        return _ask(catalog, model_id, model, old.revision, resolver, say)
    own = (pin.commit for pin in pins if pin.belongs_to(model.source))
    return _ask(catalog, model_id, model, next(own, None) if old is None else None, resolver, say)


def _ask(
    catalog: Catalog,
    model_id: str,
    model: Model,
    pinned: str | None,
    resolver: Resolver,
    say: Callable[[str], None],
) -> Resolved:
    source = model.source
    say(f"{model_id}: {source.path or f'{source.repo}@{pinned or source.revision}'}")
    try:
        return resolver(model, catalog.directory, revision=pinned)
    except RevisionMissing:
        if pinned in (None, source.revision):
            raise
        raise Refused(
            f"{source.repo} no longer has commit {pinned}, on which the lock pins this model.",
            next_step=f"{relock_command(catalog.directory)} --upgrade {model_id}",
        ) from None


def _predict(
    model_id: str, model: Model, resolved: Resolved, argv: tuple[str, ...], old: LockEntry | None, predictor: Predictor
) -> Predicted:
    if old is None or old.files != resolved.files:
        return predictor.predict(model_id, model, resolved, argv)
    usable = old.predicted.gpu_bytes is not None or model.vram is not None
    if usable and old.argv == argv and predictor.is_current(old.predicted):
        return Predicted(old.predicted)
    return predictor.predict(model_id, model, resolved, argv, known=old.predicted.headers)


def _all_of(errors: list[tuple[str, CorralError]]) -> CorralError:
    kind = Refused if any(isinstance(error, Refused) for _, error in errors) else CannotRun
    lines = "\n".join(f"  {subject}: {error.message.removeprefix(f'{subject}: ')}" for subject, error in errors)
    steps = dict.fromkeys(error.next_step for _, error in errors if error.next_step)
    return kind(f"{LEFT_AS_IT_WAS}\n{lines}", next_step="\n  → ".join(steps))
