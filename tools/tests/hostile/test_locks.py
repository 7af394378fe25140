"""Locks that `corral lock` never writes, each with a seal that matches: refused before anything is fetched or started.

A seal shows an accident and not an attack: a user who can write a lock can seal it.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from corral.agent.lock_file import sealed
from tests.support.engine_process import free_port
from tests.support.hostile import Result, assert_refused, run_corral
from tests.support.locked_catalog import SMALLEST_INTENT, write_catalog


def text(change):
    """The lock whose text *change* makes of a good one's; it has no seal of its own."""
    return lambda path: path.write_bytes(change(path.read_text()).encode(errors="surrogatepass"))


def resealed(change):
    """The lock whose text *change* makes of a good one's, with the seal that belongs to it."""
    return lambda path: path.write_text(sealed(change(path.read_text())), encoding="utf-8", errors="surrogatepass")


def top(**values):
    """The lock that has *values* at its top."""

    def change(lock: str) -> str:
        return json.dumps(json.loads(lock) | values, indent=2) + "\n"

    return resealed(change)


def entry(**values):
    """The lock whose only model has *values*."""

    def change(lock: str) -> str:
        document = json.loads(lock)
        document["models"]["good"] |= values
        return json.dumps(document, indent=2) + "\n"

    return resealed(change)


def file(**values):
    """The lock whose only file has *values*."""

    def change(lock: str) -> str:
        document = json.loads(lock)
        document["models"]["good"]["files"][0] |= values
        return json.dumps(document, indent=2) + "\n"

    return resealed(change)


def named(name: str):
    """The lock whose only model has the id *name*."""

    def change(lock: str) -> str:
        document = json.loads(lock)
        document["models"] = {name: document["models"]["good"]}
        return json.dumps(document, indent=2) + "\n"

    return resealed(change)


def replaced(old: str, new: str):
    """The lock with *new* in the place of the first *old* in its text."""

    def change(lock: str) -> str:
        assert old in lock
        return lock.replace(old, new, 1)

    return resealed(change)


def placed(make):
    """What *make* puts into the place of the lock."""

    def put(path: Path) -> None:
        path.unlink()
        make(path)

    return put


def with_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(path.parent)  # the path of a socket is short
        try:
            listener.bind(path.name)
        finally:
            os.chdir(before)


