"""Which models yield to their neighbours: never without a known need, the longest idle first, and none too many."""

from __future__ import annotations

import inspect
import random
import threading
import time
from dataclasses import replace

import pytest

from corral.exporter import yields as module
from corral.exporter.account import CardAccount, CardPromise, ModelPromise, Row
from corral.exporter.driver import Card
from corral.exporter.errors import LlamaSwapUnknown
from corral.exporter.llama_swap import LlamaSwap, Request, Resident
from corral.exporter.yields import Need, Rule, Yielded, Yields, idle, need
from tests.support.guard_process import stub_llama_swap

MIB = 1 << 20
VRAM = 15360
BEGAN = 1_780_000_000.0
RULE = Rule(1024 * MIB, 60)
SEATS = {"chat": 6000, "embed": 900, "vision": 3000}
PROMISE = CardPromise(
    VRAM * MIB, 512 * MIB, {"ml": 2100 * MIB}, {name: ModelPromise(name, 1, None, None) for name in SEATS}
)


def account(free, *, models=(), ml=0, waiting=0, unknown=""):
    """A card where *models* hold their seats and ml so many MiB, of whose pods so many are *waiting*."""
    held = {name: SEATS[name] if name in models else 0 for name in SEATS}
    rows = (
        *(Row("model", name, promised=SEATS[name] * MIB, held=mib * MIB) for name, mib in held.items()),
        Row("tenant", "ml", promised=2100 * MIB, held=None if ml is None else ml * MIB, waiting=waiting),
    )
    driver = None if unknown else Card("GPU-1", "Tesla T4", VRAM * MIB, None if free is None else free * MIB)
    return CardAccount("t4", VRAM * MIB, driver, unknown, "a test" if unknown else "", rows)


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (account(1023), Need("free-below-floor", "", 1023 * MIB, 1024 * MIB)),
        (account(1024), None),
        (account(1500, ml=500, waiting=1), Need("tenant-waits", "ml", 1500 * MIB, 1600 * MIB)),
        (account(1600, ml=500, waiting=1), None),
        (account(1500, ml=500, waiting=0), None),
        (account(10, ml=500, waiting=1), Need("tenant-waits", "ml", 10 * MIB, 1600 * MIB)),
        (account(2000, ml=10726, waiting=1), None),  # it is beyond its budget, of which nothing is left
    ],
)
def test_a_neighbour_needs_memory_below_the_floor_or_when_its_pod_waits_for_the_rest_of_its_budget(one, found):
    assert need(one, RULE) == found


@pytest.mark.parametrize(
    "one",
    [
        account(10, unknown="hanging"),
        account(None),
        account(None, ml=500, waiting=1),
        account(1500, ml=None, waiting=1),
        account(1500, ml=500, waiting=None),
    ],
)
def test_what_is_unknown_is_no_need(one):
    assert need(one, RULE) is None


def test_only_a_model_that_holds_memory_of_the_card_is_idle():
    used = dict.fromkeys([*SEATS, "of another card"], BEGAN)
    one = account(0, models=["embed"])
    assert idle(one, RULE, used, BEGAN + 60) == ["embed"]
    assert idle(one, RULE, used, BEGAN + 59) == []
    unknown = replace(one, rows=tuple(replace(row, held=None) for row in one.rows))
    assert idle(unknown, RULE, used, BEGAN + 600) == []


class Door:
    """A card with engines, behind a door whose guard knows who is *busy*; it writes down what it unloads."""

    def __init__(self, models, *, free=0, **states):
        self.models, self.states, self.free, self.other = list(models), states, free, 0
        self.requests_, self.busy, self.asked, self.unloaded = [], set(), [], []
        self.fault = None

    def residents(self):
        if self.fault:
            raise self.fault
        return tuple(Resident(name, self.states.get(name, "ready"), "") for name in self.models)

    def requests(self):
        return tuple(self.requests_)

    def serve(self, *models, at="2026-05-28T20:27:00Z"):
        """A request for each of *models* has ended, at the time *at* by the clock of llama-swap."""
        for model in models:
            self.requests_.append(Request(len(self.requests_) + 1, model, 200, 1.0, None, 0, 0, "", at))

    def unload_idle(self, model):
        self.asked.append(model)
        if model in self.busy:
            return False
        if model not in self.models:
            return None
        self.models.remove(model)
        self.unloaded.append(model)
        self.free += SEATS[model]
        return True

    def account(self, **options):
        return account(self.free, models=self.models, **options)


