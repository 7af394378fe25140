"""``corral smoke`` as it is typed: exit codes, stdout, stderr, and the JUnit file.

The endpoint is the stub of tests.support.stub_endpoint, which states why.
"""

from __future__ import annotations

import json
import socket
from functools import partial
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest

from corral.cli import endpoints
from corral.cli.main import main
from corral.engine.door import Door
from corral.engine.llama_swap import LlamaSwap
from tests.support import smoke_catalog
from tests.support.stub_endpoint import answers, fails_to_load, replies, serve, stalls

MODELS = {"eyes": {"modalities": ["text", "image"]}, "text": {"smoke": {"expect": "OK"}}}


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("CORRAL_API_KEY", raising=False)


@pytest.fixture
def catalog(tmp_path):
    return smoke_catalog.write(tmp_path / "catalog", MODELS)


@pytest.fixture
def closed_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


def test_all_passed_is_exit_code_0(catalog, capsys):
    with serve("eyes", "text") as stub:
        assert main(["smoke", "--catalog", str(catalog), "--endpoint", stub.root]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "model\tcheck\tstatus\tseconds\treason"
    assert [line.split("\t")[:3] for line in lines[1:4]] == [
        ["*", "liveness", "passed"],
        ["*", "catalog", "passed"],
        ["eyes", "answer", "passed"],
    ]
    assert "eyes is not resident: its first check loads it" in err
    assert "passed   text  stream" in err


def test_a_failure_is_exit_code_1_and_its_reason_is_printed(catalog, capsys):
    with serve("eyes", "text", acts={("text", "*"): fails_to_load}) as stub:
        assert main(["smoke", "--catalog", str(catalog), "--endpoint", stub.root]) == 1
    out, err = capsys.readouterr()
    assert "text\tanswer\tfailed\t" in out
    assert "failed to load" in out
    assert "failed to load" in err
    assert err.endswith("1 of 8 checks failed.\n")


def test_json_is_the_documented_shape_and_all_there_is_on_stdout(catalog, capsys):
    with serve("eyes", "text", acts={("text", "answer"): answers("KO")}) as stub:
        assert main(["smoke", "text", "--catalog", str(catalog), "--endpoint", f"{stub.root}/v1/", "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert list(result) == ["endpoint", "passed", "checks"]
    assert (result["endpoint"], result["passed"]) == (stub.root, False)
    assert {tuple(check) for check in result["checks"]} == {("model", "check", "status", "reason", "seconds")}
    assert [(check["model"], check["check"], check["status"]) for check in result["checks"]] == [
        ("*", "liveness", "passed"),
        ("*", "catalog", "passed"),
        ("text", "answer", "failed"),
        ("text", "stream", "passed"),
    ]


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_an_endpoint_behind_a_path_prefix_is_found(catalog, suffix):
    with serve("eyes", "text") as stub:
        assert main(["smoke", "--catalog", str(catalog), "--endpoint", f"{stub.root}/prefix{suffix}"]) == 0
    assert set(stub.paths) == {
        f"/prefix{path}" for path in ("/running", "/health", "/v1/models", "/v1/chat/completions")
    }


def test_junit_is_written_when_checks_fail(catalog, tmp_path):
    with serve("eyes", "text", acts={("text", "*"): fails_to_load}) as stub:
        assert (
            main(["smoke", "--catalog", str(catalog), "--endpoint", stub.root, "--junit", str(tmp_path / "x.xml")]) == 1
        )
    suite = ET.parse(tmp_path / "x.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("8", "1", "1")


def test_an_endpoint_without_a_server_is_exit_code_3_and_no_old_report_stays(catalog, tmp_path, closed_port, capsys):
    file = tmp_path / "x.xml"
    file.write_text("<testsuites/>", encoding="utf-8")
    endpoint = f"http://127.0.0.1:{closed_port}"
    assert main(["smoke", "--catalog", str(catalog), "--endpoint", endpoint, "--junit", str(file)]) == 3
    assert f"No server answers at {endpoint}" in capsys.readouterr().err
    assert ET.parse(file).getroot().find("testsuite").get("errors") == "1"


def test_nothing_resident_is_exit_code_3_and_the_report_is_still_given(catalog, tmp_path, capsys):
    file = tmp_path / "x.xml"
    with serve("eyes", "text") as stub:
        words = ["smoke", "--catalog", str(catalog), "--endpoint", stub.root, "--resident-only", "--junit", str(file)]
        assert main([*words, "--json"]) == 3
    out, err = capsys.readouterr()
    assert stub.loads == []
    assert json.loads(out)["passed"] is False
    assert "No model was checked" in err
    assert ET.parse(file).getroot().find("testsuite").get("skipped") == "6"


def test_resident_models_alone_are_a_pass_with_resident_only(catalog):
    with serve("eyes", "text", running={"text": "ready"}) as stub:
        assert main(["smoke", "--catalog", str(catalog), "--endpoint", stub.root, "--resident-only"]) == 0
    assert stub.loads == []


def test_resident_only_is_exit_code_3_where_it_cannot_be_kept(catalog, capsys):
    with serve("eyes", "text", running=None) as stub:
        assert main(["smoke", "--catalog", str(catalog), "--endpoint", stub.root, "--resident-only"]) == 3
    assert "--resident-only cannot be kept" in capsys.readouterr().err
    assert stub.asked == []


def test_each_check_has_the_time_limit_that_was_asked_for(catalog, capsys):
    with serve("eyes", "text", acts={("text", "*"): stalls}) as stub:
        assert main(["smoke", "--catalog", str(catalog), "--endpoint", stub.root, "--timeout", "0.4", "text"]) == 1
    assert "no answer within 0.4 s" in capsys.readouterr().out


def test_the_key_comes_from_the_environment(catalog, monkeypatch):
    with serve("eyes", "text", api_key="secret") as stub:
        words = ["smoke", "--catalog", str(catalog), "--endpoint", stub.root]
        assert main(words) == 1
        monkeypatch.setenv("CORRAL_API_KEY", "secret\n")
        assert main(words) == 0


def test_a_refused_key_is_reported_with_the_variable(catalog, capsys):
    refusal = replies(401, {"error": "unauthorized", "src": "llama-swap"})
    with serve("eyes", "text", acts={("text", "*"): refusal}) as stub:
        assert main(["smoke", "--catalog", str(catalog), "--endpoint", stub.root, "text"]) == 1
    assert "CORRAL_API_KEY" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nosuch"], "No model nosuch"),
        (["--endpoint", "127.0.0.1:8080"], "must begin with http"),
        (["--junit", "/nowhere/at/all/x.xml"], "There is no folder /nowhere/at/all"),
    ],
    ids=["an-unknown-model", "a-bad-endpoint", "a-missing-folder"],
)
def test_wrong_usage_is_exit_code_2_and_sends_no_request(catalog, words, why, capsys):
    with serve("eyes", "text") as stub:
        endpoint = [] if "--endpoint" in words else ["--endpoint", stub.root]
        assert main(["smoke", "--catalog", str(catalog), *endpoint, *words]) == 2
    assert why in capsys.readouterr().err
    assert stub.paths == []


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_a_time_limit_that_is_no_time_is_exit_code_2(catalog, seconds, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["smoke", "--catalog", str(catalog), f"--timeout={seconds}"])
    assert stop.value.code == 2
    assert "is no number of seconds above 0" in capsys.readouterr().err


def test_without_an_endpoint_the_local_stack_is_asked(catalog, monkeypatch, capsys):
    with serve("eyes", "text", acts={("text", "*"): fails_to_load}) as stub:
        client = partial(LlamaSwap, stub.root)
        local = SimpleNamespace(
            endpoint=stub.root,
            client=client,
            door=Door(1, swap_port=2),
            folder=None,
            is_alive=True,
            start_command=lambda: "corral up",
        )
        monkeypatch.setattr(endpoints.stack, "recorded", lambda _state: local)
        assert main(["smoke", "--catalog", str(catalog)]) == 1
    assert "see: corral logs text" in capsys.readouterr().out


def test_without_an_endpoint_and_a_local_stack_the_next_command_is_given(catalog, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    assert main(["smoke", "--catalog", str(catalog)]) == 3
    assert f"corral up --detach --catalog {catalog} here, corral apply in the cluster of" in capsys.readouterr().err


def test_help_shows_for_how_long_a_loaded_model_may_be_silent(capsys):
    with pytest.raises(SystemExit):
        main(["smoke", "--help"])
    assert "--silence SECONDS" in capsys.readouterr().out


def test_a_model_that_is_loaded_and_silent_fails_by_the_option(catalog, capsys):
    with serve("text", "eyes", running={"text": "ready"}, acts={("text", "*"): stalls}) as stub:
        words = ["--endpoint", stub.root, "--timeout", "3600", "--silence", "0.2", "text", "--json"]
        assert main(["smoke", "--catalog", str(catalog), *words]) == 1
    assert "silent for 0.2 s, though its model is loaded" in capsys.readouterr().out
