"""Every exception of corral in one place.

CorralError
├── Failed       exit 1   the work was done and its result is bad
├── Refused      exit 2   the request or the configuration is wrong
│   ├── CatalogInvalid    one or more problems in the catalog, each with file and line
│   ├── EvalSetInvalid    the same of a set of cases
│   ├── LockStale         the lock does not belong to this catalog
│   ├── RevisionMissing   the model hub has no such branch, tag or commit
│   ├── UnreadableHeader  a file is no GGUF that this corral reads
│   ├── NoModel           a file is a GGUF and no model: an adapter, or a projector
│   └── EngineCannotPredict   the engine could not predict what a model takes
└── CannotRun    exit 3   the work could not be done here and now
    ├── HubUnavailable    the model hub did not answer
    │   └── HubUnreachable    there is no connection to it
    └── ProgramMissing    a program that corral needs is not installed

Library code raises these; only ``corral.cli.main`` turns them into text and an exit code.  Anything else that
escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

import shlex
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from corral.agent.errors import CannotRun, CorralError, Failed, Refused

if TYPE_CHECKING:  # `corral --help` imports this module: keep it light
    from collections.abc import Sequence
    from pathlib import Path

__all__ = [
    "CannotRun",
    "CatalogInvalid",
    "CorralError",
    "EngineCannotPredict",
    "EvalSetInvalid",
    "ExitCode",
    "Failed",
    "HubUnavailable",
    "HubUnreachable",
    "LockStale",
    "NoModel",
    "Problem",
    "ProgramMissing",
    "Refused",
    "RevisionMissing",
    "UnreadableHeader",
]


_LONGEST_MESSAGE = 2000  # a value of the file may be part of it


class ExitCode(IntEnum):
    """The exit codes: the first four are those of every command, the last is that of `corral bench`."""

    OK = 0
    FAILED = 1
    REFUSED = 2
    CANNOT_RUN = 3
    INVALID = 4


class Problem(NamedTuple):
    """One thing that is wrong in a file: where, what, and what is allowed."""

    file: Path
    line: int
    where: str
    message: str

    def printable(self) -> Problem:
        """The same without what a terminal would obey; its text is a file's."""
        from corral.agent.hub_policy import printable

        return self._replace(where=printable(self.where), message=printable(self.message, longest=_LONGEST_MESSAGE))

    def __str__(self) -> str:
        where = f" {self.where}:" if self.where else ""
        return f"{self.file}:{self.line}:{where} {self.message}"


class CatalogInvalid(Refused):
    """The catalog breaks at least one rule; ``problems`` lists all of them."""

    def __init__(self, problems: Sequence[Problem], directory: Path | None = None) -> None:
        self.problems = tuple(sorted(problem.printable() for problem in problems))
        again = f"corral validate --catalog {shlex.quote(str(directory))}" if directory else "corral validate"
        super().__init__(_listed(self.problems, "The catalog"), next_step=f"Correct the lines above, then run: {again}")


class EvalSetInvalid(Refused):
    """A set of cases breaks at least one rule; ``problems`` lists all of them."""

    def __init__(self, problems: Sequence[Problem], directory: Path) -> None:
        self.problems = tuple(sorted(problem.printable() for problem in problems))
        super().__init__(
            _listed(self.problems, f"The set {directory}"),
            next_step="Correct the lines above; docs/eval.md has every key",
        )


def _listed(problems: Sequence[Problem], whose: str) -> str:
    lines = "\n".join(str(problem) for problem in problems)
    return f"{lines}\n{whose} has {len(problems)} {'problem' if len(problems) == 1 else 'problems'}."


class LockStale(Refused):
    """lock.json does not belong to the catalog beside it."""


class RevisionMissing(Refused):
    """The repository on the model hub has no such branch, tag or commit."""


class UnreadableHeader(Refused):
    """A file is not a GGUF, is damaged, or is of a kind that this corral does not read."""


class NoModel(Refused):
    """A file is a GGUF and no model: an adapter, or a projector; the engine aborts on it."""


class EngineCannotPredict(Refused):
    """The engine could not predict what a model takes with its command line; the message has its reason."""


class HubUnavailable(CannotRun):
    """The model hub could not be reached or did not answer as a hub does."""


class HubUnreachable(HubUnavailable):
    """No connection to the model hub: every request fails alike, so no other is sent."""

    def __init__(self, endpoint: str, reason: str) -> None:
        super().__init__(
            f"The hub at {endpoint} is unreachable: {reason}.",
            next_step="Check the network and HF_ENDPOINT, then: corral lock",
        )


class ProgramMissing(CannotRun):
    """A program that corral drives is missing, too old, or does not start."""
