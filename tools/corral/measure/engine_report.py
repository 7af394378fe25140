"""What llama.cpp says of its own memory while it loads a model.

Each buffer has a line, ``<function>: <buffer type> <what> buffer size = <MiB with two decimals>``; the projector names
its weights in another form and its device on a line before.  They are printed at verbosity 4 ("trace"), which the local
stack gives every engine.  The sum is what the engine asked for; the CUDA context and pools are not in it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from corral.errors import CannotRun

_MIB = 1 << 20
_START = re.compile(r"\binit: initializing|^build: ", re.MULTILINE)
_LOADED = re.compile(r"\binit: model loaded|main: model loaded")
_CONTEXT = re.compile(r"llama_context: constructing")
_BUFFER = re.compile(r"(?P<by>\w+):\s+(?P<type>\S+) +(?P<what>\S.*?) buffer size = *(?P<mib>\d+\.\d+) MiB")
_PROJECTOR_DEVICE = re.compile(r"CLIP using (?P<device>\S+) backend")
_PROJECTOR_WEIGHTS = re.compile(r"load_hparams: model size: +(?P<mib>\d+\.\d+) MiB")
_FILE_SIZE = re.compile(r"print_info: file size += (?P<size>\d+\.\d+) (?P<unit>[MG])iB")
_DEVICE = re.compile(r" - (?P<device>\w+) *: (?P<name>.+) \(\d+ MiB, \d+ MiB free\)")

# Names of ggml's buffer types.  Pinned host memory is the host's: CUDA_Host, Vulkan_Host, …
_ON_HOST = re.compile(r"CPU(_\w+)?|AMX|BLAS|\w+_Host")
_ON_CARD = re.compile(r"(?P<device>(CUDA|ROCm|MUSA|Vulkan|SYCL|CANN|MTL|Metal|GPUOpenCL|OpenCL)\d*)(_\w+)?")

_Size: TypeAlias = tuple[str, str, int]
"""Kind of memory, what for, bytes."""


@dataclass(frozen=True)
class Report:
    """The buffers of one load.

    Attributes:
        cards: bytes by card, the card by its driver's name where the engine gave it; empty on a machine without one.
        host: bytes in host memory.
        lines: how many buffers were named; each is rounded to 0.01 MiB.
    """

    cards: dict[str, int]
    host: int
    lines: int


def parse(log: str) -> Report | None:
    """The buffers of the last load in an engine's *log*; None when the log does not hold a whole load.

    Raises:
        CannotRun: it names a kind of memory of which nobody knows whether it is the card's.
    """
    load = _last_load(log)
    sizes = _without_what_was_repacked(list(_sizes(load)), load)
    said = " ".join(what for _, what, _ in sizes)
    if "model" not in said or "compute" not in said:
        return None
    names = {found["device"]: found["name"].strip() for found in _DEVICE.finditer(load)}
    cards: defaultdict[str, int] = defaultdict(int)
    host = 0
    for kind, _, size in sizes:
        if _ON_HOST.fullmatch(kind):
            host += size
        elif card := _ON_CARD.fullmatch(kind):
            cards[names.get(card["device"], card["device"])] += size
        else:
            raise CannotRun(
                f"The engine took memory of the kind {kind}, and corral does not know whether that is on the card.",
                next_step="Measure with the driver's count: corral measure MODEL --source nvidia-smi",
            )
    return Report(dict(cards), host, len(sizes))


def _last_load(log: str) -> str:
    """From the last start to "model loaded"; empty when either is not there."""
    starts = [match.start() for match in _START.finditer(log)]
    if not starts:
        return ""
    load = log[starts[-1] :]
    loaded = _LOADED.search(load)
    return load[: loaded.start()] if loaded else ""


def _sizes(load: str) -> Iterator[_Size]:
    """Every buffer."""
    projector = "CPU"
    compute: dict[tuple[int, str, str], int] = {}  # a context that reserves again gives back what it had
    contexts = 0
    for line in load.splitlines():
        if _CONTEXT.search(line):
            contexts += 1
        elif found := _PROJECTOR_DEVICE.search(line):
            projector = found["device"]
        elif found := _PROJECTOR_WEIGHTS.search(line):
            yield projector, "projector weights", _bytes(found["mib"])
        elif found := _BUFFER.search(line):
            if found["what"] == "compute":
                compute[contexts, found["by"], found["type"]] = _bytes(found["mib"])
            else:
                yield found["type"], found["what"], _bytes(found["mib"])
    for (_, _, kind), size in compute.items():
        yield kind, "compute", size


def _without_what_was_repacked(sizes: list[_Size], load: str) -> list[_Size]:
    """*sizes* with each tensor in the host's memory once.

    A CPU repacks some types into a buffer of their own, and the part of the file that is mapped for the others may
    reach over those too: together they would count more than the file holds.
    """
    repacked = sum(
        size for kind, what, size in sizes if what == "model" and _ON_HOST.fullmatch(kind) and not _mapped(kind)
    )
    whole = _FILE_SIZE.search(load)
    if not repacked or whole is None:
        return sizes
    rest = max(0, _bytes(whole["size"]) * (1024 if whole["unit"] == "G" else 1) - repacked)
    return [(kind, what, min(size, rest) if what == "model" and _mapped(kind) else size) for kind, what, size in sizes]


def _mapped(kind: str) -> bool:
    return kind.endswith("_Mapped")


def _bytes(mib: str) -> int:
    return round(float(mib) * _MIB)
