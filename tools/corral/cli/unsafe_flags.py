"""Printing the flags that models run by `unsafe`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from corral import output

if TYPE_CHECKING:  # `corral --help` imports this module: keep it light
    from corral.catalog.intent import Model
    from corral.catalog.unsafe import Unsafe


def warn(models: Mapping[str, Model]) -> None:
    """Warn on stderr of every unsafe flag of *models*."""
    from corral.catalog.unsafe import unsafe_flags

    for one in unsafe_flags(models):
        output.warn(str(one))


def show(flags: Iterable[Unsafe]) -> None:
    """Print *flags* with their reasons to stdout, in red on a terminal."""
    for one in flags:
        output.styled([(str(one), "bold red")])
