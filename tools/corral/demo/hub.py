"""A model hub on loopback, as far as corral and huggingface-hub use one.

The API is at 127.0.0.1; large files come from ``localhost``, by redirect, so that a client that must not send a token
to the data host really has two hosts::

    with Hub({"org/name": RepoContent(files={"a.gguf": Path("a.gguf")})}) as hub:
        environment["HF_ENDPOINT"] = hub.endpoint
"""

from __future__ import annotations

import contextlib
import hmac
import http.server
import json
import re
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from corral.demo.hub_content import RepoContent, Repositories, StoredFile, describe_repo, open_content

__all__ = ["Answer", "Hub", "RepoContent", "Request", "Wire"]

_API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_DATA = re.compile(r"/cdn/([0-9a-f]{64})")
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_CHUNK_BYTES = 256 << 10
_LOOPBACK = "127.0.0.1"


@dataclass
class Request:
    """One request and what became of it.

    Attributes:
        path: still quoted, without its query.
        headers: names in lower case.
        status: of the answer; 0 before there is one.
        sent: bytes of the body, each piece counted before its client can have it.
    """

    method: str
    path: str
    query: Mapping[str, list[str]]
    host: str
    headers: Mapping[str, str]
    status: int = 0
    sent: int = 0

    @property
    def is_data(self) -> bool:
        """Whether it requested the bytes of a large file from the data host."""
        return _DATA.fullmatch(self.path) is not None


