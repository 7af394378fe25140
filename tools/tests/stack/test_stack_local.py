"""The local stack with the real llama-swap and the embedded engine: start, faults, stop."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from corral.demo import tiny_gguf
from corral.engine import binaries, log_lines, ports, processes, stack
from corral.engine.door import SWAP_KEY, Door
from corral.engine.launch import Programs
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, Refused
from tests.support.door import configuration
from tests.support.engine_process import chat, free_port, get, post, question, stop, unanswered, wait_for
from tests.support.kernel import modes, umask

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    tiny = tiny_gguf.write_all(folder)
    tiny_gguf.write_text(folder / "slow.gguf", n_ff=60_000)
    return {"text": tiny.text, "think": tiny.thinking, "slow": folder / "slow.gguf", "bad": folder / "missing.gguf"}


@pytest.fixture
def config(models):
    def render(first_port: int, *names: str) -> str:
        """A configuration of *names* (all of ``models`` by default) as YAML, written as JSON."""
        entries = {
            name: {
                "cmd": f"{binaries.llama_server().path} -m {models[name]} -c 2048 -np 1 -fit off --cache-ram 0 "
                "--offline --host 127.0.0.1 --port ${PORT}",
                "proxy": "http://127.0.0.1:${PORT}",
                "ttl": 600,
                "env": [f"{SWAP_KEY}="],
            }
            for name in names or models
        }
        return json.dumps(
            {
                "startPort": first_port,
                "logToStdout": "both",
                "logTimeFormat": "rfc3339",
                "models": entries,
                "apiKeys": [f"${{env.{SWAP_KEY}}}"],
            }
        )

    return render


@pytest.fixture
def up(tmp_path, config, models):
    """Starts the stack in ``tmp_path``; whatever runs at the end is stopped."""
    state = tmp_path / "state"
    state.mkdir()
    own_port = free_port()
    first = ports.for_engines(5, own_port) + 1

    def start(
        *names: str, port: int = own_port, text: str = "", report=lambda _: None, **programs: Path
    ) -> stack.Running:
        door = Door(port, swap_port=first - 1)
        found = {"llama_swap": binaries.llama_swap(), "caddy": binaries.caddy().path} | programs
        running, start.fresh = stack.start(
            state,
            configuration(state, text or config(first, *names), door, names or models),
            Programs(binaries.llama_server(), **found),
            door=door,
            first_engine_port=first,
            catalog=tmp_path,
            report=report,
        )
        return running

    start.state = state
    yield start
    stack.stop(state, drain_s=0)


def engine_of(running: stack.Running) -> processes.Mark:
    (engine,) = running.engines()
    return engine


def kill(running: stack.Running) -> None:
    os.kill(running.pid, signal.SIGKILL)
    wait_for(lambda: not running.is_alive, what="the death of llama-swap")


def test_it_answers_through_llama_swap_and_ends_without_a_trace(up):
    running = up("text", "think")
    assert chat(running.endpoint, "Hello.", model="text")["message"]["content"] == "OK"
    assert chat(running.endpoint, "Hello.", model="think")["message"]["reasoning_content"] == "hm"
    stopped = stack.stop(up.state)
    assert (stopped.was_alive, stopped.drained, stopped.orphans) == (True, True, 0)
    assert running.members() == []
    assert stack.running(up.state) is None
    ports.require_free(running.door.port)


def test_the_record_is_read_back_as_it_was_started(up):
    running = up("text")
    assert stack.running(up.state) == running
    assert running.endpoint == f"http://127.0.0.1:{running.door.port}"


def test_starting_the_same_again_changes_nothing(up):
    running = up("text")
    assert up.fresh
    assert up("text") == running
    assert not up.fresh


def test_llama_swap_itself_takes_only_requests_with_its_key(up):
    running = up("text")
    behind = f"http://127.0.0.1:{running.door.swap_port}"
    assert get(f"{behind}/running")[0] == 401
    assert post(f"{behind}/v1/chat/completions", question("Hello.", model="text"))[0] == 401
    assert running.client().residents() == []


def test_an_engine_takes_only_requests_with_llama_swaps_key(up):
    running = up("text")
    chat(running.endpoint, "Hello.", model="text")
    engine = f"http://127.0.0.1:{running.first_engine_port}"
    assert [get(f"{engine}{path}")[0] for path in ("/slots", "/props", "/v1/models")] == [401, 401, 401]
    assert post(f"{engine}/v1/chat/completions", question("Hello."))[0] == 401
    assert post(f"{engine}/completion", {"prompt": "Hello."})[0] == 401


def test_the_key_of_llama_swap_is_in_no_command_line_and_no_log(up):
    running = up("text")
    chat(running.endpoint, "Hello.", model="text")
    key = (running.folder / "llama-swap.key").read_text()
    assert len(key) >= 43
    for one in running.members():
        process = psutil.Process(one.pid)
        assert not [word for word in process.cmdline() if key in word]
        assert (process.environ().get(SWAP_KEY) == key) == (one == running.process)
    folder = StackFolder(up.state)
    for file in (folder.log, folder.door_log, folder.record, folder.config, folder.guard_config, folder.caddy_config):
        assert key not in file.read_text(), file


def test_each_start_has_a_key_of_its_own(up):
    def key(running):
        return (running.folder / "llama-swap.key").read_text()

    first = key(up("text"))
    stack.stop(up.state)
    assert key(up("text")) != first


PARTS = ["guard", "caddy"]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_door_that_died_is_started_again_and_no_model_is_unloaded(up, part):
    running = up("text")
    chat(running.endpoint, "Hello.", model="text")
    engine = engine_of(running)
    os.kill(running.leaders[part].pid, signal.SIGKILL)
    wait_for(running.lost, what="the death")
    assert get(f"{running.endpoint}/health")[0] != 200
    reported = []

    again = up("text", report=reported.append)

    assert (not up.fresh, again.lost(), engine_of(again)) == (True, "", engine)
    assert "again, which died; no model is unloaded." in reported[0]
    assert chat(again.endpoint, "Hello.", model="text")["message"]["content"] == "OK"
    assert stack.running(up.state) == again
    assert [name for name in PARTS if again.leaders[name] != running.leaders[name]] == [part]


@pytest.mark.parametrize("part", ["guard", "caddy", "llama-swap"])
def test_whatever_part_has_died_a_stop_leaves_nothing(up, part):
    running = up("text")
    chat(running.endpoint, "Hello.", model="text")
    os.kill(running.leaders[part].pid, signal.SIGKILL)
    wait_for(running.lost, what="the death")

    stack.stop(up.state)

    assert running.members() == []
    assert stack.recorded(up.state) is None


def test_a_caddy_that_cannot_start_ends_the_rest(up, tmp_path):
    broken = tmp_path / "caddy"
    broken.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
    broken.chmod(0o755)
    before = set(psutil.pids())
    with pytest.raises(CannotRun, match=r"Caddy ended while starting \(exit code 1\):\nno such module|no such module"):
        up("text", caddy=broken)
    now = [one for one in psutil.process_iter(["cmdline"]) if one.pid not in before]  # other tests' processes too
    mine = [one for one in now if str(up.state) in " ".join(one.info["cmdline"] or [])]
    assert mine == []
    assert stack.recorded(up.state) is None


def test_a_state_folder_with_a_path_too_long_for_a_socket_serves(config, models, tmp_path):
    state = tmp_path / ("long" * 40)
    state.mkdir()
    port = free_port()
    first = ports.for_engines(2, port) + 1
    door = Door(port, swap_port=first - 1)
    programs = Programs(binaries.llama_server(), binaries.llama_swap(), binaries.caddy().path)
    try:
        running, _ = stack.start(
            state,
            configuration(state, config(first, "text"), door, ["text"]),
            programs,
            door=door,
            first_engine_port=first,
            catalog=tmp_path,
        )
        assert chat(running.endpoint, "Hello.", model="text")["message"]["content"] == "OK"
    finally:
        stack.stop(state, drain_s=0)


def test_another_configuration_is_refused_while_one_runs(up):
    running = up("text")
    with pytest.raises(Refused, match="another configuration") as refused:
        up("text", "think")
    assert "corral down" in refused.value.next_step
    assert running.is_alive


def test_another_port_is_refused_while_one_runs(up):
    running = up("text")
    with pytest.raises(Refused, match=f"port {running.door.port}"):
        up("text", port=free_port())


def test_two_concurrent_starts_make_one_stack(up):
    found = []
    threads = [threading.Thread(target=lambda: found.append(up("text"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0] == found[1]


def test_a_port_in_use_names_its_holder(up):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        mine = re.escape(f"{os.getpid()} ({' '.join(psutil.Process().cmdline())}")
        with pytest.raises(CannotRun, match=rf"Port {port} is in use by pid {mine}") as error:
            up("text", port=port)
    assert f"--port {port + 1}" in error.value.next_step
    assert not StackFolder(up.state).record.exists()


def test_killed_llama_swap_leaves_an_engine_that_the_next_start_ends(up):
    running = up("text")
    chat(running.endpoint, "Hello.", model="text")
    orphan = engine_of(running)
    engine_port = running.first_engine_port
    kill(running)
    assert processes.is_alive(orphan)  # there is no parent-death signal: this is the fault
    assert ports.is_listening(orphan.pid, engine_port)
    reported = []
    again = up("text", report=reported.append)
    assert not processes.is_alive(orphan)
    assert any("left behind" in line for line in reported), reported
    assert (again.leaders["caddy"], again.endpoint) == (running.leaders["caddy"], running.endpoint)
    assert chat(again.endpoint, "Hello.", model="text")["message"]["content"] == "OK"


def test_stop_cleans_up_after_a_killed_llama_swap(up):
    running = up("text")
    chat(running.endpoint, "Hello.", model="text")
    orphan = engine_of(running)
    kill(running)
    stopped = stack.stop(up.state)
    assert (stopped.was_alive, stopped.orphans) == (False, 1)
    assert not processes.is_alive(orphan)


def test_an_innocent_engine_of_the_same_program_survives(up, models, tmp_path):
    port = free_port()
    command = [binaries.llama_server().path, "-m", models["text"], "--offline", "--port", str(port)]
    innocent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        running = up("text")
        chat(running.endpoint, "Hello.", model="text")
        kill(running)
        stack.stop(up.state)
        assert innocent.poll() is None
        wait_for(lambda: get(f"http://127.0.0.1:{port}/health")[0] == 200, what="an answer of the innocent")
    finally:
        innocent.kill()
        innocent.wait()


def test_a_stranger_with_the_recorded_pid_is_not_touched(up):
    running = up("text")
    stack.stop(up.state)
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        # The record as it would be if the stranger had got the dead llama-swap's pid.
        reused = replace(
            running, leaders={part: replace(one, pid=stranger.pid) for part, one in running.leaders.items()}
        )
        assert not reused.is_alive
        stack.write_record(StackFolder(up.state), reused)
        stopped = stack.stop(up.state)
        assert (stopped.was_alive, stopped.orphans) == (False, 0)
        assert stranger.poll() is None
    finally:
        stranger.communicate()


def test_a_configuration_that_llama_swap_refuses_is_shown_with_its_reason(up):
    with pytest.raises(CannotRun, match=r"ended while starting \(exit code 1\)[\s\S]*nonsense"):
        up("text", text="models: nonsense")
    assert stack.recorded(up.state) is None


def test_a_supervisor_that_never_listens_is_ended(up, monkeypatch, tmp_path):
    deaf = tmp_path / "llama-swap"
    deaf.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    deaf.chmod(0o755)
    monkeypatch.setattr(stack, "START_LIMIT_S", 0.5)
    with pytest.raises(CannotRun, match="did not answer"):
        up("text", llama_swap=deaf)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
    assert stack.recorded(up.state) is None


def test_a_supervisor_that_cannot_be_recorded_is_ended(up, monkeypatch):
    pids = []

    def full(_folder, started):
        pids.append(started.pid)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(stack, "write_record", full)
    with pytest.raises(CannotRun, match="/run is full: No space left on device"):
        up("text")
    assert not psutil.pid_exists(*pids)


def test_a_model_that_cannot_load_reports_why(up):
    running = up("text", "bad")
    status, body = post(f"{running.endpoint}/v1/chat/completions", question("Hello.", model="bad"))
    assert (status, json.loads(body)["error"]["code"]) == (503, "load-failed")
    assert wait_for(lambda: failures(up), what="the failure in the log") == {
        "bad": "upstream command exited prematurely"
    }
    assert "missing.gguf" in log_lines.cause(running.client().model_log("bad"))
    assert "missing.gguf" in StackFolder(up.state).log_tail(1000)


def failures(up):
    """The failed loads that llama-swap's log has; it answers before it writes one."""
    return log_lines.failures(StackFolder(up.state).log_tail(1000))


