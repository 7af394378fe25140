"""Which models may have to be unloaded for another, by the configuration of llama-swap."""

from __future__ import annotations

import json

import pytest

from corral.engine import command

MODELS = ("a", "b", "c", "d", "e")


def rivals(router):
    models = {model: {"cmd": "llama-server -m /models/x/model.gguf"} for model in MODELS}
    text = json.dumps({"startPort": 5800, "models": models, "routing": {"router": router}})
    return {model: one.rivals for model, one in command.parse(text, "a test", next_step="corral down").items()}


def matrix(**sets):
    names = {f"m{number}": model for number, model in enumerate(MODELS)}
    every = {"_all": " & ".join(f"+{group}" for group in sets)} if len(sets) > 1 else {}
    return {"use": "matrix", "settings": {"matrix": {"vars": names, "sets": every | sets}}}


def test_of_a_group_each_other_model_is_a_rival():
    groups = {"main": {"members": ["a", "b", "c"]}, "side": {"members": ["d", "e"]}}

    found = rivals({"use": "group", "settings": {"groups": groups}})

    assert found == {"a": ("b", "c"), "b": ("a", "c"), "c": ("a", "b"), "d": ("e",), "e": ("d",)}


@pytest.mark.parametrize(
    ("sets", "found"),
    [
        ({"main": "m0 & m1 & m2 & m3 & m4"}, {"a": (), "b": (), "c": (), "d": (), "e": ()}),
        (
            {"main": "m0 & m2 | m1 & m2", "side": "m3 | m4"},
            {"a": ("b",), "b": ("a",), "c": (), "d": ("e",), "e": ("d",)},
        ),
        (
            {"main": "m0 & m1 | m0 & m2 | m1 & m2", "side": "m3 & m4"},
            {"a": ("b", "c"), "b": ("a", "c"), "c": ("a", "b"), "d": (), "e": ()},
        ),
    ],
)
def test_of_a_matrix_those_are_rivals_that_run_without_the_model_and_not_beside_it_in_every_set(sets, found):
    assert rivals(matrix(**sets)) == found
