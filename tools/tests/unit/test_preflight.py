"""The script in front of every llama-server, in each shell that an image may call sh."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess

import pytest

from corral.door import preflight_line
from corral.door.preflight_line import Record
from corral.engine import processes
from tests.support.engine_process import wait_for
from tests.support.kernel import not_permitted
from tests.support.preflight import MISUSED, NO_PROGRAM, REFUSED, SCRIPT, Preflight, decision, records, without_limits
from tests.support.shells import SHELLS, shell


@pytest.fixture(params=sorted(SHELLS))
def preflight(request, tmp_path):
    return Preflight(shell(request.param), tmp_path / "bin")


def started(done: subprocess.CompletedProcess[str]) -> bool:
    return (done.returncode, done.stdout) == (0, "started\n")


def test_the_script_can_be_run_as_it_is():
    assert os.access(SCRIPT, os.X_OK)
    assert SCRIPT.read_text().startswith("#!/bin/sh\n")


@pytest.mark.parametrize("free", [6996, 15000])
def test_with_room_enough_it_becomes_the_engine(preflight, free):
    done = preflight(CORRAL_VRAM_SOURCE=f"echo {free}, 15360")

    assert started(done)
    assert records(done) == [Record("room", model="qwen3-8b", need_mib=6996, free_mib=free, total_mib=15360)]
    assert done.stderr.endswith(f": qwen3-8b needs 6996 MiB, {free} MiB of 15360 MiB are free\n")


def test_without_room_it_refuses_in_one_line_and_then_states_the_holders_of_the_card(preflight):
    done = preflight(CORRAL_VRAM_SOURCE="echo 6995, 15360")

    assert (done.returncode, done.stdout) == (REFUSED, "")
    refused, *holders = records(done)
    assert refused == Record("no-room", model="qwen3-8b", need_mib=6996, free_mib=6995, total_mib=15360)
    assert holders
    assert {one.code for one in holders} <= {"seat", "unattributed"}  # seats of engines that this machine runs
    assert ": qwen3-8b needs 6996 MiB, 6995 MiB of 15360 MiB are free. See" in done.stderr


def test_memory_that_is_freed_a_moment_later_is_enough(preflight, tmp_path):
    queried = tmp_path / "queried"
    preflight.script = without_limits(tmp_path / "script")  # where it is late, the first reading decides
    done = preflight(
        CORRAL_VRAM_SOURCE=f"[ -e {queried} ] && echo 15000, 15360 || {{ : >{queried}; echo 100, 15360; }}"
    )

    assert started(done)


def test_a_card_that_is_named_by_its_uuid_is_the_one_that_is_queried(preflight):
    preflight.install("nvidia-smi", '[ "$3" = --id=GPU-8a0f ] && echo "7000, 15360" || echo "1, 15360"')

    assert started(preflight(CUDA_VISIBLE_DEVICES="GPU-8a0f"))


@pytest.mark.parametrize(
    ("source", "reason", "detail"),
    [
        ("echo [N/A], [N/A]", "unreadable", "prints: [N/A], [N/A]"),
        ("echo [Insufficient Permissions]", "unreadable", "prints: [Insufficient Permissions]"),
        ("true", "unreadable", "prints nothing"),
        (
            "echo NVIDIA-SMI has failed because it could not talk to the driver; exit 9",
            "failed",
            "exit code 9: NVIDIA-SMI has failed",
        ),
        ("echo No devices were found", "unreadable", "prints: No devices were found"),
        ("no-such-command", "failed", "exit code 127"),
        ("echo 15360, 7000", "unreadable", "prints: 15360, 7000"),
        ("echo 7000 MiB, 15360 MiB", "unreadable", "prints: 7000 MiB"),
        ("echo 7000", "unreadable", "prints: 7000"),
        ("echo 7000 15360", "unreadable", "prints: 7000 15360"),
        ("echo 7000, 15360, 3", "unreadable", "prints: 7000, 15360, 3"),
        ("echo -1, 15360", "unreadable", "prints: -1, 15360"),
        ("echo 010, 15360", "unreadable", "prints: 010"),
        ("echo 99999999999999999999, 99999999999999999999", "unreadable", "prints: 9999"),
        ("echo 7000, 15360; echo 1, 15360", "several-cards", "there are 2 cards"),
        ("echo 7000, 15360; echo [N/A], [N/A]", "unreadable", "prints: [N/A]"),
        ("echo 0, 0", "unreadable", "prints: 0, 0"),
        ("echo", "unreadable", "prints nothing"),
        ("echo no driver >&2", "unreadable", "prints: no driver;"),
        ("echo no driver >&2; exit 9", "failed", "exit code 9: no driver;"),
        ("echo 7000 of 9000; echo no driver >&2", "unreadable", "prints: 7000 of 9000;"),
        ("yes", "unreadable", "prints more than 64 lines: y;"),
        ("yes ''", "unreadable", "prints more than 64 lines;"),
        ("yes 7000, 15360", "unreadable", "prints more than 64 lines;"),
        ("yes >&2", "no-answer", "does not answer"),
        ("cat /dev/zero", "no-answer", "does not answer"),
        ("printf 'a\\033[31mb\\a\\n'", "unreadable", "prints: a[31mb;"),
        (r"printf '%s\n' 'a\033b\npreflight: room'", "unreadable", r"prints: a\033b\npreflight: room;"),
    ],
)
def test_what_cannot_be_read_is_unknown_and_the_engine_tries(preflight, source, reason, detail):
    done = preflight(CORRAL_VRAM_SOURCE=source)

    assert started(done)
    assert records(done) == [Record("memory-unknown", model="qwen3-8b", need_mib=6996, reason=reason)]
    assert "CORRAL_VRAM_SOURCE " in done.stderr or reason == "several-cards"
    assert detail in done.stderr
    assert done.stderr.endswith("; the engine tries\n")


@pytest.mark.parametrize(
    "source",
    [
        "printf '100, 16000'",
        "printf '100, 16000\\r\\n'",
        "printf '\\n\\n 100\\t,\\t16000  \\n\\n'",
        "echo a word on stderr >&2; printf '100, '; echo another >&2; echo 16000; echo the last >&2",
    ],
)
def test_figures_count_however_they_are_set(preflight, source):
    done = preflight(CORRAL_VRAM_SOURCE=source)

    assert done.returncode == REFUSED
    assert (decision(done).free_mib, decision(done).total_mib) == (100, 16000)
    assert "=error" not in done.stderr
    assert "=answered" not in done.stderr


def test_without_nvidia_smi_it_is_unknown(preflight):
    done = preflight()

    assert started(done)
    assert decision(done).reason == "not-installed"
    assert "nvidia-smi is not installed" in done.stderr


def test_a_worn_board_is_no_reason_not_to_believe_the_figures(preflight):
    assert decision(preflight(CORRAL_VRAM_SOURCE="echo WARNING: infoROM is bad; echo 7000, 15360")).code == "room"


@pytest.mark.parametrize(
    ("settings", "code", "reason"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "no-room", ""),
        ({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "room", ""),
        ({"CUDA_VISIBLE_DEVICES": "00", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "room", ""),
        ({"CUDA_VISIBLE_DEVICES": "2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "memory-unknown", "no-such-card"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "memory-unknown", "several-cards"),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "memory-unknown", "several-cards"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}, "memory-unknown", "several-cards"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "memory-unknown", "hidden"),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "memory-unknown", "hidden"),
    ],
)
def test_of_several_cards_one_must_be_named_beyond_doubt(preflight, settings, code, reason):
    found = decision(preflight(CORRAL_VRAM_SOURCE="echo 7000, 15360; echo 1, 15360", **settings))

    assert (found.code, found.reason) == (code, reason)


def test_a_source_that_hangs_is_ended_with_all_that_it_started(preflight, tmp_path):
    done = preflight(CORRAL_VRAM_SOURCE=f"sleep 600 & echo $! >{tmp_path}/pid; wait; echo late")

    assert started(done)
    assert decision(done).reason == "no-answer"
    child = int((tmp_path / "pid").read_text())
    wait_for(lambda: processes.mark(child) is None, what="the end of what the source has started")


def test_a_source_that_leaves_a_child_behind_is_not_waited_for(preflight, tmp_path):
    done = preflight(CORRAL_VRAM_SOURCE=f"sleep 600 & echo $! >{tmp_path}/pid; echo 7000, 15360")

    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # still there, with the pipe in its hand
    assert started(done)
    assert decision(done).code == "room"


def test_the_engine_has_the_same_pid_gets_signals_and_writes_no_core(preflight, tmp_path):
    wait = "i=0; while [ $i -lt 600 ]; do i=$((i+1)); sleep 0.05; done"
    script = f"ulimit -c; echo $$ $CORRAL_SEAT; trap 'exit 7' TERM; : >{tmp_path}/ready; {wait}"
    process = subprocess.Popen(
        preflight.command("sh", "-c", script),
        env=preflight.environment({"CORRAL_VRAM_SOURCE": "echo 7000, 15360"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_allow_cores,  # noqa: PLW1509 - this process has no threads
    )
    try:
        wait_for((tmp_path / "ready").exists, what="the engine")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()

    assert process.returncode == 7
    assert out == f"0\n{process.pid} qwen3-8b:6996\n"


def test_words_reach_the_engine_unchanged(preflight):
    words = ["", "two words", "it's", "*", "$HOME", "--", "--model", "x\ny"]

    done = preflight("sh", "-c", 'printf "%s|" "$@"', "sh", *words, CORRAL_VRAM_SOURCE="echo 7000, 15360")

    assert done.stdout == "".join(f"{word}|" for word in words)


@pytest.mark.parametrize("mode", [None, 0o644])
@pytest.mark.parametrize("is_path", [True, False])
def test_an_engine_that_is_missing_or_not_executable_is_named(preflight, mode, is_path):
    engine = preflight.programs / "llama-server"
    if mode:
        engine.write_text("#!/bin/sh\necho started\n")
        engine.chmod(mode)
    word = str(engine) if is_path else engine.name

    done = preflight(word, CORRAL_VRAM_SOURCE="echo 7000, 15360")

    assert done.returncode == NO_PROGRAM
    assert records(done) == [Record("no-engine", model="qwen3-8b", program=word)]
    assert f"{word}, the engine of qwen3-8b, is missing or not executable" in done.stderr


def test_a_folder_is_no_engine(preflight, tmp_path):
    assert decision(preflight(str(tmp_path), CORRAL_VRAM_SOURCE="echo 7000, 15360")).code == "no-engine"


def test_an_engine_whose_interpreter_is_missing_has_the_last_word(preflight):
    preflight.install("llama-server", "")
    (preflight.programs / "llama-server").write_text("#!/nowhere/python\n")

    done = preflight("llama-server", CORRAL_VRAM_SOURCE="echo 7000, 15360")

    assert done.returncode == NO_PROGRAM
    assert preflight_line.read(done.stderr)[-1] == Record("no-engine", model="qwen3-8b", program="llama-server")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
def test_a_closed_stream_changes_nothing(preflight, closed):
    command = preflight.command("sh", "-c", "echo started >&2")
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        env=preflight.environment({"CORRAL_VRAM_SOURCE": "echo 7000, 15360"}),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert done.returncode == 0
    assert [one.code for one in preflight_line.read(done.stderr)] == ["room"]
    assert done.stderr.endswith("\nstarted\n")


@pytest.mark.parametrize("need", ["", "-1", "1.5", "6996MiB", "9999999999"])
def test_a_need_that_is_no_number_is_refused(preflight, need):
    done = preflight(need=need)

    assert (done.returncode, done.stdout) == (MISUSED, "")
    assert decision(done).code == "usage"
    assert re.search(r"--need-mib is .* not a number", done.stderr)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--model"],
        ["--model", "m"],
        ["--model", "m", "--need-mib", "1", "--"],
        ["-m", "x"],
        ["--model", "", "--need-mib", "1", "--", "true"],
        ["--model", "a b", "--need-mib", "1", "--", "true"],
        ["--model", "a:b", "--need-mib", "1", "--", "true"],
    ],
)
def test_a_wrong_call_is_refused_with_the_right_one(preflight, words):
    done = subprocess.run([*preflight.shell, SCRIPT, *words], capture_output=True, text=True, check=False)

    assert (done.returncode, decision(done).code) == (MISUSED, "usage")
    assert "usage: preflight.sh --model ID --need-mib N -- llama-server" in done.stderr


def test_an_engine_that_needs_no_card_is_started_whatever_is_free(preflight):
    assert started(preflight(need="0", CORRAL_VRAM_SOURCE="echo 0, 15360"))


def _allow_cores() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


@pytest.fixture
def model(tmp_path):
    """The path of a model of two files."""
    for name in ("model", "mmproj"):
        (tmp_path / f"{name}.gguf").write_bytes(b"x" * 5000)
    return tmp_path / "model.gguf"


def test_the_share_of_the_files_in_the_page_cache_is_a_record_before_the_engine_starts(preflight, model):
    preflight.install(
        "fincore", 'case $* in *mmproj.gguf*model.gguf) printf "4096 5000\\n4294967296 8589934592\\n" ;; esac'
    )
    done = preflight("sh", "-c", "echo started", "--model", str(model))

    assert started(done)
    assert records(done)[1:] == [Record("page-cache", model="qwen3-8b", cached_bytes=4294971392, size_bytes=8589939592)]


@pytest.mark.parametrize("script", ["exit 1", "echo 4096 5000; exit 1", "echo no such file >&2", "sleep 600"])
def test_without_a_whole_answer_about_the_page_cache_there_is_no_record_of_it(preflight, model, script):
    preflight.install("fincore", script)
    done = preflight("sh", "-c", "echo started", "--model", str(model))

    assert started(done)
    assert [one.code for one in records(done)] == ["memory-unknown"]


def test_of_files_of_another_user_nothing_is_recorded(preflight, model):
    if os.geteuid() != 0:
        not_permitted("this user may give no file to another one; run the tests as root")
    os.chown(model.with_name("mmproj.gguf"), 1234, 1234)
    preflight.install("fincore", "echo 5000 5000")  # to such a user the kernel reports all as cached
    done = preflight("sh", "-c", "echo started", "--model", str(model))

    assert started(done)
    assert [one.code for one in records(done)] == ["memory-unknown"]
