"""Which files are meant: listings in the forms that repositories of the hub really have."""

from pathlib import Path

import pytest
import yaml

from corral.errors import Refused
from corral.hub import select

LISTINGS = yaml.safe_load((Path(__file__).parents[1] / "fixtures" / "hub_listings.yaml").read_text(encoding="utf-8"))
SHARDS = [*LISTINGS["dynamic-and-plain-side-by-side"]["files"], "mmproj-F16.gguf"]


def cases(kind):
    return [
        pytest.param(listing["files"], quant, expected, id=f"{name}-{quant}")
        for name, listing in LISTINGS.items()
        for quant, expected in listing.get(kind, {}).items()
    ]


def test_the_table_is_long():
    assert len(LISTINGS) >= 40


@pytest.mark.parametrize("order", [sorted, lambda files: sorted(files, reverse=True)], ids=["sorted", "reversed"])
@pytest.mark.parametrize(("listing", "quant", "expected"), cases("chosen"))
def test_the_quant_that_was_asked_for_is_found(listing, quant, expected, order):
    assert select.model_by_quant(order(listing), quant) == ([expected] if isinstance(expected, str) else expected)


@pytest.mark.parametrize(("listing", "quant", "reason"), cases("refused"))
def test_what_is_not_certain_is_refused_with_the_candidates(listing, quant, reason):
    with pytest.raises(Refused, match=reason):
        select.model_by_quant(listing, quant)


@pytest.mark.parametrize("name", [name for name, listing in LISTINGS.items() if "projector" in listing])
def test_the_projector_of_a_listing_is_found_or_refused(name):
    files, expected = LISTINGS[name]["files"], LISTINGS[name]["projector"]
    model = select.model_by_quant(files, next(iter(LISTINGS[name]["chosen"])))[0]
    if isinstance(expected, str):
        assert select.projector(files, model, "auto") == expected
    else:
        with pytest.raises(Refused, match=expected["refused"]):
            select.projector(files, model, "auto")


def test_an_exact_file_is_itself():
    assert select.model_by_file(SHARDS, "Qwen3-32B-UD-Q4_K_XL.gguf") == ["Qwen3-32B-UD-Q4_K_XL.gguf"]


def test_the_first_shard_stands_for_all():
    assert select.model_by_file(SHARDS, SHARDS[0]) == SHARDS[:2]


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("Qwen3-32B-Q4_K_S.gguf", "has no file Qwen3-32B-Q4_K_S.gguf; close: .*Qwen3-32B-Q4_K_M.gguf"),
        (SHARDS[1], "is not the first shard"),
        ("mmproj-F16.gguf", "is no model, but a projector"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused(file, reason):
    with pytest.raises(Refused, match=reason):
        select.model_by_file(SHARDS, file)


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


@pytest.mark.parametrize("name", LISTINGS)
def test_each_offer_of_a_listing_means_its_files_and_nothing_else(name):
    files = LISTINGS[name]["files"]
    for offer in select.offers(dict.fromkeys(files, 1)):
        by = select.model_by_quant if offer.key == "quant" else select.model_by_file
        assert tuple(by(files, offer.value)) == offer.files


@pytest.mark.parametrize("name", [name for name, listing in LISTINGS.items() if "chosen" in listing])
def test_what_a_quant_means_is_offered(name):
    offered = {offer.files for offer in select.offers(dict.fromkeys(LISTINGS[name]["files"], 1))}
    for chosen in LISTINGS[name]["chosen"].values():
        assert ((chosen,) if isinstance(chosen, str) else tuple(chosen)) in offered


def test_offers_have_their_bytes_and_the_smallest_comes_first():
    listing = {"m-Q8_0.gguf": 8, "m-Q4_0-00001-of-00002.gguf": 2, "m-Q4_0-00002-of-00002.gguf": 3, "plain.gguf": 9}
    listing |= {"mmproj-F16.gguf": 1, "half-00001-of-00002.gguf": 1, "README.md": 1}

    found = [(one.key, one.value, one.size) for one in select.offers(listing)]

    assert found == [("quant", "Q4_0", 5), ("quant", "Q8_0", 8), ("file", "plain.gguf", 9)]
