"""A set of cases: ``set.yaml``, ``cases/<id>.yaml``, and the images that they name; everything in it is checked.

What is allowed is listed: keys, keywords of a schema, kinds of images, sizes.  All problems are found in one pass, each
with file and line.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import jsonschema
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from corral.agent.lock_file import content_of
from corral.catalog import invalid_values, yaml_reader
from corral.catalog.forms import ID_PATTERN
from corral.catalog.yaml_reader import Document, KeyPath
from corral.errors import CatalogInvalid, EvalSetInvalid, Problem, Refused

SET, CASES = "set.yaml", "cases"
MOST_CASES = 1000
MOST_IMAGES = 32
"""Of a case."""
MOST_IMAGE_BYTES = 8 << 20
MOST_CASE_BYTES = 32 << 20
"""Of the images of a case: the front door takes requests of 64 MiB, and base64 makes four bytes of three."""
MOST_SET_BYTES = 256 << 20
"""Of all images: they are in memory while models answer."""
USUAL_TOKENS = 256

KEYWORDS = frozenset(
    {
        *("type", "enum", "const", "anyOf", "oneOf", "allOf", "title", "description"),
        *("properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern"),
    }
)
"""Of a JSON schema: those that llama.cpp binds an answer by, and texts for people."""
_ONE_SCHEMA, _MANY_SCHEMAS = ("items", "additionalProperties"), ("anyOf", "oneOf", "allOf", "prefixItems")

_KINDS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg"}
_Strict = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
_Id = Annotated[str, StringConstraints(pattern=ID_PATTERN, max_length=63)]
_Text = Annotated[str, StringConstraints(min_length=1)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Seconds = Annotated[float, Field(gt=0)]
_T = TypeVar("_T", bound=BaseModel)

Exact = str | int | float | bool | None
"""A value that an answer has to have exactly."""


class _Any(Enum):
    ANY = "any"


_ANY = _Any.ANY


class Score(BaseModel):
    """A field whose order across the cases matters, the best with the highest value."""

    model_config = _Strict

    field: _Text = Field(description="its path in the answer")
    top: Annotated[int, Field(ge=1)] | None = Field(None, description="so many must be above all others, any of them")
    best: tuple[_Id, ...] | None = Field(None, min_length=1, strict=False, description="these must be above all others")


class Rules(BaseModel):
    """What a model must do to pass."""

    model_config = _Strict

    parsed: _Share = Field(default=1, description="least share of the answers that are JSON by the schema")
    right: _Share = Field(default=1, description="least share of the expected fields that are right")
    p50_seconds: _Seconds | None = Field(default=None, description="most seconds for half of the answers")
    p95_seconds: _Seconds | None = Field(default=None, description="most seconds for 95 of 100 answers")


class SetFile(BaseModel):
    """``set.yaml``: what the cases have in common."""

    model_config = _Strict

    system: _Text | None = Field(None, description="a system message before each prompt")
    json_schema: dict[str, Any] | None = Field(None, alias="schema", description="binds answers to cases without one")
    answer_tokens: Annotated[int, Field(ge=1, le=8192)] = Field(USUAL_TOKENS, description="most of an answer")
    score: Score | None = None
    verdict: Rules = Field(default_factory=Rules)


class CaseFile(BaseModel):
    """``cases/<id>.yaml``: a prompt, and what is expected of its answer."""

    model_config = _Strict

    prompt: _Text
    images: tuple[_Text, ...] = Field(
        (), max_length=MOST_IMAGES, strict=False, description="files of the set's folder, in their order, PNG or JPEG"
    )
    json_schema: dict[str, Any] | None = Field(None, alias="schema", description="binds this answer")
    expect: dict[str, Any] = Field(default_factory=dict, description="fields by path, each with its exact value")
    between: dict[str, Any] = Field(default_factory=dict, description="numbers by path, each as [least, most]")

    @field_validator("expect")
    @classmethod
    def _are_values(cls, value: dict[str, Any]) -> dict[str, Any]:
        for path, one in value.items():
            if isinstance(one, (dict, list)):
                rule = f"write its fields one by one, as {path}.name"
                raise ValueError(f"{path} must be text, a number, true, false or null: {rule}.")  # noqa: TRY004 - pydantic
        return value

    @field_validator("between")
    @classmethod
    def _are_ranges(cls, value: dict[str, Any]) -> dict[str, Any]:
        for path, one in value.items():
            numbers = isinstance(one, list) and all(type(each) in (int, float) for each in one)
            if not numbers or len(one) != 2 or one[0] > one[1]:
                raise ValueError(f"{path} must be two numbers, [least, most].")
        return value


@dataclass(frozen=True)
class Image:
    """An image of *kind* (``png`` or ``jpeg``), by its *name* in the set's folder."""

    name: str
    kind: str
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        id: the name of its file.
        prompt, images: what is asked.
        schema: binds the answer, and is what it is checked by.
        expect: exact values by the fields' paths.
        between: least and most of numbers by the fields' paths.
    """

    id: str
    prompt: str
    schema: Mapping[str, Any]
    images: tuple[Image, ...] = ()
    expect: Mapping[str, Exact] = field(default_factory=dict)
    between: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def fields(self) -> tuple[str, ...]:
        """The paths of all fields that are expected."""
        return (*self.expect, *self.between)


@dataclass(frozen=True)
class EvalSet:
    """A set.

    Attributes:
        name: of its folder.
        sha256: of all of its files with their names.
        cases: by id, sorted.
        system: a system message of each; empty: none.
        answer_tokens: most of an answer.
        score: the field whose order matters, and how.
        rules: what a model must do to pass.
    """

    name: str
    sha256: str
    cases: tuple[Case, ...]
    system: str = ""
    answer_tokens: int = USUAL_TOKENS
    score: Score | None = None
    rules: Rules = field(default_factory=Rules)

    @property
    def top(self) -> int | None:
        """How many cases must be above all others; None: no order is asked for."""
        if self.score is None:
            return None
        return len(self.score.best) if self.score.best else self.score.top


def validator(schema: Mapping[str, Any]) -> jsonschema.protocols.Validator:
    """What finds the errors of an answer by *schema*; without references it fetches nothing."""
    return jsonschema.Draft202012Validator(schema)


def load(folder: Path) -> EvalSet:
    """The set in *folder*.

    Raises:
        EvalSetInvalid: something in it breaks a rule.
        Refused: it is no set, or cannot be read.
    """
    reading = _Reading(folder)
    try:
        if not (folder / SET).is_file():
            how = "docs/eval.md shows how to write one; terraform/catalog-demo/evals has two"
            raise Refused(f"{folder} is no set of cases: it has no file {SET}.", next_step=how)
        found = reading.all()
    except OSError as error:
        raise Refused(
            f"{error.filename or folder} cannot be read: {error.strerror}.",
            next_step=f"ls -lR {shlex.quote(str(folder))}",
        ) from None
    if reading.problems or found is None:
        raise EvalSetInvalid(reading.problems, folder)
    return found


@dataclass
class _Reading:
    folder: Path
    problems: list[Problem] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    images: dict[str, Image] = field(default_factory=dict)

    def all(self) -> EvalSet | None:
        common = self.file(SET, SetFile)
        names = list(self.names())
        files = {Path(name).stem: self.file(name, CaseFile) for name in names}
        if common is None or not all(files.values()):
            return None
        shared, document = common
        if not self.is_schema(document, shared.json_schema):
            return None
        cases = [self.case(id_, *one, shared) for id_, one in files.items() if one]
        if shared.score:
            self.check_score(document, shared.score, cases)
        if "right" in shared.verdict.model_fields_set and not any(case.fields for case in cases):
            self.refuse(document, ("verdict", "right"), "no case expects a field.")
        everything = "".join(f"{name}\0{digest}\n" for name, digest in sorted(self.digests.items()))
        return EvalSet(
            name=Path(os.path.realpath(self.folder)).name,
            sha256=hashlib.sha256(everything.encode("utf-8", "surrogateescape")).hexdigest(),
            cases=tuple(cases),
            system=shared.system or "",
            answer_tokens=shared.answer_tokens,
            score=shared.score,
            rules=shared.verdict,
        )

    def names(self) -> Iterator[str]:
        """The names of the cases' files; what else is in their folder is a problem."""
        folder = self.folder / CASES
        found = sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
        names = [name for name in found if not name.startswith(".")]
        if not names or len(names) > MOST_CASES:
            rule = f"must have files ID.yaml, a case in each, and at most {MOST_CASES}; it has {len(names)}."
            self.problems.append(Problem(folder, 1, "", rule))
            return
        for name in names:
            id_, _, suffix = name.rpartition(".")
            if suffix != "yaml" or not re.fullmatch(ID_PATTERN, id_) or len(id_) > 63:
                rule = "must be ID.yaml, the ID of lower case letters, digits, dot and dash, at most 63."
                self.problems.append(Problem(folder / name, 1, "", rule))
            else:
                yield f"{CASES}/{name}"

    def file(self, name: str, kind: type[_T]) -> tuple[_T, Document] | None:
        """The YAML file *name* as a *kind*; None when something is wrong, which is added to the problems."""
        file = self.folder / name
        if self.leads_out(file):
            self.problems.append(Problem(file, 1, "", "is a link that leads out of the set: copy its target into it."))
            return None
        try:
            document = yaml_reader.read(file)
            found = kind.model_validate(document.value)
        except CatalogInvalid as error:
            self.problems += error.problems
            return None
        except ValidationError as error:
            for path, sentence in invalid_values.problems(error, kind):
                self.refuse(document, path, sentence)
            return None
        self.digests[name] = document.sha256
        return found, document

    def case(self, id_: str, found: CaseFile, document: Document, shared: SetFile) -> Case:
        schema = shared.json_schema if found.json_schema is None else found.json_schema
        if schema is None:
            self.refuse(document, ("schema",), f"there is none, and {SET} has none for all cases.")
        if not self.is_schema(document, found.json_schema):
            schema = None
        for key, fields in (("expect", found.expect), ("between", found.between)):
            for path, value in fields.items():
                asked = {"value": value} if key == "expect" else {"limits": value}
                if schema and (problem := problem_with(path, schema, **asked)):
                    self.refuse(document, (key, path), problem)
        for path in found.expect.keys() & found.between.keys():
            self.refuse(document, ("between", path), "it is under expect, too: keep one.")
        if shared.score and schema and (problem := problem_with(shared.score.field, schema)):
            self.refuse(document, (), f"the score of {SET}: {problem}")
        images = tuple(filter(None, (self.image(document, at, name) for at, name in enumerate(found.images))))
        if sum(len(image.content) for image in images) > MOST_CASE_BYTES:
            self.refuse(
                document, ("images",), f"have more than {MOST_CASE_BYTES >> 20} MiB together: make them smaller."
            )
        ranges = {path: (float(least), float(most)) for path, (least, most) in found.between.items()}
        return Case(id_, found.prompt, schema or {}, images, found.expect, ranges)

    def image(self, document: Document, at: int, name: str) -> Image | None:
        if name not in self.images:
            try:
                self.images[name] = self.read_image(name)
            except ValueError as error:
                self.refuse(document, ("images", at), f"{name} {error}.")
        return self.images.get(name)

    def read_image(self, name: str) -> Image:
        """The image *name* of the set's folder.

        Raises:
            ValueError: it may not be used; the reason is the end of a sentence.
        """
        file = self.folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or not name.isprintable() or self.leads_out(file):
            raise ValueError("is not in the set's folder, or a link that leads out: copy it there")
        try:
            content = content_of(file, at_most=MOST_IMAGE_BYTES)
        except OSError as error:
            rule = f"an image is a file of at most {MOST_IMAGE_BYTES >> 20} MiB"
            raise ValueError(f"cannot be read: {error.strerror}; {rule}") from None
        kind = next((kind for magic, kind in _KINDS.items() if content.startswith(magic)), None)
        if kind is None:
            raise ValueError("is neither PNG nor JPEG: convert it")
        if sum(len(one.content) for one in self.images.values()) + len(content) > MOST_SET_BYTES:
            rule = f"all images of a set have at most {MOST_SET_BYTES >> 20} MiB: make them smaller, or make two sets"
            raise ValueError(f"is too much: {rule}")
        self.digests[name] = hashlib.sha256(content).hexdigest()
        return Image(name, kind, content)

    def check_score(self, document: Document, score: Score, cases: Sequence[Case]) -> None:
        ids, best = {case.id for case in cases}, score.best or ()
        if score.top and best:
            self.refuse(document, ("score", "top"), "the cases of best say how many: leave out top.")
        for at, one in enumerate(best):
            if one not in ids or best.index(one) != at:
                why = "stands twice" if one in ids else "is no case of this set"
                self.refuse(document, ("score", "best", at), f"{one} {why}.")
        if (top := len(best) or score.top) and top >= len(cases):
            self.refuse(document, ("score",), f"the top {top} of {len(cases)} cases are above no other one.")

    def is_schema(self, document: Document, schema: Mapping[str, Any] | None) -> bool:
        """Whether *schema* of *document* can bind an answer, or is none; what is wrong is added to the problems."""
        found = list(schema_problems(schema)) if schema is not None else []
        for path, problem in found:
            self.refuse(document, ("schema", *path), problem)
        return not found

    def leads_out(self, file: Path) -> bool:
        return not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(self.folder))

    def refuse(self, document: Document, path: KeyPath, message: str) -> None:
        self.problems.append(document.problem(path, message))


