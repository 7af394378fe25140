"""Which build of llama.cpp the server's image runs: by its tag, by its label, or as declared; and what follows."""

from __future__ import annotations

import json

import pytest

from corral.engine.embedded import LLAMA_CPP_BUILD
from corral.errors import CannotRun, Refused
from corral.lock.image_build import LABEL
from corral.vram import rules
from corral.vram.prediction import MIB, Rule
from corral.vram.rules import engine_drift
from tests.support.relocking import FETCH, SWAP, TWO, Registry, codes, edit, edit_lock, locked, stale


def labels(**found):
    """What a registry has to say of labels, and the images that it was asked about."""
    asked = []

    def read(image):
        asked.append(image.tagged)
        return {LABEL: found["version"]} if "version" in found else {}

    read.asked = asked
    return read


def engine_of(folder):
    return json.loads((folder / "lock.json").read_text())["engine"]


def test_without_images_no_build_runs(folder, hub):
    locked(folder, hub)

    assert engine_of(folder) == {"predicts": LLAMA_CPP_BUILD, "runs": None, "known_by": None}


def test_a_tag_names_the_build_without_a_request(folder, hub, images):
    read = labels()
    locked(folder, hub, image_digest=Registry(), image_labels=read)

    assert engine_of(folder) == {"predicts": LLAMA_CPP_BUILD, "runs": LLAMA_CPP_BUILD, "known_by": "tag"}
    assert read.asked == []


def test_a_label_names_the_build_and_is_read_once(folder, hub, images):
    images(swap="ghcr.io/org/swap:stable")
    read = labels(version="b11063")
    for _ in range(2):
        locked(folder, hub, image_digest=Registry(), image_labels=read)

    assert engine_of(folder) == {"predicts": LLAMA_CPP_BUILD, "runs": "b11063", "known_by": "label"}
    assert read.asked == ["ghcr.io/org/swap:stable"]

    locked(folder, hub, image_digest=Registry(TWO), image_labels=read, upgrade_images=["llama-swap"])
    assert len(read.asked) == 2, "another digest may be another build"


@pytest.mark.parametrize("version", [{}, {"version": "v252"}])
def test_an_unknown_build_is_refused_with_the_line_that_declares_it(folder, hub, images, version):
    images(swap="ghcr.io/org/swap:stable")

    with pytest.raises(Refused, match=r"neither the tag of ghcr\.io/org/swap:stable nor its label") as caught:
        locked(folder, hub, image_digest=Registry(), image_labels=labels(**version))

    assert "llama-cpp-build: bNNNNN" in caught.value.next_step
    assert not (folder / "lock.json").exists()


def test_where_the_registry_does_not_answer_a_declaration_is_the_way_out(folder, hub, images):
    images(swap="ghcr.io/org/swap:stable")

    def silent(image):
        raise CannotRun("The registry ghcr.io does not answer: timed out.", next_step="Check the network")

    with pytest.raises(CannotRun, match="does not answer") as caught:
        locked(folder, hub, image_digest=Registry(), image_labels=silent)
    assert "llama-cpp-build: bNNNNN" in caught.value.next_step

    declare(folder, "b11063")
    locked(folder, hub, image_digest=Registry(), image_labels=silent)
    assert engine_of(folder) == {"predicts": LLAMA_CPP_BUILD, "runs": "b11063", "known_by": "declared"}


def declare(folder, build):
    file = folder / "images.yaml"
    file.write_text(f"{file.read_text()}llama-cpp-build: {build}\n")


def test_a_declaration_against_the_tag_is_refused(folder, hub, images):
    declare(folder, "b11063")

    with pytest.raises(
        Refused, match=rf"declares llama-cpp-build b11063, and the tag of {SWAP} names {LLAMA_CPP_BUILD}"
    ):
        locked(folder, hub, image_digest=Registry())


def test_upstreams_image_beside_llama_swaps_own_is_the_one_that_counts(folder, hub, images):
    (folder / "images.yaml").write_text(
        f"llama-swap: {SWAP}\nllama-server: ghcr.io/ggml-org/llama.cpp:server-cuda-b11063\nfetch: {FETCH}@{TWO}\n"
    )
    locked(folder, hub, image_digest=Registry())

    assert engine_of(folder)["runs"] == "b11063"


def test_a_lock_of_an_older_corral_is_stale(folder, hub, images):
    locked(folder, hub, image_digest=Registry())
    edit_lock(folder, lambda document: document.pop("engine"))

    assert stale(folder) == {"lock.json": f"does not compare the engine of its image with {LLAMA_CPP_BUILD}"}
    assert codes(folder) == {"lock.json": "engine"}


def test_a_seat_without_the_row_that_the_image_requires_is_stale(folder, hub, images, monkeypatch):
    locked(folder, hub, image_digest=Registry())
    assert codes(folder) == {}
    row = Rule(name="engine-drift", bytes=MIB, source="a test")
    monkeypatch.setattr(rules, "engine_drift", lambda gpu, runs: engine_drift(gpu, runs) or row)

    assert codes(folder) == {"text": "rules", "vision": "rules"}


def test_an_image_with_another_build_makes_predictions_anew_only_where_the_row_changes(
    folder, hub, images, engine, monkeypatch
):
    locked(folder, hub, engine, image_digest=Registry())
    engine.requests.clear()
    images(swap="ghcr.io/org/swap:v1-b11063")
    locked(folder, hub, engine, image_digest=Registry())
    assert engine.requests == [], "b11063 takes no more than the pinned build"

    monkeypatch.setattr(rules, "LLAMA_CPP_BUILD", "b11063")
    images(swap=f"ghcr.io/org/swap:v1-{LLAMA_CPP_BUILD}")
    locked(folder, hub, engine, image_digest=Registry())
    assert engine.requests == ["text", "vision"]


def test_a_flag_that_the_image_lacks_is_refused_by_name(folder, hub, images):
    edit(folder, "text", "card: t4", "card: t4\nargs: {n-cpu-ffn: 2}")
    images(swap="ghcr.io/org/swap:v1-b10229")

    with pytest.raises(
        Refused, match=r"text: its command line has flags that .*--n-cpu-ffn: b10229 does not"
    ) as caught:
        locked(folder, hub, image_digest=Registry())
    assert "Remove n-cpu-ffn from text.yaml" in caught.value.next_step

    images(swap=f"ghcr.io/org/swap:v1-{LLAMA_CPP_BUILD}")
    locked(folder, hub, image_digest=Registry())


def test_the_command_lines_that_corral_makes_are_known_to_every_build_that_images_have(folder, hub, images):
    for build in ("b10566", "b10775", "b11063"):
        images(swap=f"ghcr.io/org/swap:v1-{build}")
        locked(folder, hub, image_digest=Registry())
