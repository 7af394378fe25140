"""The door as Terraform renders it, and Caddy in front of a stub of the guard.

The stub writes down what arrives, which the real guard does not show, and waits within an answer until a test lets it
go on, or breaks it off.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import socketserver
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from corral.engine import binaries, door, stack
from corral.engine.stack_folder import StackFolder
from corral.paths import REPOSITORY
from corral.terraform.program import find_terraform
from tests.support.engine_process import free_port, wait_for

MODULE = REPOSITORY / "terraform" / "modules" / "door"
HOSTS = ["127.0.0.1", "localhost", "::1"]
ANSWER = b'{"from": "the guard"}'


def render(folder: Path, **variables: Any) -> dict[str, Any]:
    """The documents ``caddy`` and ``guard`` of the module with *variables*; Terraform's own files are in *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    usual = {
        "guard": {"unix": "/run/guard.sock"},
        "hosts": HOSTS,
        "internal_key": {"file": "/run/internal-key"},
        "models": {"chat": {"intent": {"aliases": ["talk"]}}},
        "upstream": {"port": 5799},
    }
    (folder / "inputs.json").write_text(json.dumps(usual | variables))
    environment = os.environ | {"TF_DATA_DIR": str(folder / "data")}

    def terraform(*words: str) -> str:
        command = [find_terraform(), f"-chdir={MODULE}", *words]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    state = f"-state={folder / 'terraform.tfstate'}"
    terraform("init", "-input=false")
    terraform("apply", "-auto-approve", "-input=false", state, f"-var-file={folder / 'inputs.json'}")
    return {name: json.loads(one["value"]) for name, one in json.loads(terraform("output", "-json", state)).items()}


@functools.cache
def _rendered() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        places = {"guard": {"unix": "/run/guard.sock"}, "internal_key": {"file": "/run/llama-swap.key"}}
        return render(Path(folder), listen="127.0.0.1:1", drain_seconds=3600, **places)


def configuration(state: Path, llama_swap: str, entrance: door.Door, models: Iterable[str]) -> stack.Configuration:
    """*llama_swap*, and the other documents as Terraform renders them for *entrance* and the ids *models*.

    Terraform runs once for all of a process; only what differs between two stacks of tests is put in here.
    """
    documents = json.dumps(_rendered()).replace("/run/", f"{StackFolder(state).run.absolute()}/")
    found = json.loads(documents.replace("127.0.0.1:1", f"127.0.0.1:{entrance.port}"))
    found["guard"] |= {
        "upstream": {"host": "127.0.0.1", "port": entrance.swap_port},
        "models": {name: name for name in models},
    }
    return stack.Configuration(llama_swap, json.dumps(found["guard"]), json.dumps(found["caddy"]))


class _Guard(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        stub = self.server.stub
        stub.received.append((self.path, dict(self.headers.items()), self._body()))
        self.send_response(200)
        self.send_header("Server", "guard")
        if self.path == "/stream":
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"data: first\n\n")
            assert stub.go_on.wait(30)
            self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True
            return
        self.close_connection = self.path.startswith("/broken")
        self.send_header("Content-Length", str(len(ANSWER) + self.close_connection))
        self.end_headers()
        self.wfile.write(ANSWER)

    do_GET = do_POST  # noqa: N815 - http.server finds it by this name

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            if len(body) < length:
                raise ValueError("the request was broken off")  # also one that Caddy refused by its size
            return body
        body = b""
        while size := int(self.rfile.readline() or b"-", 16):  # ValueError: it was broken off
            body += self.rfile.read(size)
            self.rfile.readline()
        return body

    def version_string(self) -> str:
        return "guard"

    def log_message(self, *_: object) -> None:
        pass


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    stub: Stub

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, _ = super().get_request()
        return connection, ("unix", 0)

    def handle_error(self, *_: object) -> None:
        """Nothing: a test that ends closes connections."""


@dataclass
class Stub:
    """What arrived at the stub, and the event that lets its streams end."""

    received: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)


class Answer(NamedTuple):
    """An answer that has arrived."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def code(self) -> str:
        """The reason of a refusal, for programs."""
        return str(json.loads(self.body)["error"]["code"])


@dataclass
class Door:
    """A running Caddy, and the stub behind it."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    stub: Stub
    has_tls: bool

    @property
    def log(self) -> str:
        """What Caddy wrote."""
        return (self.folder / "log").read_text()

    @property
    def config(self) -> Path:
        return self.folder / "caddy.json"

    def context(self) -> ssl.SSLContext:
        """Trusts the authority of the door, and no other."""
        return ssl.create_default_context(cafile=str(door.authority(self.folder)))

    @contextlib.contextmanager
    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Iterator[HTTPResponse]:
        """The answer to a request with *headers* (``_`` stands for ``-``), while it is read."""
        connection = (
            HTTPSConnection("127.0.0.1", self.port, timeout=30, context=self.context())
            if self.has_tls
            else HTTPConnection("127.0.0.1", self.port, timeout=30)
        )
        named = {"Host": f"127.0.0.1:{self.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(connection):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may be answered before it is over
                connection.request(method, path, body, named)
            with connection.getresponse() as answer:
                yield answer

    def send(self, path: str = "/v1/models", **headers: str) -> Answer:
        """The whole answer to a GET, as ``request``."""
        with self.request("GET", path, **headers) as answer:
            return Answer(answer.status, answer.read(), dict(answer.headers))

    def stop(self) -> None:
        """Have it end, when what it does is done."""
        self.process.terminate()
        self.process.wait(30)

    def reload(self) -> None:
        """Have Caddy read its configuration again."""
        self.process.send_signal(signal.SIGUSR1)


@contextlib.contextmanager
def caddy(folder: Path, rendered: dict[str, Any], *, has_guard: bool = True) -> Iterator[Door]:
    """The real Caddy with *rendered*, on a port of its own, in front of a stub; everything lies in *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    port, stub = free_port(), Stub()
    server = rendered["apps"]["http"]["servers"]["door"]
    config = folder / "caddy.json"
    config.write_text(json.dumps(rendered).replace(json.dumps(server["listen"][0]), json.dumps(f"127.0.0.1:{port}")))
    with contextlib.ExitStack() as stack:
        if has_guard:
            stack.enter_context(_stub(folder, stub))
        log = stack.enter_context((folder / "log").open("wb"))
        process = subprocess.Popen(
            door.caddy_command(binaries.caddy().path, config),
            cwd=folder,
            env=door.caddy_environment(folder),
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(lambda: process.poll() is not None or _listens(process.pid), what="Caddy's port")
            assert process.poll() is None, (folder / "log").read_text()
            yield Door(folder, port, process, stub, "tls_connection_policies" in server)
        finally:
            stub.go_on.set()
            process.kill()
            process.wait()


@contextlib.contextmanager
def _stub(folder: Path, stub: Stub) -> Iterator[None]:
    with contextlib.chdir(folder):  # the path of a socket is short
        server = _Server("guard.sock", _Guard)
    server.stub = stub
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def listening(pid: int) -> list[Any]:
    """The addresses at which process *pid* listens, by TCP."""
    return [one.laddr for one in psutil.Process(pid).net_connections("tcp") if one.status == psutil.CONN_LISTEN]


def _listens(pid: int) -> bool:
    try:
        return bool(listening(pid))
    except psutil.Error:
        return False
