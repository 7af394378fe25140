"""`corral engine run`: one model's engine by hand, with the command line of the lock."""

from __future__ import annotations

import shlex
import signal
import urllib.request
from pathlib import Path

import pytest

from corral.engine import by_hand
from corral.engine.binaries import EMBEDDED
from corral.lock import lock
from tests.support.by_hand import fetched
from tests.support.engine_process import chat

pytestmark = pytest.mark.timeout(180)
TEXT = "tiny-text"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    with fetched(tmp_path_factory.mktemp("by-hand")) as one:
        yield one


@pytest.fixture
def llama_cli(tmp_path):
    """Stands in for an operator's programs, which no package brings: llama-cli's flags, and the words that it gets."""
    (tmp_path / "llama-server").write_text("#!/bin/sh\n")
    program = tmp_path / "llama-cli"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --help ] || { printf "%s\\n" "$@"; exit; }\n'
        "cat <<'.'\n"
        "-m,    --model FNAME                    model path to load\n"
        "-c,    --ctx-size N                     size of the prompt context\n"
        "-fa,   --flash-attn [on|off|auto]       set Flash Attention use\n"
        "--context-shift, --no-context-shift     whether to use context shift\n"
        "-v,    --verbose                        log everything\n.\n"
    )
    for one in (program, program.with_name("llama-server")):
        one.chmod(0o755)
    return program


def test_the_printed_command_line_is_that_of_the_lock_with_store_and_port(files):
    models = lock.require(files.catalog).models
    assert len(models) > 2
    for model, entry in models.items():
        done = files.run(model, "--print", "--port", "8099")
        assert done.returncode == 0, done.stderr
        program, *words = shlex.split(done.stdout)
        assert Path(program).name == EMBEDDED
        store = str(files.state / "store")
        assert words == [one.replace("${STORE}", store).replace("${PORT}", "8099") for one in entry.argv[1:]]


def test_the_server_is_the_locks_command_line_and_ends_by_sigterm_as_llama_server(files, tmp_path):
    with files.served(TEXT, log=tmp_path / "log") as (process, root):
        assert chat(root, "Are you there?")["message"]["content"] == "OK"
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
        filled = [
            one.replace("${STORE}", f"{files.state}/store") for one in lock.require(files.catalog).models[TEXT].argv
        ]
        assert words[-len(filled) + 1 : -1] == filled[1:-1]  # the last is the port
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("words", [[], ["--verbose"]], ids=["usual", "verbose"])
def test_verbose_logs_what_the_engine_does_with_each_request(files, tmp_path, words):
    with files.served(TEXT, *words, log=tmp_path / "log") as (_, root):
        chat(root, "Are you there?")
        is_logged = "parser generation prompt:" in (tmp_path / "log").read_text(errors="replace")
    assert is_logged is bool(words)


@pytest.mark.parametrize(("origin", "may_read"), [("https://example.com", False), ("http://localhost:3000", True)])
def test_pages_of_other_origins_may_not_read_answers(files, tmp_path, origin, may_read):
    with files.served(TEXT, log=tmp_path / "log") as (_, root):
        asked = urllib.request.Request(f"{root}/v1/models", headers={"Origin": origin})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert (answer.headers.get("Access-Control-Allow-Origin") in {origin, "*"}) is may_read


def test_questions_in_a_terminal_are_answered_line_by_line(files):
    done = files.run(TEXT, "--cli", stdin="Are you there?\n\nAnd now?\n")
    assert (done.returncode, done.stdout) == (0, "OK\nOK\n")


def test_thoughts_are_printed_before_the_answer(files):
    done = files.run("tiny-think", "--cli", stdin="Are you there?\n")
    assert done.returncode == 0
    assert done.stdout.strip().endswith("OK")
    assert done.stdout != "OK\n"


def test_a_card_without_room_refuses_the_engine_before_it_starts(files):
    done = files.run(TEXT, CORRAL_VRAM_SOURCE="echo 1, 4096")
    assert done.returncode == 75
    assert f"preflight: no-room model={TEXT}" in done.stderr


def test_an_operators_llama_cli_gets_the_words_that_it_knows(files, llama_cli):
    done = files.run(TEXT, "--cli", "--verbose", LLAMA_SERVER=str(llama_cli.with_name("llama-server")))
    assert done.returncode == 0, done.stderr
    model = f"{files.state}/store/{TEXT}/model.gguf"
    known = ["-m", model, "-c", "2048", "-fa", "on", "--no-context-shift", "--verbose"]
    assert done.stdout.splitlines() == known


def test_without_a_llama_cli_the_next_command_is_named(files, llama_cli):
    llama_cli.unlink()
    done = files.run(TEXT, "--cli", LLAMA_SERVER=str(llama_cli.with_name("llama-server")), PATH="/bin")
    assert done.returncode == 3
    assert "no llama-cli beside" in done.stderr
    assert "corral engine run" in done.stderr


def test_a_negative_number_is_a_value_and_no_flag():
    words = ["--seed", "-1", "--port", "-1", "-c", "512"]
    assert by_hand.of_flags(words, {"--seed", "-c"}) == ["--seed", "-1", "-c", "512"]


def test_files_that_are_not_in_the_store_are_named_with_the_fetch(files, tmp_path):
    done = files.run(TEXT, "--store", str(tmp_path / "empty"))
    assert done.returncode == 2
    assert f"corral fetch {TEXT} --catalog {files.catalog} --store {tmp_path / 'empty'}" in done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nothing"], f"has no model nothing; it has {TEXT}"),
        ([TEXT, "--cli", "--port", "1"], "--port is for llama-server"),
        ([TEXT, "--json"], "--json is for `corral engine` alone"),
    ],
)
def test_wrong_words_are_refused_with_the_reason(files, words, reason):
    done = files.run(*words)
    assert done.returncode == 2
    assert reason in done.stderr


def test_options_of_run_need_a_run(capsys):
    from corral.cli.main import main

    assert main(["engine", "--cli"]) == 2
    assert "corral engine run MODEL" in capsys.readouterr().err
