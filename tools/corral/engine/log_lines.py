"""Parses the lines of llama.cpp's and llama-swap's logs; no other module contains their texts.

The texts are those of the versions below (llama.cpp: common/arg.cpp, ggml/src/gguf.cpp, src/llama-model-loader.cpp,
ggml-cuda.cu, tools/server/server-http.cpp; llama-swap: internal/process/process_command.go, internal/router).  A test
compares the versions with the pinned ones, so that an upgrade begins with a review of these texts.  llama-swap's are
also those of v250, which no registry of packages has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from corral.door import preflight_line
from corral.door.preflight_line import Record

LLAMA_CPP = "b11549"
LLAMA_SWAP = "v0.1.6-0.20260708034905-fdda55e46644"

# -- an engine's log ------------------------------------------------------------------------------------------

_LEVEL = re.compile(r"^\d+\.\d+\.\d+\.\d+ ([A-Z]) ")  # minutes.seconds.milliseconds.microseconds
_START = re.compile(r"^.*\b(?:init|llama_server): initializing|^build: ", re.MULTILINE)  # embedded, and llama-server
_SPANS_LINES = "chat template, example_format:"  # the only entry of a load whose text has line breaks
_ABORT = re.compile(r"GGML_ASSERT|GGML_ABORT|terminate called")
_REFUSED_KEY = re.compile(r"\bunauthorized: Invalid API Key\s*$", re.IGNORECASE)
_ERROR_WORD = re.compile(r"error|failed", re.IGNORECASE)


class EngineCode(StrEnum):
    """Why an engine ended, by its own log."""

    OUT_OF_MEMORY = "out-of-memory"
    ENGINE_MISSING = "engine-missing"
    BAD_ARGUMENT = "bad-argument"
    PORT_IN_USE = "port-in-use"
    FILE_MISSING = "file-missing"
    FILE_DAMAGED = "file-damaged"
    OTHER = "other"  # an error without a code of its own
    NO_ERROR = "no-error"  # the log states none: a signal ended the engine


@dataclass(frozen=True)
class EngineError:
    """Why an engine ended; a field that does not belong to the code is empty."""

    code: EngineCode
    subject: str = ""  # the argument, the path or the program
    port: int = 0  # the one that it could not listen on
    on_host: bool = False  # the memory that ran out is the machine's, not a card's
    line: str = ""  # the line that states the error, without date and level; of a refusal, a sentence of its records
    refusal: tuple[Record, ...] = ()  # the preflight's records, when it refused to start the engine

    @property
    def decides(self) -> bool:
        """Whether its code states a cause."""
        return self.code not in (EngineCode.OTHER, EngineCode.NO_ERROR)


_REFUSALS = {
    "no-room": EngineCode.OUT_OF_MEMORY,
    "no-engine": EngineCode.ENGINE_MISSING,
    "usage": EngineCode.BAD_ARGUMENT,
}
_ERRORS = (  # the first pattern that any line matches decides
    (EngineCode.BAD_ARGUMENT, r"^error: invalid argument: (?P<subject>.+)"),
    (EngineCode.BAD_ARGUMENT, r'^error while handling (?:argument|environment variable) "(?P<subject>[^"]+)"'),
    (EngineCode.BAD_ARGUMENT, r"(?P<subject>quantized V cache) requires flash_attn"),
    (EngineCode.BAD_ARGUMENT, r"mismatch between text model .* and (?P<subject>mmproj)"),
    (EngineCode.PORT_IN_USE, r"couldn't bind HTTP server socket, hostname: \S+, port: (?P<port>\d+)"),
    (EngineCode.OUT_OF_MEMORY, r"cuda(?:Malloc failed| error): out of memory"),
    (EngineCode.OUT_OF_MEMORY, r"failed to allocate \w+ buffer"),
    (EngineCode.OUT_OF_MEMORY, r"(?:unable|failed) to allocate .*buffer|insufficient memory|std::bad_alloc"),
    (EngineCode.FILE_MISSING, r"failed to open (?:GGUF file )?'(?P<subject>[^']+)'"),
    (EngineCode.FILE_DAMAGED, r"gguf_init_from_\w+: (?!failed to open)"),
    (EngineCode.FILE_DAMAGED, r"data is not within the file bounds|model is corrupted or incomplete"),
    (EngineCode.FILE_DAMAGED, r"unexpectedly reached end of file|tensor .* has invalid"),
)
_FILE = re.compile(
    r"failed to load (?:(?:multimodal |CLIP |draft )?model|lora adapter)(?: from)?,? "
    r"'?(?P<subject>/[^'\n]+?)'?(?:\. Does.*)?$"
)


def last_start(log: str) -> str:
    """The part of *log* from the last start of the engine on, which begins with the preflight's decision if any."""
    starts = preflight_line.decisions(log) or [found.start() for found in _START.finditer(log)]
    return log[(starts or [0])[-1] :]


