"""The parts of an upgrade that need no clone: the image, the flags, the versions, and answers that are others."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.errors import CannotRun, Failed, Refused
from corral.upgrade import golden_answers, wheels
from corral.upgrade.engine import flag_changes, move_image
from corral.upgrade.trial import Finished

ONE = f"sha256:{'1' * 64}"


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        (
            "llama-server: ghcr.io/ggml-org/llama.cpp:server-cuda-b11063",
            "ghcr.io/ggml-org/llama.cpp:server-cuda-b11549",
        ),
        (f"llama-server: registry:5000/llama:b11063-mine@{ONE} # ours", "registry:5000/llama:b11549-mine"),
    ],
)
def test_the_engines_own_image_moves_and_all_else_in_the_file_stays(tmp_path, text, moved):
    file = tmp_path / "images.yaml"
    file.write_text(f"# images\nllama-swap: swap:v1-b11063\n{text}\nfetch: python:3.13-slim@{ONE}\n")

    was, now = move_image(file, "b11549")

    assert now == moved
    rest = text.split(was)[1].replace(f"@{ONE}", "")
    assert file.read_text() == (
        f"# images\nllama-swap: swap:v1-b11063\nllama-server: {moved}{rest}\nfetch: python:3.13-slim@{ONE}\n"
    )


@pytest.mark.parametrize(
    "text", ["llama-swap: swap:v1-b11063\n", "llama-server: llama:b11549\n", "llama-server: llama:stable\n", None]
)
def test_without_an_image_of_another_build_nothing_moves(tmp_path, text):
    file = tmp_path / "images.yaml"
    if text:
        file.write_text(text)

    assert move_image(file, "b11549") is None
    assert (file.read_text() if text else None) == text


def test_the_flags_that_change_are_named_with_their_defaults():
    before = "-a,    --alpha N   what (default: 1)\n--beta              gone\n--delta N            same (default: 5)\n"
    after = "-a,    --alpha N   what (default: 2)\n--gamma             new\n--delta N            same (default: 5)\n"

    found = flag_changes(before, after)

    assert (found.gone, found.new) == (("beta",), ("gamma",))
    assert dict(found.defaults) == {"alpha": ("1", "2")}


def test_the_newest_wheel_is_the_one_with_the_largest_build():
    assert wheels.choose(["2026.9.11063", "2026.10.11549", "2026.8.10566"], None) == "2026.10.11549"


def test_an_index_without_a_wheel_for_this_machine_is_an_error():
    with pytest.raises(Refused, match="no xllamacpp wheel for this machine"):
        wheels.choose([], None)


class Corral:
    """Stands in for the corral of one side: an engine that answers otherwise is none of the wheels here."""

    def __init__(self, **codes):
        self.codes, self.ran = codes, []

    def __call__(self, *words, variables):
        name = " ".join(map(str, words[:2])) if words[0] == "golden" else str(words[0])
        self.ran.append(name)
        return Finished(self.codes.get(name.replace(" ", "_"), 0), f"{name} prints", "")


CATALOG, STORE, ENGINE = Path("/catalog"), Path("/store"), Path("/engine")


def test_another_answer_after_the_change_blocks_with_the_differences():
    corral = Corral(golden_check=1)

    with pytest.raises(Failed, match="golden check prints"):
        golden_answers.check_after(corral, CATALOG, STORE, ENGINE, accept=False)
    assert corral.ran == ["up", "golden check", "down"]


def test_another_answer_that_is_accepted_becomes_the_record():
    corral = Corral(golden_check=1)

    assert golden_answers.check_after(corral, CATALOG, STORE, ENGINE, accept=True) == "golden check prints"
    assert corral.ran == ["up", "golden check", "golden record", "down"]


def test_a_record_that_the_present_engine_does_not_keep_is_refused_before_anything_moves(tmp_path):
    (tmp_path / "golden.json").write_text("{}")
    corral = Corral(golden_check=1)

    with pytest.raises(Refused, match="The present engine already answers otherwise"):
        golden_answers.record_before(corral, tmp_path, STORE, ENGINE)
    assert corral.ran == ["up", "golden check", "down"]


def test_without_a_record_one_is_made_of_the_present_engine(tmp_path):
    corral = Corral()

    assert golden_answers.record_before(corral, tmp_path, STORE, ENGINE)
    assert corral.ran == ["up", "golden record", "down"]


def test_a_stack_that_does_not_start_is_ended_and_named():
    corral = Corral(up=3)

    with pytest.raises(CannotRun, match="no local stack starts"):
        golden_answers.check_after(corral, CATALOG, STORE, ENGINE, accept=False)
    assert corral.ran == ["up", "down"]
