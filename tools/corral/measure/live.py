"""Measures a model where it runs, loaded by llama-swap with the lock's own command line; ``LiveModel`` a local one."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import psutil

from corral.catalog import tasks
from corral.catalog.intent import Model, Task
from corral.catalog.ledger import CPU, Source
from corral.engine import log_lines, ports
from corral.engine.llama_swap import LlamaSwap, Resident
from corral.engine.stack import Running
from corral.errors import CannotRun, Failed, Refused
from corral.exporter import driver
from corral.lock.lock import LockEntry
from corral.measure import engine_report, nvidia_smi
from corral.measure.engine_report import Report
from corral.smoke.endpoint import MAX_REPLY_BYTES
from corral.smoke.images import data_url, solid_png

_LOAD_LIMIT_S = 600.0
_CONNECT_LIMIT_S = 10.0
_UBATCH_CHARACTERS = 640  # digits, which tokenizers take one at a time or three: a whole micro-batch where it fits
_PX_PER_TOKEN_SIDE = 64  # no vision encoder makes more of an image than a token for 28 by 28 pixels
_MOST_PX = 4096
_MOST_IMAGES = 4  # some projectors encode several at once


class Reading(NamedTuple):
    """What one model takes now.

    Attributes:
        device: the card by its driver's name, or ``ledger.CPU``.
        source: of the figures.
        gpu_bytes: on the card.
        host_bytes: the engine's own buffers in host memory; None when its log does not hold its load any more.
    """

    device: str
    source: Source
    gpu_bytes: int
    host_bytes: int | None


class ServedModel:
    """One model of a llama-swap, and the requests that load and fill it.

    Args:
        client: its llama-swap.
        model_id: its id there.
        root: where requests for answers go; empty: to llama-swap itself.
        api_key: for *root*; empty: llama-swap's own.
        options: of a command that means this llama-swap and no local one, as words.
        info: receives what begins, as a line.
        task: what it serves.
    """

    def __init__(
        self,
        client: LlamaSwap,
        model_id: str,
        *,
        info: Callable[[str], None],
        task: Task = "chat",
        root: str = "",
        api_key: str = "",
        options: Sequence[str] = (),
    ) -> None:
        self._client, self._id, self._task, self._info = client, model_id, task, info
        self._root, self._key = root or client.endpoint, api_key or client.api_key
        self.why = shlex.join(["corral", "why", model_id, *options])
        self.again = shlex.join(["corral", "measure", model_id, *options])
        self.fingerprint: Any = None
        """What the engine named itself in its last answer."""

    def loaded(self) -> Resident:
        """The model among the residents; sends it a first request when it is not ready.

        Raises:
            Failed: it could not be loaded.
            CannotRun: it was unloaded at once, or llama-swap gives no answer.
        """
        if self._ready() is None:
            self._info(f"{self._id} is not loaded: it gets a short request, for which llama-swap loads it ...")
            self._request(tasks.request(self._task, self._id, "Hello."), "could not be loaded")
        if resident := self._ready():
            return resident
        problem = f"{self._id} was unloaded again immediately: other requests want its group."
        raise CannotRun(problem, next_step=self.again)

    def fill(self, model: Model) -> None:
        """Send the ``largest_request`` within the context of *model*.

        Raises:
            Failed: it gave no answer.
        """
        self._request(largest_request(self._id, model), "gave no answer to its largest request")

    def _ready(self) -> Resident | None:
        return next((one for one in self._client.residents() if (one.model, one.state) == (self._id, "ready")), None)

    def _request(self, body: dict[str, Any], failure: str) -> None:
        limits = httpx2.Timeout(_LOAD_LIMIT_S, connect=_CONNECT_LIMIT_S)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        answer = bytearray()
        try:
            # Loopback: no proxy, and no certificates, which take 30 ms to read.
            with (
                httpx2.Client(timeout=limits, trust_env=False, verify=False, headers=headers) as http,
                http.stream("POST", f"{self._root}{tasks.PATHS[self._task]}", json=body) as response,
            ):
                for piece in response.iter_bytes():
                    answer += piece
                    if len(answer) > MAX_REPLY_BYTES:
                        problem = f"{self._id} {failure}: it is larger than {MAX_REPLY_BYTES >> 20} MiB."
                        raise Failed(problem, next_step=self.why)
        except httpx2.TimeoutException:
            problem = f"{self._id} {failure}: no response within {_LOAD_LIMIT_S:.0f} s."
            raise Failed(problem, next_step=self.why) from None
        except httpx2.HTTPError as error:
            raise Failed(f"{self._id} {failure}: {error}.", next_step=self.why) from None
        text = answer.decode(errors="replace")
        if response.status_code != 200:
            cause = log_lines.cause(self._client.model_log(self._id)) or text[:300].strip()
            raise Failed(f"{self._id} {failure} (HTTP {response.status_code}): {cause}", next_step=self.why)
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        self.fingerprint = document.get("system_fingerprint") if isinstance(document, dict) else None


class LiveModel:
    """One model of the running local stack."""

    def __init__(
        self, running: Running, model_id: str, model: Model, entry: LockEntry, *, info: Callable[[str], None]
    ) -> None:
        self._id, self._model, self._entry = model_id, model, entry
        self._running, self._client = running, running.client()
        self._served = ServedModel(self._client, model_id, task=model.task, info=info)
        self._apply = running.start_command()

    def read(self, source: Source | None = None, *, reload: bool = False) -> Reading:
        """What it takes, loading it first when it is not resident.

        Args:
            source: of the figures; by default the driver where the engine uses a card and there is an ``nvidia-smi``,
                else the engine.
            reload: unload it first (its responses are cut off), so that its log holds its load.

        Raises:
            Refused: what runs is not what the lock has.
            Failed: it could not be loaded, or gave no response.
            CannotRun: no source knows what it takes; the message has the reason, and is never a number.
        """
        self._require_locked_files()
        if reload:
            self._client.unload(self._id)
        pid = self._locked_process(self._served.loaded())
        report = engine_report.parse(self._client.model_log(self._id))
        if (source or _best_source(report)) == "engine-report":
            return self._as_reported(report)
        nvidia_smi.held_by(pid)  # raises before the large request where the driver does not know the process
        # Pools and the projector grow with use: a seat must hold the largest request, not the first.
        self._served.fill(self._model)
        held = nvidia_smi.held_by(pid)
        return Reading(held.card, "nvidia-smi", held.size, report.host if report else None)

    def _as_reported(self, report: Report | None) -> Reading:
        if report is None:
            raise CannotRun(
                f"The log of {self._id} does not hold the sizes of its buffers: it was loaded too long ago, "
                "or its `args` set a verbosity below 4.",
                next_step=f"Load it anew (its responses are cut off): corral measure {self._id} --reload",
            )
        if len(report.cards) > 1:
            raise CannotRun(
                f"{self._id} is on {len(report.cards)} cards ({', '.join(report.cards)}), and a seat is on one.",
                next_step="Choose one with CUDA_VISIBLE_DEVICES=0 before corral up, then measure again",
            )
        device, size = next(iter(report.cards.items()), (CPU, 0))
        return Reading(device, "engine-report", size, report.host)

    def _require_locked_files(self) -> None:
        contents = self._client.contents()
        if self._id not in contents:
            raise Refused(f"The running stack has no model {self._id}.", next_step=self._apply)
        if contents[self._id] != [file.sha256 for file in self._entry.files]:
            raise Refused(f"The running stack has other files for {self._id} than the lock.", next_step=self._apply)

    def _locked_process(self, resident: Resident) -> int:
        """The pid of the engine of *resident*, which runs the lock's command line."""
        port = urlsplit(resident.proxy).port
        pid = next((one.pid for one in self._running.members() if port and ports.is_listening(one.pid, port)), None)
        if pid is None:
            raise CannotRun(f"No process of the stack listens at {resident.proxy}.", next_step="corral status")
        try:
            words = psutil.Process(pid).cmdline()
        except psutil.Error as error:
            problem = f"The command line of {self._id} (pid {pid}) cannot be read: {error}."
            raise CannotRun(problem, next_step="corral status") from None
        if not is_command(words, self._entry.argv, port=port):
            problem = f"{self._id} runs with another command line than the lock has: its measurement would not apply."
            raise Refused(problem, next_step=self._apply)
        return pid


