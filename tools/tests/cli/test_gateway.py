"""`corral gateway sync`: what it writes, shows, refuses and leaves alone.

A stub stands in for LiteLLM's answers: its API changes models only with PostgreSQL, and its client for that starts a
program which is downloaded.  It keeps the entries as the API of 1.106.2 does; tests/gateway has the real proxy, as far
as that goes without a database.
"""

from __future__ import annotations

import json
import re
import sys

import pytest

from corral import paths
from corral.cli.main import main
from tests.support.scripted_api import scripted
from tests.support.terminal import on_a_terminal

DEMO = paths.REPOSITORY / "terraform" / "catalog-demo"
NAMES = ["smollm2", "tiny", "tiny-text", "tiny-think", "tiny-vision"]
KEY, DOOR_KEY = "sk-master-key", "corral-door-key"


def entry(name, own, **info):
    return {
        "model_name": name,
        "litellm_params": {"model": "openai/x"},
        "model_info": {"id": own, "db_model": True} | info,
    }


class Stub:
    """What LiteLLM keeps, and each request that changed it."""

    def __init__(self):
        self.kept = {"f": entry("gpt-4o", "f")}
        self.written = []
        self.refuse_after = None
        self.answer_as = ()

    def answer(self, path, body):
        if self.answer_as != ():
            return self.answer_as
        if path == "/model/info":
            return 200, {"data": [self._shown(one) for one in self.kept.values()]}
        if self.refuse_after is not None and len(self.written) >= self.refuse_after:
            return 500, {"error": {"message": "{'error': 'the disk is full'}", "code": "500"}}
        self.written.append((path, body))
        if path == "/model/delete":
            del self.kept[body["id"]]
        elif path == "/model/new":
            assert body["model_info"]["id"] not in self.kept
            self.kept[body["model_info"]["id"]] = body | {"model_info": body["model_info"] | {"db_model": True}}
        else:
            own = re.fullmatch("/model/([^/]+)/update", path)[1]
            parts = {part: self.kept[own][part] | body[part] for part in ("litellm_params", "model_info")}
            self.kept[own] = {"model_name": body["model_name"], **parts}
        return 200, {}

    @staticmethod
    def _shown(one):
        """LiteLLM shows no key, and further keys of its own."""
        params = {name: value for name, value in one["litellm_params"].items() if name != "api_key"}
        return one | {"litellm_params": params | {"use_in_pass_through": False}}

    @property
    def ours(self):
        return [one for one in self.kept.values() if one["model_info"].get("corral") == "corral"]


@pytest.fixture
def stub():
    return Stub()


@pytest.fixture
def sync(stub, tmp_path, monkeypatch):
    """Runs `corral gateway sync` against the stub; its exit code."""
    monkeypatch.setenv("LITELLM_MASTER_KEY", KEY)
    (tmp_path / "door.key").write_text(DOOR_KEY + "\n")
    with scripted(stub.answer) as (address, received):
        words = ["gateway", "sync", "--url", address, "--catalog", str(DEMO)]
        words += ["--door-key-file", str(tmp_path / "door.key")]

        def run(*more):
            return main([*words, *more])

        run.received, run.words = received, words
        yield run


def test_what_is_missing_is_added_with_mark_and_key_and_the_rest_stays(sync, stub, capsys):
    assert sync("--yes") == 0
    assert sorted(one["model_name"] for one in stub.ours) == NAMES
    assert stub.kept["f"] == entry("gpt-4o", "f")
    assert {one["litellm_params"]["api_key"] for one in stub.ours} == {DOOR_KEY}
    assert {one["litellm_params"]["num_retries"] for one in stub.ours} == {0}
    assert capsys.readouterr().out.splitlines() == [f"+ {name}" for name in NAMES]
    assert {one["authorization"] for one in sync.received} == {f"Bearer {KEY}"}


def test_a_second_sync_changes_nothing(sync, stub, capsys):
    assert sync("--yes") == 0
    before = len(stub.written)
    capsys.readouterr()
    assert sync("--yes") == 0
    assert len(stub.written) == before
    assert "has the models of the catalog" in capsys.readouterr().out


def test_what_differs_is_changed_and_named(sync, stub, capsys):
    assert sync("--yes") == 0
    (one,) = [one for one in stub.ours if one["model_name"] == "tiny"]
    one["litellm_params"]["num_retries"] = 3
    written = len(stub.written)
    capsys.readouterr()
    assert sync("--yes") == 0
    assert capsys.readouterr().out == "~ tiny: num_retries 3 → 0\n"
    assert [path for path, _ in stub.written[written:]] == [f"/model/{one['model_info']['id']}/update"]
    assert {one["litellm_params"]["num_retries"] for one in stub.ours} == {0}


def test_another_key_for_the_door_is_a_change_although_litellm_shows_none(sync, stub, tmp_path, capsys):
    assert sync("--yes") == 0
    (tmp_path / "door.key").write_text("corral-another-key")
    capsys.readouterr()
    assert sync("--yes") == 0
    assert capsys.readouterr().out.splitlines() == [f"~ {name}: another key" for name in NAMES]
    assert {one["litellm_params"]["api_key"] for one in stub.ours} == {"corral-another-key"}


