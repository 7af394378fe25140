"""What every test may count on: no settings of the machine's user, and a state folder of its own."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections import Counter

import pytest

from corral.exporter import driver

SETTINGS = (
    "CORRAL_API_KEY",
    "CORRAL_ALLOW_HTTP",
    "CORRAL_ENGINE_ENV",
    "CORRAL_VRAM_SOURCE",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "LLAMA_SERVER",
)


OWN_TEMPORARY_FOLDER = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)  # before pytest chooses the folder of `tmp_path`
def pytest_configure(config):
    """Give the run a temporary folder of its own, and its programs the interrupt.

    Runs beside each other would clean pytest's common folder at the same time, and one of them would fail.
    A shell has what it starts in the background ignore SIGINT, and so would every program that a test starts.
    """
    if config.option.basetemp is None:
        config.option.basetemp = config.stash[OWN_TEMPORARY_FOLDER] = tempfile.mkdtemp(prefix="tests-")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Keep the run's temporary folder where a test failed."""
    if exitstatus != pytest.ExitCode.OK and OWN_TEMPORARY_FOLDER in session.config.stash:
        del session.config.stash[OWN_TEMPORARY_FOLDER]


def pytest_unconfigure(config):
    """Remove the run's temporary folder, after all workers have ended."""
    if folder := config.stash.get(OWN_TEMPORARY_FOLDER, None):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(config, items):
    """Several at a time: begin with the long files, as a file that begins last is waited for alone.

    The order among them, and among the others, stays random.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_terminal_summary(terminalreporter):
    """State what was skipped for what was not proven, by reason and number of tests; and where failures left files."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"The files of the tests: {terminalreporter.config.option.basetemp}")
    skipped = Counter(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ()))
    for reason, count in skipped.most_common():
        terminalreporter.write_line(f"NOT PROVEN here, {count} tests: {reason.removeprefix('Skipped: ')}", yellow=True)


@pytest.fixture(autouse=True)
def own_settings(monkeypatch, tmp_path_factory):
    """The user's environment does not reach a test, and a test's state does not reach the clone."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    own = tmp_path_factory.mktemp("own")
    monkeypatch.setenv("CORRAL_STATE", str(own / "state"))
    monkeypatch.setenv("HF_HOME", str(own / "hf"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(own / "config"))  # llama.cpp reads a config.ini there
    monkeypatch.setenv("CHECKPOINT_DISABLE", "1")
    monkeypatch.setattr(driver, "LIMIT_S", 60.0)  # a stand-in for nvidia-smi takes its time on a busy machine


@pytest.fixture(scope="session")
def say(pytestconfig):
    """Print past pytest's capture: figures for the log."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def say(text):
        with capture.global_and_fixture_disabled():
            sys.stderr.write(f"\n{text}\n")

    return say
