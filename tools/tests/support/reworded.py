"""A copy of the agent in which every sentence is another one; codes, fields and the protocol are the same."""

from __future__ import annotations

import ast
import codecs
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from corral import agent

_SOURCE = Path(agent.__file__).parent
_SENTENCE = re.compile(r"[A-Za-z]{2,},? [a-z]{2,}|[a-z]{3,} $|^ [a-z]{3,}|[a-z]{2,}: ")

# The agent as the Job runs it, but less patient: sixty seconds without a byte would be the length of the test.
_MAIN = """
import functools, sys
from agent import __main__ as program, fetch
fetch.TransferSettings = functools.partial(fetch.TransferSettings, give_up_after=0.5, max_pause=0.1)
sys.exit(program.main())
"""


class _Reworded(ast.NodeTransformer):
    def __init__(self) -> None:
        self.count = 0

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if not isinstance(node.value, str) or not _SENTENCE.search(node.value):
            return node
        self.count += 1
        return ast.copy_location(ast.Constant(codecs.encode(node.value, "rot13")), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        # A regular expression may look like a sentence.
        is_pattern = isinstance(node.func, ast.Attribute) and node.func.attr in ("compile", "sub", "fullmatch")
        return node if is_pattern else self.generic_visit(node)


def plain(folder: Path) -> Path:
    """*folder*, with the agent's files as they are."""
    return _copy(folder, lambda text: text)


def reworded(folder: Path) -> Path:
    """*folder*, with the agent's files, each sentence replaced."""
    words = _Reworded()
    copy = _copy(folder, lambda text: ast.unparse(ast.fix_missing_locations(words.visit(ast.parse(text)))))
    assert words.count > 150, "most sentences were not found"
    return copy


def _copy(folder: Path, change) -> Path:
    package = folder / "agent"
    package.mkdir(parents=True)
    for file in _SOURCE.glob("*.py"):
        (package / file.name).write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")
    return folder


def ended(folder: Path, *words: str, stop: bool = False, **environment: str) -> tuple[int, str]:
    """The exit code and the termination message of the agent in *folder*; *stop*: with SIGTERM at its first line."""
    log = folder / "termination-log"
    log.unlink(missing_ok=True)
    command = [sys.executable, "-c", _MAIN, *words, "--termination-log", str(log)]
    with subprocess.Popen(
        command,
        env={"PYTHONPATH": str(folder), "PATH": os.environ["PATH"], "HOME": str(folder), **environment},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        if stop:
            process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert log.is_file(), first + rest
    return process.returncode, log.read_text(encoding="utf-8")
