"""`corral load` and `corral unload` with the real llama-swap and the real engine."""

from __future__ import annotations

import json

import pytest

from corral import paths
from corral.cli import load
from corral.cli.main import main
from corral.engine import stack
from tests.support.demo_stack import FULL, demo_stack
from tests.support.engine_process import get, unanswered

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
def test_a_model_that_is_not_served_is_refused_with_those_that_are(command, capsys):
    assert main([command, "gpt-5"]) == 2
    assert "There are: tiny-text, tiny-think, tiny-vision." in capsys.readouterr().err


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
