"""The command of each model, read from the configuration that llama-swap was started with."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from corral.errors import CannotRun

Sets: TypeAlias = Mapping[str, Sequence[Sequence[str]]]
"""The models that run together, in sets of ids, by group."""

_DEFAULT_LIMIT = 10  # llama-swap's own
_DEFAULT_LOAD_LIMIT_S = 120


@dataclass(frozen=True)
class Command:
    """How a model is served."""

    words: tuple[str, ...]  # the command line; llama-swap fills in ``${PORT}``
    engine: str  # the llama-server in it
    files: tuple[Path, ...]  # that it opens, the weights first; draft model, adapters and projector
    port: int
    limit: int  # requests at a time; one more gets 429
    load_limit_s: int
    rivals: tuple[str, ...]  # the other models of its group that may have to be unloaded for it
    sha256: tuple[str, ...]  # of its files, as the lock had them when the stack was started

    @property
    def store(self) -> Path | None:
        """The store that its files are in; None when it opens none of one."""
        if self.argv[1:2] == ("serve",):  # vLLM gets the folder of the model
            return Path(self.argv[2]).parent
        return self.files[0].parent.parent if self.files else None

    @property
    def argv(self) -> tuple[str, ...]:
        """The engine's own part of the words."""
        return self.words[self.words.index("--") + 1 :] if "--" in self.words else self.words

    @property
    def seat_mib(self) -> int | None:
        """What the preflight compares with the free memory of the card; None: there is no preflight."""
        preflight = self.words[: len(self.words) - len(self.argv)]
        return next((int(value) for value in _values(preflight, "--need-mib")), None)

    @property
    def parallel(self) -> int:
        """The requests that the engine answers at a time; the others wait in it."""
        return int(next(iter(_values(self.words, "-np", "--parallel")), 1))


def store_of(commands: Mapping[str, Command]) -> Path | None:
    """The store that the files of *commands* are in; None when none of them opens a file."""
    return next((one.store for one in commands.values() if one.store), None)


def read(config: Path) -> dict[str, Command]:
    """The command of every model in the llama-swap configuration *config*.

    Raises:
        CannotRun: it is missing, or is not what corral renders.
    """
    return parse(_text(config), str(config), next_step="corral down")


def read_sets(config: Path) -> Sets:
    """The models that run together by the llama-swap configuration *config*; raises as ``read``."""
    with _rendered(str(config), "corral down"):
        document = yaml.load(_text(config), Loader=yaml.CSafeLoader)
        return _sets(document["routing"]["router"]["settings"])


def _text(config: Path) -> str:
    try:
        return config.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CannotRun(f"{config} is not what corral renders: {error}.", next_step="corral down") from None


@contextmanager
def _rendered(where: str, next_step: str) -> Iterator[None]:
    try:
        yield
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CannotRun(f"{where} is not what corral renders: {error}.", next_step=next_step) from None


def parse(text: str, where: str, *, next_step: str) -> dict[str, Command]:
    """The command of every model in the llama-swap configuration *text* of the file or object *where*.

    Raises:
        CannotRun: it is not what corral renders.
    """
    with _rendered(where, next_step):
        document = yaml.load(text, Loader=yaml.CSafeLoader)
        return {model: _command(document, model) for model in sorted(document["models"])}


def _command(document: dict[str, Any], model: str) -> Command:
    entry = document["models"][model]
    words = shlex.split(entry["cmd"])
    engine = words[words.index("--") + 1 :] if "--" in words else words  # as ``argv``
    return Command(
        words=tuple(words),
        engine=engine[0],
        files=tuple(map(Path, _files(engine))),
        port=int(document["startPort"]) + sorted(document["models"]).index(model),
        limit=int(entry.get("concurrencyLimit") or _DEFAULT_LIMIT),
        load_limit_s=int(document.get("healthCheckTimeout", _DEFAULT_LOAD_LIMIT_S)),
        rivals=tuple(_rivals(document.get("routing", {}).get("router", {}).get("settings", {}), model)),
        sha256=tuple(entry.get("metadata", {}).get("sha256", ())),
    )


def _sets(settings: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """By the groups, of which one model runs, or by the sets of the matrix (``router.tf`` of llama-swap-config)."""
    matrix = settings.get("matrix") or {"vars": {}, "sets": {}}
    alone = {name: [[one] for one in group["members"]] for name, group in settings.get("groups", {}).items()}
    return alone | {
        group: [[matrix["vars"][name] for name in names.split(" & ")] for names in sets.split(" | ")]
        for group, sets in matrix["sets"].items()
        if "+" not in sets
    }


def _rivals(settings: Mapping[str, Any], model: str) -> list[str]:
    return sorted(
        {
            other
            for sets in _sets(settings).values()
            for before in sets
            for after in sets
            if model in after and model not in before
            for other in set(before) - set(after)
        }
    )


def _files(engine: Sequence[str]) -> list[str]:
    """The paths that *engine*, a command line, names; an adapter's is ``FILE:SCALE``, several with commas."""
    adapters = [one.rpartition(":")[0] for value in _values(engine, "--lora-scaled") for one in value.split(",")]
    extras = [*_values(engine, "-md", "--spec-draft-model"), *adapters]
    return [*_values(engine, "-m", "--model"), *extras, *_values(engine, "-mm", "--mmproj")]


def _values(words: Sequence[str], *flags: str) -> list[str]:
    return [value for word, value in pairwise(words) if word in flags]
