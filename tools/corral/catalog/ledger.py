"""The ledger: what loaded models took, as measured, in ``measured.json`` beside the catalog's lock.

Written by `corral measure`, and committed with the catalog.  A measurement belongs to one command line, as a
prediction does: when the lock's changes, it no longer counts.  `corral lock` copies the largest one that was taken on
a card into the lock, where it counts for the seat; one that was taken on a processor shows whether predictions hold on
a machine without a card, and nothing more.

It also has how fast models answered, as `corral bench --speeds` measured: latency budgets are predicted from that.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from corral.agent import merge_markers
from corral.agent.lock_file import content_of
from corral.catalog import invalid_values
from corral.catalog.forms import ID_PATTERN
from corral.errors import Refused
from corral.files import refuse_unwritable, write_atomically

FILE_NAME = "measured.json"
CPU: Literal["CPU"] = "CPU"
"""The device of a measurement without a card: all memory is the host's."""

Source: TypeAlias = Literal["nvidia-smi", "engine-report"]

_Strict = ConfigDict(extra="forbid", frozen=True)
_Bytes = Annotated[int, Field(ge=0)]
_Text = Annotated[str, StringConstraints(min_length=1)]
_Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
_Date = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
_A_PROCESSOR = re.compile(r"(^|[^a-z])cpu", re.IGNORECASE)


