"""No room: on a file system that is really full."""

import threading

import pytest

from corral.agent.fetch import fetch
from corral.agent.lock_file import read_lock
from corral.agent.progress import Downloading
from corral.agent.store import Store
from corral.drill.small_disk import fill
from corral.errors import CannotRun
from tests.support import faulty_hub as faults
from tests.support.fetching import MIB, shop
from tests.support.kernel import small_disk


@pytest.fixture
def one(tmp_path):
    with shop(tmp_path) as made:
        yield made


def test_too_small_a_disk_is_refused_before_the_first_byte(one, tmp_path):
    with small_disk(tmp_path / "disk", 2 * MIB) as disk:
        with one.start("--store", str(disk)) as process:
            _, error = process.communicate(timeout=30)
        assert process.returncode == 3
        assert "has 2.1 MB free; 4.2 MB are to be fetched" in error
        assert one.hub.log == []
        assert not list(disk.glob("blobs/*/*"))


def test_a_disk_that_fills_up_on_the_way_keeps_what_arrived_and_names_the_reason(one, tmp_path):
    one.hub.faults = [faults.Slow(rate=1e6)]
    with small_disk(tmp_path / "disk", 8 * MIB) as disk:
        fillers = []

        def watch(event):
            if isinstance(event, Downloading) and event.moved > MIB and not fillers:
                fillers.append(fill(disk))

        with pytest.raises(
            CannotRun, match=r"There is no room left on the file system of .*; what has arrived is kept"
        ):
            fetch(read_lock(one.lock), Store(disk), hub=one.client, report=watch)
        assert not (disk / "m").is_symlink()
        fillers[0].unlink()
        one.hub.faults = []
        again = fetch(read_lock(one.lock), Store(disk), hub=one.client)
        kept = len(one.content) - again.bytes_moved
        assert kept > MIB // 2
        assert (disk / "m" / "model.gguf").read_bytes() == one.content
        assert list((disk / ".corral" / "partials").iterdir()) == []


def test_a_full_disk_stops_every_writer_with_the_same_sentence(one, tmp_path):
    """Not only the bytes: links, records and leases need room as well."""
    with small_disk(tmp_path / "disk", 8 * MIB) as disk:
        store = Store(disk)
        store.prepare()
        fetch(read_lock(one.lock), store, hub=one.client)
        (disk / "m").unlink()
        for record in store.records.iterdir():
            record.unlink()
        fill(disk)
        with pytest.raises(CannotRun, match="There is no room left on"):
            fetch(read_lock(one.lock), store, hub=one.client, stop=threading.Event())