def classify_engine_error(log: str) -> EngineError:
    """Why the engine ended, by its *log* from its last start on (``last_start``)."""
    if refused := preflight_line.refusal(log):
        subject = "the preflight's arguments" if refused[0].code == "usage" else refused[0].program
        sentence = preflight_line.sentence(refused)
        return EngineError(_REFUSALS[refused[0].code], subject, line=sentence, refusal=refused)
    lines = [line for line in without_probes(log.splitlines()) if line.strip() and not preflight_line.parse(line)]
    texts = [_text(line) for line in lines if _level(line) not in ("D", "I")]
    for code, pattern in _ERRORS:
        for text in texts:
            if found := re.search(pattern, text, re.IGNORECASE):
                fields = found.groupdict()
                if code is EngineCode.FILE_DAMAGED:  # another line names the file
                    fields = next((file.groupdict() for text in texts if (file := _FILE.search(text))), {})
                on_host = code is EngineCode.OUT_OF_MEMORY and "cpu" in text.lower()
                return EngineError(code, fields.get("subject", ""), int(fields.get("port", 0)), on_host, text)
    aborts = [line for line in lines if _ABORT.search(line)]
    errors = [line for line in lines if _level(line) in ("E", "F") or (not _level(line) and _ERROR_WORD.search(line))]
    if stated := aborts + errors:
        return EngineError(EngineCode.OTHER, line=_text(stated[0]))
    code = EngineCode.NO_ERROR if _ends_with_entry(lines) else EngineCode.OTHER
    return EngineError(code, line=_text(lines[-1]) if lines else "")


def without_probes(lines: Iterable[str]) -> list[str]:
    """Those of *lines* that are no engine's refusal of a request without its key, which explains no end of it."""
    return [line for line in lines if not _REFUSED_KEY.search(line)]


def _level(line: str) -> str:
    return found[1] if (found := _LEVEL.match(line)) else ""


def _text(line: str) -> str:
    return _LEVEL.sub("", line, count=1).strip()


def _ends_with_entry(lines: list[str]) -> bool:
    """Whether *lines* are empty or end with an entry of an engine, not with the output of another program."""
    last = next((line for line in reversed(lines) if _level(line)), "")
    return not lines or (bool(last) and (last is lines[-1] or _SPANS_LINES in last))


def cause(log: str) -> str:
    """The line of *log* that states why the engine ended after its last start; empty when no line states an error."""
    error = classify_engine_error(last_start(log))
    return "" if error.code is EngineCode.NO_ERROR else error.line


# -- an engine's memory ---------------------------------------------------------------------------------------

_LOADED = re.compile(r"\b(?:init|llama_server|main): model loaded")
_CONTEXT = re.compile(r"llama_context: constructing")
_BUFFER = re.compile(r"(?P<by>\w+):\s+(?P<kind>\S+) +(?P<use>\S.*?) buffer size = *(?P<mib>\d+\.\d+) MiB")
_PROJECTOR_DEVICE = re.compile(r"CLIP using (?P<device>\S+) backend")
_PROJECTOR_WEIGHTS = re.compile(r"load_hparams: model size: +(?P<mib>\d+\.\d+) MiB")
_FILE_SIZE = re.compile(r"print_info: file size += (?P<size>\d+\.\d+) (?P<unit>[MG])iB")
_DEVICE = re.compile(r" - (?P<device>\w+) *: (?P<name>.+) \(\d+ MiB, \d+ MiB free\)")

