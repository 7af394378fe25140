"""The embedded engine as a process of its own, and questions to it or to llama-swap."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corral.engine import engine_process, ports
from corral.engine.stack import Running
from corral.smoke.images import RGB, data_url, solid_png

ENGINE = Path(sys.executable).with_name("corral-llama-server")
PLAIN_FLAGS = ("-c", "2048", "-fit", "off", "--cache-ram", "0", "--offline", "--host", "127.0.0.1")


def free_port() -> int:
    """A loopback port on which no process listens now, and that the kernel gives to none by itself.

    The engines of a stack have the ports that follow from that of its door.  They do not listen all the time: stacks
    of two workers, which begin at the same moment, must not have the same.  Nor does a test get the same twice: on the
    first one its program may not listen yet.  Drills and demos choose among other ports.
    """
    port = ports.other_door([one for one in _of_this_process() if one not in _latest])
    _latest.append(port)
    return port


_DOORS = range(ports.OTHER_DOORS.stop, 10_000)
_PLACES_OF_A_WORKER = 8
_latest: deque[int] = deque(maxlen=40)  # of some 80


@functools.cache
def _of_this_process() -> list[int]:
    return [port for port in _DOORS if port % ports.PLACES // _PLACES_OF_A_WORKER == _block()]


@functools.cache
def _block() -> int:
    """This process' own part of the places, until it ends."""
    for block in range(ports.PLACES // _PLACES_OF_A_WORKER):
        lock = os.open(Path(tempfile.gettempdir(), f"corral-test-ports-{os.getuid()}-{block}"), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return block
    raise AssertionError("too many workers")


def wait_for(condition, *, limit_s: float = 60.0, what: str = "it"):
    """Poll *condition* until it returns something true, and return that."""
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {limit_s} s"
        time.sleep(0.005)
    return found


def stop(pid: int) -> None:
    """Stop process *pid* (SIGSTOP); its threads stop one by one, when they have a core."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: all(_is_stopped(thread) for thread in Path(f"/proc/{pid}/task").iterdir()), what="the stop")


def _is_stopped(thread: Path) -> bool:
    """Whether *thread* is stopped, or has ended since."""
    try:
        return (thread / "stat").read_text().rpartition(") ")[2][0] in "TtZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def get(url: str, *, api_key: str = "") -> tuple[int, str]:
    """Status and body; status 0 when no process listens or the connection breaks."""
    return _open(urllib.request.Request(url, headers=authorization(api_key)))


def authorization(api_key: str) -> dict[str, str]:
    """The header that has *api_key*; empty: none."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def post(url: str, body: dict, *, api_key: str = "") -> tuple[int, str]:
    """As ``get``, with a JSON body."""
    headers = {"Content-Type": "application/json"} | authorization(api_key)
    return _open(urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers))


def chat(root: str, *content: str, model: str = "m", api_key: str = "", **parameters) -> dict:
    """The first choice of one answer; each of *content* is a text, or a colour's name for an image of it."""
    status, body = post(f"{root}/v1/chat/completions", question(*content, model=model, **parameters), api_key=api_key)
    assert status == 200, body
    return json.loads(body)["choices"][0]


def question(*content: str, model: str = "m", **parameters) -> dict:
    parts = [
        {"type": "image_url", "image_url": {"url": data_url(solid_png(part))}}
        if part in RGB
        else {"type": "text", "text": part}
        for part in content
    ]
    return {"model": model, "messages": [{"role": "user", "content": parts}], "max_tokens": 40} | parameters


class Stream(threading.Thread):
    """A streamed answer of *tokens* tokens, read in the background; has begun when it is made, if *begins*."""

    def __init__(self, root: str, model: str, tokens: int, *, api_key: str = "", begins: bool = True) -> None:
        super().__init__()
        body = question("Go on.", model=model, stream=True, ignore_eos=True, max_tokens=tokens)
        headers = {"Content-Type": "application/json"} | authorization(api_key)
        self._request = urllib.request.Request(f"{root}/v1/chat/completions", json.dumps(body).encode(), headers)
        self._lines: list[bytes] = []
        self.start()
        if begins:
            wait_for(lambda: len(self._lines) > 3, what="the first tokens")

    @property
    def is_whole(self) -> bool:
        return b"data: [DONE]" in self._lines

    @property
    def words(self) -> list[str]:
        """What came so far, a text for each token that has one."""
        lines = list(self._lines)
        found = (json.loads(line[6:])["choices"][0]["delta"].get("content") for line in lines if line[:7] == b"data: {")
        return [word for word in found if word]

    @property
    def lines(self) -> list[bytes]:
        """What has arrived so far, without white space at the ends."""
        return list(self._lines)

    def run(self) -> None:
        with (
            contextlib.suppress(OSError, http.client.HTTPException),  # it was cut off, and is not whole
            urllib.request.urlopen(self._request, timeout=60) as answer,
        ):
            for line in answer:
                self._lines.append(line.strip())


def unanswered(running: Running, model: str, tokens: int) -> tuple[Stream, int]:
    """A streamed request for *tokens* tokens that the engine of *model* has, and the pid of that engine.

    *model* may be an adapter, MODEL:NAME, which is in the engine of MODEL.

    The engine, loaded before, is stopped first: no answer ends before SIGCONT, however late this process goes on.
    """
    chat(running.endpoint, "Hello.", model=model)
    base = model.partition(":")[0]
    (proxy,) = [one.proxy for one in running.client().residents() if one.model == base]
    engine = engine_process.find(base, int(proxy.rpartition(":")[2]), running.engines())
    assert engine
    stop(engine.pid)
    stream = Stream(running.endpoint, model, tokens, begins=False)
    wait_for(lambda: base in [one.model for one in running.client().in_flight()], what="the request at llama-swap")
    return stream, engine.pid


@dataclass
class EngineProcess:
    process: subprocess.Popen[bytes]
    root: str
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, self.output
            return get(f"{self.root}/health")[0] == 200

        wait_for(ready, what="ready")

    def catches(self, number: int) -> bool:
        """Whether it has a handler for this signal, by the kernel's own word."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


@contextlib.contextmanager
def engine(folder: Path, *arguments: object) -> Iterator[EngineProcess]:
    """corral-llama-server with *arguments* on a free port; killed at the end if it still runs."""
    port = free_port()
    log = folder / f"engine-{port}.log"
    command = [ENGINE, *map(str, arguments), *PLAIN_FLAGS, "--port", str(port)]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=_own_environment())
    try:
        yield EngineProcess(process, f"http://127.0.0.1:{port}", log)
    finally:
        process.kill()
        process.wait()


def run_engine(*arguments: object) -> subprocess.CompletedProcess[str]:
    """corral-llama-server until it ends by itself."""
    command = [ENGINE, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, env=_own_environment())


def _own_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}


def _open(request: urllib.request.Request) -> tuple[int, str]:
    try:
        # Longer than any load may take: llama-swap's limit, the end of an engine that ignores signals, and reading why.
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""
