"""Flags that no catalog may set are refused by `corral validate` and `lock`; unsafe ones are warned of and shown."""

from __future__ import annotations

import io
import json
import re
import sys
from types import SimpleNamespace

import pytest

from corral.catalog import catalog as catalogs
from corral.cli import plan as plan_command
from corral.cli.main import main
from corral.lock import lock as locks
from corral.terraform.changes import of_plan
from tests.support.locked_catalog import SMALLEST_INTENT, write_catalog, write_sources
from tests.support.locks import write_sealed
from tests.support.plans import Model, Side, plan

WHY = "We read it at night."
UNSAFE = {"slots": {"value": False, "why": "No page shows them."}, "log-file": {"value": "/my log", "why": WHY}}
LINES = [
    f"model text runs with the unsafe flag --log-file '/my log': {WHY}",
    "model text runs with the unsafe flag --no-slots: No page shows them.",
]

EXECUTES = [
    *({"tools": "all"}, {"--tools": "all"}, {"tools-runtime": "docker:alpine"}, {"agent": True}, {"no-agent": True}),
    *({"ag": True}, {"AGENT": True}, {"mcp-servers-json": "{}"}, {"mcp_servers_json": "{}"}),
    *({"mcp-servers-config": "files/mcp.json"}, {"video-ffmpeg-dir": "/tmp"}, {"models-preset": "/tmp/models.ini"}),
]
OTHERS = [
    *({"ui-mcp-proxy": True}, {"webui-mcp-proxy": True}, {"no-webui-mcp-proxy": True}, {"media-path": "/"}),
    *({"slot-save-path": "/tmp"}, {"log-file": "/tmp/log"}, {"log-prompts-dir": "/tmp"}, {"cors-origins": "*"}),
    *({"rpc": "10.0.0.1:50052"}, {"model-draft": "/draft.gguf"}, {"md": "/draft.gguf"}, {"lora": "../a.gguf"}),
    *({"spec-draft-model": "${STORE}/other/model.gguf"}, {"path": "/"}, {"hf-repo": "org/m"}, {"host": "0.0.0.0"}),
    *({"chat-template-file": "/etc/passwd"}, {"chat-template-file": "files/../../secret"}),
    *({"cache-type-k": "q8_0 --tools all"}, {"numa": "--tools"}, {"samplers": "top_k\n--tools\nall"}),
    *({"tools=all": True}, {"temp --tools": "all"}, {"tools all": True}),
]


@pytest.fixture(autouse=True)
def without_a_hub(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


@pytest.fixture
def catalog(tmp_path):
    """A locked catalog of one model with two unsafe flags."""
    return write_catalog(tmp_path / "catalog", {"text": SMALLEST_INTENT | {"unsafe": UNSAFE}})


@pytest.mark.parametrize("command", ["validate", "lock"])
@pytest.mark.parametrize("args", [*EXECUTES, *OTHERS], ids=json.dumps)
def test_a_flag_that_a_catalog_may_not_set_is_refused_by_name(command, args, tmp_path, capsys):
    folder = write_sources(tmp_path, {"text": SMALLEST_INTENT | {"args": args}})

    assert main([command, "--catalog", str(folder)]) == 2

    messages = capsys.readouterr().err
    assert f"text.yaml:1: args.{next(iter(args))}: " in messages
    assert "The catalog has 1 problem." in messages
    assert "declared_mib" not in messages
    assert not (folder / "lock.json").exists()


def test_for_a_flood_of_flags_no_similar_names_are_searched(tmp_path, capsys):
    flood = {f"flag-{number}": 1 for number in range(1000)}
    folder = write_sources(tmp_path, {"text": SMALLEST_INTENT | {"args": flood}})

    assert main(["validate", "--catalog", str(folder)]) == 2

    messages = capsys.readouterr().err
    assert "text.yaml:1: args: must have at most 300 entries." in messages
    assert "did you mean" not in messages


@pytest.mark.parametrize("command", ["validate", "lock"])
@pytest.mark.parametrize("args", EXECUTES, ids=json.dumps)
def test_a_flag_that_executes_is_refused_in_unsafe_too(command, args, tmp_path, capsys):
    unsafe = {name: {"value": value, "why": "The agent needs a shell."} for name, value in args.items()}
    folder = write_sources(tmp_path, {"text": SMALLEST_INTENT | {"unsafe": unsafe}})

    assert main([command, "--catalog", str(folder)]) == 2

    assert f"text.yaml:1: unsafe.{next(iter(args))}: " in capsys.readouterr().err
    assert not (folder / "lock.json").exists()


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [("validate", 0), ("validate --json", 0), ("lock", 0), ("lock --json", 0), ("lock --check", 0), ("up", 2)],
)
def test_what_reads_the_catalog_warns_of_unsafe_flags(command, exit_code, catalog, monkeypatch, capsys):
    monkeypatch.setenv("LLAMA_SERVER", "/nowhere/llama-server")

    assert main([*command.split(), "--catalog", str(catalog)]) == exit_code

    shown = capsys.readouterr()
    assert [line for line in shown.err.splitlines() if "unsafe" in line] == [f"warning: {line}" for line in LINES]
    assert "unsafe" not in shown.out


@pytest.mark.parametrize(("command", "exit_code"), [("lock --check", 1), ("up", 2), ("plan --local", 2)])
@pytest.mark.parametrize("is_in_intent", [False, True])
def test_a_lock_with_another_command_line_than_its_catalog_is_refused_whatever_its_seal(
    command, exit_code, is_in_intent, tmp_path, capsys
):
    folder = write_catalog(tmp_path, {"text": SMALLEST_INTENT})
    document = json.loads((folder / "lock.json").read_text())
    document["models"]["text"]["argv"] += ["--tools", "all"]
    if is_in_intent:
        document["models"]["text"]["intent"]["args"] = {"tools": "all"}
    write_sealed(folder / "lock.json", document)
    assert locks.read(folder / "lock.json")

    assert main([*command.split(), "--catalog", str(folder)]) == exit_code

    shown = capsys.readouterr()
    assert "its command line has --tools all" in shown.out + shown.err


def test_a_lock_of_before_there_were_unsafe_flags_is_fresh(tmp_path):
    folder = write_catalog(tmp_path, {"text": SMALLEST_INTENT})
    document = json.loads((folder / "lock.json").read_text())
    del document["models"]["text"]["intent"]["unsafe"]
    write_sealed(folder / "lock.json", document)

    assert list(locks.stale(catalogs.load(folder))) == []


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown_by_plan(monkeypatch, stream):
    model = Model(unsafe=tuple((flag, one["value"], one["why"]) for flag, one in UNSAFE.items()))
    side = Side().without("a").with_model("text", model)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    plan_command.show(SimpleNamespace(text=""), of_plan(plan(side, side)))
    return stream.getvalue()


def test_a_plan_shows_unsafe_flags_in_red_on_a_terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)

    text = shown_by_plan(monkeypatch, Terminal())

    assert re.findall(r"\x1b\[1;31m(.*?)\x1b\[0m", text) == LINES


def test_a_plan_shows_unsafe_flags_without_a_colour_where_none_is_wanted(monkeypatch):
    assert shown_by_plan(monkeypatch, io.StringIO()).splitlines() == ["No changes.", *LINES]

    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", shown_by_plan(monkeypatch, Terminal()))
