"""Which flags the engine's count covers: a flag that takes memory elsewhere is refused by name."""

from __future__ import annotations

import pytest

from corral.catalog import flags
from corral.errors import EngineCannotPredict
from corral.vram.oracle import ask
from corral.vram.server_flags import uncounted, without_side_effects

PLAIN = ["llama-server", "-m", "${STORE}/m/model.gguf", "-c", "4096", "-np", "1", "-ngl", "99", "-fa", "on"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--control-vector", "/a.gguf"], "--control-vector"),
        (["--spec-type", "draft-mtp"], "--spec-type"),
        (["--spec-default"], "--spec-default"),
        (["--spec-ngram-mod-n-match", "4"], "--spec-ngram-mod-n-match"),
        (["--rpc", "host:1"], "--rpc"),
        (["--device", "CUDA1"], "--device"),
        (["-dev", "CUDA1"], "-dev"),
        (["--split-mode", "row"], "--split-mode"),
        (["-ts", "1,1"], "-ts"),
        (["--main-gpu", "1"], "--main-gpu"),
        (["--backend-sampling"], "--backend-sampling"),
        (["--moe-cache-mib", "64"], "--moe-cache-mib"),
    ],
)
def test_a_flag_that_takes_memory_of_its_own_is_refused_by_name(words, named):
    assert uncounted([*PLAIN, *words]).startswith(f"{named} is not counted")
    with pytest.raises(EngineCannotPredict, match=f"{named} is not counted") as error:
        ask([], [[*PLAIN, *words]])
    assert "declared_mib" in error.value.next_step


@pytest.mark.parametrize(
    "words",
    [
        ["--spec-type", "none"],
        ["--spec-type", "draft-simple", "-md", "/d.gguf", "--spec-draft-ngl", "99", "--spec-draft-n-max", "8"],
        ["--spec-draft-type-k", "q8_0", "--spec-draft-type-v", "q8_0"],
        ["--lora", "/a.gguf,/b.gguf"],
        ["--lora-scaled", "/a.gguf:0.5"],
        ["--split-mode", "none"],
        ["-sm", "layer"],
        ["--main-gpu", "0"],
        ["--cpu-moe"],
        ["-ub", "1024"],
    ],
)
def test_a_flag_that_the_engine_counts_itself_is_left_to_it(words):
    assert uncounted([*PLAIN, *words]) is None
    assert without_side_effects([*PLAIN, *words]) == [*PLAIN, *words]


def test_the_value_of_a_flag_is_not_taken_for_a_flag():
    assert uncounted([*PLAIN, "--alias", "--control-vector"]) is None


def test_the_value_of_a_flag_is_one_word_however_the_help_describes_it():
    given = [*PLAIN, "--override-tensor", "exps=CPU", "--rpc", "host:1"]
    assert uncounted(given).startswith("--rpc is not counted")


def test_flags_that_reach_beyond_the_model_do_not_reach_the_parser():
    others = ["--chat-template-file", "/none.jinja", "--log-file", "/log", "--slot-save-path", "/none", "--verbose"]
    assert without_side_effects([*PLAIN, *others, "--tools", "all", "--jinja"]) == [*PLAIN, "--jinja"]


def test_every_flag_that_names_a_draft_an_adapter_or_another_device_is_known():
    """So that a flag of a later build does not slip through."""
    suspicious = (
        "spec-",
        "draft",
        "lora",
        "control-vector",
        "rpc",
        "device",
        "split",
        "main-gpu",
        "cache-mib",
        "backend-",
    )
    found = [flag for flag in flags.table() if any(part in name for name in flag.names for part in suspicious)]
    passed = {
        flag.names[0]
        for flag in found
        if uncounted([*PLAIN, f"--{flag.names[0]}", *(["x"] if flag.value else [])]) is None
    }
    # It prints and exits, and it does nothing in llama-server: the catalog refuses both.
    nothing = {"list-devices", "lora-init-without-apply"}
    counted = {"lora", "lora-scaled", "spec-draft-model", "spec-draft-ngl", "spec-draft-type-k", "spec-draft-type-v"}
    # How many tokens are drafted is counted with the model's outputs; samplers on the card are always off.
    counted |= {"spec-draft-n-max", "spec-draft-n-min", "spec-draft-backend-sampling"}
    chosen = {"spec-draft-p-min", "spec-draft-p-split", "spec-draft-sampling"}
    threads = {f"spec-draft-{kind}" for kind in ("cpu-mask", "cpu-range", "cpu-strict", "poll", "prio", "threads")}
    batches = {f"{name}-batch" for name in threads} - {"spec-draft-cpu-range-batch"}
    assert passed == nothing | counted | chosen | threads | batches
    assert len(found) > 40