# Names of ggml's buffer types.  Pinned host memory is the host's: CUDA_Host, Vulkan_Host, …
_ON_HOST = re.compile(r"CPU(_\w+)?|AMX|BLAS|\w+_Host")
_ON_CARD = re.compile(r"(?P<device>(CUDA|ROCm|MUSA|Vulkan|SYCL|CANN|MTL|Metal|GPUOpenCL|OpenCL)\d*)(_\w+)?")


@dataclass(frozen=True)
class Buffer:
    """Memory that an engine allocated."""

    kind: str  # ggml's buffer type: CUDA0, CPU_Mapped
    use: str  # model, KV, compute, output, projector weights
    size: int  # bytes, rounded by the engine to 0.01 MiB

    @property
    def is_on_host(self) -> bool:
        """Whether it is the machine's memory, not a card's."""
        return _ON_HOST.fullmatch(self.kind) is not None

    @property
    def is_mapped(self) -> bool:
        """Whether it is a mapped part of the model's file."""
        return self.kind.endswith("_Mapped")

    @property
    def device(self) -> str:
        """The engine's name of the card (``CUDA0``); empty when it is no card's memory."""
        return found["device"] if (found := _ON_CARD.fullmatch(self.kind)) else ""


def whole_load(log: str) -> str:
    """The last load in *log*, from its start to "model loaded"; empty when either line is missing."""
    starts = [found.start() for found in _START.finditer(log)]
    load = log[starts[-1] :] if starts else ""
    loaded = _LOADED.search(load)
    return load[: loaded.start()] if loaded else ""


def buffers(load: str) -> list[Buffer]:
    """The buffers that the engine allocated during *load* (``whole_load``) and kept.

    Each has a line, printed at verbosity 4 ("trace"); the projector's weights have a line of another form, and their
    device stands on a line before.
    """
    found = []
    projector = "CPU"
    compute: dict[tuple[int, str, str], int] = {}  # a context that reserves again frees its former buffer
    contexts = 0
    for line in load.splitlines():
        if _CONTEXT.search(line):
            contexts += 1
        elif device := _PROJECTOR_DEVICE.search(line):
            projector = device["device"]
        elif weights := _PROJECTOR_WEIGHTS.search(line):
            found.append(Buffer(projector, "projector weights", _bytes(weights["mib"])))
        elif one := _BUFFER.search(line):
            if one["use"] == "compute":
                compute[contexts, one["by"], one["kind"]] = _bytes(one["mib"])
            else:
                found.append(Buffer(one["kind"], one["use"], _bytes(one["mib"])))
    return found + [Buffer(kind, "compute", size) for (_, _, kind), size in compute.items()]


def file_size(load: str) -> int | None:
    """The size of the tensors in the model's file, in bytes; None when *load* does not state it."""
    found = _FILE_SIZE.search(load)
    return _bytes(found["size"]) * (1024 if found["unit"] == "G" else 1) if found else None


def device_names(load: str) -> dict[str, str]:
    """The driver's name of each device: ``CUDA0`` → ``Tesla T4``."""
    return {found["device"]: found["name"].strip() for found in _DEVICE.finditer(load)}


def _bytes(mib: str) -> int:
    return round(float(mib) * (1 << 20))


# -- where an engine's layers are ------------------------------------------------------------------------------

_OFFLOADED = re.compile(r"load_tensors: offloaded (?P<on_card>\d+)/(?P<total>\d+) layers to GPU")
_LAYERS = re.compile(r"print_info: n_layer += (?P<layers>\d+)$", re.MULTILINE)
_NO_CARD = re.compile(r"warning: (?P<why>no usable GPU found)")


@dataclass(frozen=True)
class Layers:
    """Where the layers of a loaded model are; None: the log does not state it.

    The output counts as a layer, as in the engine's own figure.
    """

    on_card: int | None
    total: int | None
    projector: str | None  # the device that the projector's images are computed on; None: without a projector, too
    why: str  # what the engine states about it


def layers(log: str) -> Layers:
    """Of the last start in *log* (``last_start``)."""
    start = last_start(log)
    offloaded, known, none = _OFFLOADED.search(start), _LAYERS.search(start), _NO_CARD.search(start)
    projector = device["device"] if (device := _PROJECTOR_DEVICE.search(start)) else None
    if offloaded:
        return Layers(int(offloaded["on_card"]), int(offloaded["total"]), projector, offloaded[0].partition(": ")[2])
    total = int(known["layers"]) + 1 if known else None
    if none:
        return Layers(0, total, projector, none["why"])
    return Layers(None, total, projector, "the engine's log does not state it")


