"""Write the locks of the catalogs that the tests of Terraform's modules and stacks read.

Their YAML is not generated; a lock must have the seal and the digests that belong to it, or those that do not.

    python -m tests.support.terraform_catalogs            name the locks that are out of date; exit 1 when there are any
    python -m tests.support.terraform_catalogs --write    bring them up to date
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from corral.catalog import catalog as catalogs
from corral.lock.lock import Lock
from corral.paths import REPOSITORY
from tests.support.locked_catalog import lock_of

ROOT = REPOSITORY / "terraform"
NEEDS = {"chat": 600, "look.1": 700, "draft": 500, "spare": 500}


def good(folder: Path) -> str:
    """A lock that belongs to the catalog."""
    return lock_of(catalogs.load(folder), needs=NEEDS).text()


def with_sources(**digests: str) -> Callable[[Path], str]:
    """A lock of no models that was made from models/*.yaml with *digests*, by name; "" stands for the right one."""

    def text(folder: Path) -> str:
        files = {name: folder / "models" / f"{name}.yaml" for name in digests}
        right = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items() if file.exists()}
        sources = {f"models/{name}.yaml": digest or right[name] for name, digest in digests.items()}
        return Lock(sources=sources, images={}, cards={}, models={}).text()

    return text


def edited(folder: Path) -> str:
    """A lock that was edited after it was sealed."""
    return with_sources(chat="")(folder).replace('"images": {}', '"images": {"fetch": "python:3.13-slim"}')


OTHER = "0" * 64
LOCKS: dict[str, Callable[[Path], str]] = {
    "modules/catalog/tests/catalogs/added": with_sources(chat=""),
    "modules/catalog/tests/catalogs/changed": with_sources(chat=OTHER),
    "modules/catalog/tests/catalogs/edited": edited,
    "modules/catalog/tests/catalogs/removed": with_sources(chat="", eyes=OTHER),
    "modules/catalog/tests/catalogs/unreadable": lambda _: "<<<<<<< ours\n",
    "modules/catalog/tests/catalogs/version-1": lambda _: '{"version": 1, "models": {}}\n',
    "stacks/homelab/tests/catalogs/dotted-card": good,
    "stacks/homelab/tests/catalogs/engine-image": good,
    "stacks/homelab/tests/catalogs/gateway": good,
    "stacks/homelab/tests/catalogs/good": good,
    "stacks/homelab/tests/catalogs/no-door": good,
    "stacks/homelab/tests/catalogs/no-node": good,
    "stacks/homelab/tests/catalogs/no-server-image": good,
    "stacks/homelab/tests/catalogs/one-node": good,
    "stacks/homelab/tests/catalogs/together": good,
    "stacks/homelab/tests/catalogs/two-cards": good,
    "stacks/homelab/tests/catalogs/vllm": good,
    "stacks/homelab/tests/catalogs/yields": good,
    "stacks/local/tests/catalogs/good": good,
    "stacks/local/tests/catalogs/two-cards": good,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when every lock is, or was made, as it must be, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the locks instead of comparing them")
    write = parser.parse_args(argv).write
    bad = 0
    for name, made in LOCKS.items():
        file = ROOT / name / "lock.json"
        text = made(file.parent)
        if write:
            file.write_text(text, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != text:
            bad += 1
            sys.stderr.write(f"{file} is out of date. Run: make fix\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
