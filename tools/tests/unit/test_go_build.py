"""Go programs that are built into the cache, and Terraform's provider among them."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import SimpleNamespace

import pytest

from corral import output
from corral.engine import go_build
from corral.engine.go_build import Programs
from corral.errors import ProgramMissing
from corral.terraform.program import find_terraform
from dev import terraform_provider

HELLO = 'package main\n\nvar version = "none"\n\nfunc main() { print(version) }\n'


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Programs end in a cache of the test's own; Go, and what it has compiled before, come from the user's."""
    go = go_build.find_go(output.info, (1, 21))
    monkeypatch.setenv("PATH", str(go.parent), prepend=os.pathsep)
    monkeypatch.setattr(go_build, "paths", SimpleNamespace(cache_dir=lambda: tmp_path / "cache"))


@pytest.fixture
def hello(tmp_path):
    """A module of one program, which prints its version to stderr."""
    pins = tmp_path / "hello"
    pins.mkdir()
    (pins / "go.mod").write_text("module corral/hello\n\ngo 1.21\n")
    (pins / "main.go").write_text(HELLO)
    return Programs("hello-1", pins, ("corral/hello",), {"main.version": "v1"}, minutes=0.1)


def printed(program):
    return subprocess.run([program], capture_output=True, text=True, check=True).stderr


def test_a_program_is_built_once_and_found_again_without_go(hello, monkeypatch, capsys):
    assert printed(hello.build(output.info) / "hello") == "v1"
    assert "Built hello-1 in" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "")
    assert printed(hello.build(output.info) / "hello") == "v1"
    assert capsys.readouterr().err == ""


def test_other_pins_stamps_or_settings_are_another_program(hello):
    before = hello.folder
    assert replace(hello, stamps={"main.version": "v2"}).folder != before
    assert replace(hello, settings={"CGO_ENABLED": "0"}).folder != before
    (hello.pins / "main.go").write_text(HELLO + "\n")
    assert hello.folder != before


PATCH = """Print another name

diff --git a/main.go b/main.go
--- a/main.go
+++ b/main.go
@@ -5,1 +5,1 @@ package main
-func main() { print(version) }
+func main() { print("patched ", version) }
"""


@pytest.fixture
def program_of_a_module(hello):
    """As *hello*, which another module requires; that one's pins have the patch, and its build is what is patched."""
    pins = hello.pins.parent / "pins"
    pins.mkdir()
    needed = "module corral/pins\n\ngo 1.21\n\nrequire corral/hello v0.0.0\n\nreplace corral/hello => ../hello\n"
    (pins / "go.mod").write_text(needed)
    (pins / "go.sum").touch()
    (pins / "tools.go").write_text('//go:build tools\n\npackage tools\n\nimport _ "corral/hello"\n')
    (pins / "hello.patch").write_text(PATCH)
    return replace(hello, pins=pins, patch=pins / "hello.patch")


def test_a_patch_changes_the_program_and_not_the_module(program_of_a_module):
    before = program_of_a_module.folder
    assert printed(program_of_a_module.build(output.info) / "hello") == "patched v1"
    assert (program_of_a_module.pins.parent / "hello" / "main.go").read_text() == HELLO
    (program_of_a_module.pins / "hello.patch").write_text(PATCH.replace("patched ", "again "))
    assert program_of_a_module.folder != before
    assert printed(program_of_a_module.build(output.info) / "hello") == "again v1"


@pytest.mark.parametrize("text", [HELLO.replace("print", "println"), HELLO * 2], ids=["other-text", "twice"])
def test_a_patch_that_does_not_fit_exactly_one_place_is_refused(program_of_a_module, text):
    (program_of_a_module.pins.parent / "hello" / "main.go").write_text(text)
    with pytest.raises(ProgramMissing, match=r"Hunk 1 of hello\.patch for main\.go does not fit the pinned version"):
        program_of_a_module.build(output.info)
    assert not program_of_a_module.folder.exists()


