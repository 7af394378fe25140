"""The programs of Debian that a test needs: the shells that may be a container's /bin/sh, and curl."""

from __future__ import annotations

import shutil

from tests.support.kernel import not_permitted

SHELLS = {"dash": ["dash"], "busybox": ["busybox", "sh"]}
PACKAGES = {"dash": "dash", "busybox": "busybox-static", "curl": "curl"}
"""Debian's, and with it that of the images that carry a GPU engine; Alpine's."""


def shell(name: str) -> list[str]:
    """The command of the shell *name*; without it the test shows nothing."""
    words = SHELLS[name]
    return [program(words[0]), *words[1:]]


def program(name: str) -> str:
    """The path of the program *name*; without it the test shows nothing."""
    found = shutil.which(name)
    if found is None:
        not_permitted(f"{name} is not installed: apt-get install {PACKAGES[name]}, or INSTALL=1 make test")
    return found