def test_what_left_the_catalog_is_removed_and_what_has_another_mark_is_not(sync, stub, capsys):
    assert sync("--yes") == 0
    stub.kept |= {"g": entry("gone", "g", corral="corral"), "o": entry("other", "o", corral="card2")}
    capsys.readouterr()
    assert sync("--yes") == 0
    assert capsys.readouterr().out == "- gone\n"
    assert sorted(stub.kept.keys() & {"g", "o", "f"}) == ["f", "o"]


def test_json_alone_shows_and_changes_nothing(sync, stub, capsys):
    assert sync("--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["changes"] == [{"change": "add", "model": name, "details": []} for name in NAMES]
    assert stub.written == []


@pytest.mark.parametrize(("typed", "code", "written"), [("no\n", 1, 0), ("yes\n", 0, len(NAMES))])
def test_only_yes_changes_it(sync, stub, typed, code, written):
    done, shown = on_a_terminal([sys.executable, "-m", "corral.cli.main", *sync.words], typed)
    assert (done, len(stub.written)) == (code, written)
    assert shown.index("+ tiny-text") < shown.index("Only yes changes it.")


def test_without_a_terminal_the_answer_is_needed(sync, capsys):
    assert sync() == 2
    assert "--yes was not given" in capsys.readouterr().err
    assert sync.received == []


def test_a_name_that_another_entry_has_is_refused(sync, stub, capsys):
    stub.kept["x"] = entry("tiny", "x")
    assert sync("--yes") == 2
    assert "LiteLLM has other entries called tiny, without the mark corral" in capsys.readouterr().err
    assert stub.written == []


def test_an_entry_of_litellms_own_file_is_refused(sync, stub, capsys):
    stub.kept["x"] = entry("old", "x", corral="corral", db_model=False)
    assert sync("--yes") == 2
    assert "old have the mark corral, and stand in LiteLLM's own configuration" in capsys.readouterr().err


def test_a_refusal_on_the_way_states_how_far_it_came_and_the_same_command_goes_on(sync, stub, capsys):
    stub.refuse_after = 2
    assert sync("--yes") == 2
    shown = capsys.readouterr().err
    assert "500, {'error': 'the disk is full'}. 2 of 5 changes were made; the same command makes the others." in shown
    stub.refuse_after = None
    assert sync("--yes") == 0
    assert sorted(one["model_name"] for one in stub.ours) == NAMES


@pytest.mark.parametrize(
    ("answer", "message", "code"),
    [
        ((401, {"error": {"message": "Invalid proxy server token"}}), "LiteLLM does not accept the key", 2),
        ((400, {"error": {"message": "No connected db."}}), "LiteLLM does not accept the key", 2),
        ((200, {"models": []}), "has no list of models as LiteLLM has it", 3),
        ((200, {"data": [{"model_name": "x"}]}), "has no list of models as LiteLLM has it", 3),
        ((200, b"<html>"), "is 200, and no JSON", 3),
        (None, "does not answer", 3),
    ],
    ids=["another-key", "another-key-without-a-database", "another-api", "another-entry", "a-page", "no-answer"],
)
def test_an_answer_that_is_not_litellms_changes_nothing_and_is_named(sync, stub, capsys, answer, message, code):
    stub.answer_as = answer
    assert sync("--yes") == code
    assert message in capsys.readouterr().err
    assert stub.written == []


def test_its_key_is_read_from_a_file_or_the_environment_and_is_in_no_message(sync, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("LITELLM_MASTER_KEY")
    assert sync("--yes") == 2
    assert "Set LITELLM_MASTER_KEY, or name a file with it" in capsys.readouterr().err
    (tmp_path / "master.key").write_text("sk-of-the-file\n")
    assert sync("--yes", "--key-file", str(tmp_path / "master.key")) == 0
    assert sync.received[-1]["authorization"] == "Bearer sk-of-the-file"
    shown = capsys.readouterr()
    assert not any(key in shown.out + shown.err for key in (KEY, DOOR_KEY, "sk-of-the-file"))


@pytest.mark.parametrize("text", ["", "two words", "a\nb"])
def test_a_file_that_holds_no_key_is_refused(sync, tmp_path, capsys, text):
    (tmp_path / "master.key").write_text(text)
    assert sync("--yes", "--key-file", str(tmp_path / "master.key")) == 2
    assert "has no key: a key is one word" in capsys.readouterr().err
    assert sync.received == []


@pytest.mark.parametrize("url", ["litellm:4000", "http://user:pass@litellm:4000", "http://litellm:4000/v1", "ftp://x"])
def test_an_address_with_a_key_or_of_another_kind_is_refused(url, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["gateway", "sync", "--url", url, "--yes"])
    assert "--url" in capsys.readouterr().err


def test_what_only_litellms_operator_can_set_is_printed(sync, capsys):
    assert sync("--yes") == 0
    assert 'general_settings: {"health_check_skip_disabled_background_models": true}' in capsys.readouterr().err
