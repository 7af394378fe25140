"""Explains what pydantic refuses in a file of the catalog, in the ledger or in the lock: the value and the rule."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from corral.catalog.forms import FORMS
from corral.catalog.yaml_reader import KeyPath, dotted


def problems(error: ValidationError, kind: type[BaseModel]) -> Iterator[tuple[KeyPath, str]]:
    """Each problem of a value that is no *kind*: where it is in the value, and a sentence about it."""
    for detail in error.errors(include_url=False):
        path: KeyPath = tuple(detail["loc"])
        yield path, _sentence(detail, path, kind)


def first_problem(error: ValidationError, kind: type[BaseModel]) -> str:
    """The first of these problems, with its place before it: ``models.m.files.0.size: must be a whole number, …``."""
    path, sentence = next(problems(error, kind))
    return ": ".join(filter(None, (dotted(path), sentence.removesuffix("."))))


def _sentence(detail: Any, path: KeyPath, kind: type[BaseModel]) -> str:
    given, context = detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            allowed = _keys_at(kind, path[:-1])
            close = difflib.get_close_matches(str(path[-1]), allowed, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            return f"unknown key {path[-1]}{hint}; allowed: {', '.join(allowed)}."
        case "missing":
            return f"required key {path[-1]} is missing."
        case "value_error":
            return str(context["error"])
        case "literal_error":
            one_of = "one of " if " or " in context["expected"] else ""
            return f"must be {one_of}{context['expected']}, not {_shown(given)}."
        case "int_type" | "int_from_float" | "int_parsing" | "int_parsing_size":
            return f"must be a whole number, not {_shown(given)}."
        case "float_type":
            return f"must be a number, not {_shown(given)}."
        case "string_type":
            return f"must be text, not {_shown(given)}; in quotes if need be."
        case "greater_than" | "greater_than_equal" | "less_than_equal":
            sign = {"gt": "more than", "ge": "at least", "le": "at most"}
            limit = next(f"{words} {context[key]}" for key, words in sign.items() if key in context)
            return f"must be {limit}, not {given}."
        case "string_pattern_mismatch":
            pattern = context["pattern"]
            return f"{_shown(given)} must be {FORMS.get(pattern) or f'text of the form {pattern}'}."
        case "too_short" | "string_too_short":
            return "must not be empty."
        case "too_long":
            return f"must have at most {context['max_length']} entries."
        case "string_too_long":
            return f"must have at most {context['max_length']} characters, not {len(given)}."
        case "tuple_type":
            return f"must be a list, not {_shown(given)}."
        case "dict_type" | "model_type" | "dataclass_type":
            return f"must be a mapping (key: value), not {_shown(given)}."
        case "json_invalid":
            return f"it is not JSON ({context['error']})."
        case other:
            return f"{_shown(given)} is not allowed here: {other.replace('_', ' ')}."


def _shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return f"the truth value {str(value).lower()}"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case str():
            return repr(value)
        case _:
            return str(value)


def _keys_at(kind: Any, path: KeyPath) -> list[str]:
    """The keys of the class that stands at *path* of a *kind*, as files have them."""
    for step in path:
        match get_origin(kind):
            case None:
                kind = fields_of(kind)[str(step)].annotation
            case origin:
                kind = get_args(kind)[1 if origin is dict else 0]
        if NoneType in get_args(kind):
            kind = get_args(kind)[0]
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return list(fields_of(kind))


def fields_of(kind: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of *kind* by their keys in files."""
    return {field.alias or name: field for name, field in kind.model_fields.items()}
