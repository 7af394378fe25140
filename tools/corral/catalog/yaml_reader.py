"""Reads a YAML file strictly, and remembers on which line everything stands.

Where YAML readers disagree (``off``, ``017``, dates, duplicate keys, merges), the file is refused with the line: an
operator, an editor and this program must read the same in it.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from corral.errors import CatalogInvalid, Problem

KeyPath = tuple[str | int, ...]

_INT = re.compile(r"-?[1-9][0-9]{0,14}|0")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]{0,7})\.[0-9]{1,7}")
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
# PyYAML knows what YAML 1.1 would make of a plain scalar; these are read otherwise by YAML 1.2 or by Terraform.
_AMBIGUOUS = re.compile(r"y|n|0o[0-7]+|[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?", re.IGNORECASE)
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_TAG + kind for kind in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value")}


@dataclass(frozen=True)
class Document:
    """A file's content, the line (from 1) of every value and key in it by path, and the sha256 of its bytes."""

    file: Path
    value: Any
    lines: dict[KeyPath, int] = field(repr=False)
    sha256: str

    def line_of(self, path: KeyPath) -> int:
        """The line of *path*, or of the nearest thing above it that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class _Reader:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []

    def complain(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        where = ".".join(str(step) for step in path)
        self.problems.append(Problem(self.file, node.start_mark.line + 1, where, message))

    def read(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._scalar(key_node, path) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                self.complain(key_node, path, "a key must be a plain word or quoted text.")
                continue
            if key == "<<":
                self.complain(key_node, path, "merge keys (<<) are not allowed: write the values out.")
                continue
            if key in result:
                first = self.lines[(*path, key)]
                self.complain(key_node, (*path, key), f"the key stands twice; the first is on line {first}.")
                continue
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            result[key] = self.read(value_node, (*path, key))
        return result

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        # Terraform normalises every text that it reads: the lock must hold the same.
        text = unicodedata.normalize("NFC", node.value)
        if node.style is not None:
            return text
        if node.tag not in _PLAIN_TAGS:
            self.complain(node, path, f"the tag {node.tag} is not allowed.")
            return text
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _INT.fullmatch(text) and node.tag == f"{_TAG}int":
            return int(text)
        if _FLOAT.fullmatch(text) and node.tag == f"{_TAG}float":
            return float(text)
        if node.tag not in (f"{_TAG}str", f"{_TAG}merge") or _AMBIGUOUS.fullmatch(text):
            self.complain(
                node,
                path,
                f'YAML readers disagree about {text}: write "{text}" for text, or a plain number, true or false.',
            )
        return text


def read(file: Path) -> Document:
    """Read *file*: exactly one document, plain data only.

    Raises:
        CatalogInvalid: not readable, not UTF-8, not YAML, empty, or ambiguous; every problem with its line.
    """
    try:
        content = file.read_bytes()
        text = content.decode("utf-8")
        # Only where there may be some: it takes as long again.
        events = yaml.parse(text, Loader=yaml.SafeLoader) if "&" in text or "*" in text else ()
        anchors = [event for event in events if getattr(event, "anchor", None)]
        node = None if anchors else yaml.compose(text, Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise CatalogInvalid([Problem(file, 1, "", f"not UTF-8 text (byte {error.start}).")]) from None
    except OSError as error:
        raise CatalogInvalid([Problem(file, 1, "", f"cannot be read: {error.strerror}.")]) from None
    except RecursionError:
        raise CatalogInvalid([Problem(file, 1, "", "is nested too deep.")]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise CatalogInvalid([Problem(file, line, "", f"not valid YAML: {error.problem}.")]) from None
    except yaml.YAMLError as error:
        raise CatalogInvalid([Problem(file, 1, "", f"not valid YAML: {error}.")]) from None
    if anchors:
        at = anchors[0].start_mark
        line = at.line + 1 if at else 1
        raise CatalogInvalid([Problem(file, line, "", "anchors and aliases are not allowed: write the value out.")])
    if node is None:
        raise CatalogInvalid([Problem(file, 1, "", "the file is empty.")])
    reader = _Reader(file)
    value = reader.read(node, ())
    if not reader.problems and not isinstance(value, dict):
        reader.complain(node, (), "the file must be a mapping (key: value).")
    if reader.problems:
        raise CatalogInvalid(reader.problems)
    return Document(file, value, reader.lines, hashlib.sha256(content).hexdigest())
