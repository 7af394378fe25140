"""`corral up` on a running stack: what changed is applied, no answer is cut off, the port stays; real programs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from corral import paths
from corral.cli.main import main
from corral.demo import tiny_gguf
from corral.engine import change, pause, processes, stack
from corral.engine.door import Tls
from corral.engine.launch import MARKER
from corral.engine.stack_folder import StackFolder
from tests.support.engine_process import Stream, chat, free_port, get, stop, unanswered, wait_for

pytestmark = [pytest.mark.timeout(180), pytest.mark.long]


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """Two models, each in a group of its own."""
    folder = tmp_path_factory.mktemp("locked")
    catalog = folder / "catalog"
    (catalog / "cards").mkdir(parents=True)
    (catalog / "models").mkdir()
    (catalog / "cards" / "laptop.yaml").write_text("vram_mib: 4096\n")
    tiny_gguf.write_text(folder / "slow.gguf", n_ff=20_000)
    for name in ("one", "two"):
        source = {"path": str(folder / "slow.gguf"), "mmproj": "none"}
        intent = {"source": source, "card": "laptop", "context": 1024, "modalities": ["text"], "group": name}
        (catalog / "models" / f"{name}.yaml").write_text(json.dumps(intent))
    assert main(["lock", "--catalog", str(catalog)]) == 0
    return catalog


@pytest.fixture
def catalog(locked, tmp_path):
    return shutil.copytree(locked, tmp_path / "catalog")


@pytest.fixture
def up(catalog, capsys):
    """Runs `corral up --detach` for the catalog, by default at the port it had; what it printed to stderr."""
    port = free_port()

    def up(*more, code=0):
        capsys.readouterr()
        assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(port), *more]) == code
        return capsys.readouterr().err

    up()
    yield up
    stack.stop(paths.state_dir(), drain_s=0)


def edit(catalog, model="two", context=512):
    file = catalog / "models" / f"{model}.yaml"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"context": context}))
    assert main(["lock", "--catalog", str(catalog)]) == 0


def running():
    found = stack.running(paths.state_dir())
    assert found is not None
    return found


def residents():
    return {one.model: one.state for one in running().client().residents()}


def test_the_stack_of_one_catalog_is_not_changed_to_another_ones(catalog, up, capsys):
    before = stack.running(paths.state_dir())
    other = shutil.copytree(catalog, catalog.parent / "other")

    assert main(["up", "--detach", "--catalog", str(other)]) == 2

    printed = capsys.readouterr().err
    assert f"is of the catalog {catalog}." in printed
    assert f"CORRAL_STATE=FOLDER corral up --detach --catalog {other}" in printed
    assert stack.running(paths.state_dir()) == before


def test_a_changed_model_is_served_at_the_same_address_by_a_restart_of_llama_swap_alone(up, catalog):
    before = running()
    edit(catalog)
    assert "Applied: llama-swap restarted." in up()

    after = running()
    assert (after.endpoint, after.token) == (before.endpoint, before.token)
    assert after.leaders["caddy"] == before.leaders["caddy"]
    assert after.leaders["guard"] == before.leaders["guard"]
    assert after.process != before.process
    assert "-c 512" in StackFolder(paths.state_dir()).config.read_text()
    assert chat(after.endpoint, "Hello.", model="two")["message"]["content"] == "OK"
    assert "already running" in up()


def test_a_model_that_was_loaded_is_loaded_again_and_one_that_was_not_is_not(up, catalog):
    chat(running().endpoint, "Hello.", model="one")
    edit(catalog)
    assert "one: loaded again." in up()
    assert residents() == {"one": "ready"}


def test_a_stream_of_an_unchanged_model_ends_whole_before_anything_restarts(up, catalog, tmp_path):
    before = running()
    stream, engine = unanswered(before, "one", 30)
    edit(catalog)
    err = tmp_path / "err"
    words = ["up", "--detach", "--catalog", str(catalog), "--port", str(before.door.port)]
    with err.open("wb") as stderr:
        applied = subprocess.Popen([sys.executable, "-m", "corral.cli.main", *words], stderr=stderr)
    try:
        wait_for(lambda: "Waiting for 1 request under way (one) ..." in err.read_text(), what="the wait")
        assert running() == before
    finally:
        os.kill(engine, signal.SIGCONT)
        assert applied.wait() == 0
    stream.join()
    assert stream.is_whole
    assert running().process != before.process


class Up(subprocess.Popen):
    """`corral up --detach` of a process of its own; ``shown`` is what it has printed to stderr."""

    def __init__(self, catalog, err, port, *, before=""):
        self._err = err
        program = "import os, signal, sys; from corral.engine import change, stack; from corral.cli.main import main\n"
        program += f"{before}\nsys.exit(main(sys.argv[1:]))"
        words = ["up", "--detach", "--catalog", str(catalog), "--port", str(port)]
        with err.open("wb") as stderr:
            super().__init__([sys.executable, "-c", program, *words], stderr=stderr, stdout=subprocess.DEVNULL)

    @property
    def shown(self):
        return self._err.read_text()


def test_of_two_at_once_that_start_a_stack_the_second_finds_it_running(catalog, tmp_path):
    port = free_port()
    with Up(catalog, tmp_path / "first", port) as first:
        wait_for(lambda: "nothing to fetch" in first.shown or "files" in first.shown, what="the fetch")
        first.send_signal(signal.SIGSTOP)
        try:
            with Up(catalog, tmp_path / "second", port) as second:
                waiting = f"Waiting for another corral (process {first.pid})"
                wait_for(lambda: waiting in second.shown or second.poll() is not None, what="the second")
                first.send_signal(signal.SIGCONT)
        finally:
            first.send_signal(signal.SIGCONT)
    try:
        assert (first.returncode, second.returncode) == (0, 0), first.shown + second.shown
        assert "already running" in second.shown
    finally:
        stack.stop(paths.state_dir(), drain_s=0)


def test_of_two_at_once_that_change_a_stack_the_second_changes_what_the_first_left(up, catalog, tmp_path):
    before = running()
    stream, engine = unanswered(before, "one", 30)
    edit(catalog)
    with Up(catalog, tmp_path / "first", before.door.port) as first:
        wait_for(lambda: "Waiting for 1 request under way (one) ..." in first.shown, what="the wait")
        edit(catalog, "one", 640)
        with Up(catalog, tmp_path / "second", before.door.port) as second:
            wait_for(lambda: "Waiting for " in second.shown or second.poll() is not None, what="the second")
            os.kill(engine, signal.SIGCONT)
    stream.join()
    assert (first.returncode, second.returncode, stream.is_whole) == (0, 0, True), first.shown + second.shown
    assert "Applied: llama-swap restarted." in second.shown
    config = StackFolder(paths.state_dir()).config.read_text()
    assert ("-c 512" in config, "-c 640" in config) == (True, True)


def test_where_requests_never_pause_new_ones_wait_for_the_change_and_are_answered(up, catalog, tmp_path):
    before = running()
    stream, engine = unanswered(before, "one", 30)
    edit(catalog)
    with Up(catalog, tmp_path / "err", before.door.port, before="change.PAUSE_AFTER_S = 0") as applied:
        wait_for(lambda: "under way (one), new ones wait ..." in applied.shown, what="the pause")
        with ThreadPoolExecutor() as several:
            answers = [several.submit(chat, before.endpoint, "Hello.", model=model) for model in ("one", "two")]
            assert [one.model for one in before.client().in_flight()] == ["one"]  # the stream
            os.kill(engine, signal.SIGCONT)
            assert [one.result()["message"]["content"] for one in answers] == ["OK", "OK"]
        stream.join()
    assert (applied.returncode, stream.is_whole) == (0, True), applied.shown
    assert "-c 512" in StackFolder(paths.state_dir()).config.read_text()


def test_no_request_fails_while_a_model_is_added(up, catalog):
    """llama-swap and the guard are replaced; the requests come one after the other from three clients."""
    before, ended = running(), Event()
    shutil.copy(catalog / "models" / "one.yaml", catalog / "models" / "three.yaml")
    assert main(["lock", "--catalog", str(catalog)]) == 0

    def ask(model):
        answers = []
        while not ended.is_set():
            answers.append(chat(before.endpoint, "Hello.", model=model)["message"]["content"])
        return answers

    with ThreadPoolExecutor() as several:
        asked = [several.submit(ask, model) for model in ("one", "two", "one")]
        try:
            assert "Applied: llama-swap, the guard restarted." in up()
        finally:
            ended.set()
        assert all(set(one.result()) == {"OK"} for one in asked)
    assert running().leaders["guard"] != before.leaders["guard"]
    wait_for(lambda: not processes.is_alive(before.leaders["guard"]), what="the end of the guard before")


def test_a_guard_is_replaced_at_once_and_the_one_before_ends_with_its_last_answer(up, catalog):
    before = running()
    stream, engine = unanswered(before, "one", 30)
    (catalog / "clients.yaml").write_text("clients: {photos: {models: [one], requests: 2}}\n")
    assert main(["lock", "--catalog", str(catalog)]) == 0
    assert "Applied: the guard restarted." in up()
    assert get(f"{before.endpoint}/v1/models")[0] == 401
    assert processes.is_alive(before.leaders["guard"])
    os.kill(engine, signal.SIGCONT)
    stream.join()
    assert stream.is_whole
    wait_for(lambda: not processes.is_alive(before.leaders["guard"]), what="the end of the guard before")


BEFORE_THE_RECORD = "stack.write_record"
"""`corral up` is killed there when the programs have started and nothing has recorded them yet."""
BEFORE_THE_START = "change._started"
"""There, llama-swap has ended, and the next one is not started."""
BEFORE_THE_SIGNAL = "change.processes.send"
"""There, a fresh guard has the place of the one before, which serves on what it has."""


def killed(catalog, folder, port, *, at=BEFORE_THE_RECORD):
    with Up(catalog, folder / "killed", port, before=f"{at} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)") as dies:
        pass
    assert dies.returncode == -signal.SIGKILL, dies.shown


def marked(token):
    return processes.carrying({MARKER: token})


def with_clients(catalog, requests):
    (catalog / "clients.yaml").write_text(f"clients: {{photos: {{models: [one], requests: {requests}}}}}\n")
    assert main(["lock", "--catalog", str(catalog)]) == 0


@pytest.mark.parametrize("requests", [3, 2], ids=["completed", "taken back"])
@pytest.mark.parametrize("at", [BEFORE_THE_RECORD, BEFORE_THE_SIGNAL])
def test_the_next_up_ends_a_change_of_the_guard_that_was_killed(up, catalog, tmp_path, requests, at):
    with_clients(catalog, 2)
    up()
    before = running()
    with_clients(catalog, 3)
    killed(catalog, tmp_path, before.door.port, at=at)
    assert running() == before
    assert [one for one in before.strays() if one != before.leaders["guard"]]

    with_clients(catalog, requests)
    assert "Applied: the guard restarted." in up()
    after = running()
    wait_for(lambda: not after.strays(), what="the end of the guards before")
    assert (after.process, after.leaders["caddy"]) == (before.process, before.leaders["caddy"])
    assert main(["smoke", "one"]) == 0
    assert (
        json.loads(StackFolder(paths.state_dir()).guard_config.read_text())["clients"]["photos"]["requests"] == requests
    )
    assert "already running" in up()


def test_a_stop_ends_what_a_killed_change_has_started(up, catalog, tmp_path):
    before = running()
    with_clients(catalog, 2)
    killed(catalog, tmp_path, before.door.port)
    assert before.strays()
    assert stack.stop(paths.state_dir()).was_alive
    assert marked(before.token) == []


@pytest.mark.parametrize("context", [256, 512], ids=["completed", "taken back"])
@pytest.mark.parametrize("at", [BEFORE_THE_RECORD, BEFORE_THE_START])
def test_the_next_up_ends_a_change_of_llama_swap_that_was_killed_and_the_port_stays(up, catalog, tmp_path, context, at):
    edit(catalog, context=512)
    up()
    before = running()
    edit(catalog, context=256)
    killed(catalog, tmp_path, before.door.port, at=at)
    assert not before.is_alive

    edit(catalog, context=context)
    up()
    after = running()
    assert (after.leaders["caddy"], after.endpoint) == (before.leaders["caddy"], before.endpoint)
    wait_for(lambda: not after.strays(), what="the end of the guard before")
    assert f"-c {context}" in StackFolder(paths.state_dir()).config.read_text()
    assert chat(after.endpoint, "Hello.", model="two")["message"]["content"] == "OK"
    assert "already running" in up()


def test_a_request_waits_while_a_llama_swap_that_has_died_gets_another_configuration(up, catalog, monkeypatch, capsys):
    before, restarted = running(), change._restarted
    edit(catalog)
    os.kill(before.pid, signal.SIGKILL)
    wait_for(lambda: not before.is_alive, what="the death of llama-swap")
    with ThreadPoolExecutor() as several:
        asked = []

        def asked_meanwhile(*args):
            asked.append(several.submit(chat, before.endpoint, "Hello.", model="one"))
            wait_for(lambda: pause.read(before, paths.state_dir()).waiting, what="the request")
            return restarted(*args)

        monkeypatch.setattr(change, "_restarted", asked_meanwhile)
        assert "Applied: llama-swap restarted." in up()
        assert asked[0].result()["message"]["content"] == "OK"


def test_a_pause_is_named_by_status_and_why(up, capsys):
    with pause.held(running(), paths.state_dir()) as is_paused:
        assert is_paused
        assert main(["status"]) == 0
        assert "New requests wait in the guard, 0 so far: a pause of all models began " in capsys.readouterr().err
        assert main(["status", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["pause"]["waiting"] == 0
        assert main(["why", "one", "--json"]) == 1
        found = json.loads(capsys.readouterr().out)
        assert (found["class"], found["culprit"]) == ("slow", "a pause of all models")
    wait_for(lambda: pause.read(running(), paths.state_dir()) is None, what="the end of the pause")
    assert main(["why", "one", "--json"]) == 0


def test_a_start_that_was_killed_leaves_nothing_that_a_stop_does_not_end(catalog, tmp_path):
    killed(catalog, tmp_path, free_port())
    assert stack.recorded(paths.state_dir()) is None
    reported = []
    assert stack.stop(paths.state_dir(), report=reported.append) is None
    assert reported == ["Ending 3 processes of a corral up that was killed while it started them."]
    reported.clear()
    assert stack.stop(paths.state_dir(), report=reported.append) is None
    assert reported == []


def test_requests_that_do_not_end_leave_the_stack_as_it_is(up, catalog, monkeypatch):
    monkeypatch.setattr(change, "PAUSE_AFTER_S", 0.1)
    monkeypatch.setattr(change, "IDLE_LIMIT_S", 0.3)
    before = running()
    stream, engine = unanswered(before, "one", 3)
    edit(catalog)
    shown = up(code=3)
    assert "The requests under way did not end (one): nothing was changed." in shown
    command = before.start_command()
    step = f"  → Try again: {command}; or cut off what takes longer than 30 s: corral down && {command}\n"
    assert step in shown
    assert running() == before
    assert chat(before.endpoint, "Hello.", model="two")["message"]["content"] == "OK"
    os.kill(engine, signal.SIGCONT)
    stream.join()
    assert stream.is_whole


def test_added_and_removed_models_and_clients_restart_llama_swap_and_guard(up, catalog):
    before = running()
    shutil.copy(catalog / "models" / "one.yaml", catalog / "models" / "three.yaml")
    (catalog / "models" / "two.yaml").unlink()
    assert main(["lock", "--catalog", str(catalog)]) == 0
    assert "Applied: llama-swap, the guard restarted." in up()
    assert running().client().models() == ["one", "three"]
    assert chat(running().endpoint, "Hello.", model="three")["message"]["content"] == "OK"

    (catalog / "clients.yaml").write_text("clients: {photos: {models: [one], requests: 2}}\n")
    assert main(["lock", "--catalog", str(catalog)]) == 0
    assert "Applied: the guard restarted." in up()
    assert running().leaders["caddy"] == before.leaders["caddy"]
    assert get(f"{running().endpoint}/v1/models")[0] == 401
    assert main(["smoke", "one"]) == 0


def test_a_configuration_that_does_not_start_leaves_the_one_before_running(up, catalog, monkeypatch):
    chat(running().endpoint, "Hello.", model="one")
    before = running()
    edit(catalog)
    text = StackFolder(paths.state_dir()).config.read_text()
    broken = stack.Configuration("models: {", *before_parts(before))
    monkeypatch.setattr("corral.terraform.local.render_stack", lambda *_, **__: broken)
    shown = up(code=3)
    assert "ended while starting" in shown
    assert "The stack runs as before.  one: unloaded by that; a request loads it again, or corral load." in shown
    after = running()
    assert after.config_sha256 == before.config_sha256
    assert StackFolder(paths.state_dir()).config.read_text() == text
    assert chat(after.endpoint, "Hello.", model="one")["message"]["content"] == "OK"


def test_a_guard_that_does_not_start_leaves_one_as_before_and_cuts_no_answer_off(up, catalog, monkeypatch):
    before = running()
    stream, engine = unanswered(before, "one", 30)
    llama_swap = StackFolder(paths.state_dir()).config.read_text()
    broken = stack.Configuration(llama_swap, "{", before_parts(before)[1])
    monkeypatch.setattr("corral.terraform.local.render_stack", lambda *_, **__: broken)
    shown = up(code=3)
    assert "The guard ended while starting" in shown
    assert "The stack runs as before." in shown
    assert running().config_sha256 == before.config_sha256
    assert running().process == before.process
    os.kill(engine, signal.SIGCONT)
    stream.join()
    assert stream.is_whole
    assert chat(before.endpoint, "Hello.", model="one")["message"]["content"] == "OK"


def before_parts(present):
    folder = StackFolder(paths.state_dir())
    assert present.folder == folder.run
    return folder.guard_config.read_text(), folder.caddy_config.read_text()


def test_another_port_is_refused_with_the_commands_that_start_it(up, catalog):
    assert "corral down && corral up" in up("--port", str(free_port()), code=2)


def test_a_port_in_use_is_refused_with_the_whole_command_at_another_one(catalog, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(port), "--keys"]) == 3
    step = f"or choose another: corral up --keys --detach --catalog {catalog} --port {port + 1}\n"
    assert step in capsys.readouterr().err


def test_the_next_commands_name_the_store_of_the_running_stack_and_only_apply_the_change(up, catalog, tmp_path, capsys):
    store = tmp_path / "elsewhere"
    port, _ = running().door.port, up("--store", str(store))
    command = f"corral up --detach --port {port} --catalog {catalog} --store {store}"
    assert (running().start_command(), running().store) == (command, store)

    edit(catalog, "one")
    for words in (["measure", "one"], ["golden", "record", "one"]):
        assert main(words) == 2
        assert f"\n  → {command}\n" in capsys.readouterr().err
    assert main(["remove", "two", "--yes", "--catalog", str(catalog)]) == 0
    assert f"on this machine: {command}; " in "".join(capsys.readouterr())

    assert main(command.split()[1:]) == 0
    assert "Applied: llama-swap, the guard restarted." in capsys.readouterr().err
    assert (running().store, running().client().models()) == (store, ["one"])


def test_the_start_command_has_every_option_of_the_door(up):
    door = replace(running().door, keys=Path("/keys"), tls=Tls(Path("/a.crt"), Path("/a.key")), names=("llm.lan",))
    command = replace(running(), door=door).start_command()
    assert command == f"{running().start_command()} --keys --tls /a.crt /a.key --name llm.lan"
    authority = replace(running(), door=replace(running().door, tls=Tls())).start_command()
    assert authority == f"{running().start_command()} --tls"


def test_a_configuration_that_was_edited_by_hand_is_not_written_over(up, catalog):
    file = StackFolder(paths.state_dir()).config
    file.write_text(file.read_text() + "# by hand\n")
    edit(catalog)
    before = running()
    assert "is not the one that the stack was started with" in up(code=2)
    assert running() == before


def test_a_stack_in_the_foreground_goes_on_with_the_change_of_another_command(catalog, tmp_path, capsys):
    port = free_port()
    words = ["up", "--catalog", str(catalog), "--port", str(port)]
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        foreground = subprocess.Popen([sys.executable, "-m", "corral.cli.main", *words], stdout=stdout, stderr=stderr)
    try:
        wait_for(lambda: "Ctrl-C" in err.read_text(), what="the start")
        edit(catalog)
        assert main([*words, "--detach"]) == 0
        assert chat(running().endpoint, "Hello.", model="two")["message"]["content"] == "OK"
        assert foreground.poll() is None
        wait_for(lambda: out.read_text().count("llama-swap listening") == 2, what="the log of the new llama-swap")
        foreground.send_signal(signal.SIGINT)
        assert foreground.wait() == 0, err.read_text()
        assert stack.recorded(paths.state_dir()) is None
    finally:
        foreground.kill()
        foreground.wait()
        stack.stop(paths.state_dir(), drain_s=0)


def test_a_stopped_guard_is_named_and_nothing_restarts(up, catalog):
    before = running()
    edit(catalog)
    stop(before.leaders["guard"].pid)
    try:
        assert f"kill -CONT {before.leaders['guard'].pid}" in up(code=3)
        assert running() == before
    finally:
        os.kill(before.leaders["guard"].pid, signal.SIGCONT)


def test_a_stream_that_llama_swap_reads_its_configuration_again_under_is_cut_off(up):
    """Why a change is no reload: of a configuration that is the same, llama-swap ends every engine."""
    before = running()
    chat(before.endpoint, "Hello.", model="two")
    stream = Stream(before.endpoint, "one", 900)
    engines = {one.pid for one in before.engines()}
    os.kill(before.pid, signal.SIGHUP)
    stream.join()
    assert not stream.is_whole
    wait_for(lambda: not engines & {one.pid for one in before.engines()}, what="the end of both engines")
