"""The flags of models that the catalog runs by its operator's reason alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from corral.catalog import flags
from corral.catalog.intent import Model


class Unsafe(NamedTuple):
    """One such flag: the model, the words of its command line, and the reason."""

    model: str
    flag: str
    why: str

    def __str__(self) -> str:
        return f"model {self.model} runs with the unsafe flag {self.flag}: {self.why}"


def unsafe_flags(models: Mapping[str, Model]) -> Iterator[Unsafe]:
    """Every unsafe flag of *models*, by model and by name."""
    for model_id, model in sorted(models.items()):
        for name, one in sorted(model.unsafe.items()):
            yield Unsafe(model_id, shlex.join(flags.words({name: one.value})), one.why)
