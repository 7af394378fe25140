"""Which files are meant: listings in the forms that repositories of the hub really have."""

import pytest

from corral.errors import Refused
from corral.hub import select

OFFICIAL = ["Qwen3-8B-Q4_K_M.gguf", "Qwen3-8B-Q5_0.gguf", "Qwen3-8B-Q8_0.gguf", "README.md"]
UNSLOTH = [
    "BF16/Qwen3-32B-BF16-00001-of-00002.gguf",
    "BF16/Qwen3-32B-BF16-00002-of-00002.gguf",
    "Qwen3-32B-Q4_K_M.gguf",
    "Qwen3-32B-UD-Q4_K_XL.gguf",
    "Qwen3-32B-UD-Q4_K_M.gguf",
    "Qwen3-32B-IQ4_NL.gguf",
    "imatrix_unsloth.gguf",
    "mmproj-F16.gguf",
]
MRADERMACHER = ["Model.i1-Q4_K_M.gguf", "Model.i1-IQ2_XXS.gguf", "Model.imatrix.gguf"]
LOWER = [
    "qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf",
    "qwen2.5-7b-instruct-q4_k_m-00002-of-00002.gguf",
    "qwen2.5-7b-instruct-q8_0.gguf",
]
FOLDERS = [
    "Q4_K_M/model-00001-of-00002.gguf",
    "Q4_K_M/model-00002-of-00002.gguf",
    "UD-Q4_K_M/model.gguf",
    "Q8_0/model.gguf",
]
OLD_LAYOUTS = ["m-Q4_0.gguf", "m-Q4_0_4_4.gguf", "m-Q4_0_8_8.gguf", "m-IQ4_0.gguf"]
FLOATS = ["m-F16.gguf", "m-BF16.gguf", "m-f32.gguf"]


@pytest.mark.parametrize(
    ("listing", "quant", "expected"),
    [
        pytest.param(OFFICIAL, "Q4_K_M", ["Qwen3-8B-Q4_K_M.gguf"], id="official"),
        pytest.param(UNSLOTH, "Q4_K_M", ["Qwen3-32B-Q4_K_M.gguf"], id="not-the-dynamic-one"),
        pytest.param(UNSLOTH, "UD-Q4_K_M", ["Qwen3-32B-UD-Q4_K_M.gguf"], id="the-dynamic-one-by-name"),
        pytest.param(UNSLOTH, "UD-Q4_K_XL", ["Qwen3-32B-UD-Q4_K_XL.gguf"], id="dynamic-only"),
        pytest.param(UNSLOTH, "BF16", UNSLOTH[:2], id="all-shards-in-a-subfolder"),
        pytest.param(MRADERMACHER, "i1-Q4_K_M", ["Model.i1-Q4_K_M.gguf"], id="imatrix-by-name"),
        pytest.param(LOWER, "Q4_K_M", LOWER[:2], id="lower-case-and-split"),
        pytest.param(FOLDERS, "Q4_K_M", FOLDERS[:2], id="quant-is-the-folder"),
        pytest.param(FOLDERS, "UD-Q4_K_M", ["UD-Q4_K_M/model.gguf"], id="dynamic-folder-by-name"),
        pytest.param(OLD_LAYOUTS, "Q4_0", ["m-Q4_0.gguf"], id="not-a-longer-name"),
        pytest.param(OLD_LAYOUTS, "Q4_0_4_4", ["m-Q4_0_4_4.gguf"], id="the-longer-name"),
        pytest.param(FLOATS, "F16", ["m-F16.gguf"], id="f16-is-not-bf16"),
        pytest.param(FLOATS, "F32", ["m-f32.gguf"], id="case-does-not-matter"),
        pytest.param(["a-q8_0.gguf", "a-Q8_0.gguf"], "Q8_0", ["a-Q8_0.gguf"], id="exact-case-wins"),
        pytest.param(["a.Q6_K.gguf", "a.Q6_K_L.gguf"], "Q6_K", ["a.Q6_K.gguf"], id="dots"),
        pytest.param(
            ["ggml-model-Q4_K_M.gguf", "mmproj-model-f16.gguf"], "Q4_K_M", ["ggml-model-Q4_K_M.gguf"], id="minicpm"
        ),
    ],
)
def test_the_quant_that_was_asked_for_is_found(listing, quant, expected):
    assert select.model_by_quant(listing, quant) == expected


