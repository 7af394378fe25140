"""Relocking: only what changed is resolved and predicted again."""

from __future__ import annotations

import json

import pytest

from corral.catalog import catalog, ledger
from corral.catalog.ledger import Ledger, Measurement, argv_sha256
from corral.errors import CannotRun, EngineCannotPredict, HubUnavailable, HubUnreachable, LockStale, Refused
from corral.lock import lock
from corral.lock.relock import resolve_on_hub, with_measurements, write_measurements
from tests.support.relocking import (
    COMMIT,
    NEXT,
    Engine,
    codes,
    edit,
    edit_lock,
    locked,
    stale,
)


def test_a_fresh_lock_sends_no_request_to_the_hub(folder, hub):
    locked(folder, hub)
    hub.requests.clear()

    changes = locked(folder, hub)

    assert hub.requests == []
    assert {change.kind for change in changes.values()} == {"unchanged"}


@pytest.mark.parametrize("edited", ["models/text.yaml", "cards/t4.yaml"])
def test_a_comment_makes_a_lock_stale_and_relocking_sends_no_request(folder, hub, engine, edited):
    locked(folder, hub, engine)
    (folder / edited).write_text((folder / edited).read_text() + "# the only one\n")
    assert stale(folder) == {edited: "has changed since it was locked"}
    assert codes(folder) == {edited: "changed"}
    hub.requests.clear()
    engine.requests.clear()

    changes = locked(folder, hub, engine)

    assert (hub.requests, engine.requests) == ([], [])
    assert {change.kind for change in changes.values()} == {"unchanged"}
    assert stale(folder) == {}


def test_a_longer_life_changes_the_lock_without_a_request_to_the_hub(folder, hub):
    locked(folder, hub)
    edit(folder, "text", "card: t4", "card: t4\nttl: 60")
    hub.requests.clear()

    changes = locked(folder, hub)

    assert hub.requests == []
    assert (changes["text"].kind, changes["text"].details) == ("changed", ("ttl 600 → 60",))
    assert stale(folder) == {}


def test_a_changed_context_changes_the_command_line(folder, hub):
    locked(folder, hub)
    edit(folder, "text", "context: 4096", "context: 8192")

    assert locked(folder, hub)["text"].details[0] == "argv 4096 → 8192"


def test_only_a_changed_source_is_resolved_by_the_hub_again(folder, hub):
    locked(folder, hub)
    hub.requests.clear()
    edit(folder, "text", "org/text", "org/other")

    changes = locked(folder, hub)

    assert hub.requests == [("org/other", None)]
    assert "repo org/text → org/other" in changes["text"].details


def test_a_model_that_begins_to_see_stays_on_its_commit(folder, hub):
    locked(folder, hub)
    hub.requests.clear()
    hub.head = NEXT
    edit(folder, "text", "[text]", "[text, image]")

    locked(folder, hub)

    assert hub.requests == [("org/text", COMMIT)]


def test_a_new_commit_is_taken_only_with_upgrade(folder, hub):
    locked(folder, hub)
    hub.head = NEXT
    assert {change.kind for change in locked(folder, hub).values()} == {"unchanged"}

    changes = locked(folder, hub, upgrade=["text"])

    assert changes["text"].kind == "upgraded"
    assert changes["text"].details == (
        f"revision {COMMIT[:12]} → {NEXT[:12]}",
        "~ m-Q4_K_M.gguf: 100 → 100 bytes, aaaaaaaaaaaa → bbbbbbbbbbbb",
    )
    assert changes["vision"].kind == "unchanged"


def test_a_removed_model_leaves_the_lock(folder, hub):
    locked(folder, hub)
    (folder / "models" / "text.yaml").unlink()
    assert codes(folder) == {"models/text.yaml": "removed"}

    assert locked(folder, hub)["text"].kind == "removed"
    assert stale(folder) == {}


def test_what_does_not_touch_the_command_line_is_not_predicted_again(folder, hub, engine):
    locked(folder, hub, engine)
    assert engine.requests == ["text", "vision"]
    engine.requests.clear()
    edit(folder, "text", "card: t4", "card: t4\nttl: 60")

    locked(folder, hub, engine)

    assert engine.requests == []
    assert stale(folder) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("4096", "8192"),
        ("card: t4", "card: t4\nparallel: 2"),
        ("card: t4", "card: t4\nargs: {cache-type-k: q8_0}"),
        ("org/text", "org/other"),
    ],
    ids=["context", "parallel", "cache type", "source"],
)
def test_what_changes_what_is_taken_is_predicted_again(folder, hub, engine, old, new):
    locked(folder, hub, engine)
    engine.requests.clear()
    hub.head = NEXT
    edit(folder, "text", old, new)

    locked(folder, hub, engine)

    assert engine.requests == ["text"]
    assert stale(folder) == {}