def schema_problems(schema: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """What is wrong with *schema*, and where: it must bind an object with fields, by ``KEYWORDS`` alone."""
    unknown = list(_unknown_keywords(schema, ()))
    yield from unknown
    if unknown:
        return
    for error in jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA).iter_errors(schema):
        yield tuple(error.absolute_path), f"{error.message[:200]}."
        return
    if schema.get("type") != "object" or not schema.get("properties"):
        yield (), "must have type: object, and properties: an answer has fields by their names."


def _unknown_keywords(schema: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Keywords of *schema* and of those within it that are not in ``KEYWORDS``, and patterns that are none."""
    if not isinstance(schema, dict):  # true, false, or what the meta-schema refuses
        return
    for key, value in schema.items():
        if key not in KEYWORDS:
            close = difflib.get_close_matches(key, KEYWORDS, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            yield (*path, key), f"unknown keyword {key}{hint}; allowed: {', '.join(sorted(KEYWORDS))}."
        elif key == "properties" and isinstance(value, dict):
            for name, one in value.items():
                if "." in name:
                    yield (*path, key, name), "a field's name has no dot: it separates the names of a path."
                yield from _unknown_keywords(one, (*path, key, name))
        elif key in _ONE_SCHEMA:
            yield from _unknown_keywords(value, (*path, key))
        elif key in _MANY_SCHEMAS and isinstance(value, list):
            for at, one in enumerate(value):
                yield from _unknown_keywords(one, (*path, key, at))
        elif key == "pattern" and isinstance(value, str):
            try:
                re.compile(value)
            except re.error as error:
                yield (*path, key), f"it is no regular expression: {error}."


def problem_with(
    path: str, schema: Mapping[str, Any], *, value: Exact | _Any = _ANY, limits: Sequence[float] | None = None
) -> str:
    """Why no answer by *schema* has *value*, or a number within *limits*, at *path*; empty: one may have."""
    node: Any = schema
    for part in path.split("."):
        if not isinstance(node, dict) or node.keys() & {"anyOf", "oneOf", "allOf", "prefixItems"}:
            return ""  # it may be there
        if node.get("type") == "array" and part.isdecimal():
            node = node.get("items")
            continue
        names = node.get("properties", {})
        if part not in names:
            close = difflib.get_close_matches(part, names, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            return f"the schema has no field {path}{hint}; it has: {', '.join(names) or 'none there'}."
        node = names[part]
    if limits is not None and not _may_be_within(node, *limits):
        least, most = limits
        return f"the schema has no number from {least:g} to {most:g} there."
    if value is _ANY or _may_be(node, value):
        return ""
    choices = node.get("enum") if isinstance(node, dict) else None
    if choices:
        return f"the schema has not {value!r} among {', '.join(map(repr, choices))}."
    why = next((error.message for error in validator(node).iter_errors(value)), "")
    return f"no answer by the schema has {value!r} there: {why[:200]}."


def _may_be(node: Any, value: Any) -> bool:
    """Whether *value* is one by the schema *node*; an object or list without entries is expected as its text."""
    found = [value, *([json.loads(value)] if value in ("{}", "[]") else [])]
    return any(validator(node).is_valid(one) for one in found)


def _may_be_within(node: Any, least: float, most: float) -> bool:
    """Whether the schema *node* has a number from *least* to *most*; one of several schemas at once may have."""
    if not isinstance(node, dict):
        return node is not False
    if node.keys() & {"anyOf", "oneOf", "allOf"}:
        return True
    if "enum" in node or "const" in node:
        numbers = [one for one in node.get("enum", [node.get("const")]) if type(one) in (int, float)]
        return any(least <= one <= most and validator(node).is_valid(one) for one in numbers)
    types = node.get("type", "number")
    types = {types} if isinstance(types, str) else set(types)
    if not types & {"number", "integer"}:
        return False
    least = max(least, node.get("minimum", -math.inf), node.get("exclusiveMinimum", -math.inf))
    most = min(most, node.get("maximum", math.inf), node.get("exclusiveMaximum", math.inf))
    if "number" not in types:  # the whole numbers at both ends, or beside an end that is excluded
        least, most = math.ceil(least), math.floor(most)
        least += least == node.get("exclusiveMinimum")
        most -= most == node.get("exclusiveMaximum")
        return least <= most
    is_excluded = least == node.get("exclusiveMinimum") or most == node.get("exclusiveMaximum")
    return least < most or (least == most and not is_excluded)
