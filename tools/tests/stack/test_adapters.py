"""Adapters by name, in the process of their model: their answers, the version that serves, another in its place."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from corral import paths
from corral.cli.main import main
from corral.demo import tiny_gguf
from corral.engine import stack
from corral.lock import lock as locks
from corral.measure.comparison import LIMIT
from tests.support.adapters import write_answering
from tests.support.engine_process import chat, free_port, get, post, question, unanswered
from tests.support.locked_catalog import write_sources
from tests.support.why_command import wait_for_evidence

pytestmark = pytest.mark.timeout(300)

WORDS = ("red", "green", "blue", "white")
PATHS = {
    "/v1/chat/completions": question("Hello.", model="m:colour"),
    "/v1/completions": {"model": "m:colour", "prompt": "Hello.\n", "max_tokens": 4},
    "/v1/responses": {"model": "m:colour", "input": "Hello.", "max_output_tokens": 8},
    "/completion": {"model": "m:colour", "prompt": "Hello.\n", "n_predict": 4},
}
REQUESTS, AT_ONCE, SEED = 1000, 8, 20
TOKENS = 500  # of a stream
PROMPTS = ("Hello.", "a " * 40, "The same beginning, and one end.", "The same beginning, and another end.", "x" * 200)


def named(folder, word, **keys):
    return {"source": {"path": str(folder / f"{word}.gguf")}} | keys


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A stack with a model, two versions of one of its adapters, and another adapter: (stack, catalog folder)."""
    folder = tmp_path_factory.mktemp("adapters")
    tiny_gguf.write_text(folder / "base.gguf")
    for word in WORDS:
        write_answering(folder / f"{word}.gguf", word)
    model = {
        "card": "laptop",
        "context": 2048,
        "parallel": 2,
        "modalities": ["text"],
        "aliases": ["plain"],
        "source": {"path": str(folder / "base.gguf")},
        "smoke": {"prompt": "Hello.", "expect": "OK"},
        "adapters": [
            named(folder, "red", name="colour", smoke={"prompt": "Hello."}),
            named(folder, "green", name="colour", version="v2"),
            named(folder, "blue", name="sky", smoke={"prompt": "Hello.", "expect": "blue"}),
        ],
    }
    catalog = write_sources(folder / "catalog", {"m": model}, {"laptop": {"vram_mib": 4096}})
    with pytest.MonkeyPatch.context() as settings:
        settings.setenv("OMP_WAIT_POLICY", "passive")
        settings.setenv("CORRAL_STATE", str(folder / "state"))
        assert main(["lock", "--catalog", str(catalog)]) == 0
        assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(free_port())]) == 0
        found = stack.running(paths.state_dir())
        assert found is not None
        yield found, catalog
        stack.stop(folder / "state", drain_s=0)


@pytest.fixture
def root(running, monkeypatch):
    """The address of the stack, where the first version serves."""
    monkeypatch.setenv("CORRAL_STATE", str(running[0].folder.parent))
    (running[0].folder.parent / "adapters" / "versions.json").unlink(missing_ok=True)
    return running[0].endpoint


@pytest.fixture
def present(root):
    """The stack as it runs now: another test may have started it again."""
    found = stack.running(paths.state_dir())
    assert found is not None
    return found


def answer(root, model, prompt="Hello."):
    return chat(root, prompt, model=model)["message"]["content"]


def test_each_name_answers_by_its_adapter_and_the_model_by_none(root):
    names = ("m", "plain", "m:colour", "m:colour@v1", "m:colour@v2", "m:sky", "m:sky@v1")
    assert {name: answer(root, name) for name in names} == {
        "m": "OK",
        "plain": "OK",
        "m:colour": "red",
        "m:colour@v1": "red",
        "m:colour@v2": "green",
        "m:sky": "blue",
        "m:sky@v1": "blue",
    }


@pytest.mark.parametrize("name", ["m:none", "m:colour@v3", "m:colour@", "m:", "m:sky@v2", "colour", "plain:colour"])
def test_a_name_that_there_is_not_is_a_404_and_never_the_model(root, name):
    status, body = post(f"{root}/v1/chat/completions", question("Hello.", model=name))
    assert (status, json.loads(body)["error"]["code"]) == (404, "model-not-found")


@pytest.mark.parametrize("path", PATHS)
def test_an_adapter_answers_on_every_path_on_which_the_engine_takes_one(root, path):
    status, body = post(f"{root}{path}", PATHS[path])
    assert status == 200
    assert "red" in body
    assert "OK" not in re.sub(r'"[a-z_]*id":"[^"]*"', "", body), "an id has random letters"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_on_any_other_path_an_adapter_is_refused_and_the_model_is_not(root, path):
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 8}
    status, text = post(f"{root}{path}", body | {"model": "m:sky"})
    assert (status, json.loads(text)["error"]["code"]) == (404, "no-adapter-here")
    assert post(f"{root}{path}", body)[0] != 404


