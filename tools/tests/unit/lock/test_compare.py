"""What is different between two locks, as fields and in words."""

from __future__ import annotations

import copy

import pytest

from corral.agent.lock_file import LockedFile
from corral.catalog import catalog as catalogs
from corral.catalog.ledger import OnCard
from corral.lock.compare import Difference, compare
from corral.lock.lock import Lock, Seat
from corral.vram.prediction import MIB
from tests.support.locked_catalog import SMALLEST_INTENT, entry, lock_of, prediction, write_sources

TENANT = {"budget_mib": 900, "namespace": "frigate", "selector": "app=frigate"}
CARD = {"vram_mib": 8192, "tenants": {"frigate": TENANT}}
CLIENTS = {"desk": {"requests": 2}}
IMAGES = {"fetch": f"python:3.13-slim@sha256:{'1' * 64}"}


@pytest.fixture
def locked(tmp_path):
    """Locks a catalog of one model, `m`, in which *intent*, *card*, *images* and *clients* are different."""

    def lock(name="one", *, card=None, images=None, clients=None, without=(), **intent) -> Lock:
        model = {key: value for key, value in (SMALLEST_INTENT | intent).items() if key not in without}
        cards = {"laptop": copy.deepcopy(CARD) | (card or {})}
        files = {"images": images or IMAGES, "clients": {"clients": CLIENTS if clients is None else clients}}
        folder = write_sources(tmp_path / name, {"m": model}, cards, **files)
        return lock_of(catalogs.load(folder))

    return lock


def with_entry(lock, **changes):
    return lock.model_copy(update={"models": {"m": lock.models["m"].model_copy(update=changes)}})


def model_in(changes):
    return next(change for change in changes if change.about == "model")


def test_nothing_is_different_between_a_lock_and_itself(locked):
    changes = compare(locked(), locked("two"))

    assert [(change.about, change.name, change.kind) for change in changes] == [
        ("model", "m", "unchanged"),
        ("card", "laptop", "unchanged"),
        ("client", "desk", "unchanged"),
        ("image", "fetch", "unchanged"),
    ]
    assert [change.details for change in changes] == [()] * 4


def test_everything_of_a_first_lock_is_added_and_of_a_last_one_removed(locked):
    lock = locked()

    added, removed = compare(None, lock), compare(lock, None)

    assert [change.kind for change in added] == ["added"] * 4
    assert [change.kind for change in removed] == ["removed"] * 4
    assert added[0].details == ("+ model.gguf (model, 1,048,576 bytes)", "seat 100 MiB")
    assert removed[0].details == ("- model.gguf", "seat 100 MiB")
    assert added[1].details[:3] == ("vram_mib 8192", "reserve_mib 512", "tenants.frigate.budget_mib 900")
    assert added[1].details == removed[1].details
    assert added[2].details == ("models all", "requests 2")
    assert added[3].details == (IMAGES["fetch"],)
    assert [change.subject for change in added] == ["m", "card laptop", "client desk", "image fetch"]


def test_another_commit_of_the_repository_is_an_upgrade(locked):
    old = locked()
    file = LockedFile("model.gguf", "model", 5, "f" * 64)
    new = with_entry(old, revision="b" * 40, files=(file,), licence="mit")

    change = model_in(compare(old, new))

    was = old.models["m"]
    assert change.kind == "upgraded"
    assert change.differences == (
        Difference("licence", "", "apache-2.0", "mit"),
        Difference("revision", "", was.revision, "b" * 40),
        Difference("file", "model.gguf", was.files[0], file),
    )
    assert change.details == (
        "licence apache-2.0 → mit",
        f"revision {was.revision[:12]} → bbbbbbbbbbbb",
        f"~ model.gguf: 1,048,576 → 5 bytes, {was.files[0].sha256[:12]} → ffffffffffff",
    )


def test_another_context_shows_in_argv_intent_and_seat(locked):
    old = locked()
    new = locked("two", context=1024)
    new = with_entry(new, predicted=prediction(200 * MIB))

    change = model_in(compare(old, new))

    assert change.kind == "changed"
    assert [(one.field, one.key) for one in change.differences] == [("argv", ""), ("intent", "context"), ("seat", "")]
    assert change.differences[2] == Difference("seat", "", Seat(100 * MIB, "predicted"), Seat(200 * MIB, "predicted"))
    assert change.details == ("argv 512 → 1024", "context 512 → 1024", "seat 100 MiB → 200 MiB")


