"""Values of a stack's variables against their types: Terraform drops a key that a type does not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def undeclared_keys(given: Any, converted: Any, place: str) -> Iterator[str]:
    """A sentence for each key of *given*, as the operator wrote it, that is not in *converted*, by its type.

    Args:
        given: the value of ``show -json`` of a plan.
        converted: the same after Terraform has converted it.
        place: the variable, and the path within it.
    """
    if isinstance(given, Mapping) and isinstance(converted, Mapping):
        for key, value in given.items():
            if key in converted:
                yield from undeclared_keys(value, converted[key], f"{place}.{key}")
            else:
                yield f"{place} has no key {key}; its keys are: {', '.join(sorted(converted))}."
    elif isinstance(given, list) and isinstance(converted, list) and converted:
        for number, value in enumerate(given):
            yield from undeclared_keys(value, converted[0], f"{place}[{number}]")  # elements of a list have one type
