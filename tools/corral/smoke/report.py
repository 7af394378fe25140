"""The result of a smoke run, as JSON and as JUnit XML."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from corral.errors import CannotRun
from corral.files import write_atomically
from corral.smoke.checks import Status

ENDPOINT = "*"
"""Stands in the place of a model where the endpoint itself is checked."""

_SUITE = "corral smoke"
_JUNIT_TAGS = {"passed": "system-out", "failed": "failure", "skipped": "skipped", "error": "error"}
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class CheckResult:
    """One line of the report; ``seconds`` is how long the check took, 0 when it was skipped."""

    model: str
    check: str
    status: Status
    reason: str
    seconds: float


@dataclass(frozen=True)
class Report:
    """All checks of one run.

    Attributes:
        endpoint: its address, without ``/v1``.
        checks: in the order they were made.
    """

    endpoint: str
    checks: tuple[CheckResult, ...]

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.status == "failed")

    @property
    def passed(self) -> bool:
        """Whether no check failed, and at least one model answered."""
        answered = any(check.status == "passed" and check.model != ENDPOINT for check in self.checks)
        return answered and not self.failed

    def as_json(self) -> dict[str, Any]:
        """The shape that ``--json`` prints."""
        checks = [asdict(check) for check in self.checks]
        return {"endpoint": self.endpoint, "passed": self.passed, "checks": checks}


def junit(report: Report, *, name: str = _SUITE) -> bytes:
    """*report* as JUnit XML: one test case per check, in a suite called *name*."""
    suite = ET.Element("testsuite", name=name, time=f"{sum(check.seconds for check in report.checks):.3f}")
    for check in report.checks:
        model = "endpoint" if check.model == ENDPOINT else _xml_text(check.model)
        case = ET.SubElement(suite, "testcase", classname=model, name=check.check, time=f"{check.seconds:.3f}")
        verdict = ET.SubElement(case, _JUNIT_TAGS[check.status])
        if check.status == "passed":
            verdict.text = _xml_text(check.reason)
        else:
            verdict.set("message", _xml_text(check.reason))
    suite.set("tests", str(len(suite)))
    for count, status in (("failures", "failed"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(sum(check.status == status for check in report.checks)))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def junit_of_error(message: str, *, name: str = _SUITE) -> bytes:
    """JUnit XML of a run that could not be made: one test case, with an error, in a suite called *name*."""
    return junit(Report("", (CheckResult(ENDPOINT, "run", "error", message, 0.0),)), name=name)


def write(path: Path, content: bytes) -> None:
    """Replace the file at *path* as a whole: a reader gets the old report or the new one.

    Raises:
        CannotRun: it cannot be written there.
    """
    try:
        write_atomically(path, content)
    except OSError as error:
        raise CannotRun(
            f"The report cannot be written to {path}: {error.strerror or error}.",
            next_step="Name a file in a folder that exists and that you may write to: --junit FILE",
        ) from error


def _xml_text(text: str) -> str:
    """*text* with the characters that XML cannot hold, not even escaped, written as Python would."""
    return _NOT_IN_XML.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
