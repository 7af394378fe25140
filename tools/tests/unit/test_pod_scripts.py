"""The scripts that the pod of llama-swap starts and stops with, in each shell that an image may call sh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from corral.paths import REPOSITORY
from tests.support.engine_process import free_port
from tests.support.shells import SHELLS, program, shell

pytestmark = pytest.mark.long
MODULE = REPOSITORY / "terraform" / "modules" / "llama-swap"
KEY = "corral-key-of-llama-swap"
BUSY = [{"id": "1", "model": "chat"}]


class LlamaSwap(ThreadingHTTPServer):
    """Reports the configured requests in flight, in the form of llama-swap's stream of events.

    From v240 on there are changes beside the complete states, and a state without requests has no list of them.
    """

    daemon_threads = True

    def __init__(self, *, has_changes: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.has_changes = has_changes
        self.requests: list[dict[str, str]] = []
        self.first_word: list[dict[str, str]] | None = None
        self.is_mute = False
        self.asked = 0
        self.answered_after: int | None = None
        self.closing = threading.Event()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: LlamaSwap

    def do_GET(self) -> None:
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self.send_error(401)
            return
        if self.path != "/api/events":
            self.send_error(404 if self.path != "/running" or self.server.is_mute else 200)
            return
        self.server.asked += 1
        if self.server.answered_after is not None and self.server.asked > self.server.answered_after:
            self.server.requests = []
        self.send_response(200)
        self.end_headers()
        # What the log says of the word comes escaped, and is no state.
        self._event("logData", {"source": "proxy", "data": 'data:{"type":"inflight","data":"{\\"requests\\":[]}"}'})
        if self.server.is_mute:
            return
        if self.server.first_word is not None:
            self._state(self.server.first_word)
        if self.server.first_word is not None and self.server.has_changes:
            for request in self.server.requests:
                self._event("inflight", {"operation": "upsert", "request": request})
        else:
            self._state(self.server.requests)
        self.server.closing.wait()  # the stream stays open, as llama-swap's does

    def _state(self, requests: list[dict[str, str]]) -> None:
        if self.server.has_changes:
            self._event("inflight", {"operation": "snapshot"} | ({"requests": requests} if requests else {}))
        else:
            self._event("inflight", {"requests": requests})

    def _event(self, kind: str, data: dict) -> None:
        message = json.dumps({"type": kind, "data": json.dumps(data, separators=(",", ":"))}, separators=(",", ":"))
        self.wfile.write(f"event:message\ndata:{message}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(*, has_changes: bool) -> Iterator[LlamaSwap]:
    server = LlamaSwap(has_changes=has_changes)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()


@pytest.fixture(params=["before-v240", "since-v240"])
def llama_swap(request):
    with serving(has_changes=request.param == "since-v240") as server:
        yield server


@pytest.fixture(params=sorted(SHELLS))
def run(request):
    program("curl")

    def run(script: str, *words: object, traced: bool = False) -> subprocess.CompletedProcess[str]:
        command = [*shell(request.param), *(["-x"] if traced else []), MODULE / script, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)

    return run


@pytest.fixture
def key(tmp_path):
    """The file with llama-swap's key, as a Secret is mounted: without a line's end."""
    file = tmp_path / "internal"
    file.write_text(KEY)
    return file


@pytest.fixture
def drain(run, key):
    """Runs drain.sh to its good end; how many rounds it took, by its own trace."""

    def drain(rounds: int, endpoint: str) -> int:
        done = run("drain.sh", rounds, endpoint, key, traced=True)
        assert done.returncode == 0, done.stderr
        return sum("/ask.sh " in line for line in done.stderr.splitlines())

    return drain


def test_an_idle_pod_may_go_when_it_was_idle_twice(drain, llama_swap):
    assert 2 <= drain(30, llama_swap.endpoint) < 30


def test_a_pod_with_requests_under_way_stays_until_they_are_answered(drain, llama_swap):
    llama_swap.requests = BUSY
    llama_swap.answered_after = 2

    assert 4 <= drain(30, llama_swap.endpoint) < 30


def test_the_last_word_counts(drain, llama_swap):
    llama_swap.first_word, llama_swap.requests = [], BUSY

    assert drain(3, llama_swap.endpoint) == 3


def test_waiting_ends_when_the_time_is_over(drain, llama_swap):
    llama_swap.requests = BUSY

    assert drain(2, llama_swap.endpoint) == 2


def test_a_pod_that_does_not_say_what_it_does_is_taken_for_busy(drain, llama_swap):
    llama_swap.is_mute = True

    assert drain(3, llama_swap.endpoint) == 3


def test_where_nothing_listens_nothing_is_waited_for(drain):
    assert drain(30, f"http://127.0.0.1:{free_port()}") == 1


def test_it_has_started_when_every_file_is_there_and_llama_swap_answers(run, llama_swap, key, tmp_path):
    (tmp_path / "my model.gguf").touch()
    files = tmp_path / "models.txt"
    files.write_text(f"{tmp_path}/my model.gguf\n")

    done = run("started.sh", files, llama_swap.endpoint, key)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_file_that_is_missing_is_named(run, llama_swap, key, tmp_path):
    files = tmp_path / "models.txt"
    files.write_text(f"{files}\n{tmp_path}/model.gguf\n")

    done = run("started.sh", files, llama_swap.endpoint, key)

    assert (done.returncode, done.stdout) == (
        1,
        f"startup: file-missing path={tmp_path}/model.gguf: it is not in the store, or cannot be read\n",
    )


def test_it_has_not_started_while_llama_swap_does_not_answer(run, llama_swap, key, tmp_path):
    llama_swap.is_mute = True
    files = tmp_path / "models.txt"
    files.write_text("")

    assert run("started.sh", files, llama_swap.endpoint, key).returncode == 22


def test_it_has_not_started_while_llama_swap_has_another_key(run, llama_swap, key, tmp_path):
    key.write_text("corral-another-key")
    files = tmp_path / "models.txt"
    files.write_text("")

    assert run("started.sh", files, llama_swap.endpoint, key).returncode == 22


def test_an_answer_is_printed_and_the_key_is_in_no_command_line(run, llama_swap, key, tmp_path, monkeypatch):
    """A curl that notes its words before it becomes the real one shows what other processes could read."""
    noted = tmp_path / "words"
    (tmp_path / "bin").mkdir()
    curl = tmp_path / "bin" / "curl"
    curl.write_text(f'#!/bin/sh\necho "$@" >{noted}\nexec {shutil.which("curl")} "$@"\n')
    curl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{curl.parent}:{os.environ['PATH']}")

    done = run("ask.sh", f"{llama_swap.endpoint}/running", key, "--write-out", "%{http_code}", "--output", "/dev/null")

    assert (done.stdout, done.returncode) == ("200", 0)
    assert "--write-out" in noted.read_text()
    assert KEY not in noted.read_text()


def program_in(folder, content="#!/bin/sh\necho v252\n"):
    """A program llama-swap in *folder*, which is made."""
    folder.mkdir()
    file = folder / "llama-swap"
    file.write_text(content)
    file.chmod(0o555)
    return folder


@pytest.mark.parametrize("place", ["on PATH", "in the other folder"])
def test_llama_swap_is_copied_out_of_its_image_also_when_a_pod_begins_again(run, place, tmp_path, monkeypatch):
    folder, volume = program_in(tmp_path / "app"), tmp_path / "programs"
    volume.mkdir()
    if place == "on PATH":
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    other = tmp_path / "none" if place == "on PATH" else folder

    for _ in range(2):
        done = run("copy.sh", volume, other)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert subprocess.run([volume / "llama-swap"], capture_output=True, check=True).stdout == b"v252\n"


def test_an_earlier_copy_that_cannot_be_written_is_replaced(run, tmp_path):
    """A program that runs stands in for a read-only one, to which root, as whom tests may run, can write."""
    volume, folder = tmp_path / "programs", program_in(tmp_path / "app")
    volume.mkdir()
    shutil.copy(program("sleep"), volume / "llama-swap")
    with subprocess.Popen([volume / "llama-swap", "60"]) as running:
        done = run("copy.sh", volume, folder)
        running.kill()

    assert (done.returncode, done.stderr) == (0, "")
    assert (volume / "llama-swap").read_text() == (folder / "llama-swap").read_text()


def test_the_llama_swap_on_path_is_before_the_other_folders(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{program_in(tmp_path / 'bin', 'the one')}:{os.environ['PATH']}")
    volume = tmp_path / "programs"
    volume.mkdir()

    assert run("copy.sh", volume, program_in(tmp_path / "app", "the other")).returncode == 0
    assert (volume / "llama-swap").read_text() == "the one"


def test_an_image_without_llama_swap_ends_the_copy_with_one_line_that_names_the_key(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "llama-swap").write_text("no program: it is not executable")

    done = run("copy.sh", tmp_path, tmp_path / "app")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"copy: this image has no program llama-swap, neither on PATH nor in {tmp_path / 'app'}; "
        "llama-swap in images.yaml must name one that has it\n"
    )
