"""The front door of `corral up`, for real: who gets in, with and without keys and TLS, and how its faults show."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

from corral import paths
from corral.cli.main import main
from corral.demo import tiny_gguf
from corral.engine import stack
from corral.keys import LocalKeys
from tests.support.engine_process import Stream, free_port, get, question, stop, wait_for
from tests.support.why_command import wait_for_evidence

pytestmark = pytest.mark.timeout(180)

PROMPT = "Hello."
ONE_CLIENT = "clients: {photos: {models: [good], requests: 2}}\n"


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """Two locked catalogs of the models good and other: one without clients, one with the client photos of good."""
    folder = tmp_path_factory.mktemp("locked")
    model = folder / "good.gguf"
    tiny_gguf.write_text(model)
    for name, clients in (("plain", ""), ("clients", ONE_CLIENT)):
        catalog = folder / name
        (catalog / "cards").mkdir(parents=True)
        (catalog / "models").mkdir()
        (catalog / "cards" / "laptop.yaml").write_text("vram_mib: 4096\n")
        for one in ("good", "other"):
            source = {"path": str(model), "mmproj": "none"}
            intent = {"source": source, "card": "laptop", "context": 512, "modalities": ["text"]}
            (catalog / "models" / f"{one}.yaml").write_text(json.dumps(intent))
        if clients:
            (catalog / "clients.yaml").write_text(clients)
        assert main(["lock", "--catalog", str(catalog)]) == 0
    return folder


@pytest.fixture
def up(locked, tmp_path, capsys, monkeypatch):
    """Runs `corral up --detach` with a copy of a catalog; gives the running stack."""
    shutil.copytree(locked, tmp_path / "catalogs")
    wait_for_evidence(monkeypatch)
    port = free_port()

    def run(*more, catalog="plain"):
        words = ["up", "--detach", "--catalog", str(tmp_path / "catalogs" / catalog), "--port", str(port), *more]
        assert main(words) == 0, capsys.readouterr().err
        return stack.running(paths.state_dir())

    yield run
    stack.stop(paths.state_dir(), drain_s=0)


def send(running, path="/v1/chat/completions", *, key="", model="good", trust=None, **headers):
    """Status and body of a request; with a body where the path takes one."""
    body = json.dumps(question(PROMPT, model=model)).encode() if path.endswith("/completions") else None
    named = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    if key:
        named["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(running.endpoint + path, body, named)
    try:
        with urllib.request.urlopen(request, timeout=60, context=trust) as answer:
            return SimpleNamespace(status=answer.status, body=answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return SimpleNamespace(status=error.code, body=error.read())


def printed(capsys, *words, code=0):
    """What a command prints to stdout, as JSON where it is."""
    capsys.readouterr()
    assert main(list(words)) == code
    text = capsys.readouterr().out
    return json.loads(text) if "--json" in words else text


def test_without_keys_a_program_is_the_operator_and_a_web_page_gets_nothing(up, capsys):
    running = up()

    assert send(running).status == 200
    assert send(running, "/running").status == 200
    assert send(running, Origin="https://evil.example").status == 403
    assert send(running, "/running", Sec_Fetch_Site="cross-site").status == 403
    assert send(running, Host="evil.example").status == 421
    assert printed(capsys, "status", "--json")["door"]["keys"] is False


def test_a_catalog_with_clients_requires_keys_and_corrals_own_commands_have_one(up, capsys):
    running = up(catalog="clients")

    assert "corral keys add photos" in capsys.readouterr().err
    assert send(running).status == 401
    assert send(running, "/running").status == 401
    assert send(running, key=LocalKeys(paths.state_dir()).operator_key()).status == 200
    checks = printed(capsys, "smoke", "--json")["checks"]
    assert {(one["model"], one["status"]) for one in checks} == {
        ("*", "passed"),
        ("good", "passed"),
        ("other", "passed"),
    }
    assert printed(capsys, "status", "--json")["door"]["keys"] is True
    assert printed(capsys, "why", "good", "--json")["class"] == "healthy"
    assert main(["logs", "good"]) == 0


def test_a_key_is_valid_as_soon_as_it_is_given_and_permits_what_the_catalog_says(up, capsys):
    running = up(catalog="clients")
    key = printed(capsys, "keys", "add", "photos").strip()

    assert send(running, key=key).status == 200
    assert send(running, key=key, model="other").status in (403, 404)
    assert send(running, "/running", key=key).status == 403
    listed = json.loads(send(running, "/v1/models", key=key).body)["data"]
    assert [one["id"] for one in listed] == ["good"]

    printed(capsys, "keys", "revoke", "photos")
    assert send(running, key=key).status == 401


def test_a_key_is_replaced_while_the_engine_has_a_request_of_the_first_one_which_is_answered(up, capsys):
    running = up(catalog="clients")
    first = printed(capsys, "keys", "add", "photos").strip()

    def statuses(*keys):
        return [send(running, "/v1/models", key=key).status for key in keys]

    assert send(running, key=first).status == 200
    (engine,) = running.engines()
    stop(engine.pid)  # the answer does not end before the key does
    stream = Stream(running.endpoint, "good", 400, api_key=first, begins=False)
    wait_for(lambda: running.client().in_flight(), what="the request")
    second = printed(capsys, "keys", "rotate", "photos").strip()
    both = statuses(first, second)
    printed(capsys, "keys", "revoke", "photos", "--old")
    after = statuses(first, second)
    os.kill(engine.pid, signal.SIGCONT)
    stream.join()

    assert both == [200, 200]
    assert after == [401, 200]
    assert stream.is_whole


def test_a_client_that_is_to_be_added_reaches_the_running_stack_by_the_named_commands(up, capsys):
    running = up(catalog="clients")
    capsys.readouterr()

    assert main(["keys", "add", "tv"]) == 2

    catalog = running.catalog
    rest = capsys.readouterr().err.rpartition("→ ")[2]
    commands = f"corral lock --catalog {catalog} && {running.start_command()}"
    assert rest == f"Add it to {catalog}/clients.yaml, then: {commands}\n"


def test_a_key_is_for_a_client_that_the_catalog_names(locked, capsys):
    assert main(["keys", "add", "tv", "--catalog", str(locked / "clients")]) == 2
    rest = capsys.readouterr().err.rpartition("→ ")[2]
    assert rest == f"Add it to {locked}/clients/clients.yaml, then: corral lock --catalog {locked}/clients\n"


@pytest.mark.parametrize("action", ["add", "rotate"])
def test_a_key_that_could_not_be_printed_is_not_valid(locked, monkeypatch, capsys, action):
    store, catalog = LocalKeys(paths.state_dir()), str(locked / "clients")
    if action == "rotate":
        assert main(["keys", "add", "photos", "--catalog", catalog]) == 0
    before = store.read()

    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert main(["keys", action, "photos", "--catalog", catalog]) == 3

    assert store.read() == before


def test_the_log_of_the_door_names_the_client_and_holds_no_prompt_and_no_key(up, capsys):
    running = up(catalog="clients")
    key = printed(capsys, "keys", "add", "photos").strip()
    send(running, key=key)
    send(running, x_api_key="corral-of-a-stranger")

    def requests():
        """All requests of chats, once both are there: an answer arrives before its line."""
        lines = [json.loads(line) for line in printed(capsys, "logs", "--door").splitlines()]
        found = [one for one in lines if one.get("path", "").endswith("/completions")]
        return found if len(found) == 2 else None

    granted, refused = wait_for(requests, what="both lines")
    assert (granted["client"], granted["model"], granted["status"]) == ("photos", "good", 200)
    assert refused["status"] == 401
    text = printed(capsys, "logs", "--door")
    assert not [word for word in (PROMPT, key, "stranger") if word in text]


def test_up_typed_again_keeps_keys_certificate_and_processes(up):
    first = up("--keys", "--tls", "--name", "llm.lan")

    again = up()

    assert again == first
    assert again.door.names == ("llm.lan",)
    assert again.door.keys
    assert again.endpoint.startswith("https://127.0.0.1:")


def test_with_tls_smoke_passes_by_the_certificate_that_status_names(up, capsys):
    running = up("--keys", "--tls")

    certificate = printed(capsys, "status", "--json")["door"]["certificate"]
    trust = ssl.create_default_context(cafile=certificate)
    key = LocalKeys(paths.state_dir()).operator_key()
    assert send(running, key=key, trust=trust).status == 200
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        send(running, key=key)
    assert get(running.endpoint.replace("https:", "http:") + "/health")[0] == 400
    checks = printed(capsys, "smoke", "good", "--json")
    assert checks["endpoint"] == running.endpoint
    assert checks["passed"]


def test_with_a_certificate_of_ones_own_smoke_passes_and_its_name_is_served(up, capsys, tmp_path):
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    subject = ["-subj", "/CN=llm.lan", "-addext", "subjectAltName=DNS:llm.lan"]
    files = [tmp_path / "llm.crt", tmp_path / "llm.key"]
    command = ["openssl", "req", *kind, *subject, "-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, capture_output=True)

    running = up("--tls", *map(str, files), "--name", "llm.lan")

    assert printed(capsys, "smoke", "good", "--json")["passed"]
    trust = running.door.trust(running.folder)
    assert send(running, trust=trust, Host="llm.lan").status == 200
    assert send(running, trust=trust, Host="other.lan").status == 421


@pytest.mark.parametrize("part", ["guard", "caddy"])
def test_a_part_of_the_door_that_died_is_named_by_status_and_why_and_up_brings_it_back(up, capsys, part):
    running = up()
    send(running)
    pid = running.leaders[part].pid
    os.kill(pid, signal.SIGKILL)
    wait_for(running.lost, what="the death")

    found = printed(capsys, "status", "--json", code=1)
    assert f"(pid {pid}) has died" in found["door"]["problem"]
    answer = printed(capsys, "why", "good", "--json", code=1)
    assert (answer["class"], f"(pid {pid})" in answer["culprit"]) == ("stack-down", True)
    (restart,) = [step for step in answer["next"] if step.startswith("corral up --detach")]
    assert f"--port {running.door.port}" in restart
    assert main(["status"]) == 1
    step = capsys.readouterr().err.rpartition("→ corral ")[2]
    assert main(["smoke", "good"]) != 0
    assert (step in capsys.readouterr().err) == (part == "caddy")  # the guard's death is an answer of Caddy's

    assert main(shlex.split(step)) == 0

    assert send(stack.running(paths.state_dir())).status == 200
    found = printed(capsys, "status", "--json")
    assert found["door"]["problem"] == ""
    assert found["pid"] == running.pid


def test_another_configuration_is_refused_with_the_commands_that_start_it(up, capsys):
    words = ["up", "--detach", "--catalog", str(up().catalog), "--port", str(free_port()), "--keys"]
    capsys.readouterr()

    assert main(words) == 2

    steps = capsys.readouterr().err.rpartition("→ corral ")[2].split(" && corral ")
    assert shlex.split(steps[0]) == ["down"]
    assert sorted(shlex.split(steps[1])) == sorted(words)


@pytest.mark.parametrize("part", ["guard", "caddy"])
def test_a_part_of_the_door_that_is_stopped_hangs(up, capsys, part):
    running = up()
    pid = running.leaders[part].pid
    stop(pid)
    try:
        assert "is stopped (SIGSTOP)" in printed(capsys, "status", "--json", code=1)["door"]["problem"]
        answer = printed(capsys, "why", "good", "--json", code=1)
        assert (answer["class"], answer["next"]) == ("hung", [f"kill -CONT {pid}"])
        assert main(["status"]) == 1
        assert capsys.readouterr().err.endswith(f"  → kill -CONT {pid}\n")
        assert main(["up", "--detach", "--catalog", str(running.catalog), "--port", str(running.door.port)]) == 3
        assert capsys.readouterr().err.endswith(f"  → kill -CONT {pid}\n")
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tls", "one.crt"], "--tls takes a certificate and its key, not 1 files"),
        (["--tls", "no.crt", "no.key"], "There is no file no.crt"),
    ],
)
def test_half_a_certificate_is_refused_before_anything_runs(locked, capsys, words, message):
    assert main(["up", "--detach", "--catalog", str(locked / "plain"), *words]) == 2
    assert message in capsys.readouterr().err
    assert stack.recorded(paths.state_dir()) is None


def test_a_file_without_a_certificate_is_refused_in_caddys_own_words(up, capsys, locked, tmp_path):
    files = [tmp_path / "llm.crt", tmp_path / "llm.key"]
    for file in files:
        file.write_text("nothing")
    words = ["up", "--detach", "--catalog", str(locked / "plain"), "--port", str(free_port())]

    assert main([*words, "--tls", *map(str, files)]) == 3

    error = capsys.readouterr().err
    assert "Caddy ended while starting" in error
    assert "llm.crt" in error or "certificate" in error
    assert stack.recorded(paths.state_dir()) is None