def argv_sha256(argv: Sequence[str]) -> str:
    """The digest that binds a measurement to a command line: sha256 of *argv* as compact JSON in UTF-8."""
    return hashlib.sha256(json.dumps(list(argv), ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


class OnCard(BaseModel):
    """What a model took on a card, as the lock holds it."""

    model_config = _Strict

    gpu_bytes: _Bytes = Field(description="on the card")
    device: _Text = Field(description="the card, as its driver names it")
    source: Source = Field(description="what counted it, as in measured.json")
    engine: _Text = Field(description="the llama-server's own name for its build")
    date: _Date = Field(description="UTC")


class Measurement(BaseModel):
    """What one model took, loaded with one command line on one device, as one source had it."""

    model_config = _Strict

    model: Annotated[str, StringConstraints(pattern=ID_PATTERN)]
    argv_sha256: _Digest = Field(description="sha256 of the locked command line that it ran with, as compact JSON")
    engine: _Text = Field(
        description='the llama-server\'s own name for its build; "unknown" when its packager left that out'
    )
    device: _Text = Field(description='the card, as its driver names it; exactly "CPU" when there was none')
    source: Source = Field(
        description="nvidia-smi: the driver's count of the process, CUDA context and pools included; "
        "engine-report: the buffers that the engine names while it loads"
    )
    date: _Date = Field(description="UTC")
    gpu_bytes: _Bytes = Field(description="on the card; 0 when the device is the CPU")
    host_bytes: _Bytes | None = Field(description="the engine's own buffers in host memory; null when it named none")
    predicted_gpu_bytes: _Bytes | None = Field(
        description="what the lock predicted of what this source counts; null when the lock had no prediction"
    )
    predicted_host_bytes: _Bytes | None = Field(description="the same of the host")

    @property
    def on_card(self) -> bool:
        """Whether it was taken on a card."""
        return _is_card(self.device)

    @property
    def measured(self) -> int:
        """The bytes that are compared: the card's, or without a card the host's."""
        return self.gpu_bytes if self.on_card else self.host_bytes or 0

    @property
    def predicted(self) -> int | None:
        """What was predicted for ``measured``; None when nothing was."""
        return self.predicted_gpu_bytes if self.on_card else self.predicted_host_bytes

    @property
    def deviation(self) -> float | None:
        """How much more (or, below 0, less) was measured, as a part of the prediction; None without a prediction."""
        return (self.measured - self.predicted) / self.predicted if self.predicted else None


_Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
_Tokens = Annotated[int, Field(gt=0)]


class FirstToken(BaseModel):
    """What a request alone waited for its first token."""

    model_config = _Strict

    prompt_tokens: _Tokens = Field(description="of its prompt, as the engine counts them")
    seconds: _Seconds = Field(description="the median")


class NextToken(BaseModel):
    """What a token of an answer took after the first."""

    model_config = _Strict

    at_once: _Tokens = Field(description="answers side by side")
    context_tokens: _Tokens = Field(description="of the prompt and half of the answer")
    seconds: _Seconds = Field(description="the median")


class Speed(BaseModel):
    """How fast one model answered, with one command line on one card of the catalog."""

    model_config = _Strict

    model: Annotated[str, StringConstraints(pattern=ID_PATTERN)]
    argv_sha256: _Digest = Field(description="as of a measurement")
    card: Annotated[str, StringConstraints(pattern=ID_PATTERN)] = Field(description="of the model, in the catalog")
    engine: _Text = Field(description="the llama-server's own name for its build")
    device: _Text = Field(description='the card, as its driver names it; exactly "CPU" when there was none')
    date: _Date = Field(description="UTC")
    first_token: Annotated[tuple[FirstToken, ...], Field(min_length=2)]
    next_token: Annotated[tuple[NextToken, ...], Field(min_length=2)]
    answers: Annotated[int, Field(gt=0)] = Field(description="that it was measured with")
    p95_ratio: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | None = Field(
        description="of 95 of 100 of them, the most that one took of what its median predicts; null: too few answers"
    )
    load_seconds: _Seconds | None = Field(
        description="of a load with nothing of the files in the page cache, the median; null: not measured"
    )

    @property
    def on_card(self) -> bool:
        """Whether it was measured on a card."""
        return _is_card(self.device)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        """Times are read off lines between points: of a token alone by its context, of several by their number."""
        alone = [one.context_tokens for one in self.next_token if one.at_once == 1]
        beside = [one.at_once for one in self.next_token if one.at_once > 1]
        for points in ([one.prompt_tokens for one in self.first_token], alone, beside):
            if len(set(points)) != len(points):
                raise ValueError("has two speeds of the same requests.")
        if not alone or any(one.context_tokens != min(alone) for one in self.next_token if one.at_once > 1):
            raise ValueError("has no speed of one request alone beside that of several.")
        return self


class Ledger(BaseModel):
    """All measurements of a catalog."""

    model_config = _Strict

    version: Literal[1] = 1
    measurements: tuple[Measurement, ...] = ()
    speeds: tuple[Speed, ...] = ()

    def of(self, model: str, argv_sha256: str) -> tuple[Measurement, ...]:
        """The measurements of *model* with exactly this command line, those on a card first, the largest first."""
        found = [one for one in self.measurements if (one.model, one.argv_sha256) == (model, argv_sha256)]
        return tuple(sorted(found, key=lambda one: (not one.on_card, -one.measured)))

    def on_card(self, model: str, argv: Sequence[str]) -> OnCard | None:
        """The largest measurement of *model* with this command line on a card, which is what its seat must hold."""
        largest = next((one for one in self.of(model, argv_sha256(argv)) if one.on_card), None)
        return OnCard(**{key: getattr(largest, key) for key in OnCard.model_fields}) if largest else None

    def with_newest(self, measurement: Measurement) -> Ledger:
        """The ledger with *measurement* in the place of an older one of the same model, argv, device and source."""
        kept = [one for one in self.measurements if _key(one) != _key(measurement)]
        return self.model_copy(update={"measurements": (*kept, measurement)})

    def speed(self, model: str, argv: Sequence[str], card: str) -> Speed | None:
        """How fast *model* answered so on *card*: the newest, one with a card before one with only a processor."""
        wanted = (model, argv_sha256(argv), card)
        found = [one for one in self.speeds if (one.model, one.argv_sha256, one.card) == wanted]
        return max(found, key=lambda one: (one.on_card, one.date), default=None)

    def with_speed(self, speed: Speed) -> Ledger:
        """The ledger with *speed* in the place of an older one of the same model, command line, card and device."""
        kept = [one for one in self.speeds if _speed_key(one) != _speed_key(speed)]
        return self.model_copy(update={"speeds": (*kept, speed)})


def path_of(catalog: Path) -> Path:
    """Where the ledger of the catalog folder *catalog* is, or would be."""
    return catalog / FILE_NAME


def content(catalog: Path) -> bytes | None:
    """The bytes of the ledger of the catalog folder *catalog*; None when there is no file.

    Raises:
        Refused: the file cannot be opened, or is not one.
    """
    path = path_of(catalog)
    try:
        return content_of(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error}.", next_step=f"ls -l {shlex.quote(str(path))}") from None


def read(catalog: Path) -> Ledger:
    """The ledger of the catalog folder *catalog*; an empty one when nothing was measured yet.

    Raises:
        Refused: the file cannot be opened, or is not a ledger of this version.
    """
    path = path_of(catalog)
    if (read := content(catalog)) is None:
        if path.is_symlink():
            raise _unreadable(catalog, "it is a link to a file that does not exist") from None
        return Ledger()
    try:
        text = read.decode("utf-8")
    except UnicodeDecodeError:
        raise _unreadable(catalog, "it is not UTF-8") from None
    try:
        found = Ledger.model_validate_json(text, strict=True)
    except ValidationError as error:
        if merge_markers.present(text):
            folder, rule = shlex.quote(str(catalog)), "Keep the entries of both sides, or those of --ours or --theirs"
            step = f"{rule}: git -C {folder} checkout --ours {FILE_NAME} && corral lock --catalog {folder}"
            raise Refused(f"{path} has the conflict markers of a merge.", next_step=step) from None
        raise _unreadable(catalog, invalid_values.first_problem(error, Ledger)) from None
    if missing := Ledger.model_fields.keys() - {"speeds"} - found.model_fields_set:
        raise _unreadable(catalog, f"it has no {' and no '.join(sorted(missing))}")
    return found


def text_of(ledger: Ledger) -> str:
    """*ledger* in its one form: sorted by model, one fact on a line."""
    ordered = Ledger(
        measurements=tuple(sorted(ledger.measurements, key=_key)), speeds=tuple(sorted(ledger.speeds, key=_speed_key))
    )
    return json.dumps(ordered.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def write(catalog: Path, ledger: Ledger) -> None:
    """Replace the ledger of *catalog* atomically, or the file that it links to.

    Raises:
        Refused: the folder is not writable.
    """
    path = path_of(catalog)
    with refuse_unwritable(path, next_step=f"Check who owns {catalog}"):
        write_atomically(path, text_of(ledger))


def _unreadable(catalog: Path, why: str) -> Refused:
    path, folder = path_of(catalog), shlex.quote(str(catalog))
    anew = f"rm {shlex.quote(str(path))} && corral lock --catalog {folder} && corral measure --catalog {folder}"
    return Refused(
        f"{path} is not a ledger that this corral can read: {why}.",
        next_step=f"Restore it from version control, or measure anew: {anew}",
    )


def _key(one: Measurement) -> tuple[str, str, str, str]:
    return one.model, one.device, one.source, one.argv_sha256


def _is_card(device: str) -> bool:
    """No device that names itself a CPU is one."""
    return _A_PROCESSOR.search(device) is None


def _speed_key(one: Speed) -> tuple[str, str, str, str]:
    return one.model, one.card, one.device, one.argv_sha256
