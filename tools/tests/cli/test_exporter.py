"""`corral exporter` without a stack: whose key its page needs, at which address; with one it is in tests/stack."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from corral import keys
from corral.cli.main import main
from corral.keys import LocalKeys
from tests.support.engine_process import free_port, get
from tests.support.tiny_catalog import DEMO

PATHS = ("/", "/card.json", "/records?since=0")
COMMAND = 'cat "${CORRAL_STATE:-.corral}/keys/operator.key"'


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path))
    return LocalKeys(tmp_path)


@contextmanager
def exporter(listen):
    """Its address on this machine, and what it printed until it listened."""
    port = free_port()
    words = ["--catalog", str(DEMO), "--port", str(port), "--listen", listen]
    command = [sys.executable, "-m", "corral.cli.main", "exporter", *words]
    reader, writer = os.pipe()
    with open(reader, encoding="utf-8") as printed:
        process = subprocess.Popen(command, stderr=writer)
        os.close(writer)
        try:
            host = f"[{listen}]" if ":" in listen else listen
            assert any(line.startswith(f"http://{host}:{port}/metrics") for line in printed)
            yield f"http://{host if host == '[::1]' else '127.0.0.1'}:{port}", printed
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("listen", ["127.0.0.1", "localhost", "::1"])
def test_on_this_machine_alone_and_without_keys_its_page_is_open(store, listen):
    with exporter(listen) as (address, _):
        for path in PATHS:
            assert get(f"{address}{path}")[0] == 200
    assert not store.file.exists()


@pytest.mark.parametrize("listen", ["127.0.0.1", "localhost"])
def test_where_the_stack_has_keys_its_page_needs_the_operators(store, listen):
    photos = keys.add(store, "photos")
    with exporter(listen) as (address, _):
        check_closed(address, store, photos)


def test_on_another_address_its_page_needs_a_key_which_is_made(store):
    with exporter("0.0.0.0") as (address, printed):
        assert printed.readline() == f"Its page needs the operator's key: {COMMAND}\n"
        check_closed(address, store, "x")
        assert get(f"{address}/metrics")[0] == 200


def test_an_address_that_cannot_be_listened_on_makes_no_key(store, capsys):
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["exporter", "--catalog", str(DEMO), "--port", str(port), "--listen", "0.0.0.0"]) == 3
    assert f"0.0.0.0:{port} cannot be listened on" in capsys.readouterr().err
    assert not store.file.exists()


def check_closed(address, store, other):
    """The page opens for the key that the named command prints, and for no other."""
    done = subprocess.run(COMMAND, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == store.operator_key()
    for path in PATHS:
        status, text = get(f"{address}{path}")
        assert (status, text.endswith(f"This prints it: {COMMAND}\n")) == (401, True)
        assert get(f"{address}{path}", api_key=other)[0] == 401
        assert get(f"{address}{path}", api_key=done.stdout.strip())[0] == 200


def test_keys_that_cannot_be_relied_on_are_an_error_before_it_listens(store, capsys):
    store.file.parent.mkdir(mode=0o700)
    store.file.write_text("{}")
    assert main(["exporter", "--catalog", str(DEMO), "--port", str(free_port())]) == 2
    assert "no key in it can be relied on" in capsys.readouterr().err
