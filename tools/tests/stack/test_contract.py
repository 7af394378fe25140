"""The contract of the API on a real stack: a real language model, the tiny models, llama-swap behind the door."""

from __future__ import annotations

import json

import httpx2
import pytest

from corral import paths
from corral.cli import contract_vision
from corral.cli.contract import DOCUMENT
from corral.cli.main import main
from corral.contract import vision, vision_document
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
    assert first.split("\t") == ["1", '"OK"', "100.00%", '"OK" 100.00%']


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


def test_the_contract_of_vision_is_as_committed_but_for_a_promise_that_was_changed(corral, tmp_path):
    """Also times that differ by a factor are no difference: they are of the machine."""
    committed = json.loads(contract_vision.document_of("tiny-vision").read_text(encoding="utf-8"))
    committed["promises"]["prompt_tokens"]["an_image"]["896"] = 784
    committed["measured"]["boot"]["median_seconds"] = 1e6
    changed = tmp_path / "changed.json"
    changed.write_text(vision_document.text(committed), encoding="utf-8")

    code, out, err = corral("contract", "vision", "tiny-vision", "--document", str(changed), "--json")

    found = json.loads(out)
    assert found["drift"] == ["-prompt_tokens.an_image.896: 784", "+prompt_tokens.an_image.896: 66"]
    assert found["broken"] == []
    assert (code, "\n+prompt_tokens.an_image.896: 66\n" in err) == (1, True)
    assert f"corral contract vision tiny-vision --document {changed} --write" in err
    kinds = {(one["kind"], one["side_px"], one["images"]) for one in found["document"]["measured"]["answers"]}
    streams = {f"{part} of stream" for part in ("first", "end")}
    wanted = {(kind, side, count) for kind in {"whole", *streams} for side in (256, 896) for count in (1, 5, 10)}
    assert kinds == wanted | {("cold", 256, 1), ("cold", 896, 1)}


def test_a_vision_model_that_names_other_colours_fails_and_nothing_is_written(corral, tmp_path, monkeypatch):
    """The images are exchanged on their way: for the contract that is a model which mixes up two of them."""
    in_order = vision._Asking.body

    def exchanged(self, colours, side_px, **more):
        return in_order(self, (*colours[:3], *colours[4:5], *colours[3:4], *colours[5:]), side_px, **more)

    monkeypatch.setattr(vision._Asking, "body", exchanged)
    for name in ("COLD", "WARM"):
        monkeypatch.setattr(vision, name, 1)
    document = tmp_path / "contract.json"

    code, _, err = corral("contract", "vision", "tiny-vision", "--document", str(document), "--write")

    assert (code, document.exists()) == (1, False)
    shown, named = (", ".join(one) for one in (vision.ORDERS[0], exchanged_names(vision.ORDERS[0])))
    assert f"tiny-vision: of images {shown} of 896 pixels it names {named}." in err
    assert "a streamed answer names them otherwise" in err
    assert "that a JSON schema binds" in err


def exchanged_names(colours):
    return [*colours[:3], colours[4], colours[3], *colours[5:]]


@pytest.mark.parametrize(
    ("models", "why"),
    [
        (["none"], "no model none"),
        (["tiny-text"], "takes no images"),
        ([], "of one model"),
        (["a", "b"], "of one model"),
    ],
)
def test_a_contract_of_vision_is_of_one_model_that_takes_images(corral, models, why):
    code, out, err = corral("contract", "vision", *models)
    assert (code, out) == (2, "")
    assert why in err


@pytest.mark.parametrize("subject", [["api"], ["vision", "tiny-vision"]])
def test_a_document_that_could_not_be_written_is_refused_before_anything_is_unloaded(corral, tmp_path, subject):
    missing = tmp_path / "none" / "contract.json"
    for file, way_out in ((missing, f"mkdir -p {missing.parent}"), (tmp_path, "Name another file with --document")):
        code, out, err = corral("contract", *subject, "--document", str(file), "--write")
        assert (code, out) == (2, "")
        assert way_out in err
        assert "unloaded" not in err
        assert "checks of" not in err


def test_a_file_that_is_no_contract_of_that_model_is_refused_before_anything_is_unloaded(corral, tmp_path):
    document = tmp_path / "other.json"
    for text in (
        "{",
        "[]",
        "[" * 100_000,
        '{"contract": "vision", "version": 1, "model": "another"}',
        '{"contract": 1}',
    ):
        document.write_text(text)
        code, out, err = corral("contract", "vision", "tiny-vision", "--document", str(document))
        assert (code, out) == (2, "")
        assert "cannot be read" in err
        assert "is unloaded" not in err
