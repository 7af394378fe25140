"""`corral measure` in the real local stack: real llama-swap, the real engine, the demo's tiny models.

There is no card here.  What the engine reports of itself is real; nvidia-smi is a program of that name that gives
recorded answers.
"""

from __future__ import annotations

import json
import os

import pytest

from corral import paths
from corral.catalog import catalog as catalogs
from corral.catalog import ledger
from corral.catalog.ledger import argv_sha256
from corral.cli.main import main
from corral.engine import stack
from corral.exporter import driver
from corral.lock import lock
from corral.measure.comparison import LIMIT
from corral.measure.live import LiveModel
from corral.vram.prediction import MIB
from tests.support.demo_stack import FULL, demo_stack, pid_of
from tests.support.fake_nvidia_smi import UUID, install
from tests.support.locked_catalog import set_measurements

pytestmark = pytest.mark.timeout(180)

MODELS = ["tiny-text", "tiny-think", "tiny-vision"]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """The local stack with the demo's catalog, locked anew and with nothing loaded: (catalog, state folder)."""
    with demo_stack(tmp_path_factory.mktemp("measure"), card=FULL) as present:
        yield present


@pytest.fixture
def catalog(running, monkeypatch):
    """The catalog of the running stack, with nothing measured yet."""
    catalog, state = running
    monkeypatch.setenv("CORRAL_STATE", str(state))
    set_measurements(catalog)
    return catalog


