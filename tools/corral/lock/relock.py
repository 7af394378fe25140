"""Brings a lock up to its catalog: only what changed is asked of hub and registry, and measured, again."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from corral.agent.lock_file import LockedFile
from corral.catalog.argv import llama_server_argv
from corral.catalog.catalog import Catalog
from corral.catalog.image_reference import ImageReference
from corral.catalog.intent import Model
from corral.errors import CannotRun, CorralError, Refused
from corral.hub.registry import digest_at_registry
from corral.hub.resolve import Resolved
from corral.lock.lock import About, Lock, LockEntry, called, image_is_current
from corral.lock.predict import Measured, Measurer
from corral.lock.predicted import Vram, mib

LEFT_AS_IT_WAS = "The lock was left as it was:"
Resolver = Callable[..., Resolved]
"""``corral.hub.resolve.resolve``: (model, catalog_dir, *, revision) -> Resolved."""


@dataclass(frozen=True)
class Change:
    """What happened to a model or an image: ``added``, ``removed``, ``changed``, ``upgraded`` or ``unchanged``."""

    name: str
    kind: str
    details: tuple[str, ...] = ()
    about: About = "model"

    @property
    def subject(self) -> str:
        """What a line about it begins with."""
        return called(self.about, self.name)


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
    measurer: Measurer,
    *,
    upgrade: Collection[str] = (),
    upgrade_images: Collection[str] = (),
    image_digest: Callable[[ImageReference], str] = digest_at_registry,
    say: Callable[[str], None] = lambda _: None,
) -> Relocked:
    """A lock for *catalog*, made from the present *lock* and, where that does not suffice, from hub and engine.

    Args:
        catalog: the intent.
        lock: the present lock; None when there is none.
        resolver: how the hub is asked.
        measurer: how the engine is asked.
        upgrade: ids of models that move to the newest commit of their revision.
        upgrade_images: keys of images whose tags are asked again.
        image_digest: how a registry is asked.
        say: hears one line before each question to the hub or a registry.

    Raises:
        Refused: at least one model or image cannot be resolved or measured; all of them are named.
        CannotRun: the hub or a registry does not answer, or the engine is missing.
    """
    before = lock.models if lock else {}
    after: dict[str, LockEntry] = {}
    headers: dict[str, bytes] = {}
    changes, errors = [], []
    for model_id, model in catalog.models.items():
        old = before.get(model_id)
        try:
            resolved = _resolve(catalog, model_id, model, old, resolver, model_id in upgrade, say)
            argv = tuple(llama_server_argv(model_id, model, resolved.files))
            measured = _measure(model_id, model, resolved, argv, old, measurer)
        except CorralError as error:
            errors.append((model_id, error))
            continue
        headers |= measured.headers
        after[model_id] = _entry(catalog, model_id, resolved, argv, measured.vram)
        changes.append(_compare(model_id, old, after[model_id]))
    changes += [Change(model_id, "removed") for model_id in before if model_id not in catalog.models]
    changes.sort(key=lambda change: change.name)
    old_images = (lock.images if lock else None) or {}
    images: dict[str, str] = {}
    for key, wanted in (catalog.images or {}).items():
        try:
            images[key] = _pin(key, wanted, old_images.get(key), image_digest, key in upgrade_images, say)
        except CorralError as error:
            errors.append((f"image {key}", error))
            continue
        changes.append(_compare_image(key, old_images.get(key), images[key]))
    changes += [Change(key, "removed", about="image") for key in old_images if key not in (catalog.images or {})]
    if errors:
        raise _all_of(errors)
    new = Lock(models=after, images=None if catalog.images is None else images)
    return Relocked(new, tuple(changes), headers)


def _pin(
    key: str,
    wanted: ImageReference,
    old: str | None,
    ask: Callable[[ImageReference], str],
    upgrade: bool,
    say: Callable[[str], None],
) -> str:
    """*wanted* at its digest: the intent's own, else the lock's, else the registry's."""
    if wanted.digest is not None:
        return wanted.at(wanted.digest)
    if old is not None and not upgrade and image_is_current(wanted, old):
        return old
    say(f"image {key}: {wanted.tagged}")
    return wanted.at(ask(wanted))


def _compare_image(key: str, old: str | None, new: str) -> Change:
    if old is None:
        return Change(key, "added", (new,), "image")
    if old == new:
        return Change(key, "unchanged", about="image")
    same_tag = old.partition("@")[0] == new.partition("@")[0]
    return Change(key, "upgraded" if same_tag else "changed", (f"{old} → {new}",), "image")


