"""`corral measure --check`, and what the command refuses; measuring itself is in tests/stack/test_measure.py."""

from __future__ import annotations

import json
import shutil

import pytest

from corral import paths
from corral.catalog import ledger
from corral.catalog.ledger import Measurement, argv_sha256
from corral.cli.main import main
from corral.lock import lock
from tests.support.locked_catalog import set_measurements

MODEL = "tiny-text"


@pytest.fixture
def catalog(tmp_path):
    """The demo's catalog with its lock, and with nothing measured."""
    folder = tmp_path / "catalog"
    shutil.copytree(paths.REPOSITORY / "terraform" / "catalog-demo", folder)
    set_measurements(folder)
    return folder


@pytest.fixture
def measured(catalog):
    """Measures *part* of what the lock predicts for one model on a card."""

    def write(part: float, **changes) -> Measurement:
        entry = lock.read(catalog / "lock.json").models[MODEL]
        facts = {
            "model": MODEL,
            "argv_sha256": argv_sha256(entry.argv),
            "engine": "11549 (abcdef)",
            "device": "Tesla T4",
            "source": "nvidia-smi",
            "date": "2026-11-21T14:42:47Z",
            "gpu_bytes": round(entry.predicted.gpu_bytes * part),
            "host_bytes": None,
            "predicted_gpu_bytes": entry.predicted.gpu_bytes,
            "predicted_host_bytes": None,
        }
        one = Measurement(**facts | changes)
        set_measurements(catalog, one)
        return one

    return write


def check(catalog, capsys, *words):
    code = main(["measure", "--check", "--catalog", str(catalog), *words])
    return code, *capsys.readouterr()


def test_nothing_measured_is_no_failure_and_is_reported(catalog, capsys):
    code, out, _ = check(catalog, capsys)
    assert code == 0
    assert (
        f"Nothing was measured yet for what {catalog}/lock.json has. Measure with: corral measure --catalog {catalog}"
        in out
    )


def test_a_lock_that_was_edited_is_refused_by_name(catalog, measured, capsys):
    measured(2.0)
    text = (catalog / "lock.json").read_text()
    (catalog / "lock.json").write_text(text.replace('"2048"', '"1024"'))
    code, _, messages = check(catalog, capsys)
    assert code == 2
    assert "lock.json was edited or merged after" in messages
    assert f"corral lock --catalog {catalog}" in messages


def test_a_measurement_that_agrees_is_shown_beside_the_prediction(catalog, measured, capsys):
    one = measured(1.02)
    code, out, _ = check(catalog, capsys)
    assert code == 0
    mib = -(-one.gpu_bytes // 2**20)
    assert f"{MODEL}\tTesla T4\tnvidia-smi\t" in out
    assert out.rstrip().endswith(f"{mib}\t+2.0%")


@pytest.mark.parametrize("part", [0.9, 1.1])
def test_a_measurement_that_is_off_fails_and_names_the_next_command(catalog, measured, capsys, part):
    measured(part)
    code, _, messages = check(catalog, capsys)
    assert code == 1
    assert f"{MODEL}: predicted " in messages
    assert f"corral measure MODEL --catalog {catalog}" in messages
    assert "declared_mib" in messages


def test_a_measurement_of_another_command_line_is_named_and_does_not_count(catalog, measured, capsys):
    measured(2.0, argv_sha256="f" * 64)
    code, out, messages = check(catalog, capsys)
    assert code == 0
    assert "Nothing was measured yet" in out
    assert "2026-11-21" in messages
    assert "another command line" in messages


def test_json_has_bytes_and_a_verdict_for_each(catalog, measured, capsys):
    one = measured(1.1)
    code, out, _ = check(catalog, capsys, "--json")
    found = json.loads(out)
    assert (code, found["agree"], found["limit"]) == (1, False, 0.03)
    (item,) = found["measurements"]
    assert (item["model"], item["measured_bytes"], item["agrees"]) == (MODEL, one.gpu_bytes, False)
    assert item["deviation"] == pytest.approx(0.1, abs=1e-6)


def test_without_a_lock_the_check_is_refused_and_not_passed(catalog, measured, capsys):
    measured(2.0)
    (catalog / "lock.json").unlink()
    code, out, shown = check(catalog, capsys)
    assert (code, out) == (2, "")
    assert f"{catalog}/lock.json does not exist." in shown
    assert shown.endswith(f"→ corral lock --catalog {catalog}\n")


def test_a_damaged_ledger_is_refused(catalog, capsys):
    ledger.path_of(catalog).write_text("{}}")
    code, _, messages = check(catalog, capsys)
    assert code == 2
    assert "not a ledger" in messages


@pytest.mark.parametrize("words", [[MODEL], ["--reload"], ["--source", "nvidia-smi"]])
def test_the_check_takes_nothing_that_is_for_measuring(catalog, capsys, words):
    code, _, messages = check(catalog, capsys, *words)
    assert code == 2
    assert "compares all" in messages
    assert f"corral measure --check --catalog {catalog}" in messages
