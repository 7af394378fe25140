"""What a load or an unload counts as, by the states and the lines of llama-swap's stream of events.

The lines are those of the pinned version and of v250, which tests/stack compares with the real ones.
"""

from __future__ import annotations

import pytest

from corral.door.changes import Changes

NAMES = {"a": "a", "alias-of-a": "a", "b": "b", "c": "c"}
IDLE = "2026-01-01T00:00:00Z [INFO] <a> Unloading model, TTL of 4s reached\n"
DIED = "2026-01-01T00:00:00Z [WARN] <a> upstream process exited unexpectedly\n"
DIED_BEFORE_V242 = "[WARN] group: running a exited: [a] upstream exited unexpectedly\n"
NEXT = {"a": "ready"}, {"a": "stopping"}, {}, {"b": "starting"}, {"b": "ready"}


def unload(path: str, method: str = "POST", status: int = 200, agent: str = "curl") -> str:
    return f'2026-01-01T00:00:00Z [INFO] Request 127.0.0.1 "{method} {path} HTTP/1.1" {status} 2 "{agent}" 1.2ms\n'


YIELDED = unload("/api/models/unload/a", agent="corral-yield")


class Observed:
    """Changes after a first reading that had no model, and the clock of them."""

    def __init__(self, first=None):
        self.clock = 100.0
        self.changes = Changes(NAMES, clock=lambda: self.clock, now=lambda: 1000 + self.clock)
        self.changes.resume(first or {})

    def observe(self, *events):
        """Each is states, a line of the log, or seconds that pass."""
        for one in events:
            if isinstance(one, dict):
                self.changes.states(one)
            elif isinstance(one, str):
                self.changes.log(one)
            else:
                self.clock += one
        return self

    def causes(self):
        """Model and cause of each unload."""
        self.clock += 10
        return [(one["model"], one["cause"]) for one in self.changes.listed() if one["kind"] == "unloaded"]


def test_a_load_has_the_seconds_from_its_start_until_it_is_ready():
    found = Observed().observe({"a": "starting"}, 2.5, {"a": "ready"}).changes.listed()
    expected = {
        "number": 1,
        "at": 1102.5,
        "model": "a",
        "kind": "loaded",
        "seconds": 2.5,
        "cached": None,
        "cause": None,
    }
    assert found == [expected]


def test_a_load_has_the_share_in_the_page_cache_that_its_own_preflight_recorded():
    observed = Observed().observe({"a": "starting"})
    observed.changes.engine_log("preflight: page-cache model=a cached_bytes=4 size_bytes=8: 4 of 8\nbuild: 1\n")
    observed.observe({"a": "ready"}, {"a": "stopping"}, {}, {"a": "starting"}, {"a": "ready"})
    assert [one["cached"] for one in observed.changes.listed() if one["kind"] == "loaded"] == [0.5, None]


