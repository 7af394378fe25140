"""A package repository that stands in for NVIDIA's: really signed packages, with stand-ins for the programs inside.

The real ones need a card, and a network.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.hosts.room import NETWORK, run

SMI = "#!/bin/sh\ncat /etc/nvidia-smi.says 2>/dev/null || { echo 'NVIDIA-SMI has failed'; exit 9; }\n"
PERSISTENCED = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
_TOOLKIT = (
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
)


class Vendor:
    """The repository's folder, its address and its key's fingerprint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uri = f"http://{NETWORK}.1:8000/"
        gpg = ["gpg", "--homedir", str(folder / ".gnupg"), "--batch", "--yes", "--passphrase", ""]
        run("install", "-d", "-m", "0700", folder / ".gnupg")
        run(*gpg, "--quick-generate-key", "Vendor of the tests", "rsa3072", "sign")
        (folder / "key.asc").write_text(run(*gpg, "--armor", "--export"), encoding="utf-8")
        listed = run(*gpg, "--with-colons", "--list-keys").splitlines()
        self.fingerprint = next(line.split(":")[9] for line in listed if line.startswith("fpr:"))
        for driver in ("570.195.03", "580.10.01"):
            files = {"usr/bin/nvidia-smi": SMI, "lib/systemd/system/nvidia-persistenced.service": PERSISTENCED}
            self._package("cuda-drivers", f"{driver}-1", files)
        for toolkit in ("1.18.1", "1.19.0"):
            for name in _TOOLKIT:
                self._package(name, f"{toolkit}-1", {f"usr/share/doc/{name}/stand-in": "\n"})
        self._index(gpg)

    def repositories(self) -> list[dict[str, str]]:
        """The role's variable for it."""
        return [{"name": "vendor", "uri": self.uri, "key": f"{self.uri}key.asc", "fingerprint": self.fingerprint}]

    def _package(self, name: str, version: str, files: Mapping[str, str]) -> None:
        tree = self.folder / ".trees" / f"{name}_{version}"
        control = (
            f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
            "Maintainer: tests <tests@example.org>\nDescription: stand-in\n"
        )
        for path, text in {"DEBIAN/control": control, **files}.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text, encoding="utf-8")
            (tree / path).chmod(0o755 if path.startswith("usr/bin") else 0o644)
        deb = self.folder / f"{name}_{version}_all.deb"
        run("dpkg-deb", "--build", "--root-owner-group", tree, deb)
        size, digest = deb.stat().st_size, hashlib.sha256(deb.read_bytes()).hexdigest()
        with (self.folder / "Packages").open("a", encoding="utf-8") as index:
            index.write(f"{control}Filename: ./{deb.name}\nSize: {size}\nSHA256: {digest}\n\n")

    def _index(self, gpg: list[str]) -> None:
        packages = (self.folder / "Packages").read_bytes()
        digest = hashlib.sha256(packages).hexdigest()
        release = f"Suite: tests\nDate: {run('date', '-Ru').strip()}\nSHA256:\n {digest} {len(packages)} Packages\n"
        (self.folder / "Release").write_text(release, encoding="utf-8")
        run(*gpg, "--clearsign", "--output", self.folder / "InRelease", self.folder / "Release")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def served(vendor: Vendor) -> Iterator[None]:
    """Serve the repository to the hosts of the room."""
    handler = partial(_Quiet, directory=str(vendor.folder))
    with ThreadingHTTPServer((f"{NETWORK}.1", 8000), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield
        server.shutdown()
        thread.join()
