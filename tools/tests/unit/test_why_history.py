"""What the log tells of each model's last load."""

from __future__ import annotations

from datetime import UTC, datetime

from corral.why import history

AT = datetime(2026, 11, 21, 14, 55, 12, tzinfo=UTC).timestamp()


def line(second: int, text: str, level: str = "WARN") -> str:
    return f"2026-11-21T14:55:{second:02}Z [{level}] {text}\n"


def begun(model: str) -> str:
    return f"preflight: room for {model}: it needs 64 MiB, 9000 MiB of 16000 MiB are free\n0.00.001 E of {model}\n"


def ready(second: int, model: str) -> str:
    return line(second, f"<{model}> Health check passed on http://127.0.0.1:5800/health", "INFO")


def ended(second: int, model: str, reason: str = "upstream command exited prematurely") -> str:
    return line(second, f"group: running {model} exited: {reason}")


def test_a_failed_load_is_dated_and_has_its_reason():
    found = history.read(begun("a") + ended(12, "a"))["a"]

    assert (found.state, found.failure, found.at) == ("failed", "exited", AT)
    assert found.reason == "upstream command exited prematurely"


def test_a_load_that_worked_makes_a_failure_old():
    found = history.read(begun("a") + ended(1, "a") + begun("a") + ready(12, "a"))["a"]

    assert (found.state, found.failures, found.at) == ("ready", 0, AT)


def test_a_death_is_remembered_when_the_model_was_loaded_again():
    log = begun("a") + ready(1, "a") + ended(2, "a", "[a] upstream exited unexpectedly") + begun("a") + ready(12, "a")

    found = history.read(log)["a"]

    assert (found.state, found.mishap, found.mishap_at) == ("ready", "[a] upstream exited unexpectedly", AT - 10)
    assert history.read(log + ended(13, "a", "[a] shutdown"))["a"].mishap == "[a] upstream exited unexpectedly"


def test_failures_in_a_row_are_counted_also_while_it_is_loaded_again():
    log = (begun("a") + ended(1, "a")) * 2 + begun("a")

    found = history.read(log)["a"]

    assert (found.state, found.failures) == ("loading", 2)
    assert history.words_of(log, "a", found).count("0.00.001 E of a") == 1


def test_a_death_after_it_was_ready_is_told_apart():
    found = history.read(begun("a") + ready(1, "a") + ended(2, "a", "[a] upstream exited unexpectedly"))["a"]

    assert found.failure == "died"


def test_a_program_that_does_not_start_says_nothing_before():
    found = history.read(ended(2, "a", "failed to start command '/x a': fork/exec /x: no such file or directory"))["a"]

    assert (found.failure, found.failures) == ("not started", 1)


def test_an_end_that_was_asked_for_is_no_failure():
    for reason in ("aborted", "[a] shutdown", "group is shutting down", "group: model unloaded"):
        assert history.read(begun("a") + ended(1, "a", reason))["a"].failures == 0


def test_an_id_with_dots_and_dashes_is_read_whole():
    assert list(history.read(begun("qwen3-vl.8b-x") + ended(1, "qwen3-vl.8b-x"))) == ["qwen3-vl.8b-x"]


def test_every_word_of_a_preflight_begins_a_load():
    for words in ("no room for a: it", "room for a: it", "memory unknown for a, which", "no engine for a: /x"):
        assert history.read(f"preflight: {words}\n")["a"].state == "loading"


def test_words_of_another_model_are_not_taken_for_its_own():
    log = begun("a") + begun("b") + ended(1, "b") + ended(2, "a")
    found = history.read(log)

    assert "of b" not in history.words_of(log, "a", found["a"])
    assert "of a" not in history.words_of(log, "b", found["b"])


def test_alone_every_word_is_its_own():
    log = begun("b") + ended(1, "b") + begun("a") + "no name here\n" + ended(2, "a")

    assert "no name here" in history.words_of(log, "a", history.read(log)["a"])
