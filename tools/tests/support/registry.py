"""A container registry on loopback: manifests by tag, with and without a token first, and its faults."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LIST = "application/vnd.docker.distribution.manifest.list.v2+json"


@dataclass
class Registry:
    """Its manifests, its faults, and the requests to it."""

    address: str
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    needs_token: bool = False
    realm: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, object] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def put(self, repository: str, tag: str, text: str = "", kind: str = INDEX) -> str:
        """A manifest under a tag; returns its digest."""
        body = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": [], "note": text}).encode()
        self.manifests[f"{repository}:{tag}"] = (kind, body)
        return f"sha256:{hashlib.sha256(body).hexdigest()}"

    def put_labelled(
        self,
        repository: str,
        tag: str,
        labels: dict[str, str] | None,
        platforms: Sequence[str] | None = ("arm64", "amd64"),
    ) -> str:
        """An image with *labels*, for amd64, in an index of *platforms*, or alone when None; returns its digest."""

        def stored(document: object) -> str:
            body = json.dumps(document).encode()
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            self.blobs[digest] = body
            return digest

        def manifest(found: dict[str, str] | None) -> tuple[str, bytes]:
            digest = stored({"architecture": "amd64", "config": {} if found is None else {"Labels": found}})
            return MANIFEST, json.dumps(
                {"schemaVersion": 2, "mediaType": MANIFEST, "config": {"digest": digest}}
            ).encode()

        def put(name: str, kind: str, body: bytes) -> str:
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            self.manifests |= {f"{repository}:{one}": (kind, body) for one in (name, digest)}
            return digest

        if platforms is None:
            return put(tag, *manifest(labels))
        parts = [
            {"digest": put(f"{tag}-{name}", *manifest(found)), "platform": {"os": "linux", "architecture": name}}
            for name in platforms
            for found in (labels if name == "amd64" else {"of": "another platform"},)
        ]
        return put(tag, INDEX, json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": parts}).encode())


class _Handler(BaseHTTPRequestHandler):
    registry: Registry

    def log_message(self, *_):
        pass

    def do_GET(self):
        registry, url = self.registry, urlsplit(self.path)
        registry.requests.append(self.path)
        if url.path == "/token":
            return self._token(parse_qs(url.query))
        repository, kind, tag = re.fullmatch(r"/v2/(.+)/(manifests|blobs|tags)/([^/]+)", url.path).groups()
        if "status" in registry.faults:
            return self._answer(registry.faults["status"], b"")
        if registry.needs_token and self.headers.get("Authorization") != f"Bearer let-me-pull-{repository}":
            realm = registry.realm or f"http://{registry.address}/token"
            scope = f'scope="repository:{repository}:pull"'
            challenge = registry.faults.get("challenge") or f'Bearer realm="{realm}",service="here",{scope}'
            return self._answer(401, b"{}", **{"WWW-Authenticate": challenge})
        if kind == "blobs":
            return self._answer(200, registry.faults.get("blob") or registry.blobs[tag])
        if kind == "tags":
            return self._tags(repository, parse_qs(url.query))
        if f"{repository}:{tag}" not in registry.manifests:
            return self._answer(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
        kind, body = registry.manifests[f"{repository}:{tag}"]
        if kind not in self.headers.get("Accept", ""):
            return self._answer(404, b"{}")
        stated = registry.faults.get("digest") or f"sha256:{hashlib.sha256(body).hexdigest()}"
        headers = {} if registry.faults.get("no_digest") else {"Docker-Content-Digest": stated}
        return self._answer(200, body, **{"Content-Type": registry.faults.get("type") or kind, **headers})

    def _tags(self, repository, query):
        """In alphabetical order, from behind ``last`` on, as the protocol has it."""
        [most], [last] = query["n"], query["last"]
        named = sorted(name.partition(":")[2] for name in self.registry.manifests if name.startswith(f"{repository}:"))
        listed = [tag for tag in named if tag > last and not tag.startswith("sha256:")][: int(most)]
        body = self.registry.faults.get("tags") or json.dumps({"name": repository, "tags": listed}).encode()
        return self._answer(self.registry.faults.get("tags_status", 200), body)

    def _token(self, query):
        status = self.registry.faults.get("token_status", 200)
        if query.get("service") != ["here"]:
            return self._answer(400, b"{}")
        [scope] = query["scope"]
        token = {"token": f"let-me-pull-{scope.split(':')[1]}"}
        return self._answer(status, json.dumps(self.registry.faults.get("token", token)).encode())

    def _answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def registry_on_loopback() -> Iterator[Registry]:
    """A registry that serves until the block ends."""
    handler = type("Handler", (_Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.registry = Registry(f"127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield handler.registry
        finally:
            server.shutdown()
            thread.join()