@dataclass(frozen=True)
class Answer:
    """A response: its head, and *length* bytes of *content* from *start* on."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    content: Path | bytes = b""
    start: int = 0
    length: int = 0

    def pieces(self) -> Iterator[bytes]:
        """The body, piece by piece."""
        with open_content(self.content) as stream:
            stream.seek(self.start)
            left = self.length
            while left and (piece := stream.read(min(left, _CHUNK_BYTES))):
                left -= len(piece)
                yield piece


class Hub:
    """The hub; it serves while its ``with`` block runs.  ``log`` has every request in the order of arrival.

    Args:
        repositories: ``org/name`` to its content.
        host: the address that it listens on; away from loopback, the data host has that same address.
    """

    def __init__(self, repositories: Mapping[str, RepoContent], host: str = _LOOPBACK) -> None:
        self.log: list[Request] = []
        self.repositories = Repositories(repositories)
        self._host = host
        self._server = _Server(self, host)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="hub", daemon=True)

    @property
    def endpoint(self) -> str:
        """The address for ``HF_ENDPOINT``."""
        return f"http://{self._host}:{self._server.server_port}"

    @property
    def data_sent(self) -> int:
        """Bytes of large files sent so far."""
        return sum(entry.sent for entry in list(self.log) if entry.is_data)

    def update(self, repo: str, content: RepoContent) -> str:
        """A new commit on main of *repo*, and its id; the old ones stay addressable."""
        return self.repositories.add(repo, content)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up_all()
        self._server.server_close()

    def serve(self, request: Request, wire: Wire) -> None:
        """Answer *request*; tests override this to misbehave."""
        wire.send(self.answer(request), body=request.method == "GET")

    def answer(self, request: Request) -> Answer:
        """The response of a hub in good health."""
        if found := _DATA.fullmatch(request.path):
            file = self.repositories.large(found[1])
            return _part(request, file, {}) if file else _problem(404, "", "No such blob")
        if found := _API.fullmatch(request.path):
            repo, kind, revision = (unquote(part or "") for part in found.groups())
            return self._closed(request, repo) or self._api(repo, kind, revision or "main")
        if found := _RESOLVE.fullmatch(request.path):
            repo, revision, path = (unquote(part) for part in found.groups())
            return self._closed(request, repo) or self._resolve(request, repo, revision, path)
        return _problem(404, "", "Not found")

    def _closed(self, request: Request, repo: str) -> Answer | None:
        """The refusal for a repository that is missing, or gated without the right token; else None."""
        given = request.headers.get("authorization")
        commit = self.repositories.commit(repo, "main")
        if commit is None:
            return _problem(404 if given else 401, "RepoNotFound", "Repository not found")
        token = commit.content.token
        if token is None or (given and hmac.compare_digest(given, f"Bearer {token}")):
            return None
        return _problem(403 if given else 401, "GatedRepo", f"Access to model {repo} is restricted")

    def _api(self, repo: str, kind: str, revision: str) -> Answer:
        commit = self.repositories.commit(repo, revision)
        if commit is None:
            return _problem(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if kind == "tree":
            return _json(200, [file.tree_entry() for file in commit.files.values()])
        return _json(200, describe_repo(repo, commit))

    def _resolve(self, request: Request, repo: str, revision: str, path: str) -> Answer:
        commit = self.repositories.commit(repo, revision)
        if commit is None:
            return _problem(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        file = commit.files.get(path)
        if file is None:
            return _problem(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": commit.id}
        if not file.large:
            return _part(request, file, headers)
        linked = {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
        return Answer(302, {**headers, **linked, "Location": self.signed_address(file)})

    def signed_address(self, file: StoredFile) -> str:
        """Where the data host has *file*."""
        name = quote(file.path.rsplit("/", 1)[-1])
        host = "localhost" if self._host == _LOOPBACK else self._host
        return f"http://{host}:{self._server.server_port}/cdn/{file.sha256}?filename={name}&Signature=demo"


def _part(request: Request, file: StoredFile, headers: dict[str, str]) -> Answer:
    """The whole of *file*, or the one range that was requested."""
    etag = f'"{file.sha256 if file.large else file.oid}"'
    headers = {"ETag": etag, "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream", **headers}
    part = _RANGE.fullmatch(request.headers.get("range", ""))
    if not part or not (part[1] or part[2]):
        return Answer(200, headers, file.content, 0, file.size)
    first = int(part[1]) if part[1] else max(0, file.size - int(part[2]))
    last = min(int(part[2]), file.size - 1) if part[1] and part[2] else file.size - 1
    if first > last:
        return Answer(416, {**headers, "Content-Range": f"bytes */{file.size}"})
    headers["Content-Range"] = f"bytes {first}-{last}/{file.size}"
    return Answer(206, headers, file.content, first, last - first + 1)


def _json(status: int, value: Any, **headers: str) -> Answer:
    body = json.dumps(value).encode()
    return Answer(status, {"Content-Type": "application/json", **headers}, body, 0, len(body))


def _problem(status: int, code: str, message: str) -> Answer:
    headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
    return _json(status, {"error": message}, **headers)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False  # so that server_close() waits for them
    request_queue_size = 64

    def __init__(self, hub: Hub, host: str) -> None:
        self.hub = hub
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__((host, 0), Wire)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up_all(self) -> None:
        with self._guard:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up when they like; nothing else may go wrong here."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Wire(http.server.BaseHTTPRequestHandler):
    """The connection to one client; ``entry`` is the present request in the hub's log."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server
    entry: Request

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        host = headers.get("host", "").rsplit(":", 1)[0]
        self.entry = Request(self.command, address.path, parse_qs(address.query), host, headers)
        self.server.hub.log.append(self.entry)
        self.server.hub.serve(self.entry, self)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing on stderr: the hub has its own log."""

    def send(self, answer: Answer, *, body: bool = True) -> None:
        """Send the whole of *answer*; only its head when not *body*."""
        self.send_head(answer)
        if body:
            for piece in answer.pieces():
                self.send_piece(piece)

    def send_head(self, answer: Answer) -> None:
        """Send the status line and the header fields."""
        self.entry.status = answer.status
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(answer.length), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_piece(self, piece: bytes) -> None:
        """Send some bytes of the body; a piece that the connection does not take is not counted."""
        self.entry.sent += len(piece)
        try:
            self.wfile.write(piece)
        except OSError:
            self.entry.sent -= len(piece)
            raise
