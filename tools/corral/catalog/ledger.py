"""The ledger: what loaded models were seen to take, ``measured.json`` beside the catalog's lock.

Written by `corral measure`, and committed with the catalog.  A measurement belongs to one command line, as a
prediction does: when the lock's changes, it no longer counts.  One that was taken on a card counts for the seat
(Terraform takes the larger of it and the prediction); one that was taken on a processor shows whether predictions
hold on a machine without a card, and nothing more.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from corral.catalog.intent import ID_PATTERN
from corral.errors import Refused
from corral.files import write_atomically

FILE_NAME = "measured.json"
CPU: Literal["CPU"] = "CPU"
"""The device of a measurement without a card: all memory is the host's."""

Source: TypeAlias = Literal["nvidia-smi", "engine-report"]

_Strict = ConfigDict(extra="forbid", frozen=True)
_Bytes = Annotated[int, Field(ge=0)]


class Measurement(BaseModel):
    """What one model took, loaded with one command line on one device, as one source had it."""

    model_config = _Strict

    model: Annotated[str, StringConstraints(pattern=ID_PATTERN)]
    argv_sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] = Field(
        description="sha256 of the locked command line that it ran with, as Terraform's jsonencode writes it"
    )
    engine: Annotated[str, StringConstraints(min_length=1)] = Field(
        description='the llama-server\'s own word for its build; "unknown" when its packager left that out'
    )
    device: Annotated[str, StringConstraints(min_length=1)] = Field(
        description='the card, as its driver names it; exactly "CPU" when there was none'
    )
    source: Source = Field(
        description="nvidia-smi: the driver's count of the process, CUDA context and pools included; "
        "engine-report: the buffers that the engine names while it loads"
    )
    date: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")] = Field(description="UTC")
    gpu_bytes: _Bytes = Field(description="on the card; 0 when the device is the CPU")
    host_bytes: _Bytes | None = Field(description="the engine's own buffers in host memory; null when it named none")
    predicted_gpu_bytes: _Bytes | None = Field(
        description="what the lock predicted of what this source sees; null when the lock had no prediction"
    )
    predicted_host_bytes: _Bytes | None = Field(description="the same of the host")

    @property
    def on_card(self) -> bool:
        """Whether it says anything about a card."""
        return self.device != CPU

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


class Ledger(BaseModel):
    """All measurements of a catalog."""

    model_config = _Strict

    version: Literal[1] = 1
    measurements: tuple[Measurement, ...] = ()

    def of(self, model: str, argv_sha256: str) -> tuple[Measurement, ...]:
        """The measurements of *model* with exactly this command line, those on a card first, the largest first."""
        found = [one for one in self.measurements if (one.model, one.argv_sha256) == (model, argv_sha256)]
        return tuple(sorted(found, key=lambda one: (not one.on_card, -one.measured)))

    def on_card(self, model: str, argv_sha256: str) -> Measurement | None:
        """The largest measurement of *model* with this command line on a card, which is what its seat must hold."""
        return next((one for one in self.of(model, argv_sha256) if one.on_card), None)

    def with_newest(self, measurement: Measurement) -> Ledger:
        """The ledger with *measurement* in the place of an older one of the same model, argv, device and source."""
        kept = [one for one in self.measurements if _key(one) != _key(measurement)]
        return Ledger(measurements=tuple(sorted([*kept, measurement], key=_key)))


def path_of(catalog: Path) -> Path:
    """Where the ledger of the catalog folder *catalog* is, or would be."""
    return catalog / FILE_NAME


def read(catalog: Path) -> Ledger:
    """The ledger of the catalog folder *catalog*; an empty one when nothing was measured yet.

    Raises:
        Refused: the file is not a ledger of this version.
    """
    path = path_of(catalog)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Ledger()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path} cannot be read: {error}.", next_step=f"ls -l {path}") from None
    try:
        found = Ledger.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise _unreadable(catalog, f"{first['msg']}{f' at {where}' if where else ''}") from None
    if missing := Ledger.model_fields.keys() - found.model_fields_set:  # Terraform knows no defaults
        raise _unreadable(catalog, f"it has no {' and no '.join(sorted(missing))}")
    return found


def text_of(ledger: Ledger) -> str:
    """*ledger* in its one form: sorted by model, one fact on a line."""
    ordered = Ledger(measurements=tuple(sorted(ledger.measurements, key=_key)))
    return json.dumps(ordered.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def write(catalog: Path, ledger: Ledger) -> None:
    """Replace the ledger of *catalog* at once; where a link stands, the file that it names.

    Raises:
        Refused: the folder is not writable.
    """
    path = path_of(catalog)
    try:
        write_atomically(path.resolve(), text_of(ledger))
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}.", next_step=f"Check who owns {catalog}") from None


def _unreadable(catalog: Path, why: str) -> Refused:
    path, folder = path_of(catalog), shlex.quote(str(catalog))
    anew = f"rm {shlex.quote(str(path))} && corral measure --catalog {folder}"
    return Refused(
        f"{path} is not a ledger that this corral can read: {why}.",
        next_step=f"Restore it from version control, or measure anew: {anew}",
    )


def _key(one: Measurement) -> tuple[str, str, str, str]:
    return one.model, one.device, one.source, one.argv_sha256
