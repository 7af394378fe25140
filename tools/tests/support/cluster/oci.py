"""OCI images without an engine: layers as tar archives in the cache, manifests, and pushing them to a registry."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral import paths
from corral.errors import CannotRun
from corral.files import OwnFolder, write_atomically

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_BUILD_LIMIT_S = 900.0


@dataclass(frozen=True)
class File:
    """A file of a layer: where it is in the image, its content or where that lies, and its file capabilities."""

    path: str
    content: bytes | Path
    mode: int = 0o644
    capabilities: bytes = b""  # of the attribute security.capability


@dataclass(frozen=True)
class Link:
    """A symbolic link of a layer."""

    path: str
    target: str


@dataclass(frozen=True)
class Layer:
    """A layer, made once per *key* into the cache.

    Attributes:
        name: for people.
        key: everything that its content depends on.
        write: writes the tar archive to the path it is given.
    """

    name: str
    key: str
    write: Callable[[Path], None]

    def make(self) -> Blob:
        """Its archive, made now when it is missing.

        Raises:
            CannotRun, subprocess.CalledProcessError: it cannot be made.
        """
        stem = f"{self.name}-{hashlib.sha256(self.key.encode()).hexdigest()[:16]}"
        archive, note = folder() / f"{stem}.tar", folder() / f"{stem}.digest"
        if not note.exists():
            own = OwnFolder(paths.cache_dir(), "XDG_CACHE_HOME")
            with own.exclusive_lock(folder() / f".{self.name}", timeout_s=_BUILD_LIMIT_S):
                if not note.exists():
                    partial = archive.with_suffix(".partial")
                    self.write(partial)
                    partial.rename(archive)
                    with archive.open("rb") as stream:
                        write_atomically(note, f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}")
        return Blob(note.read_text(), archive.stat().st_size, archive)


@dataclass(frozen=True)
class Blob:
    """Bytes that a registry keeps under their digest."""

    digest: str
    size: int
    content: bytes | Path

    @classmethod
    def of(cls, document: Any) -> Blob:
        """*document* as JSON."""
        content = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
        return cls(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content), content)

    def described(self, media_type: str) -> dict[str, Any]:
        return {"mediaType": media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class Image:
    """An image: its name and tag, its layers from the lowest on, and how a container of it is started."""

    name: str
    tag: str
    layers: tuple[Layer, ...]
    settings: dict[str, Any]


def written(entries: Sequence[File | Link]) -> Callable[[Path], None]:
    """What writes *entries* as a layer, the same bytes every time."""

    def write(target: Path) -> None:
        has_attributes = any(isinstance(entry, File) and entry.capabilities for entry in entries)
        form = tarfile.PAX_FORMAT if has_attributes else tarfile.GNU_FORMAT
        with tarfile.open(target, "w", format=form) as archive:
            for entry in entries:
                member = tarfile.TarInfo(entry.path.removeprefix("/"))
                if isinstance(entry, Link):
                    member.type, member.linkname = tarfile.SYMTYPE, entry.target
                    archive.addfile(member)
                    continue
                member.mode = entry.mode
                if entry.capabilities:
                    member.pax_headers = {"SCHILY.xattr.security.capability": entry.capabilities.decode("ascii")}
                with (
                    io.BytesIO(entry.content) if isinstance(entry.content, bytes) else entry.content.open("rb") as data
                ):
                    member.size = data.seek(0, io.SEEK_END)
                    data.seek(0)
                    archive.addfile(member, data)

    return write


def folder() -> Path:
    """Where the layers lie."""
    return paths.cache_dir() / "cluster-images"


def push(image: Image, registry: str) -> str:
    """Push *image* to *registry* (HOST:PORT, plain http) unless it is there; its reference, NAME:TAG@DIGEST.

    Raises:
        CannotRun: the registry refuses it, or does not answer.
    """
    layers = [layer.make() for layer in image.layers]
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    config = Blob.of(
        {
            "architecture": machine,
            "os": "linux",
            "config": image.settings,
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
        }
    )
    manifest = Blob.of(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": config.described(_CONFIG),
            "layers": [layer.described(_LAYER) for layer in layers],
        }
    )
    reference = f"{registry}/{image.name}:{image.tag}@{manifest.digest}"
    connection = http.client.HTTPConnection(registry, timeout=60)
    where = f"/v2/{image.name}/manifests/{image.tag}"
    try:
        if _digest_at(connection, where) == manifest.digest:
            return reference
        for blob in (*layers, config):
            _push_blob(connection, image.name, blob)
        _asked(connection, "PUT", where, 201, manifest.content, {"Content-Type": _MANIFEST})
    except (OSError, http.client.HTTPException) as error:
        raise CannotRun(f"The registry {registry} does not answer: {error}.", next_step="Is it running?") from None
    finally:
        connection.close()
    return reference


def _digest_at(connection: http.client.HTTPConnection, where: str) -> str | None:
    """The digest of the manifest at *where*; None when there is none."""
    connection.request("HEAD", where, headers={"Accept": _MANIFEST})
    answer = connection.getresponse()
    answer.read()
    return answer.headers.get("Docker-Content-Digest") if answer.status == 200 else None


def _push_blob(connection: http.client.HTTPConnection, name: str, blob: Blob) -> None:
    connection.request("HEAD", f"/v2/{name}/blobs/{blob.digest}")
    answer = connection.getresponse()
    answer.read()
    if answer.status == 200:
        return
    place = _asked(connection, "POST", f"/v2/{name}/blobs/uploads/", 202)
    target = place + ("&" if "?" in place else "?") + f"digest={blob.digest}"
    _asked(connection, "PUT", target, 201, blob.content, {"Content-Type": "application/octet-stream"}, blob.size)


def _asked(
    connection: http.client.HTTPConnection,
    method: str,
    where: str,
    expected: int,
    content: bytes | Path | None = None,
    headers: dict[str, str] | None = None,
    size: int | None = None,
) -> str:
    """The Location that the registry answers with."""
    sized = (headers or {}) | ({"Content-Length": str(size)} if size is not None else {})
    if isinstance(content, Path):
        with content.open("rb") as stream:
            connection.request(method, where, stream, sized)
    else:
        connection.request(method, where, content, sized)
    answer = connection.getresponse()
    body = answer.read().decode(errors="replace")
    if answer.status != expected:
        raise CannotRun(
            f"The registry {connection.host}:{connection.port} answered {answer.status} to {method} {where}: {body}",
            next_step="Does it allow pushing?",
        )
    return answer.headers.get("Location", "")