LOCKS = {
    # no JSON, or not for every reader
    "nothing": text(lambda _: ""),
    "half of it": text(lambda lock: lock[: len(lock) // 2]),
    "it twice": text(lambda lock: lock * 2),
    "a NUL after it": text(lambda lock: lock + "\0"),
    "a byte order mark": text(lambda lock: "\ufeff" + lock),
    "UTF-16": lambda path: path.write_bytes(path.read_text().encode("utf-16")),
    "half a surrogate pair": text(lambda lock: lock.replace("example", "\ud800")),
    "a page of HTML": text(lambda _: "<html>\x1b[2J</html>"),
    "100 kB of [": text(lambda _: "[" * 100_000),
    "100 kB of {": text(lambda _: '{"a":' * 20_000),
    "10 MB": text(lambda lock: lock + " " * 10_000_000),
    "3 MB of blanks": resealed(lambda lock: lock + " " * 3_000_000 + "x"),
    "300,000 keys": replaced('"version": 2', '"version": 2, ' + ", ".join(f'"k{one}": 1' for one in range(300_000))),
    "a number of 5,000 digits": replaced('"size": 1048576', f'"size": {"9" * 5000}'),
    "a merge": text(lambda lock: f"<<<<<<< ours\n{lock}=======\n{lock}>>>>>>> theirs\n"),
    "no number": replaced('"size": 1048576', '"size": NaN'),
    "no finite number": replaced('"size": 1048576', '"size": Infinity'),
    "a number that overflows": replaced('"size": 1048576', '"size": 1e999'),
    "models twice": replaced('"models": {', '"models": {}, "models": {'),
    "a path twice": replaced('"path": "', '"path": "first.gguf", "path": "'),
    "a seal twice": replaced('"version": 2', '"seal": "", "version": 2'),
    # its seal and its version
    "no seal": text(lambda lock: "".join(line for line in lock.splitlines(keepends=True) if '"seal"' not in line)),
    "another seal": text(lambda lock: lock.replace('"seal": "', '"seal": "0')),
    "an edit": text(lambda lock: lock.replace("1048576", "1048577")),
    "line ends of another system": text(lambda lock: lock.replace("\n", "\r\n")),
    "a version that is text": top(version="2"),
    "a version that is true": top(version=True),
    "a version with a point": replaced('"version": 2', '"version": 2.0'),
    "no version": top(version=None),
    "version 1": top(version=1),
    "a version below 0": top(version=-1),
    "a version of 400 digits": top(version=10**400),
    # types
    "models that are a list": top(models=[]),
    "models that are nothing": top(models=None),
    "an unknown key": top(hooks={"after": "rm -rf /"}),
    "a model that is a list": top(models={"good": []}),
    "an unknown key of a model": entry(command="rm -rf /"),
    "files that are a mapping": entry(files={}),
    "no file": entry(files=[]),
    "a file that is text": entry(files=["x.gguf"]),
    "a size of 0": file(size=0),
    "a size below 0": file(size=-1),
    "a size that is text": file(size="1"),
    "a size that is true": file(size=True),
    "a size of 400 digits": file(size=10**400),
    "a role of its own": file(role="adapter"),
    "a role that is a list": file(role=["model"]),
    "a hash that is short": file(sha256="ab"),
    "a hash in capitals": file(sha256="A" * 64),
    "a hash with a line end": file(sha256="a" * 64 + "\n"),
    "a hash that is a path": file(sha256="../" * 21 + "x"),
    # names that become paths or addresses
    "a path out of the store": file(path="../../../../tmp/x.gguf"),
    "a path that goes back": file(path="a/../../../x.gguf"),
    "an absolute path": file(path="/etc/passwd"),
    "a path of another system": file(path="..\\..\\x.gguf"),
    "a path with NUL": file(path="x\0.gguf"),
    "a path with a line end": file(path="x\n.gguf"),
    "a path with ESC": file(path="\x1b[2Jx.gguf"),
    "a path from right to left": file(path="x\u202effug.gguf"),
    "a path with a line separator": file(path="x\u2028.gguf"),
    "a path with half a surrogate pair": file(path="x\ud800.gguf"),
    "a path that is too long": file(path="x" * 5000 + ".gguf"),
    "a path of many folders": file(path="x/" * 3000 + "x.gguf"),
    "an empty path": file(path=""),
    "a folder": file(path="x/"),
    "a model with the name of a folder above": named(".."),
    "a model elsewhere": named("../../x"),
    "a model with a folder of the store": named("blobs"),
    "a model with an empty name": named(""),
    "a model with ESC in its name": named("a\x1b[2J"),
    "a model from right to left": named("a\u202eb"),
    "a model with a long name": named("a" * 300),
    "a model that looks like an option": named("--tools"),
    "a repository elsewhere": entry(repo="../../admin"),
    "a repository that is an address": entry(repo="http://elsewhere/x"),
    "a repository of three parts": entry(repo="a/b/c"),
    "a repository with a question": entry(repo="a/b?x"),
    "a repository in another script": entry(repo="\u0430/b"),
    "a branch for a commit": entry(revision="main"),
    "a commit with a line end": entry(revision="a" * 40 + "\n"),
    "a commit that is a path": entry(revision="../" * 13 + "x"),
    "two projectors": entry(
        files=[{"path": f"{n}.gguf", "role": r, "size": 1, "sha256": "a" * 64} for n, r in ("am", "bp", "cp")]
    ),
    # no file
    "a FIFO": placed(os.mkfifo),
    "a socket": placed(with_socket),
    "a folder in its place": placed(Path.mkdir),
    "a device": placed(lambda path: path.symlink_to("/dev/zero")),
    "a link to itself": placed(lambda path: path.symlink_to(path.name)),
    "a link to nowhere": placed(lambda path: path.symlink_to("/nowhere")),
    "a link to another file": placed(lambda path: path.symlink_to("/etc/passwd")),
}
"""Each is refused by every command that reads locks."""

COMMANDS_AND_SOURCES = {
    "a flag that runs programs": lambda lock: lock["models"]["good"]["argv"].extend(["--tools", "all"]),
    "another program": lambda lock: lock["models"]["good"]["argv"].__setitem__(0, "/bin/sh"),
    "no command": lambda lock: lock["models"]["good"].update(argv=[]),
    "a command that is text": lambda lock: lock["models"]["good"].update(argv="llama-server"),
    "a word that is a list": lambda lock: lock["models"]["good"]["argv"].append(["-c"]),
    "a word with a line end": lambda lock: lock["models"]["good"]["argv"].append("-c\n512"),
    "a macro of llama-swap": lambda lock: lock["models"]["good"]["argv"].append("${env.HOME}"),
    "an intent of its own": lambda lock: lock["models"]["good"]["intent"].update(context=1 << 40),
    "an intent of another type": lambda lock: lock["models"]["good"].update(intent=[]),
    "a prediction below 0": lambda lock: lock["models"]["good"]["predicted"].update(gpu_bytes=-1),
    "no prediction": lambda lock: lock["models"]["good"].update(predicted=None),
    "a card of its own": lambda lock: lock["cards"].update(huge={"vram_mib": 1 << 40}),
    "a source elsewhere": lambda lock: lock["sources"].update({"../../etc/passwd": "a" * 64}),
    "no source": lambda lock: lock.update(sources={}),
    "another model too": lambda lock: lock["models"].update(evil=lock["models"]["good"]),
}
"""Each is refused by the commands that run a model; a fetch uses none of it."""


@pytest.fixture
def catalog(tmp_path):
    """A catalog with a good lock."""
    return write_catalog(tmp_path / "catalog", {"good": SMALLEST_INTENT})


def everything(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def run(catalog: Path, *words: str, memory_mib: int = 768):
    """`corral` with a hub that it refuses to use, once the lock is taken for a good one."""
    options = ["--catalog", str(catalog), "--store", str(catalog.parent / "store")]
    environment = {"HF_ENDPOINT": "http://elsewhere"}
    return run_corral([*words, *options], memory_mib=memory_mib, cpu_seconds=3, environment=environment)


def assert_is_about_the_lock(result: Result) -> None:
    assert_refused(result)
    assert result.code == 2, result.stderr
    assert "lock.json" in result.stderr
    assert "elsewhere is plain HTTP" not in result.stderr
    assert "\n  → " in result.stderr


FETCH, UP = ["fetch"], ["up", "--detach", "--port", str(free_port())]  # a stack of the user's may have the usual port


@pytest.mark.parametrize("words", [FETCH, UP], ids=["fetch", "up"])
def test_there_are_many_ways_and_the_lock_that_they_change_is_good(catalog, words):
    assert len(LOCKS) + len(COMMANDS_AND_SOURCES) >= 40
    result = run(catalog, *words, memory_mib=8192)  # Terraform's address space
    assert "elsewhere is plain HTTP" in result.stderr, result.stderr


@pytest.mark.parametrize("hostile", LOCKS)
def test_a_hostile_lock_is_refused_by_all_that_read_one(hostile, catalog):
    LOCKS[hostile](catalog / "lock.json")
    before = everything(catalog.parent)

    for words in (FETCH, UP):
        assert_is_about_the_lock(run(catalog, *words))

    assert everything(catalog.parent) == before


@pytest.mark.parametrize("hostile", COMMANDS_AND_SOURCES)
def test_a_lock_with_another_command_or_origin_starts_nothing(hostile, catalog):
    path = catalog / "lock.json"
    document = json.loads(path.read_text())
    COMMANDS_AND_SOURCES[hostile](document)
    path.write_text(sealed(json.dumps(document, indent=2) + "\n"))
    before = everything(catalog.parent)

    assert_is_about_the_lock(run(catalog, *UP))

    assert everything(catalog.parent) == before
