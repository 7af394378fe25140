"""Which processes the preflight names when it refuses, and what its records have of them."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.door.preflight_line import Record
from tests.support.preflight import HOLDERS, REFUSED, SCRIPT, Preflight, decision, records, without_limits
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
    script = without_limits(tmp_path / "script")  # what comes late is left out
    return Preflight(shell(request.param), tmp_path / "bin", script)


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


def unseen(found: list[Record], taken: int) -> int:
    """What the records must leave over of the MiB that are *taken*, whatever other engines this machine runs."""
    held = sum(one.held_mib or 0 for one in found if one.code == "holder")
    return taken - held - sum(one.seat_mib or 0 for one in found if one.code == "seat" and one.on_card)


def unattributed(found: list[Record]) -> int | None:
    """What the records leave over; it is stated last."""
    assert all(one.code != "unattributed" for one in found[:-1])
    return found[-1].held_mib if found[-1].code == "unattributed" else None


def test_an_engine_without_a_part_of_the_card_is_seated_and_holds_nothing(preflight):
    with engine_with_a_seat("tiny-vision", 158) as pid:
        found = records(preflight(CORRAL_VRAM_SOURCE="echo 100, 16000"))

    assert Record("seat", refused="qwen3-8b", model="tiny-vision", pid=pid, seat_mib=158) in found
    assert not [one for one in found if one.code == "holder"]
    assert unattributed(found) == unseen(found, 15900) == 15900


def test_of_an_engine_on_the_card_the_seat_is_stated_and_what_is_beyond_it(preflight):
    with engine_with_a_seat("qwen3vl-4b", 5200, library=DRIVER) as pid:
        found = records(preflight(CORRAL_VRAM_SOURCE="echo 100, 15360"))

    assert Record("seat", refused="qwen3-8b", model="qwen3vl-4b", pid=pid, seat_mib=5200, on_card=True) in found
    assert unattributed(found) == unseen(found, 15260)


def test_seats_that_are_as_large_as_what_is_taken_leave_nothing_to_explain(preflight):
    with engine_with_a_seat("qwen3-8b", 15300, library=DRIVER):
        found = records(preflight(CORRAL_VRAM_SOURCE="echo 100, 15360"))

    assert 15300 in [one.seat_mib for one in found]
    assert unattributed(found) is None


def test_without_a_visible_process_everything_is_unattributed(preflight):
    found = records(preflight(CORRAL_VRAM_SOURCE="echo 1, 15360"))

    assert unattributed(found) == 15359


def test_nvidia_smi_names_the_tenant_that_holds_the_card_and_the_rest_is_unattributed(preflight):
    preflight.install(
        "nvidia-smi", nvidia_smi("20311, 10726, /opt/venv/bin/immich_ml.main", "18112, 1893, /usr/lib/ffmpeg")
    )

    done = preflight()

    assert done.returncode == REFUSED
    assert records(done)[1:3] == [
        Record("holder", refused="qwen3-8b", pid=20311, held_mib=10726, name="immich_ml.main"),
        Record("holder", refused="qwen3-8b", pid=18112, held_mib=1893, name="ffmpeg"),
    ]
    assert ": held by immich_ml.main (pid 20311, 10726 MiB)\n" in done.stderr
    assert unattributed(records(done)) == 13150 - 10726 - 1893


def test_of_an_engine_that_nvidia_smi_lists_what_it_holds_is_stated_and_not_its_seat(preflight):
    with engine_with_a_seat("qwen3vl-4b", 5200) as pid:
        preflight.install("nvidia-smi", nvidia_smi(f"{pid}, 4711, /usr/bin/llama-server"))
        found = records(preflight())

    assert Record("holder", refused="qwen3-8b", pid=pid, held_mib=4711, name="qwen3vl-4b") in found
    assert pid not in [one.pid for one in found if one.code == "seat"]


def test_odd_names_are_made_values_and_a_missing_figure_is_left_out(preflight):
    preflight.install(
        "nvidia-smi",
        nvidia_smi(
            "812, 9000, /usr/lib/immich/machine-learning, v2",
            "813, [N/A], [Not Found]",
            "814, 1, a: b\tc\033[31m\r",
            "815, 010, ",
            "816; x, 1, not a pid",
            "817, 2, a|9, 1, b",
        ),
    )

    found = [one for one in records(preflight()) if one.code == "holder"]

    assert [(one.pid, one.held_mib, one.name) for one in found] == [
        (812, 9000, "machine-learning,_v2"),
        (813, None, "[Not_Found]"),
        (814, 1, "a__b_c[31m"),
        (815, None, "unknown"),
        (817, 2, "a|9,_1,_b"),
    ]


def test_the_card_that_is_named_is_the_one_whose_processes_are_listed(preflight):
    preflight.install(
        "nvidia-smi",
        """case $* in
        *query-gpu*) echo "9000, 15360"; echo "1, 15360" ;;
        *query-compute-apps*" --id=1") echo "812, 9000, /usr/bin/immich" ;;
        *) echo "700, 800, /usr/bin/of-another-card" ;;
        esac""",
    )

    found = records(preflight(CUDA_VISIBLE_DEVICES="01", CUDA_DEVICE_ORDER="PCI_BUS_ID"))

    assert [(one.name, one.held_mib) for one in found if one.code == "holder"] == [("immich", 9000)]


def test_a_need_that_no_card_of_this_size_can_meet_is_stated_plainly_and_no_holder_is_searched(preflight):
    done = preflight(need="20000", CORRAL_VRAM_SOURCE="echo 90, 16000")

    assert done.returncode == REFUSED
    assert records(done) == [Record("no-room", model="qwen3-8b", need_mib=20000, free_mib=90, total_mib=16000)]
    assert "; the card has only 16000 MiB in all. See what fits: corral seat\n" in done.stderr


def test_holders_are_searched_only_when_a_load_is_refused(preflight, tmp_path):
    ran = tmp_path / "ran"
    preflight.script = shutil.copy(SCRIPT, tmp_path / "preflight.sh")
    (tmp_path / "holders.sh").write_text(f": >{ran}\n{HOLDERS.read_text()}")

    assert decision(preflight(CORRAL_VRAM_SOURCE="echo 9000, 15360")).code == "room"
    assert decision(preflight(CORRAL_VRAM_SOURCE="false")).code == "memory-unknown"
    assert not ran.exists()
    assert decision(preflight(CORRAL_VRAM_SOURCE="echo 1, 15360")).code == "no-room"
    assert ran.exists()


@pytest.mark.parametrize("neighbour", [None, "nonsense (\n"])
def test_without_a_sound_holders_script_the_load_is_refused_all_the_same(preflight, tmp_path, neighbour):
    preflight.script = shutil.copy(SCRIPT, tmp_path / "preflight.sh")
    if neighbour:
        (tmp_path / "holders.sh").write_text(neighbour)

    done = preflight(CORRAL_VRAM_SOURCE="echo 1, 15360")

    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert done.stderr.startswith("preflight: no-room model=qwen3-8b need_mib=6996 free_mib=1 total_mib=15360: ")
    assert neighbour or len(records(done)) == 1