class Scene:
    """Rounds of the real thing over *door*, each ``ROUND_S`` after the one before."""

    def __init__(self, door, rules=None, **options):
        self.door, self.now, self.options = door, BEGAN, options
        self.yields = Yields(
            {"t4": RULE} if rules is None else rules,
            promises={"t4": PROMISE},
            accounts=lambda: (self.door.account(**self.options),),
            find_door=lambda: self.door,
            clock=lambda: self.now,
        )

    def rounds(self, count):
        for _ in range(count):
            self.yields.run()
            self.now += module.ROUND_S
        return self.door.unloaded


IDLE_ROUNDS = RULE.idle_s // int(module.ROUND_S) + 1


def test_models_yield_one_a_round_the_longest_idle_first_until_no_more_is_needed():
    door = Door(["chat", "embed", "vision"], free=200)
    scene = Scene(door, {"t4": Rule(3500 * MIB, 60)})
    for model in (None, "vision", "embed", "chat"):
        door.serve(*[model] if model else [])
        scene.rounds(1)
    assert scene.rounds(1) == []
    assert scene.rounds(1) == ["vision"]
    assert scene.rounds(1) == ["vision", "embed"]
    assert scene.rounds(10) == ["vision", "embed"]
    first, second = scene.yields.take()
    assert first == Yielded("t4", "vision", "free-below-floor", "", 200 * MIB, 3500 * MIB, 60.0)
    assert (second.model, second.free, scene.yields.take()) == ("embed", 3200 * MIB, ())
    assert {key[1:]: count for key, count in scene.yields.counts().items() if count} == {
        ("vision", "free-below-floor"): 1,
        ("embed", "free-below-floor"): 1,
    }
    assert len(scene.yields.counts()) == 6


def test_a_model_that_serves_is_passed_over_and_its_own_turn_comes():
    door = Door(["chat", "vision"], free=200)
    door.busy = {"chat"}
    scene = Scene(door)
    assert scene.rounds(IDLE_ROUNDS) == ["vision"]
    assert door.asked == ["chat", "vision"]


def test_one_that_was_unloaded_meanwhile_is_enough_for_this_round():
    door = Door(["chat", "vision"], free=200)
    scene = Scene(door)
    scene.rounds(IDLE_ROUNDS - 1)
    residents = door.residents()
    door.residents = lambda: residents
    door.account = lambda: account(200, models=["chat", "vision"])
    door.models.remove("chat")
    assert scene.rounds(1) == []
    assert door.asked == ["chat"]


def test_while_an_engine_ends_no_other_one_yields():
    door = Door(["chat", "vision"], free=200, vision="stopping")
    assert Scene(door).rounds(20) == []
    door.models.remove("vision")
    assert Scene(door).rounds(IDLE_ROUNDS) == ["chat"]


def test_a_model_that_was_just_loaded_is_not_idle_whenever_it_was_asked_last():
    door = Door(["chat"], free=200, chat="starting")
    door.serve("chat")
    scene = Scene(door)
    scene.rounds(20)
    door.states["chat"] = "ready"
    assert scene.rounds(4) == []
    assert scene.rounds(1) == ["chat"]


@pytest.mark.parametrize("fault", [LlamaSwapUnknown("a test"), RuntimeError("a test")])
def test_a_llama_swap_that_was_silent_may_have_begun_anew(fault):
    door = Door(["chat"], free=200)
    scene = Scene(door)
    scene.rounds(3)
    door.fault = fault
    for _ in range(2):
        with pytest.raises(type(fault)):
            scene.rounds(1)
    door.fault = None
    assert scene.rounds(4) == []
    assert scene.rounds(1) == ["chat"]


@pytest.mark.parametrize("at", ["", "yesterday", "1970-01-01T00:00:00Z", "2199-01-01T00:00:00Z"])
def test_a_clock_that_is_set_makes_no_model_idle_early_or_late(at):
    door = Door(["chat"], free=200)
    scene = Scene(door)
    scene.rounds(IDLE_ROUNDS - 1)
    door.serve("chat", at=at)
    assert scene.rounds(IDLE_ROUNDS - 1) == []
    assert scene.rounds(1) == ["chat"]
    assert inspect.signature(Yields).parameters["clock"].default is time.monotonic


def test_while_more_requests_end_than_are_listed_no_model_is_idle():
    door = Door(["chat"], free=200)
    scene = Scene(door)
    door.serve("embed")
    scene.rounds(IDLE_ROUNDS - 1)
    door.serve("chat", "embed")
    del door.requests_[:2]
    assert scene.rounds(IDLE_ROUNDS - 1) == []
    assert scene.rounds(1) == ["chat"]