# -- the embedded engine's stderr ----------------------------------------------------------------------------

_PREFIX = re.compile(r"^[0-9.]+ [A-Z] |^error loading model: ")
_WRONG = re.compile(r"error|fail|assert|unknown|invalid|wrong|missing", re.IGNORECASE)
_NOISE = re.compile(r"terminate called|what\(\)|llama_model_load_from_file_impl|std::\w+_error'?$|^\[New LWP")


def stated_errors(stderr: str) -> list[str]:
    """The distinct lines of *stderr* that state an error; where none does, the other lines."""
    lines = [_PREFIX.sub("", line.strip()) for line in stderr.splitlines()]
    telling = [line for line in lines if line and not _NOISE.search(line)]
    wrong = [line for line in telling if _WRONG.search(line)]
    return list(dict.fromkeys(wrong or telling or lines))


# -- llama-swap's log -----------------------------------------------------------------------------------------

_DATE = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]")
_EVENT = re.compile(
    r"^(?:(?P<at>\d{4}-\d\d-\d\dT[\d:.]+\S+) \[[A-Z]+\] "
    r"(?:<(?P<ready>[^>]+)> Health check passed.*"
    r"|\w+: (?:starting|running) (?P<ended>\S+) (?:failed|exited): (?P<reason>.*)"  # "running" before v242
    r"|<(?P<died>[^>]+)> (?P<death>upstream process exited unexpectedly)|.*)"
    r"|(?P<preflight>preflight: .*))$",
    re.MULTILINE,
)


class End(StrEnum):
    """How a model's process ended, by llama-swap's log."""

    EXITED = "exited"  # before it was ready
    DIED = "died"  # after it was ready
    TIMED_OUT = "timed out"
    NO_PROGRAM = "no program"
    NOT_STARTED = "not started"
    REQUESTED = "requested"


_ENDS = (
    (End.REQUESTED, r"aborted$|shutdown$|shutting down$|model unloaded$"),
    (End.EXITED, "exited prematurely"),
    (End.DIED, "exited unexpectedly"),
    (End.TIMED_OUT, "health check timed out"),
    (End.NO_PROGRAM, "(?i)failed to start command.*(no such file|permission denied|not found)"),  # Go's texts of exec
    (End.NOT_STARTED, "failed to start command"),
)


@dataclass(frozen=True)
class Event:
    """A change of a model's state."""

    kind: Literal["begun", "ready", "ended"]  # begun: its preflight decided
    model: str
    at: float  # seconds since 1970; of a load that begins, the date of the line before; 0 when there is none
    start: int  # the offset of the line in the log
    end: End = End.EXITED  # also for a reason without a code of its own
    reason: str = ""  # why it ended, as llama-swap reports it


def events(log: str) -> Iterator[Event]:
    """The events of the models in the stack's common *log*, oldest first."""
    at = 0.0
    for found in _EVENT.finditer(log):
        if found["at"]:
            at = datetime.fromisoformat(found["at"]).timestamp()
        if found["preflight"]:
            record = preflight_line.parse(found["preflight"])
            if record and record.is_decision and record.model:
                yield Event("begun", record.model, at, found.start())
        elif found["ready"]:
            yield Event("ready", found["ready"], at, found.start())
        elif ended := found["ended"] or found["died"]:
            reason = (found["reason"] or found["death"]).removeprefix(f"[{ended}] ")
            end = next((end for end, pattern in _ENDS if re.search(pattern, reason)), End.EXITED)
            yield Event("ended", ended, at, found.start(), end, reason)


def failures(log: str) -> dict[str, str]:
    """Each model whose last start or run failed, with the reason that llama-swap reports in the common *log*."""
    last = {one.model: one for one in events(log) if one.kind != "begun" and one.end is not End.REQUESTED}
    return {model: one.reason for model, one in last.items() if one.kind == "ended"}


def without_llama_swap(text: str) -> list[str]:
    """The lines of *text* that the engines and the preflights wrote, not llama-swap itself."""
    return [line for line in text.splitlines() if not _DATE.match(line)]
