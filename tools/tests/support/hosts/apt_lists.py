"""Keep in the package lists of a root file system what is installed there or lies there to be installed.

    python apt_lists.py ROOT

Debian offers sixty thousand packages, and apt looks through all of them in every task that installs one.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(root: Path) -> None:
    """Shorten the lists below *root*."""
    archives = (root / "var/cache/apt/archives").glob("*.deb")
    wanted = {file.name.partition("_")[0] for file in archives}
    wanted |= set(map(_name, _paragraphs(root / "var/lib/dpkg/status")))
    for file in (root / "var/lib/apt/lists").glob("*_Packages"):
        kept = [paragraph for paragraph in _paragraphs(file) if _name(paragraph) in wanted]
        file.write_text("".join(f"{paragraph}\n\n" for paragraph in kept), encoding="utf-8")


def _paragraphs(file: Path) -> list[str]:
    return [text for text in file.read_text(encoding="utf-8").split("\n\n") if text.strip()]


def _name(paragraph: str) -> str:
    return paragraph.strip().partition("\n")[0].removeprefix("Package: ")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
