"""Prints: data to stdout, messages to stderr, both without anything that a terminal would obey.

Library code never imports this module; it raises or returns.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from corral.errors import CannotRun

_STYLES = {"passed": "green", "failed": "bold red", "skipped": "yellow", "ready": "green"}


def open_streams() -> None:
    """Make stdout and stderr usable.

    Where the caller closed one, no other file must become it: results fail then, messages are lost.
    """
    if sys.stdout is None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 1)
        sys.stdout = os.fdopen(1, "w")
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):  # the name of a file may be no text
        sys.stdout.reconfigure(errors="backslashreplace")


def write(text: str) -> None:
    """Write *text* to stdout, and what is still buffered.

    Raises:
        BrokenPipeError, CannotRun: its reader has gone; it is closed, or its disk is full.
    """
    try:
        if text:  # unbuffered, writing nothing fails too
            sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes what is left at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        message = f"Results cannot be written to stdout: {error.strerror}."
        raise CannotRun(message, next_step="Redirect stdout to another place") from None


def visible(text: str) -> str:
    r"""*text* with what a terminal would obey, or not show, as JSON's escapes (``\u001b``); line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else json.dumps(char)[1:-1] for char in text)


def data(text: str) -> None:
    """Print *text*, ``visible``, to stdout, with one newline at the end."""
    write(visible(text if text.endswith("\n") else f"{text}\n"))


def data_json(value: Any) -> None:
    """Print *value* to stdout as JSON: indented, keys in the order given."""
    data(json.dumps(value, indent=2, ensure_ascii=False))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """Print a table to stdout: boxed and coloured on a terminal, tab-separated when piped.

    Args:
        columns: the headings.
        rows: one sequence of cells per line, each as long as *columns*.
        title: printed above the table on a terminal.
    """
    columns, *rows = ([visible(cell) for cell in cells] for cells in (columns, *rows))
    if not sys.stdout.isatty():
        lines = (map(_on_one_line, cells) for cells in (columns, *rows))  # a cell makes no row and no column
        data("\n".join("\t".join(cells) for cells in lines))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=visible(title) or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for cells in rows:
        drawn.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    Console().print(drawn)


def _on_one_line(cell: str) -> str:
    return cell.replace("\n", "\\n").replace("\t", "\\t")


def result(
    document: Any, columns: Sequence[str], rows: Sequence[Sequence[str]], *, as_json: bool, title: str = ""
) -> None:
    """Print *document* with *as_json*, else *rows* as a table."""
    if as_json:
        data_json(document)
    else:
        table(columns, rows, title=title)


def clear() -> None:
    """Empty the terminal that stdout is; elsewhere, nothing."""
    if sys.stdout.isatty():
        write("\x1b[H\x1b[2J")


def styled(pieces: Sequence[tuple[str, str]]) -> None:
    """Print *pieces*, each a text and its style, to stdout: coloured on a terminal, plain when piped."""
    if not sys.stdout.isatty():
        data("".join(text for text, _ in pieces))
        return
    from rich.console import Console
    from rich.text import Text

    shown = Text.assemble(*((visible(text), style) for text, style in pieces))
    Console(highlight=False).print(shown, soft_wrap=True)


def info(text: str) -> None:
    """Print *text*, ``visible``, to stderr: progress, notes, questions, errors."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


def piece(text: str) -> None:
    """Print *text*, ``visible``, to stderr as it is: a part of a line, at once."""
    sys.stderr.write(visible(text))
    sys.stderr.flush()


def warn(text: str) -> None:
    """Print a warning to stderr: something that needs attention but stops nothing."""
    info(f"warning: {text}")