def test_the_engine_itself_would_answer_on_the_path_for_messages_without_the_adapter(present):
    """Why the door refuses it: an engine that takes it makes this test fail, and then the refusal can go."""
    client = present.client()
    body = {"model": "m:sky", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 8}
    status, text = post(f"{client.endpoint}/v1/messages", body, api_key=client.api_key)
    assert (status, json.loads(text)["content"][0]["text"]) == (200, "OK")


def test_an_adapter_by_its_number_is_refused(root):
    body = question("Hello.", model="m", lora=[{"id": 9, "scale": 1}])
    status, text = post(f"{root}/v1/chat/completions", body)
    assert (status, json.loads(text)["error"]["code"]) == (400, "lora-by-number")


def test_the_list_of_models_has_each_adapter_below_its_model_with_its_versions(root):
    listed = {one["id"]: one for one in json.loads(get(f"{root}/v1/models")[1])["data"]}
    assert {name: (one.get("parent"), one.get("version"), one.get("versions")) for name, one in listed.items()} == {
        "m": (None, None, None),
        "m:colour": ("m", "v1", ["v1", "v2"]),
        "m:sky": ("m", "v1", ["v1"]),
    }


def test_a_swap_changes_the_answer_without_a_load_and_a_rollback_changes_it_back(root, present, capsys):
    assert answer(root, "m:colour") == "red"
    assert main(["adapters", "list"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["m:colour", "v1", "v1,", "v2"] in rows
    (engine,) = present.engines()
    assert main(["adapters", "swap", "m:colour", "v2", "--json"]) == 0
    swapped = json.loads(capsys.readouterr().out)
    assert (swapped["version"], swapped["before"]) == ("v2", "v1")
    assert (answer(root, "m:colour"), answer(root, "m:sky"), answer(root, "m")) == ("green", "blue", "OK")
    assert main(["adapters", "rollback", "m:colour", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == "v1"
    assert answer(root, "m:colour") == "red"
    assert present.engines() == [engine]
    assert main(["adapters", "rollback", "m:colour"]) == 2
    assert "No other version of m:colour served before v1" in capsys.readouterr().err


def test_a_stream_under_way_ends_with_the_version_that_it_began_with(root, present):
    stream, engine = unanswered(present, "m:colour", TOKENS)
    try:
        assert main(["adapters", "swap", "m:colour", "v2"]) == 0
        assert stream.words == []
    finally:
        os.kill(engine, signal.SIGCONT)
    assert answer(root, "m:colour") == "green"
    stream.join()
    assert stream.is_whole
    assert stream.words == ["red"] * TOKENS


def test_no_answer_of_a_thousand_is_of_another_adapter_while_versions_are_swapped(root):
    """Streams are among them, and each prompt comes with each adapter, so that a kept prompt could be another's."""
    chances = random.Random(SEED)
    names = {
        "m": {"OK"},
        "m:colour": {"red", "green"},
        "m:colour@v1": {"red"},
        "m:colour@v2": {"green"},
        "m:sky": {"blue"},
    }
    plan = [(chances.choice(list(names)), chances.choice(PROMPTS), chances.random() < 0.3) for _ in range(REQUESTS)]
    done = threading.Semaphore(0)

    def ask(one):
        name, prompt, is_stream = one
        status, body = post(f"{root}/v1/chat/completions", question(prompt, model=name, stream=is_stream, max_tokens=4))
        assert status == 200, body
        done.release()
        if not is_stream:
            return name, json.loads(body)["choices"][0]["message"]["content"]
        assert body.rstrip().endswith("[DONE]")
        chunks = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
        return name, "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [pool.submit(ask, one) for one in plan]
        for version in ("v2", "v1", "v2", "v1", "v2"):
            for _ in range(REQUESTS // 6):
                done.acquire()
            assert main(["adapters", "swap", "m:colour", version]) == 0
            assert answer(root, "m:colour") == {"v1": "red", "v2": "green"}[version]
        answers = [one.result() for one in asked]
    assert len(answers) == REQUESTS
    assert [(name, text) for name, text in answers if text not in names[name]] == []
    assert {text for name, text in answers if name == "m:colour"} == {"red", "green"}


def test_smoke_asks_each_adapter_and_each_version_by_its_own_question(root, capsys):
    assert main(["smoke", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["checks"]
    assert [(one["model"], one["check"]) for one in found if one["check"] in ("catalog", "answer")] == [
        ("*", "catalog"),
        *((name, "answer") for name in ("m", "m:colour", "m:colour@v1", "m:colour@v2", "m:sky")),
    ]
    assert main(["smoke", "m:sky", "--json"]) == 0
    assert {one["model"] for one in json.loads(capsys.readouterr().out)["checks"]} == {"*", "m:sky"}


def test_smoke_fails_where_an_adapter_answers_as_another_one(root, running, tmp_path, capsys):
    other = tmp_path / "catalog"
    shutil.copytree(running[1], other)
    model = json.loads((other / "models" / "m.yaml").read_text())
    model["adapters"][2]["smoke"]["expect"] = "white"
    (other / "models" / "m.yaml").write_text(json.dumps(model))
    assert main(["smoke", "m:sky", "--json", "--catalog", str(other)]) == 1
    (failed, *_) = [one for one in json.loads(capsys.readouterr().out)["checks"] if one["status"] == "failed"]
    assert (failed["model"], failed["check"]) == ("m:sky", "answer")
    assert "blue" in failed["reason"]


def test_the_gate_swaps_and_rolls_back_where_it_may(root, capsys):
    def adapters(*words):
        main(["gate", "m", "--only", "adapters", "--json", *words])
        (found,) = [one for one in json.loads(capsys.readouterr().out)["boxes"] if one["box"] == "adapters"]
        return found["state"], found["lines"][0]["text"]

    assert adapters()[0] == "unknown"
    assert answer(root, "m:colour") == "red"
    state, text = adapters("--may-swap")
    assert state == "passed", text
    assert text.startswith("m:colour: v2 after ")
    assert answer(root, "m:colour") == "red"


def test_the_seat_has_every_version_and_is_what_the_engine_reports_after_all_have_answered(root, running, capsys):
    # llama-swap keeps the end of an engine's log, and what the engine took stands at its beginning.
    assert main(["unload", "m"]) == 0
    for name in ("m:colour@v1", "m:colour@v2", "m:sky"):
        answer(root, name)
    capsys.readouterr()
    assert main(["measure", "--json", "--catalog", str(running[1])]) == 0
    (one,) = json.loads(capsys.readouterr().out)["measurements"]
    assert abs(one["deviation"]) <= LIMIT
    size = sum((running[1].parent / f"{word}.gguf").stat().st_size for word in ("red", "green", "blue"))
    found = locks.require(running[1]).models["m"].predicted.gpu.adapters
    assert 0.9 * size < found < size  # their matrices, without the headers of the files


def test_a_version_that_is_locked_after_the_start_needs_a_restart(root, running, capsys):
    path = running[1] / "models" / "m.yaml"
    before, lock = path.read_text(), (running[1] / "lock.json").read_text()
    model = json.loads(before)
    model["adapters"].append(named(running[1].parent, "white", name="sky", version="v2"))
    path.write_text(json.dumps(model))
    try:
        assert main(["lock", "--catalog", str(running[1])]) == 0
        capsys.readouterr()
        assert main(["adapters", "swap", "m:sky", "v2"]) == 2
        assert "m:sky@v2 is locked, and its file is not loaded" in (err := capsys.readouterr().err)
        assert "corral up --detach" in err
        assert main(["adapters", "list", "--json"]) == 0
        found = {one["adapter"]: one["needs_restart"] for one in json.loads(capsys.readouterr().out)["adapters"]}
        assert found == {"m:colour": [], "m:sky": ["v2"]}
    finally:
        path.write_text(before)
        (running[1] / "lock.json").write_text(lock)
    assert answer(root, "m:sky") == "blue"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["swap", "m:none"], "There is no adapter m:none. There are: m:colour, m:sky."),
        (["swap", "m:sky"], "Which version of m:sky? there is v1 alone."),
        (["swap", "m:colour", "v7"], "m:colour has no version v7; it has v1, v2."),
        (["swap", "m:colour", "v1"], "m:colour is served by v1 already."),
        (["rollback", "m:colour", "v1"], "A version is for swap, not for rollback."),
        (["swap"], "`corral adapters swap` needs the name of an adapter."),
        (["list", "m:sky"], "`corral adapters list` lists every adapter."),
    ],
)
def test_what_cannot_be_swapped_is_refused_by_name_and_nothing_changes(root, words, problem, capsys):
    assert main(["adapters", *words]) == 2
    assert problem in capsys.readouterr().err
    assert answer(root, "m:colour") == "red"


def test_a_choice_outlives_the_stack_and_can_be_made_without_one(running, root, capsys):
    state = running[0].folder.parent
    assert main(["adapters", "swap", "m:colour", "v2"]) == 0
    stack.stop(state, drain_s=0)
    assert main(["adapters", "list", "--json", "--catalog", str(running[1])]) == 0
    assert json.loads(capsys.readouterr().out)["adapters"][0]["version"] == "v2"
    assert main(running[0].start_command().split()[1:]) == 0
    assert answer(root, "m:colour") == "green"
    assert main(["adapters", "rollback", "m:colour"]) == 0
    assert answer(root, "m:colour") == "red"


def test_status_names_the_version_of_each_adapter(root, capsys):
    assert main(["adapters", "swap", "m:colour", "v2"]) == 0
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["adapters"] == {"m:colour": "v2", "m:sky": "v1"}
    assert main(["status"]) == 0
    assert "adapters: m:colour (v2), m:sky (v1)" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["m:colour", "m:sky"])
def test_why_and_load_take_an_adapter_for_its_model(root, name, capsys, monkeypatch):
    wait_for_evidence(monkeypatch)
    assert answer(root, "m") == "OK"
    assert main(["why", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["class"] == "healthy"
    assert main(["load", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "m"