def test_a_failure_is_forgotten_when_the_model_loads_again(up, models):
    running = up("text", "bad")
    post(f"{running.endpoint}/v1/chat/completions", question("Hello.", model="bad"))
    wait_for(lambda: failures(up), what="the failure in the log")
    shutil.copy(models["text"], models["bad"])
    try:
        assert chat(running.endpoint, "Hello.", model="bad")["message"]["content"] == "OK"
        wait_for(lambda: failures(up) == {}, what="the end of the failure in the log")
    finally:
        models["bad"].unlink()


def test_unloading_is_no_failure(up):
    running = up("text", "think")
    for model in ("text", "think"):
        chat(running.endpoint, "Hello.", model=model)
    assert [one.model for one in running.client().residents()] == ["think"]
    post(f"{running.endpoint}/api/models/unload", {})
    assert running.client().residents() == []
    assert log_lines.failures(StackFolder(up.state).log_tail(1000)) == {}


def test_reading_the_state_loads_nothing(up):
    running = up("text", "think")
    client = running.client()
    assert client.models() == ["text", "think"]
    assert client.residents() == []
    assert client.model_log("text") == ""
    assert running.engines() == []


def test_the_log_of_an_unknown_model_is_refused(up):
    with pytest.raises(Refused, match="no model absent"):
        up("text").client().model_log("absent")


