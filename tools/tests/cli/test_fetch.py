"""`corral fetch`: what it prints, and how it ends."""

import json
import re

import pytest

from corral.agent import __main__ as agent
from corral.cli.main import main
from tests.support.fetching import shop
from tests.support.locks import write_sealed


@pytest.fixture
def one(tmp_path, monkeypatch):
    with shop(tmp_path) as made:
        monkeypatch.setenv("HF_ENDPOINT", made.hub.endpoint)
        assert made.lock.exists()
        yield made


@pytest.mark.parametrize("program", [main, agent.main])
@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1", "soon"])
def test_a_lease_that_never_ends_or_never_holds_is_refused(program, seconds, capsys):
    with pytest.raises(SystemExit) as ended:
        program(["fetch", "--store=s", f"--lease-ttl={seconds}", *(["--lock=l"] if program is agent.main else [])])
    assert ended.value.code == 2
    assert "is no number of seconds above 0" in capsys.readouterr().err


def corral(one, *words):
    return main([words[0], "--catalog", str(one.folder), "--store", str(one.store.root), *words[1:]])


def test_it_ends_with_a_summary_of_bytes_seconds_and_what_was_reused(one, capsys):
    assert corral(one, "fetch") == 0
    out, err = capsys.readouterr()
    assert out.startswith("1 model, 1 file: 4.2 MB moved in ")
    assert out.endswith("s, 0 % reused of 4.2 MB\n")
    assert re.fullmatch(r"1 file, 4\.2 MB; 4\.2 MB to fetch, [\d.]+ [GT]B free", err.splitlines()[0])
    assert "m: now m@" in err
    assert one.published.read_bytes() == one.content

    assert corral(one, "fetch", "m") == 0
    out, err = capsys.readouterr()
    assert out.startswith("1 model, 1 file: 0 B moved in 0.")
    assert out.endswith("100 % reused of 4.2 MB\n")


def test_json_is_one_event_per_line_and_the_last_one_is_the_summary(one, capsys):
    assert corral(one, "fetch", "--json") == 0
    out, err = capsys.readouterr()
    events = [json.loads(line) for line in out.splitlines()]
    assert err == ""
    assert [events[0]["event"], *(event["event"] for event in events[-3:])] == [
        "planned",
        "published",
        "linked",
        "finished",
    ]
    assert {"event": "finished", "models": 1, "files": 1, "reused": 0.0}.items() <= events[-1].items()
    assert events[-1]["bytes_moved"] == events[-1]["bytes_total"] == len(one.content)


def test_without_a_lock_it_is_refused_with_the_next_command(one, tmp_path, capsys):
    one.lock.unlink()
    assert main(["fetch", "--catalog", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert f"corral fetch: There is no lock: {tmp_path}/lock.json does not exist." in err
    assert "→ corral lock" in err


def test_an_unknown_model_is_refused_by_name(one, capsys):
    assert corral(one, "fetch", "other") == 2
    assert "has no model other; it has m." in capsys.readouterr().err


def test_a_hash_that_never_matches_is_exit_1(one, capsys):
    lock = json.loads(one.lock.read_text())
    lock["models"]["m"]["files"][0]["sha256"] = "0" * 64
    write_sealed(one.folder / "lock.json", lock)
    assert corral(one, "fetch") == 1
    err = capsys.readouterr().err
    assert "m/a.gguf does not match the lock: expected sha256 000000" in err
    assert not one.published.exists()


def edit_commit(one):
    """One digit of the pinned commit is another one."""
    commit = json.loads(one.lock.read_text())["models"]["m"]["revision"]
    other = f"{'0' if commit[0] != '0' else '1'}{commit[1:]}"
    path = one.folder / "lock.json"
    path.write_text(path.read_text().replace(commit, other))
    return path


@pytest.mark.parametrize(
    "words", [["fetch"], ["verify", "--repair"], ["warm", "m"], ["prune", "--yes"]], ids=lambda words: words[0]
)
def test_an_edited_commit_is_refused_by_every_command_before_the_store_or_the_hub_is_touched(one, words, capsys):
    path = edit_commit(one)
    assert corral(one, *words) == 2
    error = capsys.readouterr().err
    assert f"corral {words[0]}: {path} was edited or merged after `corral lock` had written it: its seal does" in error
    assert f"→ corral lock --catalog {one.folder}" in error
    assert one.hub.log == []
    assert not one.store.root.exists()


def test_the_agent_alone_refuses_an_edited_commit_before_any_transfer(one, tmp_path):
    path, log = edit_commit(one), tmp_path / "termination-log"
    words = ["fetch", "--lock", str(path), "--store", str(one.store.root), "--termination-log", str(log)]
    assert agent.main(words) == 2
    assert json.loads(log.read_text())["code"] == "lock-unusable"
    assert one.hub.log == []
    assert not one.store.root.exists()


def test_plain_http_elsewhere_is_refused(one, monkeypatch, capsys):
    monkeypatch.setenv("HF_ENDPOINT", "http://models.example")
    assert corral(one, "fetch") == 2
    assert "CORRAL_ALLOW_HTTP=models.example" in capsys.readouterr().err
