"""Only the header of a GGUF comes over the network, whatever the hub and the way to it do."""

from __future__ import annotations

import hashlib
import socket
from dataclasses import dataclass, field
from unittest.mock import Mock

import pytest

from corral.agent.lock_file import LockedFile
from corral.agent.scheduling import TransferSettings
from corral.demo.hub import RepoContent
from corral.errors import HubUnavailable, HubUnreachable, Refused, UnreadableHeader
from corral.hub import gguf_range
from corral.hub.gguf_range import read_headers
from corral.hub.resolved import Resolved
from corral.vram.gguf_header import canonical, parse
from tests.support import gguf_models
from tests.support.faulty_hub import (
    Change,
    Cut,
    Drip,
    FaultyHub,
    Flip,
    IgnoreRange,
    Lengthless,
    Stall,
    Status,
    Truncate,
)
from tests.support.gguf_bytes import TEXT, array, gguf

REPO = "org/model-GGUF"
PATIENT = TransferSettings(give_up_after=60, max_pause=0.05)
IMPATIENT = TransferSettings(give_up_after=1.0, max_pause=0.05)
MODEL, PROJECTOR = "qwen3-0.6b-q8", "mmproj-qwen3vl-8b-f16"


@dataclass
class Shelf:
    """A hub with a model and a projector, and what a lock says about them."""

    hub: FaultyHub
    resolved: Resolved
    catalog: object
    messages: list[str] = field(default_factory=list)

    def read(self, **how):
        how.setdefault("settings", PATIENT)
        return read_headers("m", self.resolved, self.catalog, say=self.messages.append, **how)

    def requests(self):
        """Ranges that were asked of the data host, with the bytes that came."""
        return [(entry.headers["range"], entry.sent) for entry in self.hub.log if entry.is_data]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """As long as the real ones, with all of their headers, and no byte of weights."""
    folder = tmp_path_factory.mktemp("files")
    paths = {name: folder / f"{name}.gguf" for name in (MODEL, PROJECTOR)}
    for name, path in paths.items():
        gguf_models.write(name, path, tokenizer=True)
    return paths