def test_the_log_of_a_model_is_whole_when_llama_swap_is_slow_to_send_it(up):
    running = up("bad")
    post(f"{running.endpoint}/v1/chat/completions", question("Hello.", model="bad"))
    stop(running.pid)
    resume = threading.Timer(1.0, os.kill, (running.pid, signal.SIGCONT))  # longer than a history pauses
    resume.start()
    try:
        assert "missing.gguf" in running.client().model_log("bad")
    finally:
        resume.join()


def test_stopping_lets_a_running_stream_finish(up):
    running = up("slow")
    stream, engine = unanswered(running, "slow", 30)
    waited_for = []

    def go_on(line: str) -> None:
        waited_for.append(line)
        os.kill(engine, signal.SIGCONT)

    stopped = stack.stop(up.state, report=go_on, drain_s=120)
    stream.join()
    assert waited_for
    assert stream.is_whole
    assert stopped.drained


def test_stopping_one_stack_leaves_the_next_one_alone(up):
    first = up("text")
    stack.stop(up.state)
    second = up("text")
    assert stack.stop(up.state, only=first) is None
    assert second.is_alive


def test_a_stop_in_a_hurry_does_not_wait_for_a_stream(up):
    running = up("slow")
    stream, _ = unanswered(running, "slow", 30)
    stopped = stack.stop(up.state, hurry=lambda: True)
    stream.join()
    assert not stream.is_whole
    assert not stopped.drained
    assert running.members() == []


