"""`corral load` and `corral unload` with the real llama-swap and the real engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import psutil
import pytest

from corral import paths
from corral.cli import load, options
from corral.cli.main import main
from corral.cli.one_model import OneModel
from corral.cluster.client import kubectl
from corral.cluster.target import ClusterTarget
from corral.demo import tiny_gguf
from corral.engine import stack
from corral.engine.llama_swap import Resident
from corral.errors import CannotRun
from tests.support.demo_stack import FULL, demo_stack
from tests.support.engine_process import chat, get, unanswered, wait_for
from tests.support.served import Served, served
from tests.support.why_command import STOPPED, engine_of

pytestmark = [pytest.mark.timeout(180), pytest.mark.long]


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    with demo_stack(tmp_path_factory.mktemp("demo"), card=FULL) as (_, state):
        yield state


@pytest.fixture(autouse=True)
def nothing_loaded(state, monkeypatch):
    monkeypatch.setenv("CORRAL_STATE", str(state))
    client = stack.running(state).client()
    for one in client.residents():
        client.unload(one.model)
    return client


@pytest.fixture
def run(capsys):
    """Runs a command with --json; its exit code and what it printed."""

    def run(*words):
        capsys.readouterr()
        code = main([*words, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def residents(client):
    return {one.model: one.state for one in client.residents()}


def test_a_loaded_model_is_ready_and_a_second_load_changes_nothing(run, nothing_loaded):
    code, found = run("load", "tiny-text")
    assert code == 0
    assert found.pop("seconds") > 0
    assert found == {"model": "tiny-text", "loaded": True, "was_loaded": False, "unloaded": []}
    assert residents(nothing_loaded) == {"tiny-text": "ready"}
    assert run("load", "tiny-text")[1]["was_loaded"] is True


def test_no_token_is_computed_for_a_load(run, nothing_loaded):
    run("load", "tiny-text")
    (engine,) = nothing_loaded.residents()
    _, metrics = get(f"{engine.proxy}/metrics", api_key=nothing_loaded.api_key)
    assert "llamacpp:tokens_predicted_total 0\n" in metrics
    assert "llamacpp:prompt_tokens_total 0\n" in metrics


def test_an_alias_is_the_model_that_has_it(run):
    assert run("load", "tiny")[1]["model"] == "tiny-text"
    assert run("unload", "tiny")[1]["model"] == "tiny-text"


def test_the_other_model_of_the_group_is_unloaded_and_named(run, nothing_loaded, capsys):
    run("load", "tiny-vision")
    run("load", "tiny-text")
    assert main(["load", "tiny-think"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("tiny-think is ready after ")
    assert shown.endswith("Unloaded for it: tiny-text.\n")
    assert residents(nothing_loaded) == {"tiny-think": "ready", "tiny-vision": "ready"}


def test_its_state_is_shown_while_it_loads(monkeypatch, capsys):
    monkeypatch.setattr(load, "_REPORT_S", 0.01)
    assert main(["load", "tiny-text"]) == 0
    assert "tiny-text: starting, 0 s" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["load", "unload"])
def test_a_model_that_is_not_served_is_refused_with_those_that_are(command, state, capsys):
    assert main([command, "gpt-5"]) == 2
    shown = capsys.readouterr().err
    assert "There are: tiny-text, tiny-think, tiny-vision." in shown
    assert f"one of the catalog that was added since: {stack.running(state).start_command()}\n" in shown


def test_a_load_that_fails_has_the_class_that_why_gives(run, state, capsys):
    link = paths.default_store() / "tiny-think"
    target = link.readlink()
    link.unlink()
    try:
        code, found = run("load", "tiny-think")
        assert (code, found["loaded"], found["class"]) == (1, False, "file-missing")
        assert found["problem"].startswith("HTTP 500: ")
        assert run("why", "tiny-think")[1]["class"] == found["class"]
        assert main(["load", "tiny-think"]) == 1
        shown = capsys.readouterr()
        assert "tiny-think could not be loaded (HTTP 500: " in shown.err
        assert shown.out.startswith("tiny-think: a file is missing (")
        assert "→ corral fetch" in shown.out
    finally:
        link.symlink_to(target)
    assert run("load", "tiny-think")[0] == 0


def test_unload_ends_a_model_and_names_what_it_ends(run, nothing_loaded, capsys):
    run("load", "tiny-text")
    assert main(["unload", "tiny-text"]) == 0
    shown = capsys.readouterr()
    assert "Ending the engine of tiny-text (ready); it serves no request ..." in shown.err
    assert shown.out == "tiny-text is unloaded.\n"
    assert residents(nothing_loaded) == {}
    code, found = run("unload", "tiny-text")
    assert (code, found["was_loaded"], found["requests_cut_off"]) == (0, False, 0)


def test_unload_counts_the_requests_that_it_cuts_off(state, capsys):
    stream, _ = unanswered(stack.running(state), "tiny-text", 30)
    assert main(["unload", "tiny-text"]) == 0
    assert "(ready), with 1 request under way, cut off ..." in capsys.readouterr().err
    stream.join()
    assert not stream.is_whole


class Loading(subprocess.Popen):
    """`corral load` as a process of its own; ``shown`` is what it has printed to stderr."""

    def __init__(self, folder, *words):
        self._err = folder / "err"
        with self._err.open("wb") as stderr:
            super().__init__([sys.executable, "-m", "corral.cli.main", "load", *words], stderr=stderr)

    @property
    def shown(self):
        return self._err.read_text()


def test_ctrl_c_ends_a_load_that_waits_and_the_model_is_not_loaded_afterwards(state, nothing_loaded, tmp_path):
    stream, engine = unanswered(stack.running(state), "tiny-text", 30)
    try:
        with Loading(tmp_path, "tiny-think") as loading:
            wait_for(lambda: "tiny-think: waiting, " in loading.shown, what="the wait")
            loading.send_signal(signal.SIGINT)
            assert loading.wait(60) == 130, loading.shown
        assert "tiny-think was waiting to be loaded, and is not loaded.\ncorral load: interrupted" in loading.shown
        wait_for(lambda: [one.model for one in nothing_loaded.in_flight()] == ["tiny-text"], what="the end of the load")
    finally:
        os.kill(engine, signal.SIGCONT)
    stream.join()
    assert stream.is_whole
    chat(stack.running(state).endpoint, "Hello.", model="tiny-text")
    assert residents(nothing_loaded) == {"tiny-text": "ready"}


def test_ctrl_c_leaves_an_engine_that_is_starting_and_names_the_command_that_ends_it(tmp_path, monkeypatch):
    tiny_gguf.write_text(tmp_path / "text.gguf")
    run = tmp_path / "run"
    run.mkdir()
    with served(run, {"slow": Served(tmp_path / "text.gguf", engine=STOPPED)}, load_limit_s=600) as slow:
        monkeypatch.setenv("CORRAL_STATE", str(slow.state))
        with Loading(tmp_path, "slow", "--catalog", str(slow.catalog)) as loading:
            engine = wait_for(lambda: engine_of(slow, "slow"), what="the start of the engine")
            wait_for(lambda: psutil.Process(engine).status() == psutil.STATUS_STOPPED, what="its stop")
            wait_for(lambda: residents(slow.running.client()) == {"slow": "starting"}, what="its state")
            loading.send_signal(signal.SIGINT)
            assert loading.wait(60) == 130, loading.shown
        command = f"corral unload slow --catalog {slow.catalog}"
        assert f"slow is starting, and that goes on.  To end it: {command}" in loading.shown
        os.kill(engine, signal.SIGCONT)
        wait_for(lambda: residents(slow.running.client()) == {"slow": "ready"}, what="the end of its load")


def test_ctrl_c_in_a_cluster_names_the_context_in_the_command_that_ends_the_load(monkeypatch, capsys):
    class Client:
        """Only what a load needs; the real one would need a cluster, which has no other part in this."""

        def residents(self):
            return [Resident("m", "starting", "", 0)]

        def load(self, model):
            return ""

    @contextmanager
    def opened(_args):
        yield OneModel("m", Client(), ClusterTarget(context="homelab"))

    monkeypatch.setattr(load.one_model, "opened", opened)
    monkeypatch.setattr(load, "wait", interrupted)
    assert main(["load", "m", "--context", "homelab"]) == 130
    assert "To end it: corral unload m --context homelab" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("step", "shown"),
    [
        ("corral logs", "→ kubectl --context homelab -n llama-cpp logs service/llama-swap\n"),
        ("corral status", "→ corral status --context homelab --namespace llama-cpp\n"),
    ],
)
def test_in_a_cluster_the_next_step_of_llama_swap_names_the_cluster(step, shown, monkeypatch, capsys):
    """A stub: that the llama-swap of a pod does not answer while its port is forwarded cannot be brought about."""

    @contextmanager
    def silent(*_):
        raise CannotRun("It does not answer.", next_step=step)
        yield

    cluster = SimpleNamespace(
        context="homelab", kubectl=lambda *words, namespace: kubectl("homelab", None, *words, namespace=namespace)
    )
    monkeypatch.setattr("corral.cluster.client.connect", lambda *_: cluster)
    monkeypatch.setattr("corral.cluster.served.served", silent)
    monkeypatch.setattr(options, "cluster", lambda _: ClusterTarget(context="homelab", namespace="llama-cpp"))
    assert main(["unload", "m", "--context", "homelab"]) == 3
    assert shown in capsys.readouterr().err


def interrupted(*_, **__):
    raise KeyboardInterrupt
