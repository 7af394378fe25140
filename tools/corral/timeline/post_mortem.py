"""Begins a post-mortem: the timeline and its curves are there, every other heading is for a person to fill."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from corral import markdown, templates
from corral.timeline import recording, report
from corral.timeline.report import Timeline


def write(timeline: Timeline, folder: Path, title: str) -> Path:
    """A new file in *folder*, ``<date>-<title>.md``, with *timeline*; gives its path.

    Raises:
        Refused: there is such a file, the title has no letter or digit, or the folder cannot be written.
    """
    date = datetime.fromtimestamp(timeline.since, UTC).strftime("%Y-%m-%d")
    name = markdown.slug(title, example='--post-mortem "no room"')
    path = folder / f"{date}-{name}.md"
    text = templates.render(
        "post_mortem.md.j2",
        date=date,
        title=markdown.cell(title),
        since=timeline.time(timeline.since, form="%Y-%m-%d %H:%M"),
        until=timeline.time(timeline.until, form="%Y-%m-%d %H:%M"),
        zone=timeline.time(timeline.since, form="%Z") or "UTC",
        curves=[markdown.one_line(one) for one in report.curves(timeline)],
        rows=[tuple(map(markdown.cell, row)) for row in report.rows(timeline)],
        columns=report.COLUMNS,
        damaged=recording.damaged(count) if (count := timeline.recording.damaged) else "",
    )
    markdown.create(path, text, another="--post-mortem TITLE")
    return path
