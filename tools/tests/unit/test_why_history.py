"""The history of each model's loads, read from the log."""

from __future__ import annotations

from datetime import UTC, datetime

from corral.why import history

AT = datetime(2026, 11, 21, 14, 55, 12, tzinfo=UTC).timestamp()


def line(second: int, text: str, level: str = "WARN") -> str:
    return f"2026-11-21T14:55:{second:02}Z [{level}] {text}\n"


def begun(model: str) -> str:
    return f"preflight: room model={model} need_mib=64 free_mib=9000 total_mib=16000: …\n0.00.001 E of {model}\n"


def ready(second: int, model: str) -> str:
    return line(second, f"<{model}> Health check passed on http://127.0.0.1:5800/health", "INFO")


def ended(second: int, model: str, reason: str = "upstream command exited prematurely") -> str:
    return line(second, f"group: running {model} exited: {reason}")


def test_a_failed_load_is_dated_and_has_its_reason():
    found = history.read(begun("a") + ended(12, "a"))["a"]

    assert (found.state, found.failure, found.at) == ("failed", "exited", AT)
    assert found.reason == "upstream command exited prematurely"
    assert found.has_engine_log


def test_a_load_that_worked_ends_a_row_of_failures():
    found = history.read(begun("a") + ended(1, "a") + begun("a") + ready(12, "a"))["a"]

    assert (found.state, found.failures, found.at) == ("ready", 0, AT)


def test_a_death_is_remembered_when_the_model_was_loaded_again():
    log = begun("a") + ready(1, "a") + ended(2, "a", "[a] upstream exited unexpectedly") + begun("a") + ready(12, "a")

    found = history.read(log)["a"]

    assert (found.state, found.earlier_failure, found.earlier_failure_at) == (
        "ready",
        "upstream exited unexpectedly",
        AT - 10,
    )
    assert history.read(log + ended(13, "a", "[a] shutdown"))["a"].earlier_failure == "upstream exited unexpectedly"


def test_failures_in_a_row_are_counted_also_while_it_is_loaded_again():
    log = (begun("a") + ended(1, "a")) * 2 + begun("a")

    found = history.read(log)["a"]

    assert (found.state, found.failures) == ("loading", 2)
    assert history.log_of(log, "a", found).count("0.00.001 E of a") == 1


def test_a_death_after_it_was_ready_is_no_failed_load():
    found = history.read(begun("a") + ready(1, "a") + ended(2, "a", "[a] upstream exited unexpectedly"))["a"]

    assert found.failure == "died"


def test_a_program_that_does_not_exist_has_an_end_of_its_own():
    found = history.read(ended(2, "a", "failed to start command '/x a': fork/exec /x: no such file or directory"))["a"]

    assert (found.failure, found.failures) == ("no program", 1)
    assert not found.has_engine_log


def test_an_end_that_was_requested_is_no_failure():
    for reason in ("aborted", "[a] shutdown", "group is shutting down", "group: model unloaded"):
        assert history.read(begun("a") + ended(1, "a", reason))["a"].failures == 0


def test_an_id_with_dots_and_dashes_is_read_whole():
    assert list(history.read(begun("qwen3-vl.8b-x") + ended(1, "qwen3-vl.8b-x"))) == ["qwen3-vl.8b-x"]


def test_every_decision_of_a_preflight_begins_a_load_and_no_other_record():
    figures = "model=a need_mib=7 free_mib=1 total_mib=9"
    unknown, missing = "memory-unknown model=a need_mib=7 reason=hidden", "no-engine model=a program=/x"
    for record in (f"room {figures}", f"no-room {figures}", unknown, missing):
        assert history.read(f"preflight: {record}: …\n")["a"].state == "loading"
    for record in ("seat for=b pid=1 seat_mib=2 model=a on_card=yes", "unattributed for=a held_mib=1", "usage"):
        assert history.read(f"preflight: {record}: …\n") == {}


def test_records_of_another_model_are_not_taken_for_its_own_where_the_name_is_a_part_of_it():
    refused = "preflight: no-room model=a-vl need_mib=7 free_mib=1 total_mib=9: …\n"
    seat = "preflight: seat for=a-vl pid=1 seat_mib=2 model=a on_card=yes: …\n"
    log = begun("a") + refused + seat + ended(1, "a-vl") + ended(2, "a")
    found = history.read(log)

    assert "a-vl" not in history.log_of(log, "a", found["a"])
    assert history.log_of(log, "a-vl", found["a-vl"]).count("a-vl") == 2


def test_lines_of_another_model_are_not_taken_for_its_own():
    log = begun("a") + begun("b") + ended(1, "b") + ended(2, "a")
    found = history.read(log)

    assert "of b" not in history.log_of(log, "a", found["a"])
    assert "of a" not in history.log_of(log, "b", found["b"])


def test_alone_every_line_is_its_own():
    log = begun("b") + ended(1, "b") + begun("a") + "no name here\n" + ended(2, "a")

    assert "no name here" in history.log_of(log, "a", history.read(log)["a"])
