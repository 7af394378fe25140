"""The shells that a script for a container's /bin/sh has to run in."""

from __future__ import annotations

import shutil

from tests.support.kernel import not_permitted

SHELLS = {"dash": ["dash"], "busybox": ["busybox", "sh"]}
PACKAGES = {"dash": "dash", "busybox": "busybox-static"}
"""Debian's, and with it that of the images that carry a GPU engine; Alpine's."""


def shell(name: str) -> list[str]:
    """The command of the shell *name*; without it the test shows nothing."""
    words = SHELLS[name]
    program = shutil.which(words[0])
    if program is None:
        not_permitted(f"{words[0]} is not installed: apt-get install {PACKAGES[name]}, or INSTALL=1 make test")
    return [program, *words[1:]]
