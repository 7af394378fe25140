"""Begins a post-mortem: the timeline and its curves are there, every other heading is for a person to fill."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from corral import templates
from corral.errors import Refused
from corral.timeline import report
from corral.timeline.report import Timeline


def write(timeline: Timeline, folder: Path, title: str) -> Path:
    """A new file in *folder*, ``<date>-<title>.md``, with *timeline*; gives its path.

    Raises:
        Refused: there is such a file, the title has no letter or digit, or the folder cannot be written.
    """
    date = datetime.fromtimestamp(timeline.since, UTC).strftime("%Y-%m-%d")
    slug = "-".join(re.findall(r"[a-z0-9]+", title.lower()))[:80].strip("-")
    if not slug:
        raise Refused(f"The title {title!r} has no letter or digit of a to z.", next_step='--post-mortem "no room"')
    path = folder / f"{date}-{slug}.md"
    text = templates.render(
        "post_mortem.md.j2",
        date=date,
        title=_cell(title),
        since=timeline.time(timeline.since, form="%Y-%m-%d %H:%M"),
        until=timeline.time(timeline.until, form="%Y-%m-%d %H:%M"),
        zone=timeline.time(timeline.since, form="%Z") or "UTC",
        curves=[_line(one) for one in report.curves(timeline)],
        rows=[tuple(map(_cell, row)) for row in report.rows(timeline)],
        columns=report.COLUMNS,
        damaged=timeline.recording.damaged,
    )
    try:
        folder.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file, _removed_unless_whole(path):
            file.write(text)
            file.flush()
    except FileExistsError:
        raise Refused(f"{path} is there already.", next_step="Choose another title: --post-mortem TITLE") from None
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}."
        raise Refused(message, next_step=f"ls -ld {shlex.quote(str(folder))}") from None
    return path


@contextmanager
def _removed_unless_whole(path: Path) -> Iterator[None]:
    """The block writes the new file *path*; one that it cannot write whole is removed."""
    try:
        yield
    except OSError:
        path.unlink()
        raise


def _line(text: str) -> str:
    """*text*, which has names from outside, on one line."""
    return "".join(char if char.isprintable() else "�" for char in text)


def _cell(text: str) -> str:
    """*text* in a cell of a Markdown table: nothing in it is markup."""
    return re.sub(r"([\\`*_{}\[\]<>|#&~])", r"\\\1", _line(text))
