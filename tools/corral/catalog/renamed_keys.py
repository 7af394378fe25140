"""Keys of a model's file that have another name now, and the edit that renames them."""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml

from corral.agent.lock_file import content_of
from corral.catalog import yaml_reader
from corral.files import refuse_unwritable, write_atomically

RENAMED = {"slot": "group"}
"""Old name to new name, of keys at the top of ``models/<id>.yaml``."""


def files(directory: Path) -> list[Path]:
    """The models' files of the catalog in *directory* that have an old key and can be edited."""
    return [file for file in sorted((directory / "models").glob("[!.]*.yaml")) if _renamed(_text(file)) is not None]


def rename(file: Path) -> None:
    """Rename the old keys of *file*: only their names change, comments and order stay.

    Raises:
        Refused: the file cannot be written.
    """
    text = _renamed(_text(file))
    if text is None:
        return
    with refuse_unwritable(file, next_step=f"ls -l {shlex.quote(str(file))}"):
        write_atomically(file, text)


def _text(file: Path) -> str:
    try:
        return content_of(file).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""  # for `corral validate` to refuse


def _renamed(text: str) -> str | None:
    """*text* with new names for old keys; None when it has none, both names, or is not YAML."""
    try:
        node = yaml_reader.compose(text)
    except yaml.YAMLError:
        return None
    if not isinstance(node, yaml.MappingNode):
        return None
    names = [key.value for key, _ in node.value]
    if any(new in names or names.count(old) > 1 for old, new in RENAMED.items() if old in names):
        return None
    new = text
    for key, _ in reversed(node.value):
        if isinstance(key, yaml.ScalarNode) and key.value in RENAMED:
            start, end = key.start_mark.index, key.end_mark.index
            before, plain, after = text[start:end].rpartition(key.value)  # within its quotes; an escaped key has none
            name = f"{before}{RENAMED[key.value]}{after}" if plain else f'"{RENAMED[key.value]}"'
            new = new[:start] + name + new[end:]
    return new if new != text else None