def test_files_of_a_new_commit_are_predicted_again(folder, hub, engine):
    locked(folder, hub, engine)
    engine.requests.clear()
    hub.head = NEXT

    locked(folder, hub, engine, upgrade=["text"])

    assert engine.requests == ["text"]


def test_a_declaration_is_taken_over_without_a_prediction_and_must_cover_the_prediction(folder, hub, engine):
    locked(folder, hub, engine)
    engine.requests.clear()
    edit(folder, "text", "card: t4", "card: t4\nvram: {declared_mib: 9, why: measured}")

    assert locked(folder, hub, engine)["text"].details == (
        "vram.declared_mib none → 9",
        "vram.why none → measured",
        "seat 1 MiB → 9 MiB declared",
    )
    assert engine.requests == []

    def heavy(document):
        parts = document["models"]["text"]["predicted"]
        parts["gpu"]["weights"] = parts["gpu_bytes"] = 10 << 20
        document["models"]["text"]["intent"]["vram"] = None

    edit_lock(folder, heavy)
    with pytest.raises(Refused, match=r"declares 9 MiB, and the engine predicts 10 MiB .*models/text\.yaml:3"):
        locked(folder, hub, engine)


def test_an_unpredicted_model_without_its_declaration_is_predicted_again(folder, hub, engine):
    edit(folder, "text", "card: t4", "card: t4\nvram: {declared_mib: 9, why: measured}")
    locked(folder, hub, engine)
    nothing = {"gpu": None, "host": None, "gpu_bytes": None, "unmeasured": "it crashed"}
    edit_lock(folder, lambda document: document["models"]["text"]["predicted"].update(nothing))
    engine.requests.clear()
    assert locked(folder, hub, engine)["text"].kind == "unchanged"
    assert engine.requests == []

    edit(folder, "text", "vram: {declared_mib: 9, why: measured}", "")
    locked(folder, hub, engine)

    assert engine.requests == ["text"]


def measurement(argv, **more):
    facts = {"model": "text", "argv_sha256": argv_sha256(argv), "engine": "b11549", "device": "Tesla T4"}
    facts |= {"source": "nvidia-smi", "date": "2026-11-21T00:00:00Z", "gpu_bytes": 5 << 20, "host_bytes": None}
    return Measurement(**facts | {"predicted_gpu_bytes": 1, "predicted_host_bytes": None} | more)


def test_the_largest_measurement_on_a_card_for_exactly_this_argv_is_locked_offline(folder, hub, engine):
    locked(folder, hub, engine)
    argv = lock.read(folder / "lock.json").models["text"].argv
    records = (
        measurement(argv),
        measurement(argv, gpu_bytes=7 << 20, device="Tesla P4"),
        measurement(argv, gpu_bytes=9 << 20, device="Intel(R) CPU"),
        measurement([*argv, "--swa-full"], gpu_bytes=11 << 20),
        measurement(argv, gpu_bytes=13 << 20, model="vision"),
    )
    ledger.write(folder, Ledger(measurements=records))
    assert codes(folder) == {"measured.json": "added"}
    hub.requests.clear()
    engine.requests.clear()

    changes = locked(folder, hub, engine)

    assert (hub.requests, engine.requests) == ([], [])
    facts = {"gpu_bytes": 7 << 20, "device": "Tesla P4", "source": "nvidia-smi", "engine": "b11549"}
    entries = json.loads((folder / "lock.json").read_text())["models"]
    assert entries["text"]["measured"] == facts | {"date": "2026-11-21T00:00:00Z"}
    assert entries["vision"]["measured"] is None
    assert changes["text"].details == ("seat 1 MiB → 7 MiB measured",)
    ledger.path_of(folder).unlink()
    assert codes(folder) == {"measured.json": "removed"}


def test_a_measurement_is_taken_over_without_anything_else(folder, hub):
    """As `corral measure` does: not even a file on disk is hashed for it."""
    locked(folder, hub)
    present = lock.read(folder / "lock.json")
    ledger.write(folder, Ledger(measurements=(measurement(present.models["text"].argv),)))

    lock.write(folder / "lock.json", with_measurements(present, catalog.load(folder)))

    assert stale(folder) == {}
    quick = (folder / "lock.json").read_bytes()
    locked(folder, hub)
    assert (folder / "lock.json").read_bytes() == quick


