"""`python -m tests.support.cluster`: --help starts nothing."""

from __future__ import annotations

import pytest

from tests.support.cluster import __main__ as command_line
from tests.support.cluster import throwaway


@pytest.fixture
def started(monkeypatch):
    calls = []
    for name in ("up", "kept", "down", "sweep", "build"):
        monkeypatch.setattr(throwaway, name, lambda *words, _name=name, **_: calls.append((_name, *words)) or [])
    return calls


@pytest.mark.parametrize("command", ["up", "list", "enter", "down", "build"])
def test_help_is_printed_and_nothing_is_started(command, started, capsys):
    with pytest.raises(SystemExit) as ended:
        command_line.main([command, "--help"])

    assert (ended.value.code, started) == (0, [])
    assert capsys.readouterr().out.startswith(f"usage: python -m tests.support.cluster {command}")


@pytest.mark.parametrize("words", [[], ["nothing"], ["up", "now"], ["build", "--fast"]])
def test_what_it_does_not_know_starts_nothing(words, started, capsys):
    with pytest.raises(SystemExit) as ended:
        command_line.main(words)

    assert (ended.value.code, started) == (2, [])
    assert "usage: " in capsys.readouterr().err


def test_a_command_for_the_node_is_passed_on_with_its_own_options(monkeypatch):
    passed = []
    monkeypatch.setattr(command_line, "_enter", passed.extend)

    assert command_line.main(["enter", "ctr", "-n", "k8s.io", "images", "ls", "--help"]) == 0
    assert passed == ["ctr", "-n", "k8s.io", "images", "ls", "--help"]