def test_a_load_that_failed_or_was_ended_is_none_and_no_unload():
    assert Observed().observe({"a": "starting"}, {}, 10).changes.listed() == []


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        pytest.param((IDLE, {"a": "stopping"}, {}), "idle", id="idle"),
        pytest.param(({"a": "stopping"}, {}, IDLE), "idle", id="idle, its line is late"),
        pytest.param(({}, DIED), "died", id="died"),
        pytest.param((DIED, {}), "died", id="died, its line is early"),
        pytest.param(({}, DIED_BEFORE_V242), "died", id="died, before v242"),
        pytest.param(({"a": "starting"}, DIED), "died", id="died, and asked for again"),
        pytest.param(({"a": "stopping"}, {}, unload("/api/models/unload/a")), "requested", id="requested"),
        pytest.param(({"a": "stopping"}, {}, unload("/api/models/unload/alias-of-a")), "requested", id="by its alias"),
        pytest.param(({"a": "stopping"}, {}, unload("/api/models/unload")), "requested", id="all"),
        pytest.param(({"a": "stopping"}, {}, unload("/unload", "GET")), "requested", id="all, as it was"),
        pytest.param(({"a": "stopping"}, unload("/unload", "GET"), {}), "requested", id="its line is early"),
        pytest.param((unload("/unload", "GET"), {"a": "stopping"}, {}), "requested", id="its line is first"),
        pytest.param(({"a": "stopping"}, {}, YIELDED), "yielded", id="yielded"),
        pytest.param(({"a": "stopping"}, YIELDED, {}), "yielded", id="yielded, its line is early"),
        pytest.param(({"a": "stopping"}, {}, YIELDED, {"b": "starting"}), "yielded", id="yielded, before a load"),
        pytest.param(({"a": "stopping"}, {}, {"b": "starting"}), "evicted", id="evicted"),
        pytest.param(
            ({"a": "stopping"}, {}, unload("/api/models/unload/a", agent="corral-room")), "evicted", id="room"
        ),
        pytest.param(
            ({"a": "stopping"}, {"a": "stopping", "b": "starting"}, {"b": "starting"}), "evicted", id="one read"
        ),
        pytest.param(({"b": "starting"},), "evicted", id="evicted, in one state"),
        pytest.param(({"a": "stopping"}, {}, {"b": "starting"}, unload("/unload", "GET")), "requested", id="one waits"),
        pytest.param(({"a": "stopping"}, {}), "unknown", id="nothing explains it"),
        pytest.param(({"a": "stopping"}, {}, 6, {"b": "starting"}), "unknown", id="another load, later"),
        pytest.param(({"a": "stopping"}, {}, unload("/api/models/unload/b")), "unknown", id="of another model"),
        pytest.param(({"a": "stopping"}, {}, unload("/unload", "GET", 401)), "unknown", id="refused"),
        pytest.param(({"a": "stopping"}, {}, f"[INFO] a client: {IDLE}"), "unknown", id="within a line"),
    ],
)
def test_an_unload_has_its_cause(events, cause):
    observed = Observed({"a": "ready"}).observe(*events)
    assert observed.causes() == [("a", cause)]


def test_models_that_take_turns_faster_than_causes_are_known_are_each_counted():
    observed = Observed({"a": "ready"})
    for model in "babab":
        other = "a" if model == "b" else "b"
        observed.observe(0.1, {other: "stopping"}, {}, {model: "starting"}, 0.3, {model: "ready"})
    assert observed.causes() == [("a", "evicted"), ("b", "evicted")] * 2 + [("a", "evicted")]
    assert sum(one["kind"] == "loaded" for one in observed.changes.listed()) == 5


def test_an_unload_that_was_an_eviction_is_not_that_of_a_later_request():
    observed = Observed({"a": "ready"}).observe(*NEXT, 3, {"b": "stopping"}, {}, unload("/api/models/unload"))
    assert sorted(observed.causes()) == [("a", "evicted"), ("b", "requested")]


def test_what_was_loaded_before_the_first_reading_counts_when_it_is_unloaded():
    assert Observed({"a": "ready"}).changes.listed() == []
    assert Observed({"a": "ready"}).observe({}, DIED).causes() == [("a", "died")]


def test_the_end_of_llama_swap_ends_all_that_it_has_loaded():
    observed = Observed({"a": "ready", "b": "stopping", "c": "starting"})
    observed.changes.end()
    observed.changes.lose()
    observed.changes.resume({})
    assert observed.causes() == [("a", "requested"), ("b", "requested")]


def test_what_happened_while_nothing_was_known_has_no_cause_and_no_seconds():
    observed = Observed({"a": "ready", "b": "ready"}).observe({"a": "ready", "b": "ready", "c": "starting"})
    observed.changes.lose()
    observed.changes.resume({"b": "ready", "c": "ready"})
    found = [(one["model"], one["kind"], one["seconds"], one["cause"]) for one in observed.changes.listed()]
    assert found == [("a", "unloaded", None, "unknown"), ("c", "loaded", None, None)]


def test_an_end_before_a_gap_is_not_explained_by_what_comes_after_it():
    observed = Observed({"a": "ready"}).observe({})
    observed.changes.lose()
    observed.changes.resume({})
    assert observed.observe({"b": "starting"}, IDLE).causes() == [("a", "unknown")]


def test_numbers_grow_by_one_and_old_changes_leave():
    observed = Observed()
    for _ in range(1000):
        observed.observe({"a": "starting"}, {"a": "ready"}, {}, DIED)
    numbers = [one["number"] for one in observed.changes.listed()]
    assert numbers == list(range(2001 - 999, 2001))
