"""The places of the tests' throwaway clusters: only the holder of a place's lock removes what lies there."""

from __future__ import annotations

import os
import subprocess
import threading

import pytest

from tests.support.cluster import place as places
from tests.support.cluster import throwaway
from tests.support.cluster.place import Place


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A place that no cluster of this machine has."""
    monkeypatch.setattr(places, "folder", lambda: tmp_path / "cluster")
    monkeypatch.setattr(places, "_CGROUPS", tmp_path / "cgroups")
    (tmp_path / "cgroups").mkdir()
    place = Place(99)
    place.folder.mkdir(parents=True)
    return place


@pytest.fixture
def dead():
    """The number of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def test_the_end_of_a_dead_cluster_removes_its_folder_and_frees_its_place(place, dead):
    (place.folder / "pid").write_text(str(dead))

    assert throwaway.down(place)

    assert not place.folder.exists()
    assert not throwaway.down(place)
    descriptor = place.claim()
    assert descriptor is not None
    os.close(descriptor)


def test_a_cluster_that_is_being_started_at_a_place_is_not_removed_by_the_end_of_the_one_before(place):
    descriptor = place.claim()
    (place.folder / "pki").mkdir()

    assert not throwaway.down(place)

    assert (place.folder / "pki").exists()
    os.close(descriptor)


def test_a_cluster_that_takes_the_place_of_a_dying_one_is_not_removed(place, dead, monkeypatch):
    (place.folder / "pid").write_text(str(dead))
    descriptor = place.claim()  # as a process of the dead cluster that is still on its way out
    waits, ended = threading.Event(), []
    claim = Place.claim
    monkeypatch.setattr(Place, "claim", lambda self: (waits.set(), claim(self))[1])
    end = threading.Thread(target=lambda: ended.append(throwaway.down(place)))
    end.start()
    assert waits.wait(60)

    (place.folder / "pid").write_text(str(os.getpid()))  # the next one, under the same lock
    end.join()

    assert ended == [False]
    assert place.folder.exists()
    os.close(descriptor)