def test_the_callers_secrets_and_settings_reach_neither_llama_swap_nor_the_engine(up, monkeypatch):
    kept_out = (
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "LLAMA_API_KEY",
        "LLAMA_ARG_CTX_SIZE",
        "OPENAI_API_KEY",
        "PG_CONN_STR",
    )
    for name in (*kept_out, "NAMED_BY_THE_OPERATOR"):
        monkeypatch.setenv(name, "512")
    monkeypatch.setenv("CORRAL_ENGINE_ENV", "NAMED_BY_THE_OPERATOR")
    running = up("text")
    assert chat(running.endpoint, "Hello.", model="text")["message"]["content"] == "OK"
    for pid in (running.pid, engine_of(running).pid):
        environment = psutil.Process(pid).environ()
        assert environment["GGML_NO_BACKTRACE"] == "1"
        assert [name for name, value in environment.items() if value == "512"] == ["NAMED_BY_THE_OPERATOR"]


def test_a_config_file_of_the_user_does_not_change_the_engine(up, monkeypatch, tmp_path):
    (tmp_path / "llama.cpp").mkdir()
    (tmp_path / "llama.cpp" / "config.ini").write_text("metrics = true\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    running = up("text")
    chat(running.endpoint, "Hello.", model="text")
    assert get(f"{running.endpoint}/upstream/text/metrics")[0] == 501


def test_a_crash_would_leave_no_core(up):
    assert psutil.Process(up("text").pid).rlimit(psutil.RLIMIT_CORE) == (0, 0)


@pytest.mark.parametrize("mask", [0, 0o077])
def test_all_that_a_stack_writes_is_closed_to_other_users(up, mask):
    up.state.rmdir()
    with umask(mask):
        for _ in range(2):
            running = up("text")
            chat(running.endpoint, "Hello.", model="text")
            for pid in (running.pid, engine_of(running).pid):
                assert "Umask:\t0077\n" in Path(f"/proc/{pid}/status").read_text()
            stack.stop(up.state)
    folder = StackFolder(up.state)
    assert all(folder.previous(log).exists() for log in (folder.log, folder.door_log))
    assert modes(up.state) == {"folders": {0o700}, "files": {0o600}}


def test_a_state_folder_in_which_others_may_write_starts_nothing_and_stops_nothing(up):
    running = up("text")
    up.state.chmod(0o777)
    for change in (lambda: up("text"), lambda: stack.stop(up.state)):
        with pytest.raises(Refused, match=r"Other users can write in .* \(mode 0777\)"):
            change()
    assert running.is_alive
    up.state.chmod(0o755)


def test_the_log_of_the_start_before_is_kept(up):
    first = up("text")
    chat(first.endpoint, "Hello.", model="text")
    stack.stop(up.state)
    up("think")
    folder = StackFolder(up.state)
    assert "tiny-text" in folder.log_tail(1000, log=folder.previous(folder.log))
    assert "tiny-text" not in folder.log_tail(1000)
