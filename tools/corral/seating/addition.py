"""A model of the hub as one more model of a catalog: its file, its lock and its seat, before anything is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from corral.agent.progress import human
from corral.catalog import catalog as catalogs
from corral.catalog import yaml_reader
from corral.catalog.catalog import Catalog
from corral.catalog.forms import FORMS, ID_PATTERN, LONGEST_ID, RESERVED_IDS, is_id
from corral.catalog.intent import Model, Task
from corral.catalog.invalid_values import first_problem
from corral.catalog.source import Source
from corral.errors import CatalogInvalid, NoModel, Refused
from corral.hub.resolved import Resolved
from corral.hub.select import Offer
from corral.lock.lock import Lock
from corral.lock.predict import Predictor
from corral.lock.relock import Relocked, relock, resolve_on_hub
from corral.lock.task_fit import require_model, task_of
from corral.seating import chart as charts
from corral.seating import contexts
from corral.vram.gguf_header import parse_fixture
from corral.vram.predict import trained_context
from corral.vram.prediction import mib

DEFAULT_CONTEXT = 8192
"""Tokens per request slot, where the model was trained for as many."""

_NAME_PROJECTOR = "Name one, or none: --mmproj FILE.gguf, --mmproj none"
_SCHEMA = "schemas/model.schema.json"
_SUFFIX = re.compile(r"[-_.]gguf$")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


@dataclass(frozen=True)
class Wish:
    """What the operator has named; None: what the repository and the catalog give.

    Attributes:
        repo: the repository.
        quant: a quantisation, or the path of a file in it.
        name: the id of the new model.
        card: the card it runs on.
        group: its group.
        context: tokens per request slot.
        mmproj: the projector: a file, or none.
        command: the command as it was typed, for next steps: with a quantisation, none where it is empty, and with
            another context and group, None: the typed ones.
    """

    repo: str
    quant: str | None
    name: str | None
    card: str | None
    group: str | None
    context: int | None
    mmproj: str | None
    command: Callable[[str, int | None, str | None], str]


@dataclass(frozen=True)
class Addition:
    """A model that can be added: its id, the text of its file, the catalog with it, and the lock of that."""

    model_id: str
    text: str
    catalog: Catalog
    relocked: Relocked


@dataclass(frozen=True)
class _Place:
    model_id: str
    card: str
    group: str


def find(wish: Wish, catalog: Catalog, lock: Lock | None, info: Callable[[str], None]) -> Addition:
    """The model of *wish* beside those of *catalog*, whose present lock is *lock*.

    Raises:
        Refused: its id is taken, the repository has several models or none, its projector is not certain, it does not
            fit, or as ``corral lock``.
        CannotRun: as ``corral lock``.
    """
    from corral.hub import resolve, select

    place = _place(wish, catalog)
    source = _source(wish)
    info(f"{wish.repo}: reading what it has")
    listing = resolve.sizes(source)
    found = list(select.offers(listing))
    if not found:
        raise Refused(
            f"{wish.repo} has no whole model as GGUF; its GGUF files: {', '.join(sorted(listing)[:10]) or 'none'}.",
            next_step="Name a repository of GGUF files, often called NAME-GGUF",
        )
    chosen = _chosen(wish, found)
    adding = _Adding(wish, place, catalog, lock, listing, info)
    if chosen is None:
        raise adding.which(found)
    return adding.fitting(chosen, found)


def id_of(repo: str) -> str:
    """The id that a model of *repo* gets: ``Qwen/Qwen3-8B-GGUF`` is ``qwen3-8b``."""
    name = _SUFFIX.sub("", repo.rpartition("/")[2].lower())
    return re.sub(r"[^a-z0-9.-]+", "-", name).strip("-.")


def _source(wish: Wish) -> Source:
    named = {"mmproj": wish.mmproj} if wish.mmproj else {}
    try:
        return Source.model_validate({"repo": wish.repo, "quant": "any", **named})
    except ValidationError as error:
        if error.errors()[0]["loc"] == ("mmproj",):
            raise Refused(f"--{first_problem(error, Source)}.", next_step=_NAME_PROJECTOR) from None
        step = "corral add ORG/NAME-GGUF, or one of its quantisations: corral add ORG/NAME-GGUF:Q4_K_M"
        raise Refused(f"{wish.repo!r} is no repository of a hub: it must be like org/name.", next_step=step) from None


def _place(wish: Wish, catalog: Catalog) -> _Place:
    model_id = wish.name or id_of(wish.repo)
    for what, name, option in (("id of a model", model_id, "--name"), ("name of a group", wish.group, "--group")):
        if name is not None and not (is_id(name) and len(name) <= LONGEST_ID):
            rule = f"{FORMS[ID_PATTERN]}, {LONGEST_ID} at most, and not {' or '.join(RESERVED_IDS)}"
            raise Refused(f"{name!r} is no {what}: {rule}.", next_step=f"Name another: {option} NAME")
    file = catalog.directory / "models" / f"{model_id}.yaml"
    if model_id in catalog.models or file.exists() or file.is_symlink():
        raise Refused(
            f"There is a model {model_id} already: {file}.",
            next_step=f"Add it under another id: --name ID; or remove that one first: corral remove {model_id}",
        )
    if owner := next((name for name, model in catalog.models.items() if model_id in model.aliases), None):
        raise Refused(f"{model_id} is an alias of {owner}.", next_step="Add it under another id: --name ID")
    if wish.card is not None and wish.card not in catalog.cards:
        raise Refused(
            f"There is no card {wish.card}; there are: {', '.join(catalog.cards) or 'none'}.",
            next_step="Name one of these: --card CARD",
        )
    cards = [wish.card] if wish.card else list(catalog.cards)
    if len(cards) != 1:
        rule = f"the catalog has {len(cards)}: {', '.join(cards)}" if cards else "cards/ has none"
        several = "Name one: --card CARD; in its file cards: [A, B] may take the place of card afterwards"
        step = several if cards else f"Write {catalog.directory / 'cards'}/NAME.yaml first"
        raise Refused(f"A new model gets one card, and {rule}.", next_step=step)
    (card,) = cards
    groups = {model.group for model in catalog.models.values() if card in (model.card, *model.cards)}
    default = groups.pop() if len(groups) == 1 else Model.model_fields["group"].default
    return _Place(model_id, card, wish.group or default)


def _chosen(wish: Wish, found: Sequence[Offer]) -> Offer | None:
    """The one model of *found* that is meant; None when that is not certain."""
    if wish.quant is None:
        return found[0] if len(found) == 1 else None
    meant = wish.quant.lower()
    by_name = [one for one in found if one.value.lower() == meant]
    by_file = [replace(one, key="file", value=one.files[0]) for one in found if one.files[0] == wish.quant]
    named = by_name or by_file
    return named[0] if len(named) == 1 else None


@dataclass(frozen=True)
class _Adding:
    wish: Wish
    place: _Place
    catalog: Catalog
    lock: Lock | None
    listing: Mapping[str, int]
    info: Callable[[str], None]

    def fitting(self, offer: Offer, found: Sequence[Offer]) -> Addition:
        """*offer*, one of *found*, with its lock; refused where its card has no room."""
        addition = self.locked(offer)
        chart = charts.of(addition.relocked.lock)
        card = chart.cards[self.place.card]
        if card.fits:
            return addition
        raise Refused(
            f"{self.wish.repo}:{offer.value} does not fit on card {self.place.card}: with its "
            f"{chart.models[self.place.model_id].mib:,} MiB the card is short of {card.short_mib:,} MiB.",
            next_step=self._remedy(addition, offer) or self._smaller([one for one in found if one.size < offer.size]),
        )

    def _remedy(self, addition: Addition, offer: Offer) -> str:
        """The command with which *offer*, which does not fit as *addition*, does; empty: there is none.

        A lower context in its group, or the largest other group of the card, which has most room for one more model.
        """
        lock, model_id = addition.relocked.lock, self.place.model_id
        chart = charts.of(lock)
        if tokens := contexts.largest(addition.catalog, lock, chart, [model_id])[model_id].tokens:
            return self.wish.command(offer.value, tokens, None)
        groups = chart.cards[self.place.card].groups
        group = max(groups.keys() - {self.place.group}, key=lambda name: (groups[name].mib, name), default=None)
        if group is None:
            return ""
        entry = lock.models[model_id]
        moved = entry.model_copy(update={"intent": entry.intent.model_copy(update={"group": group})})
        lock = lock.model_copy(update={"models": {**lock.models, model_id: moved}})
        chart = charts.of(lock)
        if chart.cards[self.place.card].fits:
            return self.wish.command(offer.value, None, group)
        tokens = contexts.largest(addition.catalog, lock, chart, [model_id])[model_id].tokens
        return self.wish.command(offer.value, tokens, group) if tokens else ""

    def _smaller(self, smaller: Sequence[Offer]) -> str:
        """What to do where a model has no room at all and *smaller* are the smaller ones of its repository."""
        try:
            trial, others = self._smallest(smaller) if smaller else (None, [])
        except Refused:  # none of them is a model that the engine knows
            trial, others = None, []
        if trial:
            smallest = next(one for one in smaller if one not in others)
            if charts.of(trial.relocked.lock).cards[self.place.card].fits:
                return f"Choose a smaller one: {self.wish.command('', None, None)}"
            if step := self._remedy(trial, smallest):
                return f"Choose a smaller one: {step}"
        return self._nothing_fits

    @property
    def _nothing_fits(self) -> str:
        other = "; or name another card: --card CARD" if len(self.catalog.cards) > 1 else ""
        return f"No model of {self.wish.repo} fits there; make room, by what is on the card: corral seat{other}"

    def which(self, found: Sequence[Offer]) -> Refused:
        """The error that lists *found*, each with its size and whether it fits.

        The engine predicts the smallest; the others take as much more as their files have.
        """
        trial, others = self._smallest(found)
        chart = charts.of(trial.relocked.lock)
        room = chart.room_mib(self.place.model_id)
        found = [one for one in found if one not in others]
        beside = trial.relocked.lock.models[self.place.model_id].seat.bytes - found[0].size
        lines, fitting = [], ""
        for one in found:
            needed = mib(max(0, one.size + beside))
            fitting = one.value if needed <= room else fitting
            verdict = "fits" if needed <= room else "does not fit"
            lines.append(f"  {one.value}  {human(one.size)}  {verdict}: about {needed:,} of {room:,} MiB")
        lines += [f"  {one.value}  {human(one.size)}  no model" for one in others]
        named = f"{self.wish.repo} has no {self.wish.quant}" if self.wish.quant else f"{self.wish.repo} has several"
        context = trial.catalog.models[self.place.model_id].context
        head = f"{named}; these are its models, on card {self.place.card} with context {context:,}:"
        example = self.wish.command(fitting, None, None) if fitting else self._remedy(trial, found[0])
        step = f"Name one, for example: {example}" if example else self._nothing_fits
        return Refused("\n".join([head, *lines]), next_step=step)

    def _smallest(self, found: Sequence[Offer]) -> tuple[Addition, list[Offer]]:
        """The smallest of *found* with its lock, and those before it that are no models by their headers."""
        others: list[Offer] = []
        for one in found:
            try:
                return self.locked(one), others
            except NoModel:
                others.append(one)
        return self.locked(found[0]), others

    def locked(self, offer: Offer) -> Addition:
        """*offer* with its lock, whether its card has room or not."""
        model_id = self.place.model_id
        projector = self._projector(offer)
        largest = Model.model_validate(
            {
                "source": {"repo": self.wish.repo, offer.key: offer.value, "mmproj": projector},
                "card": self.place.card,
                "context": DEFAULT_CONTEXT,
                "modalities": ["text"] if projector == "none" else ["text", "image"],
            }
        )
        resolved = resolve_on_hub(largest, self.catalog.directory, None)
        from corral.hub.gguf_range import read_headers

        packed = read_headers(model_id, resolved, self.catalog.directory, say=self.info)
        ready = {resolved.files: packed}
        try:
            require_model(parse_fixture(packed[0]))
        except NoModel as error:
            error.message = error.message.replace("it is", f"{offer.files[0]} of {self.wish.repo} is", 1)
            raise
        task = task_of([parse_fixture(packed[0])])
        is_vision = (
            task == "chat"
            and largest.vision
            and bool(parse_fixture(packed[-1]).metadata.get("clip.has_vision_encoder"))
        )
        if largest.vision and not is_vision:  # a projector of sound alone, or of a model without answers in words
            resolved = replace(resolved, files=resolved.files[:-1])
            ready = {resolved.files: packed[:-1]}
        context = self._context(trained_context(parse_fixture(packed[0])))
        text = self._text(offer, task=task, is_vision=is_vision, context=context)
        try:
            catalog = catalogs.with_model(self.catalog, model_id, text)
        except CatalogInvalid as error:  # no file has these lines: each is of an option, or of what the others leave
            lines = (": ".join(filter(None, (one.where, one.message))) for one in error.problems)
            message = "\n".join([f"No file of a model can be made of that for {self.wish.repo}:", *lines])
            raise Refused(message, next_step="Give other options: corral add --help") from None

        def resolver(model: Model, directory: Path, commit: str | None) -> Resolved:
            return resolved if model is catalog.models[model_id] else resolve_on_hub(model, directory, commit)

        predictor = Predictor(catalog, self.info, ready)
        return Addition(model_id, text, catalog, relock(catalog, self.lock, resolver, predictor, info=self.info))

    def _projector(self, offer: Offer) -> str:
        from corral.hub import select

        if self.wish.mmproj:
            return self.wish.mmproj
        if not select.projectors(self.listing):
            return "none"
        try:
            select.projector(self.listing, offer.files[0], "auto")
        except Refused as error:
            message = f"{self.wish.repo}: {error.message}"
            raise Refused(message, next_step=_NAME_PROJECTOR) from None
        return "auto"

    def _context(self, trained: int | None) -> int:
        wanted = self.wish.context
        if wanted and trained and wanted > trained:
            raise Refused(
                f"--context is {wanted:,}, and the model was trained for {trained:,} tokens: beyond that answers fall "
                "apart.",
                next_step=f"Name {trained} or less: {self.wish.command(self.wish.quant or '', trained, None)}",
            )
        return wanted or min(DEFAULT_CONTEXT, trained or DEFAULT_CONTEXT)

    def _text(self, offer: Offer, *, task: Task, is_vision: bool, context: int) -> str:
        source = {"repo": self.wish.repo, offer.key: offer.value}
        if self.wish.mmproj:
            source["mmproj"] = self.wish.mmproj
        pairs = ", ".join(f"{key}: {_word(value)}" for key, value in source.items())
        has_schema = (self.catalog.directory / _SCHEMA).is_file()
        lines = [f"# yaml-language-server: $schema=../{_SCHEMA}"] if has_schema else []
        lines += [f"source: {{{pairs}}}", f"card: {_word(self.place.card)}", f"context: {context}"]
        lines += [f"task: {task}"] if task != "chat" else []
        lines += ["modalities: [text, image]" if is_vision else "modalities: [text]"]
        return "\n".join([*lines, f"group: {_word(self.place.group)}", ""])


def _word(text: str) -> str:
    """*text* as a value in YAML: plain where every reader takes it for this text."""
    try:
        if _PLAIN.fullmatch(text) and yaml_reader.parse(text, Path(text))[0] == text:
            return text
    except CatalogInvalid:
        pass
    return json.dumps(text)
