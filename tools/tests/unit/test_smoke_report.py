"""The report: what counts as passed, its JSON shape, and XML that a parser takes."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from corral.errors import CannotRun
from corral.smoke import report
from corral.smoke.report import CheckResult, Report, junit, junit_of_error

ALIVE = CheckResult("*", "liveness", "passed", "liveness only", 0.002)
RIGHT = CheckResult("text", "answer", "passed", 'answered "OK"', 0.25)
WRONG = CheckResult("text", "stream", "failed", "stream ended without [DONE]", 1.5)
LEFT_OUT = CheckResult("eyes", "images", "skipped", "not resident", 0.0)


def result(*checks):
    return Report("http://host", checks)


@pytest.mark.parametrize(
    ("checks", "passed"),
    [
        ((ALIVE, RIGHT), True),
        ((ALIVE, RIGHT, LEFT_OUT), True),
        ((ALIVE, RIGHT, WRONG), False),
        ((ALIVE, LEFT_OUT), False),
        ((ALIVE,), False),
        ((), False),
    ],
    ids=["all-passed", "one-skipped", "one-failed", "no-model-asked", "endpoint-only", "nothing"],
)
def test_passed_means_that_nothing_failed_and_a_model_answered(checks, passed):
    assert result(*checks).passed is passed


def test_the_json_has_exactly_the_documented_shape():
    assert json.loads(json.dumps(result(RIGHT).as_json())) == {
        "endpoint": "http://host",
        "passed": True,
        "checks": [
            {"model": "text", "check": "answer", "status": "passed", "reason": 'answered "OK"', "seconds": 0.25}
        ],
    }


def test_junit_counts_and_names_every_check():
    suite = ET.fromstring(junit(result(ALIVE, RIGHT, WRONG, LEFT_OUT))).find("testsuite")
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "4",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
        "time": "1.752",
    }
    assert [(case.get("classname"), case.get("name")) for case in suite] == [
        ("endpoint", "liveness"),
        ("text", "answer"),
        ("text", "stream"),
        ("eyes", "images"),
    ]
    assert suite.find("testcase/failure").get("message") == "stream ended without [DONE]"
    assert suite.find("testcase/skipped").get("message") == "not resident"


def test_junit_survives_what_xml_cannot_hold():
    nasty = CheckResult("text", "answer", "failed", '<&"]]>\x00\x1b[2J\ud800\uffff é 🦙', 0.1)
    failure = ET.fromstring(junit(result(nasty))).find("testsuite/testcase/failure")
    assert failure.get("message") == '<&"]]>\\x00\\x1b[2J\\ud800\\uffff é 🦙'


def test_a_run_that_could_not_be_made_is_an_error_in_junit():
    suite = ET.fromstring(junit_of_error("No server answers.")).find("testsuite")
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    assert suite.find("testcase/error").get("message") == "No server answers."


def test_a_written_report_replaces_the_old_one_as_a_whole(tmp_path):
    file = tmp_path / "smoke.xml"
    file.write_text("old", encoding="utf-8")
    with file.open(encoding="utf-8") as reader:
        report.write(file, b"new")
        assert reader.read() == "old"
    assert file.read_bytes() == b"new"
    assert [found.name for found in tmp_path.iterdir()] == ["smoke.xml"]


def test_a_report_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "smoke.xml").mkdir()
    with pytest.raises(CannotRun, match="cannot be written to"):
        report.write(tmp_path / "smoke.xml", b"new")
    assert [found.name for found in tmp_path.iterdir()] == ["smoke.xml"]
