"""Why a model failed, by the logs of llama-swap and the engine."""

from __future__ import annotations

import pytest

from corral.engine.log_lines import End, cause, events, failures

EXITED = "2026-01-01T00:00:00Z [WARN] group: running a exited: upstream command exited prematurely"
DIED = "2026-01-01T00:00:01Z [WARN] group: running b exited: [b] upstream exited unexpectedly"
EXITED_V242 = "2026-01-01T00:00:00Z [WARN] group: starting a failed: upstream command exited prematurely"
DIED_V242 = "2026-01-01T00:00:01Z [WARN] <b> upstream process exited unexpectedly"
HEALTHY = "2026-01-01T00:00:02Z [INFO] <a> Health check passed on http://127.0.0.1:5800/health"

MISSING = """\
0.00.000.347 I srv          init: initializing ...
0.00.005.690 I srv    load_model: loading model, which failed before, '/x.gguf'
0.00.005.690 E gguf_init_from_file: failed to open GGUF file '/x.gguf' (No such file or directory)
0.00.006.185 E llama_model_load: error loading model: llama_model_loader: failed to load model from /x.gguf
error: Failed to init server, please check the input params.
"""

NO_ROOM = "preflight: no-room model=a need_mib=7030 free_mib=2210 total_mib=15360: a sentence\n"


@pytest.mark.parametrize(
    ("exited", "died", "of_the_dead"),
    [
        pytest.param(EXITED, DIED, "upstream exited unexpectedly", id="before-v242"),
        pytest.param(EXITED_V242, DIED_V242, "upstream process exited unexpectedly", id="since-v242"),
    ],
)
def test_each_failure_has_the_reason_that_llama_swap_reports(exited, died, of_the_dead):
    log = f"{exited}\n{died}\n"
    assert failures(log) == {"a": "upstream command exited prematurely", "b": of_the_dead}
    assert [one.end for one in events(log)] == [End.EXITED, End.DIED]


@pytest.mark.parametrize("exited", [EXITED, EXITED_V242])
def test_a_later_success_clears_a_failure(exited):
    assert failures(f"{exited}\n{HEALTHY}\n") == {}


@pytest.mark.parametrize("exited", [EXITED, EXITED_V242])
def test_a_later_failure_counts(exited):
    assert "a" in failures(f"{HEALTHY}\n{exited}\n")


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (MISSING, "gguf_init_from_file: failed to open GGUF file '/x.gguf' (No such file or directory)"),
        (MISSING.replace("/x.gguf", "/old.gguf") + MISSING, "gguf_init_from_file: failed to open GGUF file '/x.gguf'"),
        ("error: invalid argument: --no-mmap\n", "error: invalid argument: --no-mmap"),
        ("build: 1 (a)\nloading\nmain: error loading model\nbye\n", "main: error loading model"),
        ("0.00.000.347 I srv init: initializing ...\n0.00.001.000 I srv loading\n", ""),
        (MISSING + NO_ROOM, "The preflight refused the load: a needs 7030 MiB, 2210 MiB of 15360 MiB are free."),
        (
            NO_ROOM.replace("no-room", "room").replace("sentence", "failed") + MISSING,
            "gguf_init_from_file: failed to open",
        ),
        ("", ""),
    ],
    ids=[
        "first-error",
        "of-the-last-start",
        "bad-flag",
        "without-levels",
        "no-error",
        "no-room",
        "failed-with-room",
        "empty",
    ],
)
def test_the_cause_is_the_first_error_of_the_last_start(log, expected):
    assert cause(log).startswith(expected)
    assert bool(cause(log)) is bool(expected)
