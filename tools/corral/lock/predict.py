"""Fills the VRAM rows of one model: its headers, the engine's figures for them, and what the operator declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from corral.catalog.digest import argv_sha256
from corral.catalog.intent import Model
from corral.engine import embedded
from corral.engine.embedded import ENGINE
from corral.errors import EngineCannotMeasure, ProgramMissing, Refused, UnreadableHeader
from corral.hub.gguf_range import read_headers
from corral.hub.resolve import Resolved
from corral.lock import headers
from corral.lock.lock import declared_by
from corral.lock.predicted import RULES_VERSION, Declared, MemoryParts, RuleRow, Rung, Vram, mib
from corral.vram.gguf_header import GgufHeader, canonical, parse
from corral.vram.measurement import Measurement, measure_model
from corral.vram.oracle import DECLARE


@dataclass(frozen=True)
class Measured:
    """The rows of one model, and the headers (by sha256) that they were made from."""

    vram: Vram
    headers: Mapping[str, bytes] = field(default_factory=dict)


class Measurer(Protocol):
    """What ``relock`` asks for the rows of a model."""

    def is_current(self, model: Model, rows: Vram, argv: Sequence[str]) -> bool:
        """Whether *rows* of the same files are what a measurement would give again."""

    def measure(
        self, model_id: str, model: Model, resolved: Resolved, argv: Sequence[str], known: Sequence[str] = ()
    ) -> Measured:
        """The rows of a model; *known* names the headers of exactly these files, when there are any.

        Raises:
            CorralError: it cannot be measured and nothing is declared, or what is asked for is not allowed.
        """


class EngineMeasurer:
    """Asks the embedded engine, with headers from beside the lock where they are, else from the hub.

    Args:
        catalog: the catalog's folder.
        say: hears a line before and after each question to the hub.
    """

    def __init__(self, catalog: Path, say: Callable[[str], None] = lambda _: None) -> None:
        self._catalog = catalog
        self._say = say

    def is_current(self, model: Model, rows: Vram, argv: Sequence[str]) -> bool:
        """See ``Measurer``; rows whose headers are missing or damaged are not current."""
        return (
            rows.argv_sha256 == argv_sha256(argv)
            and rows.engine == ENGINE
            and rows.rules_version == RULES_VERSION
            and rows.declared == declared_by(model)
            and not any(rows.problems())
            and all(headers.read(self._catalog, sha256) for sha256 in rows.headers)
        )

    def measure(
        self, model_id: str, model: Model, resolved: Resolved, argv: Sequence[str], known: Sequence[str] = ()
    ) -> Measured:
        """See ``Measurer``.

        Raises:
            UnreadableHeader: a file's header cannot be read, and nothing is declared.
            EngineCannotMeasure: the engine cannot, and nothing is declared.
            Refused: the context is above the trained one, or less is declared than was measured.
            HubUnavailable: the header could not be fetched.
            ProgramMissing: there is no engine here to ask.
        """
        declared = declared_by(model)
        fixtures: list[bytes] = []
        try:
            fixtures = self._kept(resolved, known) or self._read(model_id, resolved)
            parsed = [parse(fixture) for fixture in fixtures]
            _require_trained(model_id, model, parsed[0])
            found = measure_model(model_id, model, resolved.files, parsed, argv)
            rows = _measured(found, declared, _trained(parsed[0]), _origin(argv, fixtures))
        except (UnreadableHeader, EngineCannotMeasure) as error:
            if declared is None:
                offer = "" if DECLARE in error.next_step else f", {DECLARE}"
                raise type(error)(error.message, next_step=f"{error.next_step}{offer}") from None
            rows = Vram(
                gpu_total=declared.bytes, declared=declared, unmeasured=error.message, **_origin(argv, fixtures)
            )
        except ProgramMissing as error:
            raise ProgramMissing(
                f"what it takes on the card cannot be measured here: {error.message}",
                next_step=f"pip install xllamacpp=={embedded.WHEEL_VERSION} (Linux, or macOS on arm64), or run corral "
                "lock on such a machine and commit lock.json and headers/",
            ) from None
        _require_enough(model_id, rows)
        return Measured(rows.sealed(), {headers.sha256_of(fixture): fixture for fixture in fixtures})

    def _kept(self, resolved: Resolved, known: Sequence[str]) -> list[bytes] | None:
        """The headers called *known*; None unless they are all there and sound."""
        found = [headers.read(self._catalog, sha256) for sha256 in known]
        sound = [fixture for fixture in found if fixture is not None]
        return sound if len(sound) == len(resolved.files) else None

    def _read(self, model_id: str, resolved: Resolved) -> list[bytes]:
        return [canonical(header) for header in read_headers(model_id, resolved, self._catalog, say=self._say)]


def _origin(argv: Sequence[str], fixtures: Sequence[bytes]) -> dict[str, Any]:
    """What the rows are for."""
    names = tuple(headers.sha256_of(fixture) for fixture in fixtures)
    return {"engine": ENGINE, "rules_version": RULES_VERSION, "argv_sha256": argv_sha256(argv), "headers": names}


def _measured(found: Measurement, declared: Declared | None, trained: int | None, origin: Mapping[str, Any]) -> Vram:
    return Vram(
        **origin,
        context_trained=trained,
        gpu=MemoryParts(**asdict(found.gpu)),
        host=MemoryParts(**asdict(found.host)),
        rules=tuple(RuleRow(**asdict(rule)) for rule in found.rules),
        gpu_total=max(found.gpu_total, declared.bytes if declared else 0),
        ladder=tuple(Rung(**asdict(rung)) for rung in found.ladder),
        projector_type=found.projector_type,
        declared=declared,
    )


def _require_enough(model_id: str, rows: Vram) -> None:
    if rows.declared and rows.measured and rows.declared.bytes < rows.measured:
        raise Refused(
            f"its vram declares {rows.declared.mib:,} MiB, and the engine measures {mib(rows.measured):,} MiB for its "
            "command line; a declaration may only add to a measurement.",
            next_step=f"Remove vram from {model_id}.yaml, or set declared_mib to {mib(rows.measured)} or more",
        )


def _trained(header: GgufHeader) -> int | None:
    trained = header.metadata.get(f"{header.architecture}.context_length")
    return trained if isinstance(trained, int) and trained > 0 else None


def _require_trained(model_id: str, model: Model, header: GgufHeader) -> None:
    trained = _trained(header)
    if trained is None or model.context <= trained or _stretches_positions(model):
        return
    factor = -(-model.context // trained)
    raise Refused(
        f"its context is {model.context:,}, and it was trained for {trained:,} tokens: beyond that answers fall apart.",
        next_step=f"Set context to {trained} or less in {model_id}.yaml, or scale RoPE: "
        f"args: {{rope-scaling: yarn, rope-scale: {factor}}}",
    )


def _stretches_positions(model: Model) -> bool:
    """Whether RoPE is scaled; the same rule stands in ``terraform/modules/seating/contexts.tf``."""

    def number(name: str, default: float) -> float:
        try:
            return float(model.args.get(name, default))
        except (TypeError, ValueError):
            return default

    way = model.args.get("rope-scaling", "")
    stretched = number("rope-scale", 1) > 1 or 0 < number("rope-freq-scale", 1) < 1 or number("rope-freq-base", 0) > 0
    return way != "none" and (way != "" or stretched)