@pytest.mark.parametrize(
    ("intent", "details"),
    [
        ({"ttl": 60}, ("ttl 600 → 60",)),
        ({"aliases": ["a", "b"]}, ("aliases none → a, b",)),
        ({"group": "side"}, ("group main → side",)),
        ({"smoke": {"prompt": "Hi?"}}, ("smoke.prompt none → Hi?",)),
        ({"source": {"repo": "example/tiny-GGUF", "quant": "Q8_0"}}, ("source.quant F16 → Q8_0",)),
        ({"args": {"swa-full": True}}, ("argv nothing → --swa-full", "args.swa-full none → True")),
        (
            {"vram": {"declared_mib": 7000, "why": "measured"}},
            ("vram.declared_mib none → 7000", "vram.why none → measured", "seat 100 MiB → 7,000 MiB declared"),
        ),
    ],
)
def test_every_key_of_the_intent_is_compared(locked, intent, details):
    assert model_in(compare(locked(), locked("two", **intent))).details == details


def test_a_budget_of_latency_is_named_by_its_consumer(locked):
    desk, tv = (
        {"consumer": name, "prompt_tokens": 300, "answer_tokens": 100, "p95_seconds": 4.5} for name in ("desk", "tv")
    )
    clients = {"desk": {"requests": 2}, "tv": {"requests": 2}}
    old = locked(latency=[tv, desk], clients=clients)

    assert model_in(compare(old, locked("two", latency=[desk, tv], clients=clients))).kind == "unchanged"
    faster = locked("three", latency=[tv, desk | {"p95_seconds": 3}], clients=clients)
    assert model_in(compare(old, faster)).details == ("latency.desk.p95_seconds 4.5 → 3.0",)
    without = locked("four", latency=[desk], clients=clients)
    assert "latency.tv.p95_seconds 4.5 → none" in model_in(compare(old, without)).details


def test_a_measurement_shows_as_another_seat(locked):
    old = locked()
    facts = {"device": "Tesla T4", "source": "nvidia-smi", "engine": "b1", "date": "2026-11-21T00:00:00Z"}
    new = with_entry(old, measured=OnCard(gpu_bytes=120 * MIB, **facts))

    change = model_in(compare(old, new))

    assert (change.kind, change.details) == ("changed", ("seat 100 MiB → 120 MiB measured",))


def test_a_prediction_by_another_engine_with_the_same_seat_is_a_change(locked):
    old = locked()
    new = with_entry(old, predicted=prediction(100 * MIB, engine="b2"))

    change = model_in(compare(old, new))

    assert (change.kind, change.details) == ("changed", ("predicted anew by b2",))


def test_a_tenant_and_a_budget_are_named_by_their_keys(locked):
    old = locked()
    more = {"frigate": TENANT | {"budget_mib": 1200}, "photos": {"budget_mib": 5}}

    change = next(one for one in compare(old, locked("two", card={"tenants": more})) if one.about == "card")

    assert change.kind == "changed"
    assert change.differences[0] == Difference("card", "tenants.frigate.budget_mib", 900, 1200)
    assert change.details == ("tenants.frigate.budget_mib 900 → 1200", "tenants.photos.budget_mib none → 5")
    assert (
        "tenants.frigate.selector app=frigate → none"
        in next(one for one in compare(old, locked("three", card={"tenants": {}})) if one.about == "card").details
    )


@pytest.mark.parametrize(
    ("image", "kind"),
    [(f"python:3.13-slim@sha256:{'2' * 64}", "upgraded"), (f"python:3.14-slim@sha256:{'2' * 64}", "changed")],
)
def test_another_digest_of_a_tag_is_an_upgrade_and_another_tag_a_change(locked, image, kind):
    change = compare(locked(), locked("two", images={"fetch": image}))[-1]

    assert (change.kind, change.details) == (kind, (f"{IMAGES['fetch']} → {image}",))


def test_a_client_is_named_with_what_its_key_permits(locked):
    wanted = {"desk": {"requests": 4, "models": ["m"]}, "photos": {"requests": 1, "description": "captions"}}

    changes = compare(locked(), locked("two", clients=wanted))

    assert [(one.name, one.kind, one.details) for one in changes if one.about == "client"] == [
        ("desk", "changed", ("models all → m", "requests 2 → 4")),
        ("photos", "added", ("models all", "requests 1", "description captions")),
    ]


def test_models_come_by_name_whether_they_went_or_came(locked):
    old, new = locked(), locked("two")
    new = new.model_copy(update={"models": {"z": new.models["m"], "a": entry("a", new.models["m"].intent)}})

    assert [(change.name, change.kind) for change in compare(old, new)][:3] == [
        ("a", "added"),
        ("m", "removed"),
        ("z", "added"),
    ]


def test_a_card_that_yields_is_named_with_its_floor_and_one_that_does_not_any_more_too(locked):
    rule = {"yield": {"floor_mib": 1024}}
    begins = next(one for one in compare(locked(), locked("two", card=rule)) if one.about == "card")
    ends = next(one for one in compare(locked("three", card=rule), locked("four")) if one.about == "card")
    assert begins.details == ("yield.floor_mib none → 1024", "yield.idle_seconds none → 60")
    assert ends.details == ("yield.floor_mib 1024 → none", "yield.idle_seconds 60 → none")