@pytest.mark.parametrize(
    ("listing", "quant", "reason"),
    [
        pytest.param(
            OFFICIAL, "Q4_K_S", "no GGUF with quant Q4_K_S; the repository has: Qwen3-8B-Q4_K_M.gguf", id="none"
        ),
        pytest.param(MRADERMACHER, "Q4_K_M", "no GGUF with quant Q4_K_M", id="only-an-imatrix-variant"),
        pytest.param(["UD-Q4_K_XL/m.gguf"], "Q4_K_XL", "no GGUF with quant Q4_K_XL", id="only-a-dynamic-folder"),
        pytest.param(["a-Q8_0.gguf", "b-Q8_0.gguf"], "Q8_0", "ambiguous: a-Q8_0.gguf, b-Q8_0.gguf", id="two-models"),
        pytest.param(
            ["a-Q8_0.gguf", "old/a-Q8_0.gguf"], "Q8_0", "ambiguous: a-Q8_0.gguf, old/a-Q8_0.gguf", id="subfolder"
        ),
        pytest.param(["a-Q8_0-00001-of-00002.gguf"], "Q8_0", "missing: a-Q8_0-00002-of-00002.gguf", id="missing-shard"),
        pytest.param(["a-Q8_0.gguf", "a-Q8_0-00001-of-00001.gguf"], "Q8_0", "ambiguous", id="split-and-whole"),
        pytest.param(
            ["mmproj-Q8_0.gguf"], "Q8_0", "no GGUF with quant Q8_0; the repository has: none", id="only-a-projector"
        ),
        pytest.param(["m.Q4_K_M.gguf.part1of2"], "Q4_K_M", "the repository has: none", id="not-loadable-parts"),
    ],
)
def test_what_is_not_certain_is_refused_with_the_candidates(listing, quant, reason):
    with pytest.raises(Refused, match="(?s)" + reason.replace("(", r"\(")):
        select.model_by_quant(listing, quant)


def test_an_exact_file_is_itself():
    assert select.model_by_file(UNSLOTH, "Qwen3-32B-UD-Q4_K_M.gguf") == ["Qwen3-32B-UD-Q4_K_M.gguf"]


def test_the_first_shard_stands_for_all():
    assert select.model_by_file(UNSLOTH, UNSLOTH[0]) == UNSLOTH[:2]


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("Qwen3-32B-Q4_K_S.gguf", "has no file Qwen3-32B-Q4_K_S.gguf; close: .*Qwen3-32B-Q4_K_M.gguf"),
        (UNSLOTH[1], "is not the first shard"),
        ("mmproj-F16.gguf", "is no model, but a projector"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused(file, reason):
    with pytest.raises(Refused, match=reason):
        select.model_by_file(UNSLOTH, file)


@pytest.mark.parametrize(
    ("listing", "model", "expected"),
    [
        pytest.param(
            ["mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf"], "m.gguf", "mmproj-F16.gguf", id="f16-first"
        ),
        pytest.param(["mmproj-BF16.gguf", "mmproj-Q8_0.gguf"], "m.gguf", "mmproj-BF16.gguf", id="then-bf16"),
        pytest.param(["mmproj-F32.gguf", "mmproj-Q8_0.gguf"], "m.gguf", "mmproj-Q8_0.gguf", id="then-q8"),
        pytest.param(
            ["mmproj-Qwen3VL-8B-Instruct-F16.gguf", "mmproj-Qwen3VL-8B-Instruct-Q8_0.gguf"],
            "m.gguf",
            "mmproj-Qwen3VL-8B-Instruct-F16.gguf",
            id="qwen",
        ),
        pytest.param(["m-f16.mmproj.gguf", "m-f16.gguf"], "m-f16.gguf", "m-f16.mmproj.gguf", id="suffix-form"),
        pytest.param(["mmproj.gguf"], "m.gguf", "mmproj.gguf", id="no-precision-named"),
        pytest.param(
            ["a/mmproj-BF16.gguf", "mmproj-F16.gguf"], "a/m.gguf", "a/mmproj-BF16.gguf", id="own-folder-first"
        ),
        pytest.param(["mmproj-F16.gguf", "a/m.gguf"], "a/m.gguf", "mmproj-F16.gguf", id="else-any-folder"),
    ],
)
def test_the_best_projector_is_chosen(listing, model, expected):
    assert select.projector(listing, model, "auto") == expected


def test_a_projector_that_is_named_wins():
    assert select.projector(["mmproj-BF16.gguf", "mmproj-F16.gguf"], "m.gguf", "mmproj-BF16.gguf") == "mmproj-BF16.gguf"


@pytest.mark.parametrize(
    ("listing", "wanted", "reason"),
    [
        pytest.param(["m.gguf"], "auto", "has no projector", id="none"),
        pytest.param(
            ["a-mmproj-F16.gguf", "b-mmproj-F16.gguf"],
            "auto",
            "equally good: a-mmproj-F16.gguf, b-mmproj-F16.gguf",
            id="tie",
        ),
        pytest.param(
            ["mmproj-F16.gguf"],
            "mmproj-F32.gguf",
            "no projector mmproj-F32.gguf; it has: mmproj-F16.gguf",
            id="named-but-absent",
        ),
        pytest.param(["mmproj-a.gguf", "mmproj-b.gguf"], "auto", "equally good", id="no-precision-in-either"),
    ],
)
def test_a_projector_that_is_not_certain_is_refused(listing, wanted, reason):
    with pytest.raises(Refused, match=reason):
        select.projector(listing, "m.gguf", wanted)
