"""`corral up`, `status`, `logs` and `down` as a user types them: real Terraform, llama-swap and engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from corral import paths
from corral.cli.main import main
from corral.demo import tiny_gguf
from corral.engine import binaries, engine_process, stack
from tests.support.engine_process import chat, free_port, get, post, question, stop, unanswered, wait_for

pytestmark = [pytest.mark.timeout(180), pytest.mark.long]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """About 300 tokens a second: slow enough to be stopped while it answers."""
    path = tmp_path_factory.mktemp("model") / "slow.gguf"
    tiny_gguf.write_text(path, n_ff=20_000)
    return path


@pytest.fixture(scope="module")
def locked(model, tmp_path_factory):
    """A folder with ``broken.gguf`` and a locked catalog; each test has a copy."""
    folder = tmp_path_factory.mktemp("locked")
    catalog = folder / "catalog"
    (catalog / "cards").mkdir(parents=True)
    (catalog / "models").mkdir()
    (catalog / "cards" / "laptop.yaml").write_text("vram_mib: 4096\n")
    tiny_gguf.write_text(folder / "broken.gguf", thinking=True)
    for name, path in (("good", str(model)), ("broken", "../broken.gguf")):
        intent = {
            "source": {"path": path, "mmproj": "none"},
            "card": "laptop",
            "context": 1024,
            "modalities": ["text"],
        }
        (catalog / "models" / f"{name}.yaml").write_text(json.dumps(intent))
    assert main(["lock", "--catalog", str(catalog)]) == 0
    return folder


@pytest.fixture
def catalog(locked, tmp_path):
    """A locked catalog of two models on disk; ``broken`` becomes unreadable after it was locked and fetched."""
    shutil.copytree(locked, tmp_path, dirs_exist_ok=True)
    return tmp_path / "catalog"


@pytest.fixture
def port():
    yield free_port()
    stack.stop(paths.state_dir(), drain_s=0)


@pytest.fixture
def up(catalog, port, capsys):
    def run(*more: str) -> int:
        return main(["up", "--detach", "--catalog", str(catalog), "--port", str(port), *more])

    assert run() == 0
    assert capsys.readouterr().out == f"http://127.0.0.1:{port}\n"
    return run


def status(capsys) -> dict:
    capsys.readouterr()
    code = main(["status", "--json"])
    found = json.loads(capsys.readouterr().out)
    serves = found["running"] and all(one["state"] in ("ready", "unloaded") for one in found["models"])
    assert code == (0 if serves else 1)
    return found


def test_up_status_down(up, port, capsys):
    found = status(capsys)
    assert found["endpoint"] == f"http://127.0.0.1:{port}"
    assert found["engine"]["path"] == str(binaries.llama_server().path)
    assert [(one["model"], one["state"]) for one in found["models"]] == [("broken", "unloaded"), ("good", "unloaded")]
    chat(found["endpoint"], "Hello.", model="good")
    good = status(capsys)["models"][1]
    assert good["state"] == "ready"
    os.kill(good["pid"], 0)
    assert main(["down"]) == 0
    found = status(capsys)
    assert "No local stack" in found["reason"]
    assert "corral up" in found["next_step"]


def test_a_model_of_the_running_stack_is_not_pruned_until_the_stack_is_down(up, catalog, capsys):
    (catalog / "models" / "broken.yaml").unlink()
    assert main(["lock", "--catalog", str(catalog)]) == 0
    link = paths.default_store() / "broken"
    prune = ["prune", "--catalog", str(catalog), "--grace", "0", "--yes"]
    assert main(prune) == 0
    assert link.is_symlink()
    assert main(["down"]) == 0
    file = link.resolve() / "model.gguf"
    whole = file.resolve()
    assert main(prune) == 0
    assert not link.is_symlink()
    assert not file.is_symlink()
    assert whole.is_file()


def test_up_again_changes_nothing(up, capsys):
    before = status(capsys)["pid"]
    assert up() == 0
    assert status(capsys)["pid"] == before


def test_new_weights_under_the_same_command_line_are_served_and_not_called_already_running(
    up, catalog, tmp_path, capsys
):
    chat(status(capsys)["endpoint"], "Hello.", model="broken")
    (before,) = stack.running(paths.state_dir()).engines()
    tiny_gguf.write_text(tmp_path / "broken.gguf")
    assert main(["lock", "--catalog", str(catalog)]) == 0
    link = (paths.state_dir() / "store" / "broken").readlink()

    assert up() == 0

    shown = capsys.readouterr().err
    assert "Applied: llama-swap restarted." in shown
    assert "already running" not in shown
    assert (paths.state_dir() / "store" / "broken").readlink() != link
    assert before not in stack.running(paths.state_dir()).engines()
    assert "reasoning_content" not in chat(status(capsys)["endpoint"], "Hello.", model="broken")["message"]


def test_smoke_asks_the_running_stack_about_its_own_catalog(up, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # no catalog here, nor above
    capsys.readouterr()

    assert main(["smoke", "good", "--json"]) == 0

    checks = {(one["model"], one["check"]): one["status"] for one in json.loads(capsys.readouterr().out)["checks"]}
    assert checks[("*", "catalog")] == checks[("good", "answer")] == "passed"


def test_smoke_reports_why_a_model_failed_to_load(up, tmp_path, capsys):
    (tmp_path / "broken.gguf").unlink()

    assert main(["smoke", "broken"]) == 1

    assert "its engine: " in capsys.readouterr().err


def test_up_refuses_a_stale_lock_before_it_touches_anything(catalog, port, capsys):
    intent = catalog / "models" / "good.yaml"
    intent.write_text(intent.read_text().replace("1024", "2048"))
    assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(port)]) == 2
    stderr = capsys.readouterr().err
    assert "good" in stderr
    assert "corral lock" in stderr
    assert not paths.default_store().exists()


def test_a_model_that_cannot_load_is_failed_with_its_reason(up, tmp_path, capsys):
    (tmp_path / "broken.gguf").write_bytes(b"not a model")
    endpoint = status(capsys)["endpoint"]
    code, _body = post(f"{endpoint}/v1/chat/completions", question("Hello.", model="broken"))
    assert code == 503
    broken = status(capsys)["models"][0]
    assert broken["state"] == "failed"
    assert "exited prematurely" in broken["reason"]
    assert "magic" in broken["reason"]
    assert main(["logs", "broken"]) == 0
    assert "magic" in capsys.readouterr().out


def test_a_killed_llama_swap_is_reported_with_what_it_left(up, capsys):
    found = status(capsys)
    chat(found["endpoint"], "Hello.", model="good")
    os.kill(found["pid"], signal.SIGKILL)
    wait_for(lambda: stack.running(paths.state_dir()) is None, what="the death of llama-swap")
    dead = status(capsys)
    assert f"pid {found['pid']}" in dead["reason"]
    assert "1 of its engines" in dead["reason"]
    assert main(["logs", "--lines", "1000"]) == 0
    assert "llama-swap listening" in capsys.readouterr().out
    assert main(["down"]) == 0
    assert "had died before" in capsys.readouterr().err


def test_an_engine_that_is_stopped_is_not_called_ready(up, capsys):
    chat(status(capsys)["endpoint"], "Hello.", model="good")
    pid = status(capsys)["models"][1]["pid"]
    stop(pid)
    try:
        good = status(capsys)["models"][1]
        assert (good["state"], good["pid"]) == ("hanging", pid)
        assert good["reason"] == f"its engine (pid {pid}) is stopped (SIGSTOP)"
        assert main(["status"]) == 1
        assert "corral why MODEL" in capsys.readouterr().err
    finally:
        os.kill(pid, signal.SIGCONT)
    assert status(capsys)["models"][1]["state"] == "ready"


def test_an_engine_that_does_not_respond_is_not_called_ready(up, capsys, monkeypatch):
    """A wrong address stands in for an engine that runs and does not respond, which a real one cannot be made to do."""
    chat(status(capsys)["endpoint"], "Hello.", model="good")
    monkeypatch.setattr("corral.cli.status._PROBE_S", 0.3)
    real, silent = engine_process.probe, socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{silent.getsockname()[1]}"
    monkeypatch.setattr(engine_process, "probe", lambda *_, **limits: real(address, None, **limits))
    with silent:
        good = status(capsys)["models"][1]
    assert (good["state"], good["reason"][:27]) == ("silent", "its engine gives no respons")


def test_a_llama_swap_that_hangs_is_no_success(up, capsys, monkeypatch):
    monkeypatch.setattr("corral.engine.llama_swap.ANSWER_LIMIT_S", 0.3)
    pid = status(capsys)["pid"]
    stop(pid)
    try:
        assert main(["status"]) == 1
        assert "does not answer" in capsys.readouterr().err
    finally:
        os.kill(pid, signal.SIGCONT)


def test_the_log_of_a_model_needs_a_known_model(up, capsys):
    assert main(["logs", "absent"]) == 2
    assert "absent" in capsys.readouterr().err


class Foreground:
    """`corral up` in the foreground, as a process."""

    def __init__(self, catalog: Path, port: int, folder: Path) -> None:
        self.out, self.err = folder / "out", folder / "err"
        self.endpoint = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "corral.cli.main", "up", "--catalog", catalog, "--port", str(port)]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err)
        wait_for(lambda: "Ctrl-C" in self.err.read_text(), what=f"the start ({self.err})")


@pytest.fixture
def foreground(catalog, port, tmp_path):
    started = Foreground(catalog, port, tmp_path)
    yield started
    started.process.kill()
    started.process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_in_the_foreground_a_signal_stops_everything(foreground, number):
    chat(foreground.endpoint, "Hello.", model="good")
    running = stack.running(paths.state_dir())
    foreground.process.send_signal(number)
    assert foreground.process.wait() == 0, foreground.err.read_text()
    assert running.members() == []
    assert stack.recorded(paths.state_dir()) is None
    assert "llama-swap listening" in foreground.out.read_text()


def test_in_the_foreground_the_first_signal_lets_an_answer_finish(foreground):
    stream, engine = unanswered(stack.running(paths.state_dir()), "good", 30)
    foreground.process.send_signal(signal.SIGINT)
    wait_for(lambda: "Waiting for" in foreground.err.read_text(), what="the wait for the answer")
    os.kill(engine, signal.SIGCONT)
    assert foreground.process.wait() == 0
    stream.join()
    assert stream.is_whole


def test_in_the_foreground_a_second_signal_does_not_wait(foreground):
    stream, _ = unanswered(stack.running(paths.state_dir()), "good", 30)
    foreground.process.send_signal(signal.SIGINT)
    wait_for(lambda: "Stopping" in foreground.err.read_text(), what="the first signal")
    foreground.process.send_signal(signal.SIGINT)
    assert foreground.process.wait() == 0
    stream.join()
    assert not stream.is_whole


def test_down_from_elsewhere_ends_the_foreground_well(foreground):
    assert main(["down"]) == 0
    assert foreground.process.wait() == 0
    assert "Stopped from elsewhere" in foreground.err.read_text()


@pytest.mark.parametrize("part", ["llama-swap", "guard"])
def test_when_a_part_of_the_stack_dies_the_foreground_fails_and_cleans_up(foreground, part):
    chat(foreground.endpoint, "Hello.", model="good")
    running = stack.running(paths.state_dir())
    os.kill(running.leaders[part].pid, signal.SIGKILL)
    assert foreground.process.wait() == 1
    assert "ended by itself" in foreground.err.read_text()
    assert running.members() == []
    assert get(f"{foreground.endpoint}/health")[0] == 0


def test_following_the_log_ends_with_the_stack(up, tmp_path):
    out = tmp_path / "followed"
    with out.open("wb") as stream:
        follower = subprocess.Popen([sys.executable, "-m", "corral.cli.main", "logs", "--follow"], stdout=stream)
    try:
        wait_for(lambda: "listening" in out.read_text(), what="the log so far")
        assert main(["down"]) == 0
        assert follower.wait() == 0
        assert "shutdown complete" in out.read_text()
    finally:
        follower.kill()
        follower.wait()


def test_following_a_models_log_shows_what_is_new(up, tmp_path, capsys):
    endpoint = status(capsys)["endpoint"]
    chat(endpoint, "Hello.", model="good")
    out = tmp_path / "followed"
    with out.open("wb") as stream:
        command = [sys.executable, "-m", "corral.cli.main", "logs", "good", "--follow"]
        follower = subprocess.Popen(command, stdout=stream, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: out.stat().st_size, what="the earlier lines")
        before = out.stat().st_size

        # Whether the follower listens yet is not visible, so the model answers until its line arrives.
        def received() -> bool:
            chat(endpoint, "Hello.", model="good")
            return out.stat().st_size > before

        wait_for(received, what="the model's words")
        assert main(["down"]) == 0
        assert follower.wait() == 0
    finally:
        follower.kill()
        follower.wait()


def test_a_template_in_a_file_of_the_catalog_reaches_the_engine_word_for_word(catalog, port, capsys):
    lines = ('# é "it\'s"', "", "{% for message in messages %}\t<{{ message['content'] }} \\", "{% endfor %}", "")
    template = "\n".join(lines)
    (catalog / "files").mkdir()
    (catalog / "files" / "chat.jinja").write_text(template, encoding="utf-8")
    (catalog / "models" / "broken.yaml").unlink()
    intent = catalog / "models" / "good.yaml"
    intent.write_text(json.dumps(json.loads(intent.read_text()) | {"args": {"chat-template-file": "files/chat.jinja"}}))
    assert main(["lock", "--catalog", str(catalog)]) == 0
    assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(port)]) == 0

    chat(f"http://127.0.0.1:{port}", "Hello.", model="good")

    props = get(f"http://127.0.0.1:{port}/upstream/good/props")[1]
    assert json.loads(props)["chat_template"] == template.removesuffix("\n")  # as Jinja reads it
