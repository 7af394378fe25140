"""New Markdown documents with a date in their name, and text from outside within them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corral.errors import Refused


def slug(title: str, *, example: str) -> str:
    """*title* as a part of a file's name: letters a to z, digits and hyphens, 80 at most.

    Raises:
        Refused: it has none of them; *example* is the option with a title that has.
    """
    found = "-".join(re.findall(r"[a-z0-9]+", title.lower()))[:80].strip("-")
    if not found:
        raise Refused(f"The title {title!r} has no letter or digit of a to z.", next_step=example)
    return found


def one_line(text: str) -> str:
    """*text*, which has names from outside, on one line."""
    return "".join(char if char.isprintable() else "�" for char in text)


def cell(text: str) -> str:
    """*text* in a cell of a table: nothing in it is markup."""
    return re.sub(r"([\\`*_{}\[\]<>|#&~])", r"\\\1", one_line(text))


def create(path: Path, text: str, *, another: str) -> None:
    """Write *text* to the new file *path*; one that cannot be written whole is removed.

    Raises:
        Refused: there is such a file (*another* is the option that names another), or its folder cannot be written.
    """
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file, _removed_unless_whole(path):
            file.write(text)
            file.flush()
    except FileExistsError:
        raise Refused(f"{path} is there already.", next_step=f"Choose another title: {another}") from None
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}."
        raise Refused(message, next_step=f"ls -ld {shlex.quote(str(path.parent))}") from None


@contextmanager
def _removed_unless_whole(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError:
        path.unlink()
        raise