@pytest.fixture
def shelf(files, monkeypatch, tmp_path):
    content = {path.name: path for path in files.values()}
    digests = {path.name: hashlib.sha256(path.name.encode()).hexdigest() for path in files.values()}
    with FaultyHub({REPO: RepoContent(content, digests=digests)}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        locked = tuple(
            LockedFile(path.name, "model" if name == MODEL else "projector", path.stat().st_size, digests[path.name])
            for name, path in files.items()
        )
        yield Shelf(hub, Resolved(REPO, hub.repositories.commit(REPO, "main").id, None, locked), tmp_path)


def header(path):
    with path.open("rb") as file:
        return parse(file.read(16 << 20), file_size=path.stat().st_size)


@pytest.fixture(scope="module")
def fixtures(files):
    """What the lock keeps of each file."""
    return [canonical(header(path)) for path in files.values()]


def test_the_headers_are_what_the_files_have(shelf, fixtures):
    assert shelf.read() == fixtures


def test_no_more_travels_than_the_headers_and_a_step(shelf, files):
    shelf.read()

    sizes = [header(path).size for path in files.values()]
    assert sizes[0] > 4_000_000
    most = sum(max(size + gguf_range.STEP_BYTES, gguf_range.FIRST_BYTES) for size in sizes)
    assert sum(sizes) < shelf.hub.data_sent < most
    assert most < sum(path.stat().st_size for path in files.values()) / 100


def test_no_byte_is_asked_for_twice(shelf):
    shelf.read()

    end = {}
    for entry in shelf.hub.log:
        if entry.is_data:
            start, last = map(int, entry.headers["range"].removeprefix("bytes=").split("-"))
            assert start == end.get(entry.path, 0)
            assert entry.sent == last - start + 1
            end[entry.path] = last + 1
    assert len(end) == 2
    assert len(shelf.requests()) < 15


def test_what_is_read_is_reported_once_for_each_file(shelf):
    shelf.read()

    assert shelf.messages[0] == f"m: {MODEL}.gguf: reading the header"
    assert shelf.messages[1].startswith(f"m: {MODEL}.gguf: 6.")
    assert shelf.messages[1].endswith(" MB of 639.4 MB read")
    assert len(shelf.messages) == 4


def test_the_token_goes_to_the_hub_and_not_to_the_data_host(shelf, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")

    shelf.read()

    sent = {entry.is_data: entry.headers.get("authorization") for entry in shelf.hub.log}
    assert sent == {False: "Bearer hf_secret", True: None}


def test_plain_http_is_refused_as_it_is_for_a_download(shelf, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")

    with pytest.raises(Refused, match="plain HTTP"):
        shelf.read()


@pytest.mark.parametrize(
    "fault",
    [
        Cut(times=3, after=100_000),
        Cut(times=3, after=0, reset=True),
        Status(times=3),
        Status(on="/resolve/", times=2, status=429),
        Truncate(times=2, to=1000),
        Lengthless(times=2),
        Change(times=2, fields={"Content-Range": "bytes 5-9/10"}),
    ],
    ids=["cut", "reset", "503", "429", "truncated", "without a length", "another range"],
)
def test_trouble_that_passes_costs_time_and_nothing_else(shelf, fixtures, fault):
    shelf.hub.faults = [fault]

    assert shelf.read() == fixtures
    assert fault.times == 0


def test_a_hub_that_ignores_ranges_is_read_in_one_go(shelf, fixtures):
    shelf.hub.faults = [IgnoreRange(times=None)]

    assert shelf.read() == fixtures

    assert len(shelf.requests()) <= 4  # the first part, and then all that follows
    assert shelf.hub.data_sent < 100 << 20  # what was under way when the connection was closed


def test_trouble_that_does_not_pass_ends_with_the_model_and_the_reason(shelf):
    shelf.hub.faults = [Stall(times=None, after=0, seconds=0.1)]

    with pytest.raises(HubUnavailable, match=rf"m: {MODEL}.gguf: its header could not be read: .*ended early"):
        shelf.read(settings=IMPATIENT)
    assert "trying again" in shelf.messages[1]


def test_a_header_that_comes_byte_by_byte_is_given_up_with_the_rule(shelf):
    shelf.hub.faults = [Drip()]
    with pytest.raises(HubUnavailable, match="its bytes arrive too slowly: at least 64 KiB/s over 1 s are expected"):
        shelf.read(settings=IMPATIENT)


@pytest.mark.parametrize("failure", [ConnectionRefusedError("refused"), socket.gaierror("no such name")], ids=repr)
def test_a_hub_without_a_connection_is_unreachable_without_another_try(shelf, monkeypatch, failure):
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=failure))

    with pytest.raises(HubUnreachable, match=r"The hub at https://hub\.example is unreachable: hub\.example: "):
        shelf.read()
    assert shelf.messages == [f"m: {MODEL}.gguf: reading the header"]


def test_a_file_of_another_size_is_not_the_locked_one(shelf):
    size = shelf.resolved.files[0].size
    shelf.hub.faults = [Change(times=None, fields={"Content-Range": f"bytes 0-262143/{size + 1}"})]

    with pytest.raises(Refused, match=f"has {size + 1:,} bytes on the hub, and was locked with {size:,}") as caught:
        shelf.read()
    assert caught.value.next_step == "corral lock --upgrade"


def test_a_page_instead_of_a_model_is_refused_by_name(shelf):
    shelf.hub.faults = [Flip(times=None)]

    with pytest.raises(UnreadableHeader, match=f"m: {MODEL}.gguf: Not a GGUF file"):
        shelf.read()
    assert len(shelf.requests()) == 1


def test_a_file_that_is_gone_is_refused_with_the_next_command(shelf):
    shelf.hub.faults = [Status(on="/resolve/", times=None, status=404)]

    with pytest.raises(Refused, match="does not exist"):
        shelf.read()


def test_a_header_without_an_end_is_not_followed(tmp_path, monkeypatch):
    """A token list that claims to be 2 GB long, in a file that is."""
    path = tmp_path / "endless.gguf"
    path.write_bytes(gguf(array("tokenizer.ggml.tokens", TEXT, 1 << 28)))
    with path.open("r+b") as file:
        file.truncate(1 << 32)
    with FaultyHub({REPO: RepoContent({path.name: path}, digests={path.name: "0" * 64})}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        locked = LockedFile(path.name, "model", 1 << 32, "0" * 64)
        resolved = Resolved(REPO, hub.repositories.commit(REPO, "main").id, None, (locked,))

        with pytest.raises(UnreadableHeader, match=r"m: endless\.gguf: .* at least 2,1.*, and 67,108,864 is"):
            read_headers("m", resolved, tmp_path, say=lambda _: None, settings=PATIENT)
        assert hub.data_sent <= gguf_range.FIRST_BYTES


# -- a file on disk ------------------------------------------------------------------------------------------


def on_disk(path, size=None):
    return Resolved(
        None, None, None, (LockedFile(path.name, "model", path.stat().st_size if size is None else size, "0" * 64),)
    )


def test_a_file_on_disk_is_read_where_it_lies(files, fixtures):
    path = files[MODEL]

    assert read_headers("m", on_disk(path), path.parent, say=pytest.fail) == fixtures[:1]


@pytest.mark.parametrize("content", [b"", b"GG", b"GGUF"], ids=len)
def test_a_file_on_disk_that_is_shorter_than_any_header_is_refused(tmp_path, content):
    path = tmp_path / "short.gguf"
    path.write_bytes(content)

    with pytest.raises(UnreadableHeader, match=f"short.gguf: .* at least 24 bytes, and the file has {len(content)}"):
        read_headers("m", on_disk(path, len(content)), tmp_path, say=pytest.fail)


def test_a_file_on_disk_that_was_replaced_is_refused(files):
    path = files[MODEL]

    with pytest.raises(Refused, match="was locked with 5"):
        read_headers("m", on_disk(path, size=5), path.parent, say=pytest.fail)


def test_a_file_on_disk_that_is_gone_is_refused(tmp_path):
    gone = Resolved(None, None, None, (LockedFile("gone.gguf", "model", 1, "0" * 64),))

    with pytest.raises(Refused, match="No such file"):
        read_headers("m", gone, tmp_path, say=pytest.fail)
