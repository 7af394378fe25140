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
        passed: no check failed, and at least one model answered.
        checks: in the order they were made.
    """

    endpoint: str
    passed: bool
    checks: tuple[CheckResult, ...]

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.status == "failed")

    def as_json(self) -> dict[str, Any]:
        """The shape that ``--json`` prints."""
        return asdict(self)


def report_of(endpoint: str, checks: tuple[CheckResult, ...]) -> Report:
    """The report of *checks*: passed when none failed and a model was asked at all."""
    answered = any(check.status == "passed" and check.model != ENDPOINT for check in checks)
    return Report(endpoint, answered and all(check.status != "failed" for check in checks), checks)


def junit(report: Report) -> bytes:
    """*report* as JUnit XML: one test case per check."""
    suite = ET.Element("testsuite", name="corral smoke")
    for check in report.checks:
        case = ET.SubElement(
            suite,
            "testcase",
            classname="endpoint" if check.model == ENDPOINT else _xml_text(check.model),
            name=check.check,
            time=f"{check.seconds:.3f}",
        )
        if check.status == "passed":
            ET.SubElement(case, "system-out").text = _xml_text(check.reason)
        else:
            verdict = ET.SubElement(case, {"failed": "failure", "skipped": "skipped"}[check.status])
            verdict.set("message", _xml_text(check.reason))
    return _document(
        suite,
        failures=len(report.failed),
        skipped=sum(check.status == "skipped" for check in report.checks),
        time=sum(check.seconds for check in report.checks),
    )


def junit_of_error(message: str) -> bytes:
    """JUnit XML of a run that could not be made: one test case, with an error."""
    suite = ET.Element("testsuite", name="corral smoke")
    case = ET.SubElement(suite, "testcase", classname="endpoint", name="run", time="0.000")
    ET.SubElement(case, "error", message=_xml_text(message))
    return _document(suite, errors=1)


def write(path: Path, content: bytes) -> None:
    """Replace the file at *path* as a whole: a reader sees the old report or the new one.

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


def _document(suite: ET.Element, *, failures: int = 0, errors: int = 0, skipped: int = 0, time: float = 0.0) -> bytes:
    counts = {"tests": len(suite), "failures": failures, "errors": errors, "skipped": skipped}
    suite.attrib.update({name: str(count) for name, count in counts.items()}, time=f"{time:.3f}")
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _xml_text(text: str) -> str:
    """*text* with the characters that XML cannot hold, not even escaped, written as Python would."""
    return _NOT_IN_XML.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
