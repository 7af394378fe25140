"""What lies in a store, as rows for a person."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from .progress import count, human
from .survey import Blob, Download, ModelSet, Survey

COLUMNS = ("what", "path", "size", "since", "detail")

Row = tuple[str, str, str, str, str]


def rows(seen: Survey) -> list[Row]:
    """One row, by ``COLUMNS``, for each model, and for each thing that no model needs; paths start at the store."""
    return list(_rows(seen))


def as_data(seen: Survey) -> dict[str, Any]:
    """All of it, for JSON."""
    data = asdict(seen)
    for left in data["leftovers"]:
        left["path"] = str(left["path"])
    return data


def summary(seen: Survey) -> str:
    """The sums, in one sentence."""
    linked = {sha256 for one in seen.sets if one.linked_by for sha256 in one.blobs}
    held = sum(blob.size for blob in seen.blobs)
    idle = sum(blob.size for blob in seen.blobs if blob.sha256 not in linked)
    spare = f", {human(idle)} of it linked to by no model" if idle else ""
    return f"{count(len(seen.blobs), 'blob')}, {human(held)}{spare}; {human(seen.free)} free of {human(seen.total)}"


def _rows(seen: Survey) -> Iterator[Row]:
    for one in seen.sets:
        for link in one.linked_by:
            yield "model", link, human(one.size), _date(one.since), f"{one.name}: {_files(one)}"
    for one in seen.sets:
        if not one.linked_by:
            why = "holds what corral did not make" if one.foreign else f"no link leads to it: {_files(one)}"
            yield "set", f"sets/{one.name}", human(one.size), _date(one.since), why
    for blob in seen.blobs:
        if not blob.used_by:
            yield "blob", f"blobs/{blob.sha256}", human(blob.size), _date(blob.since), _names(blob)
    for download in seen.downloads:
        path = f".corral/partials/{download.folder}"
        yield "part", path, human(download.on_disk), _date(download.since), _progress(download)
    for left in seen.leftovers:
        yield "left over", str(left.path), human(left.size), _date(left.since), left.what


def _files(one: ModelSet) -> str:
    return ", ".join(f"{name} (missing)" if name in one.missing else name for name in one.files) or "empty"


def _names(blob: Blob) -> str:
    return f"no set leads to it: {', '.join(blob.names)}" if blob.names else "empty"


def _progress(download: Download) -> str:
    share = f"{100 * download.done // download.size} % of {human(download.size)}" if download.size else "nothing yet"
    return f"{share}; {f'{download.owner} is at work' if download.owner else 'a fetch goes on from here'}"


def _date(since: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(since))
