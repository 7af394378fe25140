"""`corral drill` plays incidents; here without Prometheus, with which tests/cluster/test_drill_alert.py plays them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest
import yaml

from corral.cli.main import main
from corral.drill import drills, scene, small_disk, tenant_grows
from corral.drill.alert_rules import render_rules, with_waits
from corral.drill.monitoring import Programs, Receiver
from corral.drill.stand_in import StandInCard
from tests.support.demo_stack import demo_stack
from tests.support.engine_process import free_port
from tests.support.kernel import small_disk as require_small_disk

ALERT = "alert CorralNoRoomForModel"
PORT = ("--port", str(free_port()))
pytestmark = [pytest.mark.timeout(240), pytest.mark.long]


@pytest.fixture(autouse=True)
def without_alerts(monkeypatch):
    monkeypatch.setattr(scene, "installed", lambda: None)
    monkeypatch.setattr(tenant_grows, "_STEP_S", 0.0)


def processes_of(state):
    """The processes of this machine that have *state* in their command line or environment."""
    found = []
    for one in psutil.process_iter():
        try:
            if any(str(state) in word for word in (*one.cmdline(), *one.environ().values())):
                found.append(one)
        except psutil.Error:
            continue
    return found


def test_every_layer_knows_the_tenant_and_nothing_is_left(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))

    assert main(["drill", "--json", *PORT]) == 0

    out, err = capsys.readouterr()
    found = json.loads(out)
    layers = {one["layer"]: one for one in found["layers"]}
    assert found["passed"]
    assert list(layers) == ["preflight", "exporter", "corral why", ALERT]
    assert "6996 MiB" in layers["preflight"]["text"]
    assert layers["corral why"]["text"].startswith("immich-ml (pid ")
    assert layers["exporter"]["text"] == "immich-ml: 8,626 MiB over its promise"
    assert (layers[ALERT]["after_seconds"], layers[ALERT]["required"]) == (None, False)
    assert "status 503, no-room" in err
    assert processes_of(tmp_path / "state" / "drill") == []
    assert list((tmp_path / "state" / "drill").iterdir()) == [tmp_path / "state" / "drill" / "lock"]


KNOWN = {
    "engine-hangs": {
        "/health": "status 200: green",
        "corral why": "is stopped (SIGSTOP); llama-swap reports it as ready.",
        "corral status": "qwen3-8b hanging ",
        "exporter": "corral_engine_up 0",
        "alert CorralEngineHung": None,
    },
    "weights-damaged": {
        "request": "status 503: The model qwen3-8b could not be loaded.",
        "corral why": "invalid magic characters: 'dama', expected 'GGUF'",
        "exporter": "corral_failed_loads_total 1",
        "alert CorralLoadsFail": None,
        "corral verify --repair": "exit code 0; the next request: status 200",
    },
    "exporter-dies": {
        "alert CorralTenantOverBudget": None,
        "request": "status 200: qwen3-8b is served as before",
        "alert CorralExporterMissing": None,
        "alerts that ended with it": "none",
    },
    "store-full": {
        "corral fetch": "exit code 3; corral fetch: There is no room left on the file system of /proc/",
        "request": "status 200: the version of before is in its place",
        "exporter": " for qwen3-8b, which is outdated",
        "alert CorralStoreFilling": None,
        "corral fetch, with room": " bytes had to come; the next request: 200",
    },
}


@pytest.mark.parametrize("name", KNOWN)
def test_each_layer_of_the_other_drills_knows_the_fault_and_nothing_is_left(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    if name == "store-full":
        with require_small_disk(tmp_path / "disk", 1 << 20):
            pass

    assert main(["drill", name, "--json", *PORT]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["drill"], found["passed"]) == (name, True)
    assert [one["layer"] for one in found["layers"]] == list(KNOWN[name])
    for one in found["layers"]:
        known = KNOWN[name][one["layer"]]
        assert one["required"] == (one["after_seconds"] is not None) == (known is not None)
        assert known is None or known in one["text"]
    assert processes_of(tmp_path / "state" / "drill") == []


def test_every_drill_is_tested():
    assert {"tenant-grows", *KNOWN} == set(drills.DRILLS)


def test_where_no_small_disk_can_be_mounted_that_is_the_reason(tmp_path, monkeypatch, capsys):
    """Stands in for a kernel that permits no name spaces, and for a machine without the program."""
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    for words, reason in (
        (("sh", "-c", "echo unshare failed: Operation not permitted >&2"), "unshare failed: Operation not permitted"),
        (("/nowhere/unshare",), "/nowhere/unshare: No such file or directory"),
    ):
        monkeypatch.setattr(small_disk, "UNSHARE", words)
        assert main(["drill", "store-full", *PORT]) == 3
        text = capsys.readouterr().err
        assert f"A small disk cannot be mounted here: {reason}." in text
        assert "→ Run it as root, or where users may make name spaces" in text


def test_the_alert_of_a_full_store_waits_for_less_in_the_drill_and_is_the_same_otherwise(tmp_path):
    rules, _ = render_rules(["t4"], tmp_path / "alerts", "0" * 64, ["local"])
    before, after = (
        {rule["alert"]: rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]}
        for text in (rules, with_waits(rules, {"CorralStoreFilling": 15}))
    )
    assert before["CorralStoreFilling"]["for"] == "15m"
    assert after == before | {"CorralStoreFilling": before["CorralStoreFilling"] | {"for": "15s"}}


def test_a_layer_that_does_not_know_is_an_exit_code_of_1(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(tenant_grows, "_WHY_LIMIT_S", 0.0)
    monkeypatch.setattr(StandInCard, "free_mib", property(lambda _: 9000))  # so the model has room after all

    assert main(["drill", *PORT]) == 1

    table = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {row[0] for row in table[1:] if row[1] == "-"} == {"preflight", "corral why", ALERT}


def test_an_alert_that_does_not_come_in_time_is_an_exit_code_of_1(tmp_path, monkeypatch, capsys):
    """Stands in for an Alertmanager that stays silent."""
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(tenant_grows, "ALERT_GOAL_S", 0.1)
    monkeypatch.setattr(scene, "installed", lambda: Programs("", ""))
    monkeypatch.setattr(scene, "render_rules", lambda *_: ("", ""))
    monkeypatch.setattr(scene, "monitoring", lambda *_, **__: contextlib.nullcontext(Receiver()))
    monkeypatch.setattr(scene.Scene, "_wait_for_scrape", lambda *_: None)

    assert main(["drill", "--json", *PORT]) == 1

    layers = json.loads(capsys.readouterr().out)["layers"]
    assert [one["layer"] for one in layers if one["after_seconds"] is None] == [ALERT]
    assert (layers[-1]["text"], layers[-1]["required"]) == ("none within 0 s", True)


def test_a_stack_that_does_not_start_is_an_error_whose_command_shows_its_log(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["drill", "--port", str(taken.getsockname()[1])]) == 1
    text = capsys.readouterr().err
    assert "corral up ended with exit code " in text
    assert f"CORRAL_STATE={tmp_path / 'state' / 'drill' / 'scene' / 'state'} corral logs" in text


def test_an_end_from_outside_ends_the_programs_of_the_drill(tmp_path):
    state = tmp_path / "state"
    with subprocess.Popen(
        [sys.executable, "-m", "corral.cli.main", "drill", *PORT],
        env={**os.environ, "CORRAL_STATE": str(state)},
        stderr=subprocess.PIPE,
        text=True,
    ) as drill:
        assert any("grows:" in line for line in drill.stderr)
        assert processes_of(state / "drill")
        drill.send_signal(signal.SIGTERM)
        drill.stderr.read()
    assert drill.returncode == 130
    assert processes_of(state / "drill") == []


def test_a_drill_that_was_killed_is_ended_by_the_next(tmp_path, monkeypatch):
    state = tmp_path / "state"
    monkeypatch.setattr(drills, "play", lambda *_, **__: ())
    place = state / "drill" / "scene"
    with demo_stack(place):
        monkeypatch.setenv("CORRAL_STATE", str(state))
        assert processes_of(place)
        assert main(["drill", *PORT]) == 0
        assert processes_of(place) == []


def test_the_programs_beside_the_stack_of_a_drill_that_was_killed_are_ended_by_the_next(tmp_path, monkeypatch):
    """Prometheus, Alertmanager and the tenants have a mark of the drill; a shell for its logs has only its state."""
    state = tmp_path / "state"
    monkeypatch.setenv("CORRAL_STATE", str(state))
    monkeypatch.setattr(drills, "play", lambda *_, **__: ())
    place = state / "drill" / "scene"
    as_advised = {**os.environ, "CORRAL_STATE": str(place / "state")}
    with (
        subprocess.Popen(["sleep", "600"], env=as_advised | {"CORRAL_DRILL": str(place)}) as left,
        subprocess.Popen(["sleep", "600"], env=as_advised) as shell,
        subprocess.Popen(["sleep", "600"], env=as_advised | {"CORRAL_DRILL": str(tmp_path)}) as other,
    ):
        try:
            assert main(["drill", *PORT]) == 0
            assert left.wait(timeout=60) == -signal.SIGKILL
            assert (shell.poll(), other.poll()) == (None, None)
        finally:
            for one in (left, shell, other):
                one.kill()


def test_every_program_that_a_drill_starts_has_its_mark(tmp_path, monkeypatch):
    """All but those of its stack, which is ended by its record."""
    state = tmp_path / "state"
    with subprocess.Popen(
        [sys.executable, "-m", "corral.cli.main", "drill", *PORT],
        env={**os.environ, "CORRAL_STATE": str(state)},
        stderr=subprocess.PIPE,
        text=True,
    ) as drill:
        assert any("grows:" in line for line in drill.stderr)
        assert processes_of(state / "drill")
        drill.kill()
        drill.stderr.close()
    monkeypatch.setenv("CORRAL_STATE", str(state))
    monkeypatch.setattr(drills, "play", lambda *_, **__: ())

    assert main(["drill", *PORT]) == 0

    left = processes_of(state / "drill")
    for one in left:
        one.kill()
    assert left == []


# The tests may run in the background of a shell, where SIGINT is ignored.
INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from corral.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_is_one_line(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, "drill", *PORT],
        env={**os.environ, "CORRAL_STATE": str(tmp_path / "state")},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as drill:
        assert any("grows:" in line for line in drill.stderr)
        os.killpg(drill.pid, signal.SIGINT)  # as a terminal sends it
        text = drill.stderr.read()
    assert drill.returncode == 130, text
    assert "Traceback" not in text
    assert text.endswith("corral drill: interrupted\n")