def _resolve(
    catalog: Catalog,
    model_id: str,
    model: Model,
    old: LockEntry | None,
    resolver: Resolver,
    upgrade: bool,
    say: Callable[[str], None],
) -> Resolved:
    pinned = None
    if old is not None and not upgrade and old.source_sha256 == catalog.source_digests[model_id]:
        has_projector = old.files[-1].role == "projector"
        # What is on disk may have changed under its name; a commit of the hub cannot.
        if has_projector == model.vision and old.repo is not None:
            return Resolved(old.repo, old.revision, old.licence, old.files)
        pinned = old.revision
    source = model.source
    say(f"{model_id}: {source.path or f'{source.repo}@{pinned or source.revision}'}")
    return resolver(model, catalog.directory, revision=pinned)


def _measure(
    model_id: str, model: Model, resolved: Resolved, argv: tuple[str, ...], old: LockEntry | None, measurer: Measurer
) -> Measured:
    if old is not None and old.vram is not None and old.files == resolved.files:
        if measurer.is_current(model, old.vram, argv):
            return Measured(old.vram)
        return measurer.measure(model_id, model, resolved, argv, known=old.vram.headers)
    return measurer.measure(model_id, model, resolved, argv)


def _entry(catalog: Catalog, model_id: str, resolved: Resolved, argv: tuple[str, ...], vram: Vram) -> LockEntry:
    return LockEntry(
        intent_sha256=catalog.digests[model_id],
        source_sha256=catalog.source_digests[model_id],
        repo=resolved.repo,
        revision=resolved.revision,
        licence=resolved.licence,
        files=resolved.files,
        argv=argv,
        vram=vram,
    )


def _compare(model_id: str, old: LockEntry | None, new: LockEntry) -> Change:
    if old is None:
        return Change(model_id, "added", tuple(_describe(file) for file in new.files))
    details = []
    for name, was, now in (("repo", old.repo, new.repo), ("licence", old.licence, new.licence)):
        if was != now:
            details.append(f"{name} {was} → {now}")
    if old.revision != new.revision:
        details.append(f"revision {(old.revision or 'none')[:12]} → {(new.revision or 'none')[:12]}")
    details += _compare_files(old.files, new.files)
    if old.argv != new.argv:
        details.append(f"argv {_compare_words(old.argv, new.argv)}")
    if old.vram != new.vram:
        was_shown, now_shown = _shown(old.vram), _shown(new.vram)
        details.append(
            f"vram {was_shown} → {now_shown}" if was_shown != now_shown else f"vram measured anew: {now_shown}"
        )
    if old.repo == new.repo and old.revision != new.revision:
        return Change(model_id, "upgraded", tuple(details))
    if details or old.intent_sha256 != new.intent_sha256:
        return Change(model_id, "changed", tuple(details))
    return Change(model_id, "unchanged")


def _shown(rows: Vram | None) -> str:
    if rows is None:
        return "not measured"
    return f"{mib(rows.gpu_total):,} MiB{' declared' if rows.is_declared else ''}"


def _compare_words(old: tuple[str, ...], new: tuple[str, ...]) -> str:
    parts = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            parts.append(f"{' '.join(old[a:b]) or 'nothing'} → {' '.join(new[c:d]) or 'nothing'}")
    return ", ".join(parts)


def _compare_files(old: tuple[LockedFile, ...], new: tuple[LockedFile, ...]) -> list[str]:
    was, now = {file.path: file for file in old}, {file.path: file for file in new}
    details = [f"- {path}" for path in was if path not in now]
    for path, file in now.items():
        if path not in was:
            details.append(f"+ {_describe(file)}")
        elif file.sha256 != was[path].sha256:
            before = was[path]
            details.append(
                f"~ {path}: {before.size:,} → {file.size:,} bytes, {before.sha256[:12]} → {file.sha256[:12]}"
            )
    return details


def _describe(file: LockedFile) -> str:
    return f"{file.path} ({file.role}, {file.size:,} bytes)"


def _all_of(errors: list[tuple[str, CorralError]]) -> CorralError:
    kind = Refused if any(isinstance(error, Refused) for _, error in errors) else CannotRun
    lines = "\n".join(f"  {subject}: {error.message.removeprefix(f'{subject}: ')}" for subject, error in errors)
    steps = dict.fromkeys(error.next_step for _, error in errors if error.next_step)
    return kind(f"{LEFT_AS_IT_WAS}\n{lines}", next_step="\n  → ".join(steps))
