"""The script in front of every llama-server, in each shell that an image may call sh."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from corral.engine import processes
from corral.paths import REPOSITORY
from tests.support.engine_process import wait_for
from tests.support.shells import SHELLS, shell

SCRIPT = REPOSITORY / "terraform" / "modules" / "llama-swap-config" / "preflight.sh"
NEEDS = ("cat", "env", "grep", "setsid", "sh", "sleep", "tr")  # of a system; no nvidia-smi, whatever this machine has
REFUSED, MISUSED, NO_PROGRAM = 75, 64, 127


@pytest.fixture(params=sorted(SHELLS))
def preflight(request, tmp_path):
    """Calls the script for a command that says "started"; settings are what the environment has beside PATH."""
    return Preflight(shell(request.param), tmp_path / "bin")


class Preflight:
    def __init__(self, words: list[str], programs: Path) -> None:
        self._words = words
        self.programs = programs
        programs.mkdir()
        for name in NEEDS:
            found = shutil.which(name)
            assert found, name
            (programs / name).symlink_to(found)

    def __call__(self, *words: str, need: str = "6996", **settings: str) -> subprocess.CompletedProcess[str]:
        command = self.command(*words, need=need)
        return subprocess.run(
            command, env=self.environment(settings), capture_output=True, text=True, check=False, timeout=30
        )

    def command(self, *words: str, need: str = "6996") -> list[str]:
        engine = words or ("sh", "-c", "echo started")
        return [*self._words, str(SCRIPT), "--model", "qwen3-8b", "--need-mib", need, "--", *engine]

    def environment(self, settings: dict[str, str]) -> dict[str, str]:
        return {"PATH": str(self.programs), **settings}

    def install(self, name: str, script: str) -> None:
        program = self.programs / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)


def started(done: subprocess.CompletedProcess[str]) -> bool:
    return (done.returncode, done.stdout) == (0, "started\n")


def test_the_script_can_be_run_as_it_is():
    assert os.access(SCRIPT, os.X_OK)
    assert SCRIPT.read_text().startswith("#!/bin/sh\n")


@pytest.mark.parametrize("free", [6996, 15000])
def test_with_room_enough_it_becomes_the_engine(preflight, free):
    done = preflight(CORRAL_VRAM_SOURCE=f"echo {free}, 15360")

    assert started(done)
    assert done.stderr == f"preflight: room for qwen3-8b: it needs 6996 MiB, {free} MiB of 15360 MiB are free\n"


def test_without_room_it_refuses_in_one_line(preflight):
    done = preflight(CORRAL_VRAM_SOURCE="echo 6995, 15360")

    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert done.stderr.count("\n") == 1
    assert "no room for qwen3-8b: it needs 6996 MiB, 6995 MiB of 15360 MiB are free" in done.stderr


def test_memory_that_comes_free_a_moment_later_is_enough(preflight, tmp_path):
    seen = tmp_path / "seen"
    done = preflight(CORRAL_VRAM_SOURCE=f"[ -e {seen} ] && echo 15000, 15360 || {{ : >{seen}; echo 100, 15360; }}")

    assert started(done)


def test_who_has_a_seat_is_named(preflight):
    neighbour = subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], "CORRAL_SEAT": "qwen3vl-4b:5200"})
    try:
        done = preflight(CORRAL_VRAM_SOURCE="echo 100, 15360")
    finally:
        neighbour.kill()
        neighbour.wait()

    assert "; held by " in done.stderr
    assert f" qwen3vl-4b (pid {neighbour.pid}, seat of 5200 MiB)" in done.stderr  # beside others of this machine


def test_nvidia_smi_is_asked_and_names_other_programs(preflight):
    preflight.install(
        "nvidia-smi",
        """case $* in
        "--query-gpu=memory.free,memory.total --format=csv,noheader,nounits") echo "100, 15360" ;;
        "--query-compute-apps=pid,used_memory,process_name --format=csv,noheader,nounits")
          echo "812, 9000, /usr/lib/immich/machine-learning, v2"
          echo "813, [N/A], [Not Found]" ;;
        *) exit 6 ;;
        esac""",
    )

    done = preflight()

    assert done.returncode == REFUSED
    assert "machine-learning, v2 (pid 812, 9000 MiB), [Not Found] (pid 813, [N/A] MiB). Unload" in done.stderr


def test_a_card_that_is_named_by_its_uuid_is_the_one_that_is_asked(preflight):
    preflight.install("nvidia-smi", '[ "$3" = --id=GPU-8a0f ] && echo "7000, 15360" || echo "1, 15360"')

    assert started(preflight(CUDA_VISIBLE_DEVICES="GPU-8a0f"))


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("echo [N/A], [N/A]", "says: [N/A], [N/A]"),
        ("echo [Insufficient Permissions]", "says: [Insufficient Permissions]"),
        ("true", "says nothing"),
        (
            "echo NVIDIA-SMI has failed because it could not talk to the driver; exit 9",
            "exit code 9: NVIDIA-SMI has failed",
        ),
        ("echo No devices were found", "says: No devices were found"),
        ("no-such-command", "exit code 127"),
        ("echo 15360, 7000", "says: 15360, 7000"),
        ("echo 7000 MiB, 15360 MiB", "says: 7000 MiB"),
        ("echo 7000", "says: 7000"),
        ("echo 7000, 15360, 3", "says: 7000, 15360, 3"),
        ("echo -1, 15360", "says: -1, 15360"),
        ("echo 99999999999999999999, 99999999999999999999", "says: 9999"),
        ("echo 7000, 15360; echo 1, 15360", "there are 2 cards"),
        ("echo 7000, 15360; echo [N/A], [N/A]", "says: [N/A]"),
        ("printf 'a\\033[31mb\\a\\n'", "says: a[31mb;"),
    ],
)
def test_what_cannot_be_read_is_unknown_and_the_engine_tries(preflight, source, told):
    done = preflight(CORRAL_VRAM_SOURCE=source)

    assert started(done)
    assert done.stderr.startswith(
        "preflight: memory unknown for qwen3-8b, which needs 6996 MiB: CORRAL_VRAM_SOURCE "
    ) or ("cards" in told)
    assert told in done.stderr
    assert done.stderr.endswith("; the engine tries\n")
    assert done.stderr.count("\n") == 1


def test_without_nvidia_smi_it_is_unknown(preflight):
    done = preflight()

    assert started(done)
    assert "nvidia-smi is not installed" in done.stderr


def test_a_worn_board_is_no_reason_not_to_believe_the_figures(preflight):
    assert "room for" in preflight(CORRAL_VRAM_SOURCE="echo WARNING: infoROM is corrupted; echo 7000, 15360").stderr


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "no room for"),
        ({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "preflight: room for"),
        ({"CUDA_VISIBLE_DEVICES": "2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "there is no card 2"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "does not name one for certain"),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "does not name one for certain"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "hides every card"),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "hides every card"),
    ],
)
def test_of_several_cards_one_must_be_named_beyond_doubt(preflight, settings, told):
    assert told in preflight(CORRAL_VRAM_SOURCE="echo 7000, 15360; echo 1, 15360", **settings).stderr


def test_a_source_that_hangs_is_ended_with_all_that_it_started(preflight, tmp_path):
    done = preflight(CORRAL_VRAM_SOURCE=f"sleep 600 & echo $! >{tmp_path}/pid; wait; echo late")

    assert started(done)
    assert "CORRAL_VRAM_SOURCE does not answer" in done.stderr
    child = int((tmp_path / "pid").read_text())
    wait_for(lambda: processes.mark(child) is None, what="the end of what the source has started")


def test_a_source_that_leaves_a_child_behind_is_not_waited_for(preflight, tmp_path):
    done = preflight(CORRAL_VRAM_SOURCE=f"sleep 600 & echo $! >{tmp_path}/pid; echo 7000, 15360")

    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # still there, with the pipe in its hand
    assert started(done)
    assert "room for" in done.stderr


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


def test_an_engine_that_is_not_there_is_named(preflight):
    done = preflight("/nowhere/llama-server", CORRAL_VRAM_SOURCE="echo 7000, 15360")

    assert done.returncode == NO_PROGRAM
    assert done.stderr == "preflight: no engine for qwen3-8b: /nowhere/llama-server is missing or not executable\n"


@pytest.mark.parametrize("need", ["", "-1", "1.5", "6996MiB", "9999999999"])
def test_a_need_that_is_no_number_is_refused(preflight, need):
    done = preflight(need=need)

    assert (done.returncode, done.stdout) == (MISUSED, "")
    assert re.search(r"--need-mib is .* not a number", done.stderr)


@pytest.mark.parametrize(
    "words", [[], ["--model"], ["--model", "m"], ["--model", "m", "--need-mib", "1", "--"], ["-m", "x"]]
)
def test_a_wrong_call_is_refused_with_the_right_one(preflight, words):
    done = subprocess.run([*preflight._words, SCRIPT, *words], capture_output=True, text=True, check=False)

    assert done.returncode == MISUSED
    assert "usage: preflight.sh --model ID --need-mib N -- llama-server" in done.stderr


def test_an_engine_that_needs_no_card_is_started_whatever_is_free(preflight):
    assert started(preflight(need="0", CORRAL_VRAM_SOURCE="echo 0, 15360"))


def _allow_cores() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
