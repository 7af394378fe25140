"""JSON that every parser reads alike: RFC 8259, no name twice in an object, no NaN, no lone surrogates in names."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(text: str) -> Any:
    """The value of *text*.

    Raises:
        ValueError: with the reason, which quotes nothing of *text*.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except _Ambiguous:
        raise
    except json.JSONDecodeError as error:
        raise ValueError(f"no valid JSON at line {error.lineno}, column {error.colno}") from None
    except ValueError:  # of int()
        raise ValueError("a number has too many digits") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Ambiguous("an object has a name twice, and parsers differ in which value they take")
    if _LONE_SURROGATE.search("".join(found)):
        raise _Ambiguous("a name has a lone surrogate, which parsers replace differently")
    return found


def _constant(_: str) -> NoReturn:
    raise _Ambiguous("NaN and Infinity are no JSON")


class _Ambiguous(ValueError):
    pass
