"""What reads bytes from elsewhere, the header reader and the engine, has no secret, no network and narrow limits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from corral.errors import CannotRun, UnreadableHeader
from corral.vram import confined, header_reader, oracle
from corral.vram.confined import Confined, Limits
from corral.vram.header_child import ANSWER, FIXTURE, NEEDED, REFUSED
from corral.vram.header_reader import HeaderReader
from tests.support import gguf_models, kernel
from tests.support.gguf_bytes import KEY, gguf, pair

QWEN = "qwen3-0.6b-q8"
ARGV = ["-m", "${STORE}/m/model.gguf", "-c", "8192", "-np", "1", "-ngl", "99", "-fa", "on", "-fit", "off", "--offline"]
SECRETS = {
    "HF_TOKEN": "hf_secret",
    "PG_CONN_STR": "postgres://u:p@db",
    "AWS_SECRET_ACCESS_KEY": "a",
    "OPENAI_API_KEY": "b",
    "LD_PRELOAD": "/nonexistent.so",
    "PYTHONPATH": "/nonexistent",
    "LLAMA_ARG_UBATCH": "2048",
}
REPORT = """
import json, os, resource, socket, stat
def network():
    try:
        socket.create_connection(("127.0.0.1", {port}), timeout=5).close()
    except OSError as error:
        return error.strerror
    return "connected"
def descriptors():
    open_ones = []
    for name in os.listdir("/proc/self/fd"):
        try:
            open_ones.append([int(name), os.readlink(f"/proc/self/fd/{{name}}").split(":")[0]])
        except OSError:
            pass
    return sorted(open_ones)
report = dict(
    environment=dict(os.environ),
    descriptors=descriptors(),
    network=network(),
    own_network=os.readlink("/proc/self/ns/net"),
    leads_its_session=os.getsid(0) == os.getpid(),
    limits={{one: resource.getrlimit(getattr(resource, f"RLIMIT_{{one}}")) for one in ("AS", "CPU", "CORE", "FSIZE")}},
    status=open("/proc/self/status").read(),
)
with open({path!r}, "w") as file:
    json.dump(report, file)
