"""The contract of the API on a real stack: a real language model, the tiny models, llama-swap behind the door."""

from __future__ import annotations

import json

import httpx2
import pytest

from corral import paths
from corral.cli.contract import DOCUMENT
from corral.cli.main import main
from corral.contract.survey import OTHER_FORM
from corral.engine import stack
from tests.support.demo_stack import demo_stack

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
PROMPT = "What is 2+2?"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with demo_stack(tmp_path_factory.mktemp("contract"), real=True) as (_, state):
        yield state


@pytest.fixture
def corral(running, monkeypatch, capsys):
    """Runs a command on that stack; its exit code, and what it prints to stdout and to stderr."""
    monkeypatch.setenv("CORRAL_STATE", str(running))

    def run(*words):
        capsys.readouterr()  # of the stack's start
        code = main(list(words))
        return code, *capsys.readouterr()

    return run


def test_each_line_of_the_committed_document_is_made_again_and_a_changed_one_fails(corral, tmp_path):
    """One run for both, because each takes the engines' time: what was committed has one line changed."""
    committed = DOCUMENT.read_text(encoding="utf-8")
    line = next(line for line in committed.splitlines() if line.startswith("| A model that does not exist"))
    changed = tmp_path / "api.md"
    changed.write_text(committed.replace(line, line.replace("HTTP 200", "HTTP 404")), encoding="utf-8")

    code, out, err = corral("contract", "api", "--document", str(changed), "--json")

    found = json.loads(out)
    assert found["drift"] == [f"-{line.replace('HTTP 200', 'HTTP 404')}", f"+{line}"]
    assert code == 1
    assert f"\n+{line}\n" in err
    assert "corral contract api --document" in err
    assert len(found["rows"]) > 50
    assert OTHER_FORM not in out  # such a line may be a defect of the check


def test_a_document_that_is_missing_is_refused_before_anything_is_sent(corral, tmp_path):
    code, out, err = corral("contract", "api", "--document", str(tmp_path / "none.md"))
    assert (code, out) == (2, "")
    assert f"corral contract api --document {tmp_path / 'none.md'} --write" in err


@pytest.mark.parametrize(
    ("models", "why"),
    [(["none"], "no model none"), (["smollm2", "tiny-text"], "of one kind"), (["tiny-vision"], "None of them")],
)
def test_models_that_are_unknown_or_of_one_kind_are_refused(corral, models, why):
    code, _, err = corral("contract", "api", *models)
    assert code == 2
    assert why in err


def test_the_probabilities_are_those_that_the_engine_gives(corral):
    code, out, _ = corral("logprobs", "smollm2", PROMPT, "--tokens", "3", "--top", "2", "--json")
    assert code == 0
    shown = json.loads(out)["tokens"]

    present = stack.running(paths.state_dir())
    client = present.client()
    (engine,) = [one.proxy for one in client.residents() if one.model == "smollm2"]
    body = {"prompt": _rendered(engine, client.headers), "n_predict": 3, "n_probs": 2, "temperature": 0}
    raw = _post(f"{engine}/completion", body, client.headers)["completion_probabilities"]

    assert [one["token"] for one in shown] == [one["token"] for one in raw]
    for one, by_engine in zip(shown, raw, strict=True):
        assert [top["token"] for top in one["top"]] == [top["token"] for top in by_engine["top_logprobs"]]
        for top, other in zip(one["top"], by_engine["top_logprobs"], strict=True):
            assert top["probability"] == pytest.approx(2.718281828459045 ** other["logprob"], abs=0.02)
        assert one["probability"] == one["top"][0]["probability"]


def test_the_table_has_a_line_for_each_token(corral):
    code, out, _ = corral("logprobs", "tiny-text", PROMPT, "--top", "1")
    assert code == 0
    head, first, *_ = out.splitlines()
    assert head.split("\t") == ["position", "token", "probability", "likeliest"]
    assert first.split("\t") == ["1", '"OK"', "99.95%", '"OK" 99.95%']


def test_a_model_that_does_not_exist_has_no_probabilities(corral):
    code, out, err = corral("logprobs", "none", PROMPT)
    assert (code, out) == (1, "")
    assert "HTTP 404" in err


def _rendered(engine, headers):
    """The prompt that the question becomes."""
    messages = [{"role": "user", "content": PROMPT}]
    return _post(f"{engine}/apply-template", {"messages": messages}, headers)["prompt"]


def _post(url, body, headers):
    return httpx2.post(url, json=body, headers=headers, timeout=None, trust_env=False).raise_for_status().json()