@pytest.mark.parametrize(("theirs", "used"), [(None, "400"), ("50", "50")])
def test_go_collects_less_garbage_unless_the_user_has_set_how_much(hello, monkeypatch, tmp_path, theirs, used):
    stand_in = tmp_path / "bin" / "go"  # Go does not print the settings of its own collector
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\n[ "$1" = build ] || { echo go1.99; exit; }\necho "GOGC=$GOGC"; exit 1\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(stand_in.parent), prepend=os.pathsep)
    monkeypatch.delenv("GOGC", raising=False)
    if theirs:
        monkeypatch.setenv("GOGC", theirs)
    with pytest.raises(ProgramMissing, match=rf"GOGC={used}$"):
        hello.build(output.info)


def test_a_failed_build_shows_the_compilers_lines_and_leaves_nothing(hello):
    (hello.pins / "main.go").write_text("package main\n\nfunc main() { nonsense() }\n")
    with pytest.raises(ProgramMissing, match=r"Building hello-1 failed \(exit code 1\):\n(.|\n)*undefined: nonsense"):
        hello.build(output.info)
    assert not hello.folder.exists()
    assert not list(hello.folder.parent.glob(".hello-1-*"))


@contextmanager
def registry(status: int, body: bytes, *, slow: bool = False) -> Iterator[str]:
    """A Terraform registry; a slow one sends a byte every 50 ms, without end."""
    over = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            with contextlib.suppress(OSError):
                while slow and not over.wait(0.05):
                    self.wfile.write(b"H")
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        Thread(target=httpd.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{httpd.server_port}/v1/providers/hashicorp/kubernetes/versions"
        finally:
            over.set()
            httpd.shutdown()


@pytest.mark.parametrize(
    ("status", "body", "answers"),
    [
        (200, b'{"versions": [{"version": "3.2.1"}]}', True),
        (200, b'{"versions": [{"version": "2.0.0"}]}', False),
        (200, b"<html>log in to this network</html>", False),
        (503, b'"3.2.1"', False),
        (1, b"", False),  # no status of HTTP
    ],
)
def test_the_public_registry_counts_when_it_has_the_version(monkeypatch, status, body, answers):
    with registry(status, body) as url:
        monkeypatch.setattr(terraform_provider, "VERSIONS_URL", url)
        assert terraform_provider.registry_answers() is answers


def test_a_registry_whose_answer_does_not_end_is_given_up(monkeypatch):
    monkeypatch.setattr(terraform_provider, "TIMEOUT_S", 0.3)
    with registry(200, b'"3.2.1"', slow=True) as url:
        monkeypatch.setattr(terraform_provider, "VERSIONS_URL", url)
        assert not terraform_provider.registry_answers()


def test_nothing_is_printed_where_the_users_own_configuration_names_the_source_of_providers(
    monkeypatch, tmp_path, capsys
):
    own = tmp_path / "terraform.rc"
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(own))
    monkeypatch.setattr(terraform_provider, "registry_answers", lambda: False)
    monkeypatch.setattr(terraform_provider, "mirrored", lambda: "the one in the cache")
    assert terraform_provider.main() == 0
    assert capsys.readouterr().out == "the one in the cache\n"
    own.write_text('provider_installation {\n  network_mirror { url = "https://mirror.example/" }\n}\n')
    assert terraform_provider.main() == 0
    assert capsys.readouterr().out == ""


def test_terraform_takes_the_provider_from_the_cache(hello, monkeypatch, tmp_path):
    (hello.pins / "go.mod").write_text("module corral/terraform-provider-kubernetes\n\ngo 1.21\n")
    stand_in = replace(hello, packages=("corral/terraform-provider-kubernetes",))
    monkeypatch.setattr(terraform_provider, "PROGRAMS", stand_in)
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(terraform_provider.mirrored()))
    (tmp_path / "main.tf").write_text(
        'terraform {\n  required_providers {\n    kubernetes = { source = "hashicorp/kubernetes" }\n  }\n}\n'
    )
    done = subprocess.run([find_terraform(), "init"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Installed hashicorp/kubernetes v3.2.1" in done.stdout, done.stdout + done.stderr
