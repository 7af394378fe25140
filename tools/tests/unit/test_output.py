"""What is printed cannot steer a terminal, whichever function prints it."""

from __future__ import annotations

import io
import json
import sys

import pytest

from corral import output
from tests.support.hostile import assert_printable

FOREIGN = "a\x1b]0;owned\x07b\u202e\x9b\x00\r\u2028\ud800\U000e0041c"
ESCAPED = r"a\u001b]0;owned\u0007b\u202e\u009b\u0000\r\u2028\ud800\udb40\udc41c"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    "show",
    [
        lambda: output.data(FOREIGN),
        lambda: output.info(FOREIGN),
        lambda: output.warn(FOREIGN),
        lambda: output.table([FOREIGN], [[FOREIGN]], title=FOREIGN),
        lambda: output.result({}, ["name"], [[FOREIGN]], as_json=False),
        lambda: output.styled([("safe", "bold"), (FOREIGN, "red")]),
    ],
)
@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_what_is_not_printable_is_escaped(monkeypatch, show, stream):
    monkeypatch.setattr(sys, "stdout", out := stream())
    monkeypatch.setattr(sys, "stderr", err := stream())
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "500")

    show()

    assert ESCAPED in out.getvalue() + err.getvalue()
    assert_printable(err.getvalue())
    assert_printable(out.getvalue().replace("\x1b[1m", "").replace("\x1b[3m", "").replace("\x1b[0m", ""))


def test_a_cell_makes_no_row_and_no_column_of_a_table_that_is_piped(capsys):
    output.table(("box", "state"), [("users", "failed\nhealth\tpassed")])

    assert capsys.readouterr().out == "box\tstate\nusers\tfailed\\nhealth\\tpassed\n"


def test_text_lines_and_tabs_are_printed_as_they_are(capsys):
    output.data("Grüße, 模型 🦙 → ok\n\tnext")

    assert capsys.readouterr().out == "Grüße, 模型 🦙 → ok\n\tnext\n"


def test_json_is_escaped_as_json_and_else_readable(capsys):
    output.data_json({"a": FOREIGN})
    output.data_json({"a": "模型"})

    first, second = capsys.readouterr().out.split("}\n", maxsplit=1)
    assert json.loads(first + "}") == {"a": FOREIGN}
    assert_printable(first)
    assert second == '{\n  "a": "模型"\n}\n'