@pytest.mark.parametrize("change", ["a card", "the model, locked again", "the lock, edited"])
def test_a_measurement_is_not_taken_into_another_lock_than_the_measured_one(folder, hub, change):
    locked(folder, hub)
    path = folder / "lock.json"
    measured = lock.read(path).models["text"]
    if change == "a card":
        card = next((folder / "cards").glob("*.yaml"))
        card.write_text(f"{card.read_text()}\n# another\n")
        why, left = f"cards/{card.name} has changed since it was locked", {f"cards/{card.name}": "changed"}
    elif change == "the model, locked again":
        edit(folder, "text", "context: ", "context: 1")
        locked(folder, hub)
        why, left = "has another entry for text than was measured", {}
    else:
        path.write_text(path.read_text().replace('"licence": ', '"licence":  '))
        why, left = "its seal does not match", {"lock.json": "seal"}
    before = path.read_bytes()
    found = Ledger(measurements=(measurement(measured.argv),))

    with pytest.raises(LockStale, match=why) as caught:
        write_measurements(folder, "text", measured, found)

    assert caught.value.next_step == f"corral lock --catalog {folder}"
    assert path.read_bytes() == before
    assert ledger.read(folder) == found
    assert codes(folder) == left | ({} if "lock.json" in left else {"measured.json": "added"})


def test_no_source_but_the_ledger_is_sealed_with_a_measurement(folder, hub):
    locked(folder, hub)
    present = lock.read(folder / "lock.json")
    edit(folder, "text", "context: ", "context: 1")
    ledger.write(folder, Ledger(measurements=(measurement(present.models["text"].argv),)))

    lock.write(folder / "lock.json", with_measurements(present, catalog.load(folder)))

    assert codes(folder) == {"models/text.yaml": "changed"}


def test_all_models_that_cannot_be_predicted_are_named_together(folder, hub):
    class Broken(Engine):
        def predict(self, model_id, model, resolved, argv, known=(), runs=None):
            raise EngineCannotPredict(f"no {model_id}", next_step="declare it")

    with pytest.raises(Refused, match="text: no text\n  vision: no vision") as caught:
        locked(folder, hub, Broken(folder))
    assert caught.value.next_step == "declare it"
    assert not (folder / "lock.json").exists()


def test_one_model_that_cannot_be_resolved_leaves_the_lock_as_it_was(folder, hub):
    locked(folder, hub)
    before = (folder / "lock.json").read_bytes()
    edit(folder, "text", "4096", "8192")
    edit(folder, "vision", "org/vision", "org/gone")

    def failing(model, directory, commit):
        raise Refused("There is no repository org/gone.", next_step="Correct source.repo")

    with pytest.raises(Refused, match="vision: There is no repository org/gone"):
        locked(folder, failing)
    assert (folder / "lock.json").read_bytes() == before


def test_a_hub_that_is_away_is_not_the_catalogs_fault(folder):
    def away(model, directory, commit):
        raise HubUnavailable("the hub sends no response")

    with pytest.raises(CannotRun):
        locked(folder, away)


def test_an_unreachable_hub_is_reported_once_for_all_models(folder):
    calls = []

    def unreachable(model, directory, commit):
        calls.append(model)
        raise HubUnreachable("https://hub.example", "connection refused")

    with pytest.raises(
        CannotRun, match=r"  all models: The hub at https://hub\.example is unreachable: conn"
    ) as caught:
        locked(folder, unreachable)
    assert caught.value.next_step == "Check the network and HF_ENDPOINT, then: corral lock"
    assert len(calls) == 1


@pytest.mark.parametrize("harm", ["gone", "longer"])
def test_a_model_on_disk_that_has_changed_is_stale_and_hashed_again(folder, harm):
    file = folder / "m.gguf"
    file.write_bytes(b"first")
    edit(folder, "text", "{repo: org/text, quant: Q4_K_M}", "{path: m.gguf}")
    (folder / "models" / "vision.yaml").unlink()
    locked(folder, resolve_on_hub)
    assert stale(folder) == {}
    assert locked(folder, resolve_on_hub)["text"].kind == "unchanged"

    if harm == "gone":
        file.unlink()
        assert "there is no file" in stale(folder)["text"]
        return
    file.write_bytes(b"second")
    assert "has 6 bytes, not 5" in stale(folder)["text"]
    assert locked(folder, resolve_on_hub)["text"].kind == "changed"
    assert stale(folder) == {}
