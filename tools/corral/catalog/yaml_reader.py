"""Reads a YAML file strictly, and keeps the line of every key and value.

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

from corral.agent.lock_file import content_of
from corral.errors import CatalogInvalid, Problem

KeyPath = tuple[str | int, ...]

_INT = re.compile(r"-?[1-9][0-9]{0,14}|0")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]{0,7})\.[0-9]{1,7}")
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
# PyYAML knows what YAML 1.1 would make of a plain scalar; these are read otherwise by YAML 1.2 or by Terraform.
_AMBIGUOUS = re.compile(r"y|n|0o[0-7]+|[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?", re.IGNORECASE)
_MOST_BYTES, _MOST_NODES, _DEEPEST = 64 << 10, 4096, 16  # far more than any file of a catalog needs
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

    def problem(self, path: KeyPath, message: str) -> Problem:
        """What is wrong at *path*."""
        return Problem(self.file, self.line_of(path), dotted(path), message)


def dotted(path: KeyPath) -> str:
    """*path* as people write it: ``tenants.frigate.budget_mib``."""
    return ".".join(str(step) for step in path)


class _Reader:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []

    def refuse(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self.file, node.start_mark.line + 1, dotted(path), message))

    def read(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            self._require_tag(node, path, "map")
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            self._require_tag(node, path, "seq")
            return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._scalar(key_node, path) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                self.refuse(key_node, path, "a key must be a plain word or quoted text.")
                continue
            if key == "<<":
                self.refuse(key_node, path, "merge keys (<<) are not allowed: write the values out.")
                continue
            if key in result:
                first = self.lines[(*path, key)]
                self.refuse(key_node, (*path, key), f"the key stands twice; the first is on line {first}.")
                continue
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            result[key] = self.read(value_node, (*path, key))
        return result

    def _require_tag(self, node: yaml.Node, path: KeyPath, kind: str) -> None:
        if node.tag != _TAG + kind:
            self.refuse(node, path, f"the tag {node.tag} is not allowed.")

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        # Terraform normalises every text that it reads: the lock must hold the same.
        text = unicodedata.normalize("NFC", node.value)
        if node.style is not None:
            self._require_tag(node, path, "str")
            return text
        if node.tag not in _PLAIN_TAGS or (text in _CONSTANTS and node.tag == f"{_TAG}str"):
            self.refuse(node, path, f"the tag {node.tag} is not allowed.")
            return text
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _INT.fullmatch(text) and node.tag == f"{_TAG}int":
            return int(text)
        if _FLOAT.fullmatch(text) and node.tag == f"{_TAG}float":
            return float(text)
        if node.tag not in (f"{_TAG}str", f"{_TAG}merge") or _AMBIGUOUS.fullmatch(text):
            rule = f'write "{text}" for text, or a plain number, true or false.'
            self.refuse(node, path, f"YAML readers disagree about {text}: {rule}")
        return text


def read(file: Path) -> Document:
    """Read *file*: exactly one document, plain data only.

    Raises:
        CatalogInvalid: not readable, not UTF-8, not YAML, empty, or ambiguous; every problem with its line.
    """
    try:
        return document(content_of(file, at_most=_MOST_BYTES), file)
    except OSError as error:
        raise _invalid(file, f"cannot be read: {error.strerror}.") from None


def document(content: bytes, file: Path) -> Document:
    """The document that *content* of *file* is; raises as ``read``."""
    try:
        value, lines = parse(content.decode("utf-8"), file)
    except UnicodeDecodeError as error:
        raise _invalid(file, f"not UTF-8 text (byte {error.start}).") from None
    if not lines:
        raise _invalid(file, "the file is empty.")
    found = Document(file, value, lines, hashlib.sha256(content).hexdigest())
    if not isinstance(value, dict):
        raise CatalogInvalid([found.problem((), "the file must be a mapping (key: value).")])
    return found


def parse(text: str, file: Path) -> tuple[Any, dict[KeyPath, int]]:
    """The value in *text* of *file*, and the line of each key and value (none when it is empty); raises as ``read``."""
    try:
        node = compose(text)
    except NotAllowed as error:
        raise _invalid(file, f"{error.problem}.", error.problem_mark) from None
    except yaml.MarkedYAMLError as error:
        raise _invalid(file, f"not valid YAML: {error.problem}.", error.problem_mark or error.context_mark) from None
    except yaml.YAMLError as error:
        raise _invalid(file, f"not valid YAML: {error}.") from None
    reader = _Reader(file)
    value = reader.read(node, ()) if node else None
    if reader.problems:
        raise CatalogInvalid(reader.problems)
    return value, reader.lines


class NotAllowed(yaml.MarkedYAMLError):
    """YAML that no file of a catalog has; ``problem`` says what."""


class _Composer(yaml.SafeLoader):
    """Stops at the first node that is not allowed: what comes after it is never read."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        self._nodes += 1
        if getattr(event, "anchor", None):  # of an alias too
            problem = "anchors and aliases are not allowed: write the value out"
        elif self._depth == _DEEPEST:
            problem = f"nested deeper than {_DEEPEST} levels"
        elif self._nodes > _MOST_NODES:
            problem = f"more than {_MOST_NODES} keys and values"
        else:
            self._depth += 1
            node = super().compose_node(parent, index)
            self._depth -= 1
            return node
        raise NotAllowed(problem=problem, problem_mark=event.start_mark)


def compose(text: str) -> yaml.Node | None:
    """The document in *text*; None for an empty one.

    Raises:
        NotAllowed: it has an anchor or an alias, is nested too deep, or is too long.
        yaml.YAMLError: it is not YAML, or has more than one document.
    """
    composer = _Composer(text)
    try:
        return composer.get_single_node()
    finally:
        composer.dispose()


def _invalid(file: Path, message: str, mark: Any = None) -> CatalogInvalid:
    return CatalogInvalid([Problem(file, mark.line + 1 if mark else 1, "", message)])
