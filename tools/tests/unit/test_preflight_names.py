"""Whom the preflight names when it refuses, and what it says of them."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.preflight import REFUSED, Preflight
from tests.support.shells import SHELLS, shell

DRIVER = "libcuda.so.1"
"""What is mapped into a process that uses a card."""

_ENGINE = """
import mmap, sys, time
with open(sys.argv[1]) as file:
    library = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print("loaded", flush=True)
time.sleep(60)
"""


@pytest.fixture(params=sorted(SHELLS))
def preflight(request, tmp_path):
    return Preflight(shell(request.param), tmp_path / "bin")


@contextlib.contextmanager
def engine_with_a_seat(model: str, mib: int, *, library: str = "libc.so") -> Iterator[int]:
    """A process that has the seat of an engine, and a file called *library* mapped into it; its pid."""
    with tempfile.TemporaryDirectory() as folder:
        mapped = Path(folder) / library
        mapped.write_text("a library")
        process = subprocess.Popen(
            [sys.executable, "-c", _ENGINE, str(mapped)],
            env={"PATH": os.environ["PATH"], "CORRAL_SEAT": f"{model}:{mib}"},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline()
            yield process.pid
        finally:
            process.kill()
            process.communicate()


def nvidia_smi(*processes: str, free: int = 2210, total: int = 15360) -> str:
    """The script of one that knows a card and the *processes* on it, and nothing else."""
    rows = "\n".join(f"echo {shlex.quote(row)}" for row in processes)
    return f"""case $* in
        "--query-gpu=memory.free,memory.total --format=csv,noheader,nounits") echo "{free}, {total}" ;;
        "--query-compute-apps=pid,used_memory,process_name --format=csv,noheader,nounits") :
        {rows} ;;
        *) exit 6 ;;
        esac"""


def unseen(said: str, taken: int) -> int:
    """What the line *said* must leave over of the MiB that are *taken*, whoever else has a seat on this machine."""
    return taken - sum(map(int, re.findall(r"\(pid \d+, (?:seat of )?(\d+) MiB\)", said)))


def test_an_engine_without_a_part_of_the_card_is_seated_and_holds_nothing(preflight):
    with engine_with_a_seat("tiny-vision", 158) as pid:
        said = preflight(CORRAL_VRAM_SOURCE="echo 100, 16000").stderr

    assert "; seated: " in said
    assert "held by" not in said
    assert f" tiny-vision (pid {pid}, seat of 158 MiB, nothing on the card)" in said
    assert f", and {unseen(said, 15900)} MiB by nobody who can be seen from here. Unload" in said
    assert said.count("\n") == 1


def test_of_an_engine_on_the_card_the_seat_is_told_and_what_is_beyond_it(preflight):
    with engine_with_a_seat("qwen3vl-4b", 5200, library=DRIVER) as pid:
        said = preflight(CORRAL_VRAM_SOURCE="echo 100, 15360").stderr

    assert f" qwen3vl-4b (pid {pid}, seat of 5200 MiB)" in said
    assert f", and {unseen(said, 15260)} MiB by nobody who can be seen from here. Unload" in said


def test_seats_that_are_as_large_as_what_is_taken_leave_nothing_to_explain(preflight):
    with engine_with_a_seat("qwen3-8b", 15300, library=DRIVER):
        said = preflight(CORRAL_VRAM_SOURCE="echo 100, 15360").stderr

    assert "seat of 15300 MiB)" in said
    assert "nobody" not in said


def test_when_nobody_can_be_seen_it_says_so(preflight):
    said = preflight(CORRAL_VRAM_SOURCE="echo 1, 15360").stderr

    # The second where this machine runs engines, which are on no card.
    assert re.search(r"(; held by|\), and 15359 MiB by) nobody who can be seen from here\. Unload", said)


def test_nvidia_smi_names_the_tenant_that_holds_the_card_and_the_rest_is_nobodys(preflight):
    preflight.install(
        "nvidia-smi", nvidia_smi("20311, 10726, /opt/venv/bin/immich_ml.main", "18112, 1893, /usr/lib/ffmpeg")
    )

    done = preflight()

    assert done.returncode == REFUSED
    assert "; held by immich_ml.main (pid 20311, 10726 MiB), ffmpeg (pid 18112, 1893 MiB)" in done.stderr
    assert f", and {13150 - 10726 - 1893} MiB by nobody who can be seen from here. Unload" in done.stderr


def test_of_an_engine_that_nvidia_smi_lists_what_it_holds_is_told_and_not_its_seat(preflight):
    with engine_with_a_seat("qwen3vl-4b", 5200) as pid:
        preflight.install("nvidia-smi", nvidia_smi(f"{pid}, 4711, /usr/bin/llama-server"))
        said = preflight().stderr

    assert f"; held by qwen3vl-4b (pid {pid}, 4711 MiB)" in said
    assert "seat of 5200" not in said


def test_odd_names_and_missing_figures_of_nvidia_smi_are_told_as_they_are(preflight):
    preflight.install(
        "nvidia-smi", nvidia_smi("812, 9000, /usr/lib/immich/machine-learning, v2", "813, [N/A], [Not Found]")
    )

    said = preflight().stderr

    assert "machine-learning, v2 (pid 812, 9000 MiB), [Not Found] (pid 813, [N/A] MiB)" in said


def test_the_card_that_is_named_is_the_one_whose_processes_are_listed(preflight):
    preflight.install(
        "nvidia-smi",
        """case $* in
        *query-gpu*) echo "9000, 15360"; echo "1, 15360" ;;
        *query-compute-apps*" --id=1") echo "812, 9000, /usr/bin/immich" ;;
        *) echo "700, 800, /usr/bin/of-another-card" ;;
        esac""",
    )

    said = preflight(CUDA_VISIBLE_DEVICES="01", CUDA_DEVICE_ORDER="PCI_BUS_ID").stderr

    assert "; held by immich (pid 812, 9000 MiB)" in said


def test_a_need_that_no_card_of_this_size_can_meet_is_said_plainly(preflight):
    done = preflight(need="20000", CORRAL_VRAM_SOURCE="echo 90, 16000")

    assert done.returncode == REFUSED
    assert done.stderr == (
        "preflight: no room for qwen3-8b: it needs 20000 MiB, 90 MiB of 16000 MiB are free; "
        "the card has only 16000 MiB in all. See what fits: corral seat\n"
    )
