"""``golden.json`` of a catalog: the answers that each model gave when they were recorded, and what ran then.

Written by `corral golden record`, and committed with the catalog.  One fact stands on a line, and a token's place with
all of its log-probabilities is one, so that a diff of it reads well; the bytes follow from the facts alone.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from corral.agent import merge_markers
from corral.agent.lock_file import content_of
from corral.catalog import invalid_values
from corral.catalog.forms import ID_PATTERN
from corral.errors import Refused
from corral.files import refuse_unwritable, write_atomically

FILE_NAME = "golden.json"
UNKNOWN = "unknown"

_Strict = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
_Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
_Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
_Text = Annotated[str, StringConstraints(min_length=1)]
_LogProbability = Annotated[float, Field(le=0)]


class Place(BaseModel):
    """One token of an answer: the one that was chosen, and the likeliest ones with their natural logarithms."""

    model_config = _Strict

    token: str
    top: dict[str, _LogProbability] = Field(min_length=1)


class Answer(BaseModel):
    """The answer to one question."""

    model_config = _Strict

    question_sha256: _Sha256 = Field(description="of all that was sent, the model's name aside")
    prompt_tokens: Annotated[int, Field(ge=0)] | None = Field(description="by the server; null where it did not count")
    text: str = Field(description="thoughts first; cut where only its first tokens are compared")
    fields: dict[str, str | int | float | bool | None] | None = Field(
        description="each value of the answer's JSON by its path; null where it is no JSON, or none was required"
    )
    tokens: tuple[Place, ...] = Field(min_length=1, description="the first ones; the end is one, where it is listed")


class Serving(BaseModel):
    """What ran; ``unknown`` or null where the endpoint is none of corral's."""

    model_config = _Strict

    engine: _Text = Field(description="the llama-server's own name for its build")
    machine: _Text = Field(description="its processor, or in a cluster its card and node")
    argv_sha256: _Sha256 | None = Field(description="of the locked command line, as in measured.json")
    files: dict[str, _Sha256] | None = Field(description="sha256 of each file by its path")


class ModelRecord(BaseModel):
    """The golden answers of one model."""

    model_config = _Strict

    date: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")] = Field(description="UTC")
    serving: Serving
    tokens_per_second: float | None = Field(description="of the answers, by the server's own timings; not compared")
    answers: dict[_Id, Answer] = Field(min_length=1, description="by the question's name")


class Golden(BaseModel):
    """All golden answers of a catalog."""

    model_config = _Strict

    version: Literal[1] = 1
    models: dict[_Id, ModelRecord] = Field(default_factory=dict)


def path_of(catalog: Path) -> Path:
    """Where the golden answers of the catalog folder *catalog* are, or would be."""
    return catalog / FILE_NAME


def read(catalog: Path) -> Golden:
    """The golden answers of the catalog folder *catalog*; empty when there is no file.

    Raises:
        Refused: the file cannot be opened, or is none of this version.
    """
    path = path_of(catalog)
    try:
        text = content_of(path).decode("utf-8")
    except FileNotFoundError:
        return Golden()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error}.", next_step=f"ls -l {shlex.quote(str(path))}") from None
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not UTF-8") from None
    if merge_markers.present(text):
        raise _unreadable(path, "it has the conflict markers of a merge")
    try:
        found = Golden.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise _unreadable(path, invalid_values.first_problem(error, Golden)) from None
    if missing := Golden.model_fields.keys() - found.model_fields_set:
        raise _unreadable(path, f"it has no {' and no '.join(sorted(missing))}")
    return found


def write(catalog: Path, golden: Golden) -> None:
    """Replace the golden answers of *catalog* atomically.

    Raises:
        Refused: the folder is not writable.
    """
    path = path_of(catalog)
    with refuse_unwritable(path, next_step=f"Check who owns {catalog}"):
        write_atomically(path, text_of(golden))


def text_of(golden: Golden) -> str:
    """*golden* in its one form: sorted by name, one fact on a line."""
    plain = golden.model_dump(mode="json")
    plain["models"] = dict(sorted(plain["models"].items()))
    for model in plain["models"].values():
        model["answers"] = dict(sorted(model["answers"].items()))
    return "".join(_lines(plain)) + "\n"


def _lines(value: Any, indent: str = "") -> Iterator[str]:
    """JSON as ``json.dumps`` indents it, but with each place of a token on one line."""
    is_place = isinstance(value, Mapping) and value.keys() == Place.model_fields.keys()
    if is_place or not value or not isinstance(value, (Mapping, list)):
        yield json.dumps(value, ensure_ascii=False)
        return
    is_list = isinstance(value, list)
    yield "[" if is_list else "{"
    for at, item in enumerate(value):
        yield f"{',' if at else ''}\n{indent}  "
        if not is_list:
            yield f"{json.dumps(item, ensure_ascii=False)}: "
        yield from _lines(item if is_list else value[item], f"{indent}  ")
    yield f"\n{indent}{']' if is_list else '}'}"


def _unreadable(path: Path, why: str) -> Refused:
    anew = f"rm {shlex.quote(str(path))} && corral golden record --catalog {shlex.quote(str(path.parent))}"
    return Refused(
        f"{path} has no golden answers that this corral can read: {why}.",
        next_step=f"Restore it from version control, or, where the models are known to be right: {anew}",
    )