def test_without_a_rule_or_a_door_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(module, "ROUND_S", 0.0)
    door = Door(["chat"])
    scene = Scene(door, {})
    threads = threading.active_count()
    with scene.yields.running():
        assert threading.active_count() == threads
    scene = Scene(None)
    scene.yields.run()
    assert scene.yields.take() == ()


def test_rounds_go_on_while_it_runs(monkeypatch):
    monkeypatch.setattr(module, "ROUND_S", 0.0)
    asked_for = threading.Semaphore(0)
    scene = Scene(None)
    scene.yields._find = asked_for.release
    with scene.yields.running():
        assert all(asked_for.acquire(timeout=60) for _ in range(3))


@pytest.mark.parametrize("seed", range(200))
def test_of_random_cards_only_idle_models_yield_in_their_order_and_none_too_many(seed):
    """At each round: what was unloaded was needed, known, idle and the longest idle of those that do not serve."""
    drawn = random.Random(seed)
    rule = Rule(drawn.randrange(1, 5000) * MIB, drawn.randrange(1, 200))
    door = Door(drawn.sample(sorted(SEATS), drawn.randrange(4)), free=drawn.randrange(6000))
    scene = Scene(door, {"t4": rule})
    used = {}
    for _ in range(40):
        served = drawn.sample(door.models, 1) if drawn.random() < 0.3 and door.models else []
        door.serve(*served)
        if drawn.random() < 0.2 and len(door.models) < len(SEATS):
            door.models.append(drawn.choice(sorted(SEATS.keys() - set(door.models))))
        door.busy = {name for name in door.models if drawn.random() < 0.2}
        door.free = max(0, door.free + drawn.randrange(-800, 800))
        scene.options = drawn.choice(
            [{}, {}, {"unknown": "hanging"}, {"ml": None, "waiting": 1}, {"ml": drawn.randrange(3000), "waiting": 1}]
        )
        used = {name: used.get(name, scene.now) if name not in served else scene.now for name in door.models}
        one, count = door.account(**scene.options), len(door.unloaded)
        now = scene.now
        scene.rounds(1)
        unloaded = door.unloaded[count:]
        assert len(unloaded) <= 1
        ready = sorted((at, name) for name, at in used.items() if now - at >= rule.idle_s and name not in door.busy)
        free, left = one.driver and one.driver.free, None
        if one.rows[-1].waiting and one.rows[-1].held is not None:
            left = 2100 * MIB - one.rows[-1].held
        is_needed = free is not None and (free < rule.floor or (left is not None and free < left))
        assert unloaded == ([ready[0][1]] if is_needed and ready else [])
        used = {name: at for name, at in used.items() if name in door.models}


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        ("200 OK", '{"model": "chat", "seconds": 0.2}', True),
        ("409 Conflict", '{"error": {"code": "engine-busy"}}', False),
        ("502 Bad Gateway", '{"error": {"code": "engine-silent"}}', False),
        ("404 Not Found", '{"error": {"code": "not-loaded"}}', None),
    ],
)
def test_the_guard_decides_what_is_unloaded(status, body, found):
    with stub_llama_swap() as stub:
        stub.answer("/engine-yield/chat", f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        door = LlamaSwap(f"http://127.0.0.1:{stub.port}", {"Authorization": "Bearer a"}, is_door=True)
        assert door.unload_idle("chat") is found
        assert stub.requests[0].startswith(b"POST /engine-yield/chat HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("status", "body"),
    [("403 Forbidden", "{}"), ("502 Bad Gateway", '{"error": {"code": "llama-swap-down"}}'), ("502 Bad Gateway", "x")],
)
def test_a_guard_that_does_not_permit_it_or_does_not_know_is_no_end_of_a_model(status, body):
    with stub_llama_swap() as stub:
        stub.answer("/engine-yield/chat", f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        with pytest.raises(LlamaSwapUnknown):
            LlamaSwap(f"http://127.0.0.1:{stub.port}", {}, is_door=True).unload_idle("chat")


def test_a_llama_swap_without_a_guard_unloads_nothing():
    with stub_llama_swap() as stub:
        with pytest.raises(LlamaSwapUnknown, match="Only the guard"):
            LlamaSwap(f"http://127.0.0.1:{stub.port}", {}).unload_idle("chat")
        assert stub.requests == []