def largest_request(model_id: str, model: Model) -> dict[str, Any]:
    """The request, within the context of *model*, for which an engine takes all memory that it ever will.

    It has a whole micro-batch of text, and the largest images.
    """
    if not model.vision:
        return tasks.request(model.task, model_id, _digits(model.context))
    side = min(_MOST_PX, _PX_PER_TOKEN_SIDE * math.isqrt(model.image_tokens - 1) + _PX_PER_TOKEN_SIDE)
    image = {"type": "image_url", "image_url": {"url": data_url(solid_png("red", side))}}
    count = max(1, min(_MOST_IMAGES, model.context * 7 // 8 // model.image_tokens))
    text = {"type": "text", "text": _digits(model.context - count * model.image_tokens)}
    content = [*[image] * count, text]
    return {"model": model_id, "messages": [{"role": "user", "content": content}], "max_tokens": 4}


def require_locked_command(client: LlamaSwap, model_id: str, argv: Sequence[str], *, again: str, apply: str) -> None:
    """Refuse to measure *model_id* where llama-swap runs it with another command line than the locked *argv*.

    Raises:
        CannotRun: it is not loaded; *again* is the command to repeat.
        Refused: it runs with another one; *apply* is the command that applies the lock to it.
    """
    resident = next((one for one in client.residents() if one.model == model_id), None)
    if resident is None:
        problem = f"{model_id} was unloaded as soon as it had answered: with which command line it ran is unknown."
        raise CannotRun(problem, next_step=again)
    try:
        words = shlex.split(resident.command)
    except ValueError:  # no shell's line
        words = []
    if not is_command(words, argv, port=urlsplit(resident.proxy).port):
        raise Refused(f"{model_id} runs with another command line than the lock has.", next_step=apply)


def require_locked_files(client: LlamaSwap, model_id: str, entry: LockEntry, *, apply: str) -> None:
    """Refuse to measure *model_id* where llama-swap has other files for it than the locked *entry*.

    Raises:
        CannotRun: llama-swap gives no answer.
        Refused: it has other files, or does not have the model; *apply* is the command that applies the lock to it.
    """
    if client.contents().get(model_id) != [file.sha256 for file in entry.files]:
        raise Refused(f"What runs has other files for {model_id} than the lock, or none.", next_step=apply)


def is_command(words: Sequence[str], argv: Sequence[str], *, port: int | None) -> bool:
    """Whether a process with the command line *words* runs the locked *argv*, listening on *port*.

    Programs that run the engine (an interpreter, a wrapper) may stand before it; ``${STORE}`` stands for any folder.
    """
    locked = [word.replace("${PORT}", str(port)) for word in argv[1:]]
    own = words[-len(locked) :]
    return len(own) == len(locked) and all(map(_is_word, own, locked))


def _is_word(word: str, locked: str) -> bool:
    first, *more = map(re.escape, locked.split("${STORE}"))
    rest = "(?P=store)".join(more)
    return re.fullmatch(f"{first}(?P<store>.*){rest}" if more else first, word, re.DOTALL) is not None


def _best_source(report: Report | None) -> Source:
    on_cpu = report is not None and not report.cards
    return "nvidia-smi" if driver.is_installed() and not on_cpu else "engine-report"


def _digits(room: int) -> str:
    """Digits for at most half of *room* tokens: the template and the answer need some too."""
    return ("3141592653" * 64)[: max(1, min(_UBATCH_CHARACTERS, room // 2))]
