"""The images of the cluster in the lock: at a digest, which is read from the registry once."""

from __future__ import annotations

import json

import pytest

from corral.agent.lock_file import read_lock
from corral.engine.embedded import LLAMA_CPP_BUILD
from corral.errors import CannotRun
from tests.support.relocking import (
    FETCH,
    ONE,
    SWAP,
    TWO,
    Registry,
    codes,
    locked,
    stale,
)


def test_a_tag_is_locked_at_its_digest_and_a_digest_as_it_is(folder, hub, images):
    registry = Registry()

    changes = locked(folder, hub, image_digest=registry)

    document = json.loads((folder / "lock.json").read_text())
    assert document["images"] == {"fetch": f"{FETCH}@{TWO}", "llama-swap": f"{SWAP}@{ONE}"}
    assert registry.requests == [SWAP]
    assert (changes["llama-swap"].kind, changes["llama-swap"].details) == ("added", (f"{SWAP}@{ONE}",))
    assert changes["llama-swap"].subject == "image llama-swap"
    assert stale(folder) == {}


def test_the_agent_passes_over_the_images(folder, hub, images):
    locked(folder, hub, image_digest=Registry())

    assert list(read_lock(folder / "lock.json").models) == ["text", "vision"]


def test_an_unchanged_image_is_not_requested_again_until_it_is_upgraded(folder, hub, images):
    locked(folder, hub, image_digest=Registry())
    registry = Registry(TWO)

    assert locked(folder, hub, image_digest=registry)["llama-swap"].kind == "unchanged"
    assert registry.requests == []

    changes = locked(folder, hub, image_digest=registry, upgrade_images=["llama-swap", "fetch"])
    assert registry.requests == [SWAP]
    assert changes["llama-swap"].kind == "upgraded"
    assert changes["llama-swap"].details == (f"{SWAP}@{ONE} → {SWAP}@{TWO}",)


def test_another_tag_is_stale_and_requested(folder, hub, images):
    locked(folder, hub, image_digest=Registry())
    images(swap=f"ghcr.io/org/swap:v2-{LLAMA_CPP_BUILD}")

    assert codes(folder) == {"images.yaml": "changed"}
    assert locked(folder, hub, image_digest=Registry(TWO))["llama-swap"].kind == "changed"
    assert stale(folder) == {}


def test_another_digest_in_the_catalog_is_taken_as_it_is(folder, hub, images):
    locked(folder, hub, image_digest=Registry())
    images(fetch=f"{FETCH}@{ONE}")
    registry = Registry()

    assert locked(folder, hub, image_digest=registry)["fetch"].details == (f"{FETCH}@{TWO} → {FETCH}@{ONE}",)
    assert registry.requests == []


def test_an_image_of_a_lock_that_cannot_be_trusted_is_requested_again(folder, hub, images):
    locked(folder, hub, image_digest=Registry())
    (folder / "lock.json").write_text((folder / "lock.json").read_text() + " ")
    registry = Registry(TWO)

    locked(folder, hub, image_digest=registry)

    assert registry.requests == [SWAP]


def test_images_without_an_intent_leave_the_lock(folder, hub, images):
    locked(folder, hub, image_digest=Registry())
    (folder / "images.yaml").unlink()

    assert codes(folder) == {"images.yaml": "removed"}
    changes = locked(folder, hub)
    assert (changes["fetch"].kind, changes["fetch"].about) == ("removed", "image")
    assert json.loads((folder / "lock.json").read_text())["images"] == {}


def test_an_image_without_a_response_leaves_the_lock_as_it_was(folder, hub, images):
    def away(image):
        raise CannotRun(f"The registry of {image.name} sends no response.", next_step="Check the network")

    with pytest.raises(CannotRun, match=r"  image llama-swap: The registry of ghcr\.io/org/swap sends no response"):
        locked(folder, hub, image_digest=away)

    assert not (folder / "lock.json").exists()
