"""What a tenant's pods must be set to, so that the tenant keeps to its budget: conditions on environment variables.

A condition is a comparison with a number (``>0``, ``>=600``, ``<1``, ``<=10``) or with a text (``=kSameAsRequested``).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping

PATTERN = r"^((>|>=|<|<=)-?[0-9]+(\.[0-9]+)?|=.*)$"
"""The form of a condition."""
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def broken(expected: Mapping[str, str], values: Mapping[str, Collection[str | None]]) -> tuple[str, ...]:
    """The variables of *expected* (a condition each) that *values* break, with how, as a sentence's part each.

    *values* are those of all containers of the pods; None: the pod's specification does not contain the value, but
    names where it comes from.
    """
    found = []
    for name, condition in sorted(expected.items()):
        present = values.get(name, ())
        if not present:
            found.append(f"{name} is not set, and must be {condition}")
        elif wrong := [value for value in present if value is None or not _holds(condition, value)]:
            known = sorted(value for value in wrong if value is not None)
            shown = repr(known[0]) if known else "not known from the pod"
            found.append(f"{name} is {shown}, and must be {condition}")
    return tuple(found)


def _holds(condition: str, value: str) -> bool:
    sign = condition.rstrip("-.0123456789") if condition[0] in "<>" else "="
    if sign == "=":
        return value == condition[1:]
    return bool(_NUMBER.fullmatch(value)) and _COMPARISONS[sign](float(value), float(condition.removeprefix(sign)))
