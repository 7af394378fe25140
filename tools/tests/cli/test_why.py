"""`corral why` without a stack, and with damaged input."""

from __future__ import annotations

import json
import shutil

import pytest

from corral import paths
from corral.cli.main import main
from corral.engine.stack_folder import StackFolder
from corral.why import local

CATALOG = paths.REPOSITORY / "terraform" / "catalog-demo"


@pytest.fixture(autouse=True)
def all_is_read(monkeypatch):
    """These are about what the evidence means; that a busy machine may not have it in time has tests of its own."""
    monkeypatch.setattr(local, "_FIRST_ROUND_S", 60.0)


@pytest.fixture
def why(capsys):
    def diagnose(*words: str) -> tuple[int, dict]:
        code = main(["why", *words, "--catalog", str(CATALOG), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return diagnose


def test_without_a_stack_every_model_is_down_and_the_next_command_starts_it(why):
    code, verdict = why()

    assert code == 1
    assert {one["class"] for one in verdict["answers"]} == {"stack-down"}
    assert [one["model"] for one in verdict["answers"]] == ["smollm2", "tiny-text", "tiny-think", "tiny-vision"]
    assert verdict["next"] == [f"corral up --detach --catalog {CATALOG}"]
    step = f"corral up --detach --catalog {CATALOG} --store '/srv/my store'"
    assert why("--store", "/srv/my store")[1]["next"] == [step]


def test_an_unknown_name_has_another_class_than_an_alias(why):
    assert why("tiny")[1]["class"] == "stack-down"
    code, verdict = why("tiny-txt")

    assert (code, verdict["class"]) == (1, "not-in-catalog")
    assert verdict["next"][0] == f"corral why tiny-text --catalog {CATALOG}"


def test_a_name_of_another_catalog_is_no_reason_to_doubt_the_name_while_nothing_runs(capsys, monkeypatch):
    monkeypatch.chdir(paths.REPOSITORY)

    assert main(["why", "tiny-text", "--json"]) == 1

    verdict = json.loads(capsys.readouterr().out)
    assert verdict["class"] == "stack-down"
    assert verdict["evidence"][0] == "No local stack is running."
    assert f"{paths.REPOSITORY / 'terraform' / 'catalog'} has: " in verdict["evidence"][1]
    assert "--catalog DIR" in verdict["evidence"][2]


def test_where_nothing_was_named_both_ways_to_begin_are_given(capsys, monkeypatch):
    monkeypatch.chdir(paths.REPOSITORY)

    assert main(["why", "qwen3-8b", "--json"]) == 1

    verdict = json.loads(capsys.readouterr().out)
    assert verdict["next"][-2:] == ["corral up --detach", "corral apply"]
    assert "corral apply in the cluster of terraform/stacks/homelab" in verdict["evidence"][-1]


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_an_error_and_not_every_model(name, capsys):
    assert main(["why", name, "--catalog", str(CATALOG)]) == 2
    assert "MODEL is empty" in capsys.readouterr().err


def test_a_name_with_a_line_break_stays_on_its_line(capsys):
    assert main(["why", "tiny\n\x1b[2Jtext", "--catalog", str(CATALOG)]) == 1

    first, *_ = capsys.readouterr().out.splitlines()
    assert first.endswith("(the name tiny  [2Jtext).")


def test_an_engine_that_the_user_named_wrongly_comes_first(why, monkeypatch):
    monkeypatch.setenv("LLAMA_SERVER", "/nowhere/llama-server")

    code, verdict = why("tiny-text")

    assert (code, verdict["class"]) == (1, "engine-missing")
    assert verdict["next"][0] == "unset LLAMA_SERVER"


def test_a_lock_that_is_missing_is_part_of_it(tmp_path, capsys):
    (tmp_path / "models").mkdir()
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "laptop.yaml").write_text((CATALOG / "cards" / "laptop.yaml").read_text())
    (tmp_path / "models" / "a.yaml").write_text((CATALOG / "models" / "tiny-think.yaml").read_text())

    assert main(["why", "--catalog", str(tmp_path), "--json"]) == 1

    verdict = json.loads(capsys.readouterr().out)
    assert verdict["class"] == "stack-down"
    assert any("no lock" in line for line in verdict["evidence"])
    assert f"corral lock --catalog {tmp_path}" in verdict["next"]


@pytest.fixture
def copied(tmp_path):
    return shutil.copytree(CATALOG, tmp_path / "catalog")


def test_a_stale_lock_is_locked_before_the_stack_is_started(copied, capsys, monkeypatch):
    with (copied / "cards" / "laptop.yaml").open("a") as card:
        card.write("# a comment\n")

    for engine in (None, "/nowhere/llama-server"):
        if engine:
            monkeypatch.setenv("LLAMA_SERVER", engine)
        assert main(["why", "--catalog", str(copied), "--json"]) == 1
        verdict = json.loads(capsys.readouterr().out)
        assert any("cards/laptop.yaml has changed since it was locked" in line for line in verdict["evidence"])
        steps = [f"corral lock --catalog {copied}", f"corral up --detach --catalog {copied}"]
        assert verdict["next"] == [*(["unset LLAMA_SERVER"] if engine else []), *steps]


UNUSABLE = {
    "": ("Restore it from version control", "rm {lock} && corral lock --catalog {folder}"),
    '{"version": 3}': ("Upgrade corral in its checkout", "git pull && make setup"),
    '{"version": 1}': ("has version 1", "corral lock --catalog {folder}"),
}


@pytest.mark.parametrize("text", UNUSABLE)
def test_the_next_command_for_an_unusable_lock_is_one_that_mends_it(copied, capsys, text):
    (copied / "lock.json").write_text(text)

    assert main(["why", "--catalog", str(copied), "--json"]) == 1

    verdict = json.loads(capsys.readouterr().out)
    evidence, step = UNUSABLE[text]
    assert any(evidence in line for line in verdict["evidence"])
    assert verdict["next"][0] == step.format(lock=copied / "lock.json", folder=copied)


def test_a_catalog_without_a_model_is_refused(tmp_path, capsys):
    assert main(["why", "--catalog", str(tmp_path)]) == 2
    assert "has no model" in capsys.readouterr().err


def test_an_intent_that_is_just_being_edited_is_no_obstacle(tmp_path, capsys):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.yaml").write_text("aliases: [")

    assert main(["why", "a", "--catalog", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["class"] == "stack-down"


def test_a_record_that_is_damaged_gives_no_verdict(capsys):
    record = StackFolder(paths.state_dir()).record
    record.parent.mkdir(parents=True)
    record.write_text("?")

    assert main(["why", "--catalog", str(CATALOG)]) == 3
    assert str(record) in capsys.readouterr().err


def test_without_json_it_prints_a_table_the_worst_verdict_and_the_commands(capsys):
    assert main(["why", "--catalog", str(CATALOG)]) == 1

    printed = capsys.readouterr().out
    assert "tiny-vision\tstack-down\t" in printed
    assert "smollm2: the stack is down" in printed
    assert "  → corral up --detach" in printed


def test_the_help_names_every_class(capsys):
    with pytest.raises(SystemExit):
        main(["why", "--help"])

    words = capsys.readouterr().out.split()
    for name in ("healthy", "not-in-catalog", "stack-down", "over-concurrency", "unknown."):
        assert name in words
    assert "What is true now comes first." in " ".join(words)


def test_an_editors_lock_is_no_model(capsys, tmp_path):
    catalog = shutil.copytree(CATALOG, tmp_path / "catalog")
    (catalog / "models" / ".#tiny-text.yaml").symlink_to("root@host.1:2")

    assert main(["why", "--catalog", str(catalog), "--json"]) == 1

    verdict = json.loads(capsys.readouterr().out)
    assert [one["model"] for one in verdict["answers"]] == ["smollm2", "tiny-text", "tiny-think", "tiny-vision"]