@pytest.fixture
def measured(catalog, capsys):
    def run(*words) -> list[dict]:
        capsys.readouterr()
        assert main(["measure", "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)["measurements"]

    return run


@pytest.fixture
def nvidia_says(tmp_path, monkeypatch):
    """Puts an nvidia-smi on PATH that lists *used* MiB for the engine of *model*."""
    monkeypatch.setattr(driver, "pid_namespace", lambda: driver.FIRST_PID_NAMESPACE)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def say(model: str, used: object) -> None:
        rows = f"{UUID}, Tesla T4, 911, 10726, python3\n{UUID}, Tesla T4, {pid_of(model)}, {used}, llama-server\n"
        install(tmp_path, rows)

    return say


def test_every_model_of_the_demo_takes_what_was_predicted_within_the_limit(catalog, measured, capsys):
    found = measured()
    assert [one["model"] for one in found] == MODELS
    assert [(one["device"], one["source"]) for one in found] == [("CPU", "engine-report")] * 3
    assert max(abs(one["deviation"]) for one in found) <= LIMIT
    assert min(one["host_bytes"] for one in found) > 6 * MIB  # the engine's figure, and not nothing
    assert main(["measure", "--check", "--catalog", str(catalog)]) == 0


def test_the_projector_is_part_of_what_is_measured(measured):
    text, vision = measured("tiny-text", "tiny-vision")
    assert vision["host_bytes"] - text["host_bytes"] > MIB


def test_a_model_that_is_not_resident_is_loaded_first_with_a_message(measured, capsys):
    measured("tiny-think")
    capsys.readouterr()
    assert main(["measure", "tiny-text"]) == 0  # of the same group: loading one unloads the other
    assert "tiny-text is not loaded" in capsys.readouterr().err
    assert main(["measure", "tiny-text"]) == 0
    assert "not loaded" not in capsys.readouterr().err


def test_the_record_belongs_to_the_locked_command_line_and_the_build_that_ran(catalog, measured):
    (one,) = measured("tiny-text")
    locked = lock.read(catalog / "lock.json")
    assert one["argv_sha256"] == argv_sha256(locked.models["tiny-text"].argv)
    assert one["engine"] == stack.running(paths.state_dir()).engine.build
    assert one["gpu_bytes"] == one["predicted_gpu_bytes"] == 0


def test_measuring_again_replaces_the_record(catalog, measured):
    measured("tiny-text")
    measured("tiny-text")
    assert len(ledger.read(catalog).measurements) == 1


def test_a_report_that_has_left_the_log_is_fetched_by_loading_anew(measured):
    (before,) = measured("tiny-text")
    old = pid_of("tiny-text")
    (after,) = measured("tiny-text", "--reload")
    assert pid_of("tiny-text") != old
    assert after["host_bytes"] == before["host_bytes"]


def test_a_dry_run_writes_nothing(catalog, measured):
    assert measured("tiny-text", "--dry-run")
    assert not ledger.path_of(catalog).exists()


def test_on_a_card_the_driver_is_asked_and_compared_with_the_whole_prediction(catalog, measured, nvidia_says):
    measured("tiny-vision")
    predicted = lock.read(catalog / "lock.json").models["tiny-vision"].predicted.gpu_bytes
    nvidia_says("tiny-vision", -(-predicted // MIB))
    (one,) = measured("tiny-vision", "--source", "nvidia-smi")
    assert (one["device"], one["source"], one["predicted_gpu_bytes"]) == ("Tesla T4", "nvidia-smi", predicted)
    assert one["gpu_bytes"] == -(-predicted // MIB) * MIB
    assert one["host_bytes"] > 0  # the engine's own figure beside it
    assert lock.require_fresh(catalogs.load(catalog)).models["tiny-vision"].measured.gpu_bytes == one["gpu_bytes"]


def test_a_model_that_took_more_than_its_seat_has_the_command_that_applies_the_larger_one(
    catalog, measured, nvidia_says, capsys
):
    measured("tiny-text", "--dry-run")
    seat = lock.read(catalog / "lock.json").models["tiny-text"].seat
    for used, grown in ((seat.mib - 1, False), (5000, True), (5000, False)):  # the third is in the lock already
        nvidia_says("tiny-text", used)
        assert main(["measure", "tiny-text", "--source", "nvidia-smi"]) == 0
        start = stack.start_command(paths.state_dir())
        step = f"The preflight has a smaller seat of tiny-text until that is applied: {start}\n"
        assert (step in capsys.readouterr().err) is grown


@pytest.mark.parametrize("used", ["[N/A]", "[Insufficient Permissions]"])
def test_what_the_driver_does_not_report_is_never_written_down(catalog, measured, nvidia_says, capsys, used):
    measured("tiny-text", "--dry-run")
    nvidia_says("tiny-text", used)
    assert main(["measure", "tiny-text", "--source", "nvidia-smi"]) == 3
    errors = capsys.readouterr().err
    assert used in errors
    assert "--source engine-report" in errors
    assert not ledger.path_of(catalog).exists()


def test_the_check_names_model_both_figures_and_the_next_command(catalog, measured, nvidia_says, capsys):
    measured("tiny-text", "--dry-run")
    nvidia_says("tiny-text", 5000)
    measured("tiny-text", "--source", "nvidia-smi")
    assert main(["measure", "--check", "--catalog", str(catalog)]) == 1
    errors = capsys.readouterr().err
    predicted = -(-lock.read(catalog / "lock.json").models["tiny-text"].predicted.gpu_bytes // MIB)
    assert f"tiny-text: predicted {predicted} MiB, measured 5,000 MiB on Tesla T4" in errors
    assert "corral measure" in errors


def test_another_command_line_than_the_locked_one_is_not_measured(catalog, capsys):
    intent = catalog / "models" / "tiny-text.yaml"
    before = intent.read_text(), (catalog / "lock.json").read_text()
    try:
        intent.write_text(before[0].replace("context: 2048", "context: 1024"))
        assert main(["lock", "--catalog", str(catalog)]) == 0
        assert main(["measure", "tiny-text"]) == 2
        errors = capsys.readouterr().err
        assert "another command line" in errors
        assert f"\n  → {stack.start_command(paths.state_dir())}\n" in errors
    finally:
        intent.write_text(before[0])
        (catalog / "lock.json").write_text(before[1])


def test_both_files_that_are_written_are_named(catalog, capsys):
    assert main(["measure", "tiny-text"]) == 0
    assert f"{ledger.path_of(catalog)} and {catalog}/lock.json written\n" in capsys.readouterr().err


def test_a_card_that_changes_during_a_measurement_is_not_sealed_with_it(catalog, capsys, monkeypatch):
    card, path = catalog / "cards" / "laptop.yaml", catalog / "lock.json"
    before, locked = card.read_text(), path.read_bytes()

    def read_slowly(self, *args, read=LiveModel.read, **options):
        card.write_text(f"{before}# changed meanwhile\n")
        return read(self, *args, **options)

    monkeypatch.setattr(LiveModel, "read", read_slowly)
    try:
        assert main(["measure", "tiny-text"]) == 2
        errors = capsys.readouterr().err
        assert main(["lock", "--check", "--catalog", str(catalog)]) == 1
    finally:
        card.write_text(before)

    assert "cards/laptop.yaml has changed since it was locked" in errors
    assert f"{ledger.path_of(catalog)} has the measurement of tiny-text, and {path} was left as it is." in errors
    assert errors.endswith(f"→ corral lock --catalog {catalog}\n")
    assert path.read_bytes() == locked
    assert [one.model for one in ledger.read(catalog).measurements] == ["tiny-text"]


def test_an_unknown_model_is_refused_with_those_that_there_are(catalog, capsys):
    assert main(["measure", "tiny-unknown"]) == 2
    assert "tiny-text, tiny-think, tiny-vision" in capsys.readouterr().err


def test_without_a_stack_nothing_can_be_measured(running, tmp_path, monkeypatch, capsys):
    catalog, _ = running
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path))
    assert main(["measure", "tiny-text", "--catalog", str(catalog)]) == 3
    assert "corral up --detach" in capsys.readouterr().err
