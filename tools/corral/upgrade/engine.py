"""Moves the engine: the wheel that predicts, the image that runs, and every prediction, as one tried commit."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from corral import paths
from corral.catalog.catalog import Catalog
from corral.engine import builds, embedded, flag_help
from corral.errors import CannotRun, Failed, Refused
from corral.lock import image_build
from corral.lock import lock as locks
from corral.lock.compare import Change, compare
from corral.upgrade import golden_answers, trial, wheels
from corral.upgrade.trial import Finished, Trial

_MODULE = ("-m", "corral.cli.main")
_BUILD = r"b[1-9][0-9]{3,6}"


@dataclass(frozen=True)
class FlagChanges:
    """What two engines' ``--help`` differ in, by the flags' first long names.

    Attributes:
        gone: flags that the new engine does not have.
        new: flags that only the new one has.
        defaults: the default of a flag before and now, None where none is stated.
    """

    gone: tuple[str, ...]
    new: tuple[str, ...]
    defaults: Mapping[str, tuple[str | None, str | None]]


@dataclass(frozen=True)
class Moved:
    """What an upgrade changes.

    Attributes:
        before, after: builds of llama.cpp.
        branch: which has the commit.
        commit: its hash.
        flags: what is different in the engine's flags.
        models: what is different in the catalog's lock; empty where the catalog has none.
        image: the image that runs, before and after; None where it stays.
        notes: what an operator should know, a sentence each.
        golden: what the check of the golden answers printed; None when it was not made.
    """

    before: str
    after: str
    branch: str
    commit: str
    flags: FlagChanges
    models: tuple[Change, ...]
    image: tuple[str, str] | None
    notes: tuple[str, ...]
    golden: str | None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        flags = {"gone": self.flags.gone, "new": self.flags.new, "defaults": dict(self.flags.defaults)}
        models = [{one.about: one.name, "change": one.kind, "details": one.details} for one in self.models]
        return {
            "from": self.before,
            "to": self.after,
            "branch": self.branch,
            "commit": self.commit,
            "flags": flags,
            "lock": models,
            "image": self.image,
            "notes": self.notes,
            "golden": self.golden,
        }


@dataclass
class Upgrade:
    """One upgrade.

    Attributes:
        catalog: the catalog, a folder of the clone.
        version: of the wheel to move to.
        store: where the models' files are, for golden answers; None: they are not asked for.
        accept: whether other answers are wanted.
        info: receives a line before each step.
    """

    catalog: Catalog
    version: str
    store: Path | None
    accept: bool = False
    info: Callable[[str], None] = lambda _: None
    _notes: list[str] = field(default_factory=list)

    def try_it(self) -> Moved:
        """Make and try the commit on a branch; the clone's own files stay as they are.

        Raises:
            Refused: the clone or the catalog is not ready, this corral cannot read the engine, or a flag is gone.
            Failed: a golden answer is another.
            CannotRun: the index, a registry or a program is missing.
        """
        inside = self._catalog_inside()
        trial.require_clean()
        build = embedded.build_of(self.version)
        with trial.trial(f"engine-{build}") as tried:
            catalog = tried.folder / inside
            present = locks.read(self.catalog.lock_file)
            first_record = self._golden_before(catalog) if present else False
            self.info(f"pins: xllamacpp {embedded.WHEEL_VERSION} → {self.version}")
            _pin(tried.folder / "tools", self.version)
            wheels.lock_packages(tried.folder / "tools")
            tried.environment.make(tried.folder / "tools")
            wheels.install(self.version, tried.environment.packages, tried.folder / "tools" / "requirements.lock")
            self.info(
                f"engine: {embedded.LLAMA_CPP_BUILD} → {build}, its flags and its bytes on the golden command lines"
            )
            _measure(tried, self.version)
            flags = flag_changes(_help(Path(sys.executable)), _help(tried.environment.python))
            image = move_image(catalog / "images.yaml", build)
            self.info("locks")
            _lock(tried, tried.folder / "terraform" / "catalog-demo")
            if present:
                _lock(tried, catalog)
            self._render(tried)
            golden = self._golden_after(tried, catalog, build) if present and self.store else None
            if first_record:
                (catalog / "golden.json").unlink()
            after = locks.read(catalog / "lock.json") if present else None
            changes = tuple(one for one in compare(present, after) if one.kind != "unchanged") if after else ()
            self._note_what_is_left(present is not None, image, build, after)
            commit = _commit(tried, embedded.LLAMA_CPP_BUILD, build, self.version)
            return Moved(
                before=embedded.LLAMA_CPP_BUILD,
                after=build,
                branch=tried.branch,
                commit=commit,
                flags=flags,
                models=changes,
                image=image,
                notes=tuple(self._notes),
                golden=golden,
            )

    def _catalog_inside(self) -> Path:
        try:
            return self.catalog.directory.resolve().relative_to(paths.REPOSITORY)
        except ValueError:
            message = (
                f"{self.catalog.directory} is not in the clone {paths.REPOSITORY}: an upgrade is one commit of it."
            )
            raise Refused(message, next_step="Move the catalog into the clone, or leave --catalog out") from None

    def _golden_before(self, catalog: Path) -> bool:
        """Ask the present engine; whether its record is new."""
        if self.store is None:
            return False
        self.info(f"golden answers of {embedded.LLAMA_CPP_BUILD}")
        own = partial(_corral, Path(sys.executable), paths.REPOSITORY / "tools")
        engine = Path(sysconfig.get_path("scripts")) / "corral-llama-server"
        return golden_answers.record_before(own, catalog, self.store, engine)

    def _golden_after(self, tried: Trial, catalog: Path, build: str) -> str:
        assert self.store
        self.info(f"golden answers of {build}")
        own = partial(_corral, tried.environment.python, tried.folder / "tools")
        engine = tried.environment.python.with_name("corral-llama-server")
        try:
            return golden_answers.check_after(own, catalog, self.store, engine, accept=self.accept)
        except Failed as error:
            if error.next_step:
                raise
            raise Failed(
                f"With {build} the models answer otherwise; nothing was changed.\n{error.message}",
                next_step=f"Read the differences; if they are wanted: corral upgrade engine --to {build} --accept",
            ) from None

    def _render(self, tried: Trial) -> None:
        """Write what is made from the locks."""
        for words in ((*_MODULE, "render"), ("-m", "tests.support.terraform_catalogs", "--write")):
            _require(tried.run(*words), "What is made from the lock cannot be written")
        _require(tried.run("dev/golden_config.py", "--write"), "The rendered configuration cannot be written")

    def _note_what_is_left(
        self, has_lock: bool, image: tuple[str, str] | None, build: str, after: locks.Lock | None
    ) -> None:
        if not has_lock:
            self._notes.append(
                f"{self.catalog.directory} has no lock.json: no model was predicted again, and none asked."
            )
        elif self.store is None:
            self._notes.append("No golden answer was asked for: after corral apply, run corral golden check.")
        if after and after.engine and after.engine.warning:
            self._notes.append(after.engine.warning)
        elif image is None and after is None and (runs := _build_that_runs(self.catalog)) not in (None, build):
            self._notes.append(f"The image of images.yaml runs {runs}: name one with {build} there.")


def flag_changes(before: str, after: str) -> FlagChanges:
    """What is different between the two texts of ``--help``."""
    old, new = ({flag["names"][0] for flag in flag_help.parse(text)} for text in (before, after))
    was, now = flag_help.defaults(before), flag_help.defaults(after)
    moved = {flag: (was.get(flag), now.get(flag)) for flag in sorted(old & new) if was.get(flag) != now.get(flag)}
    return FlagChanges(gone=tuple(sorted(old - new)), new=tuple(sorted(new - old)), defaults=moved)


def move_image(images: Path, build: str) -> tuple[str, str] | None:
    """Move the image ``llama-server`` of the file *images* to *build*; its name before and after, None where it stays.

    Its tag must name a build; a digest is removed, because `corral lock` reads the new one from the registry.
    """
    if not images.is_file():
        return None
    text = images.read_text()
    found = re.search(rf"(?m)^llama-server:[ \t]*(?P<image>\S+?(?P<build>{_BUILD})[^\s@]*)(?P<digest>@\S+)?", text)
    if found is None or found["build"] == build:
        return None
    moved = found["image"].replace(found["build"], build)
    images.write_text(f"{text[: found.start('image')]}{moved}{text[found.end() :]}")
    return found["image"], moved


def _build_that_runs(catalog: Catalog) -> str | None:
    image = image_build.engine_image(catalog.images)
    return catalog.llama_cpp_build or (builds.in_tag(image.tag) if image else None)


def _pin(tools: Path, version: str) -> None:
    """Write *version* where the present one is pinned."""
    for name in ("pyproject.toml", "corral/engine/embedded.py"):
        file = tools / name
        text = file.read_text()
        if embedded.WHEEL_VERSION not in text:
            raise Refused(f"{file} does not pin xllamacpp {embedded.WHEEL_VERSION}.", next_step="git status")
        file.write_text(text.replace(embedded.WHEEL_VERSION, version))


def _measure(tried: Trial, version: str) -> None:
    """Bring builds.json and the table of flags to the new wheel, in this order: the first compares with the second."""
    done = tried.run("dev/engine_builds.py", "--write", version)
    if done.code and (reason := next((line for line in done.stderr.splitlines() if line.startswith(version)), "")):
        message = f"This corral cannot read what {embedded.build_of(version)} takes, and nothing was changed.\n{reason}"
        raise Refused(message, next_step="Update corral: git pull; or choose another: corral upgrade engine --to BUILD")
    _require(done, "The engine cannot be measured")
    done = tried.run("dev/engine_flags.py", "--write")  # exit 1 while a flag has no class: it is refused until it has
    if done.code and "has no class" not in done.stderr and "does not have" not in done.stderr:
        _require(done, "The engine's flags cannot be read")


def _lock(tried: Trial, catalog: Path) -> None:
    done = tried.run(*_MODULE, "lock", "--catalog", catalog)
    if done.code:
        kind = CannotRun if done.code == CannotRun.exit_code else Refused
        message = f"{catalog.name} cannot be locked with the new engine; nothing was changed.\n{done.stderr.strip()}"
        raise kind(message, next_step="Correct the catalog in the clone and commit it, then: corral upgrade engine")


def _help(python: Path) -> str:
    return trial.run([python.with_name("corral-llama-server"), "--help"], paths.REPOSITORY).stdout


def _corral(python: Path, tools: Path, *words: str | Path, variables: Mapping[str, str]) -> Finished:
    return trial.run([python, *_MODULE, *words], tools, variables)


def _require(done: Finished, otherwise: str) -> None:
    if done.code:
        raise CannotRun(f"{otherwise}; nothing was changed.\n{done.text}", next_step="make check")


def _commit(tried: Trial, before: str, after: str, version: str) -> str:
    """The hash of the commit of everything that was changed."""
    trial.git("add", "--all", folder=tried.folder)
    body = f"xllamacpp {version}; made by corral upgrade engine.  To go back: git revert, then make setup."
    title = f"Move the engine from {before} to {after}"
    trial.git("commit", "--quiet", "-m", title, "-m", body, folder=tried.folder)
    return trial.git("rev-parse", "HEAD", folder=tried.folder)