"""


def read(data):
    """The fixture of the header in *data*, by the real process."""
    with HeaderReader("m: x.gguf", len(data) + 32) as reader:
        return reader.feed(data)


def read_a_header():
    assert read(gguf(KEY)) == gguf(KEY)


def ask_the_engine():
    assert len(oracle.ask([gguf_models.header(QWEN)], [ARGV])) == 1


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.fixture(params=[(header_reader, read_a_header), (oracle, ask_the_engine)], ids=["header reader", "engine"])
def report(request, monkeypatch, tmp_path, listener):
    """What the real process, which then does its work, finds around itself; the caller has secrets and open files."""
    module, work = request.param
    path = tmp_path / "report.json"
    first = REPORT.format(port=listener.getsockname()[1], path=str(path))
    monkeypatch.setattr(module, "_PROGRAM", f"{first}\n{module._PROGRAM}")
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LANG", "C")
    with (tmp_path / "private").open("w") as inherited:
        os.set_inheritable(inherited.fileno(), True)
        work()
    return json.loads(path.read_text()), module.LIMITS


def test_no_secret_and_no_setting_of_the_callers_is_in_its_environment(report):
    environment = report[0]["environment"]

    assert environment["LANG"] == "C", "what is allowed by name arrives"
    assert environment["LC_ALL"] == "C.UTF-8"
    assert SECRETS.keys().isdisjoint(environment)
    assert not set(SECRETS.values()) & set(environment.values())


def test_no_open_file_of_the_callers_is_inherited(report):
    found = dict(report[0]["descriptors"])

    assert found.keys() <= {0, 1, 2}
    assert (found[0], found[1]) == ("socket", "socket")
    assert found[2] == "/dev/null" or found[2].endswith("(deleted)")


def test_it_has_limits_of_memory_time_and_files_and_writes_no_core(report):
    found, limits = report

    assert found["limits"]["AS"] == [limits.memory] * 2
    assert found["limits"]["CPU"] == [limits.processor_s, limits.processor_s + 1]
    assert found["limits"]["CORE"] == [0, 0]
    assert found["limits"]["FSIZE"] == [16 << 20] * 2
    assert found["leads_its_session"]
    assert "NoNewPrivs:\t1" in found["status"]


def test_it_has_no_network_where_the_kernel_allows_that(report, listener):
    found = report[0]
    kernel.require_namespaces("--net", *([] if os.geteuid() == 0 else ["--user"]))

    assert found["network"] in ("Network is unreachable", "Connection refused")
    assert found["own_network"] != str(Path("/proc/self/ns/net").readlink())
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_a_user_without_rights_has_none_either():
    kernel.require_namespaces("--net", "--user")
    program = """
        import os
        from corral.vram.confined import Confined, Limits
        probe = "import os; os.write(1, os.readlink('/proc/self/ns/net').encode())"
        with Confined(probe, Limits(1 << 30, 10, 10.0)) as process:
            print(os.readlink("/proc/self/ns/net"), process.receive_all(100).decode())
    """
    with TemporaryDirectory() as made:
        folder = Path(made)  # pytest's own folders admit no other user
        folder.chmod(0o755)
        for name in ("python", "store"):
            (folder / name).mkdir()
        code = Path(confined.__file__).parents[1]
        shutil.copytree(code, folder / "corral", ignore=shutil.ignore_patterns("__pycache__"))
        done = kernel.run_confined(folder, "-c", textwrap.dedent(program), PYTHONPATH=str(folder))

    assert done.returncode == 0, done.stderr
    own, inside = done.stdout.split()
    assert inside.startswith("net:")
    assert inside != own


def test_a_lower_limit_of_the_callers_stays():
    """In a process of its own: a hard limit cannot be raised again."""
    program = f"""
        import resource
        resource.setrlimit(resource.RLIMIT_CPU, (3, 4))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        from corral.vram.confined import confine
        confine({1 << 30}, 20)
        print(*(resource.getrlimit(kind) for kind in (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_AS)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)

    assert done.stdout == f"(4, 4) (0, 0) {(1 << 30, 1 << 30)}\n"


# -- its end -------------------------------------------------------------------------------------------------


@pytest.fixture
def program(monkeypatch):
    """Puts another program in the place of the header reader's: no header makes the real one do this."""
    return lambda text: monkeypatch.setattr(header_reader, "_PROGRAM", text)


def limited(monkeypatch, **limits):
    monkeypatch.setattr(header_reader, "LIMITS", header_reader.LIMITS._replace(**limits))


def test_a_reader_that_is_killed_is_an_error_with_its_signal():
    with HeaderReader("m: x.gguf", 1000) as reader:
        os.kill(reader._process._process.pid, signal.SIGKILL)
        with pytest.raises(
            CannotRun, match=r"^m: x\.gguf: the process that reads its header was ended by SIGKILL\.$"
        ) as caught:
            reader.feed(b"GGUF")
    assert caught.value.next_step.endswith("corral lock")


def test_a_reader_that_is_stopped_is_not_waited_for(monkeypatch):
    limited(monkeypatch, answer_s=0.2)
    monkeypatch.setattr(header_reader, "_PROGRAM", "import signal; signal.pause()")

    with pytest.raises(CannotRun, match=r"has not answered after 0\.2 s"):
        read(gguf(KEY))


def test_a_reader_that_takes_too_much_processor_time_is_the_files_fault(monkeypatch, program):
    limited(monkeypatch, processor_s=1)
    program("while True: pass")

    with pytest.raises(UnreadableHeader, match=r"^m: x\.gguf: .* took more than 1 s of processor time\.$"):
        read(gguf(KEY))


def test_a_header_that_takes_too_much_memory_is_refused(monkeypatch):
    """The limit is lowered: within the real one no header takes that much."""
    limited(monkeypatch, memory=64 << 20)
    keys = [pair(f"{number:x}", 0, b"\0") for number in range(200_000)]

    with pytest.raises(UnreadableHeader, match=r"^m: x\.gguf: .*takes more memory than any other\.$"):
        read(gguf(*keys))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"N",
        b"Traceback (most recent call last)",
        ANSWER.pack(b"X", 1),
        ANSWER.pack(NEEDED, 0),
        ANSWER.pack(NEEDED, 45),
        ANSWER.pack(FIXTURE, 0),
        ANSWER.pack(FIXTURE, 1 << 40),
        ANSWER.pack(FIXTURE, 100) + b"GGUF",
        ANSWER.pack(REFUSED, 0),
        ANSWER.pack(REFUSED, 1 << 20) + b"x" * (1 << 20),
        ANSWER.pack(REFUSED, 8) + b"\x1b[2J no.",
        ANSWER.pack(REFUSED, 8) + "\u202e no.".encode(),
    ],
    ids=lambda answer: repr(answer[:12]),
)
def test_a_malformed_answer_is_an_error_and_is_not_believed(program, answer):
    program(f"import os; os.write(1, {answer[:2000]!r})")

    with pytest.raises(
        CannotRun, match=r"^m: x\.gguf: the process that reads its header (sent what|stopped answering)"
    ):
        HeaderReader("m: x.gguf", 44)


@pytest.mark.parametrize("fixture", [b"GGUF", gguf(KEY) + b"x", b"<!DOCTYPE html>", gguf(KEY, KEY)], ids=len)
def test_a_fixture_that_is_no_header_is_refused(program, fixture):
    program(f"import os; os.write(1, {ANSWER.pack(FIXTURE, len(fixture)) + fixture!r})")

    with pytest.raises(UnreadableHeader, match=r"^m: x\.gguf: Not a GGUF file"):
        HeaderReader("m: x.gguf", 44)


def test_a_process_that_cannot_be_started_is_named(monkeypatch):
    monkeypatch.setattr(confined.sys, "executable", "/nonexistent/python")

    with pytest.raises(CannotRun, match="/nonexistent/python could not be started: No such file"):
        HeaderReader("m: x.gguf", 44)


def test_leaving_ends_the_process():
    with Confined("import signal; signal.pause()", Limits(1 << 30, 10, 10.0)) as process:
        pid = process._process.pid
        os.kill(pid, 0)

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_it_ends_with_its_caller():
    """The caller is killed, and can end nothing itself; the pipe is at its end when none of them has it open."""
    caller = """
        import sys
        sys.path.insert(0, sys.argv[1])
        from pathlib import Path
        from corral.vram.confined import Confined, Limits
        program = "import os, signal; os.write(1, b'!'); signal.pause()"
        process = Confined(program, Limits(1 << 30, 10, 10.0), log=sys.stderr)
        process.receive(1)
        print("started", flush=True)
        sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(caller), str(Path(confined.__file__).parents[2])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"started\n"
        process.kill()
        assert process.stderr.read() == b""
