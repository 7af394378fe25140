"""The harness of this folder catches what it is for."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.support.hostile import Result, assert_printable, assert_refused, run_corral, run_limited

REFUSED = Result(2, "", "corral lock: no.\n  → corral lock\n")


def python(code, **limits):
    return run_limited([sys.executable, "-I", "-c", code], **limits)


def test_a_command_that_takes_too_much_memory_is_not_refused_but_fails():
    result = python("bytearray(600 << 20)", memory_mib=512)

    assert "MemoryError" in result.stderr
    with pytest.raises(AssertionError, match="Traceback"):
        assert_refused(result)


def test_a_command_that_never_ends_is_stopped_by_its_processor_seconds():
    result = python("while True: pass", cpu_seconds=1)

    assert result.code == -signal.SIGXCPU
    with pytest.raises(AssertionError, match="exit -"):
        assert_refused(result)


def test_corral_in_a_fork_has_its_limits_too():
    assert "MemoryError" in run_corral(["completion", "bash"], memory_mib=1).stderr
    assert run_corral(["completion", "bash"]).code == 0


@pytest.mark.parametrize(
    ("code", "error"),
    [("b'x' * (64 << 20)", "MiB of memory"), ("while time.process_time() < 2: pass", "processor seconds"), ("0", "")],
    ids=["memory", "time", "neither"],
)
def test_what_a_test_itself_takes_is_bounded(code, error):
    with_bounds = "import time\nfrom tests.support.hostile import within\nwith within(memory_mib=32, cpu_seconds=1):\n "

    result = run_limited([sys.executable, "-c", with_bounds + code])

    assert result.code == bool(error), result.stderr
    assert error in result.stderr.strip().rpartition("\n")[2]


def test_within_its_limits_a_command_has_all_of_its_streams():
    result = python("import sys; print(input()); sys.exit(len(input()))", stdin="a\nbc\n")

    assert (result.code, result.stdout, result.stderr) == (2, "a\n", "")


@pytest.mark.parametrize("code", [0, -9, 120])
def test_what_did_not_end_as_a_refusal_is_none(code):
    assert_refused(REFUSED)
    with pytest.raises(AssertionError):
        assert_refused(Result(code, REFUSED.stdout, REFUSED.stderr))


def test_a_refusal_without_a_word_is_none():
    with pytest.raises(AssertionError, match="does not say why"):
        assert_refused(Result(2, "", "\n"))


@pytest.mark.parametrize(
    "character", ["\0", "\x1b", "\r", "\b", "\x7f", "\x9b", "\u202e", "\u2066", "\u200f", "\ufeff", "\u2028", "\ud800"]
)
def test_what_a_terminal_would_obey_is_found_in_either_stream(character):
    assert_printable("Grüße, 模型 ok\n\t")
    with pytest.raises(AssertionError):
        assert_refused(Result(2, character, "why"))
    with pytest.raises(AssertionError):
        assert_refused(Result(2, "", f"why {character}"))
