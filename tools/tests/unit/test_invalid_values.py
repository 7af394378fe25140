"""What pydantic refuses is a sentence of ours, for every key of the catalog, the ledger and the lock."""

from __future__ import annotations

import copy
import json

import pytest
from pydantic import ValidationError

from corral import paths
from corral.catalog import invalid_values
from corral.catalog.card import Card
from corral.catalog.images import Images
from corral.catalog.intent import Model
from corral.catalog.ledger import Ledger
from corral.lock.lock import Lock

LOCK = json.loads((paths.REPOSITORY / "terraform" / "catalog-demo" / "lock.json").read_text())
VISION, TEXT = (LOCK["models"][name] for name in ("tiny-vision", "tiny-text"))
INTENT = VISION["intent"] | {key: TEXT["intent"][key] for key in ("aliases", "smoke")}
INTENT |= {"unsafe": {"log-file": {"value": "/log", "why": "We read it at night."}}}
INTENT |= {"latency": [{"consumer": "desk", "prompt_tokens": 300, "answer_tokens": 100, "p95_seconds": 4.5}]}
TENANT = {"budget_mib": 1, "namespace": "photos", "selector": "app=photos"}
MEASURED = {"model": "m", "argv_sha256": "a" * 64, "engine": "b1", "device": "T4", "source": "nvidia-smi"}
MEASURED |= {"date": "2026-11-02T00:00:00Z", "gpu_bytes": 1}
MEASURED |= dict.fromkeys(("host_bytes", "predicted_gpu_bytes", "predicted_host_bytes"))
FILES = {
    Model: INTENT,
    Card: {"vram_mib": 4096, "compute_capability": "7.5", "node": "n", "tenants": {"namespace": TENANT}},
    Images: {"llama-swap": "swap:v1", "fetch": "python:3.13-slim"},
    Ledger: {"version": 1, "measurements": [MEASURED]},
    Lock: LOCK | {"models": {"tiny-vision": VISION | {"intent": INTENT}}},
}
WRONG = [None, True, 1.5, 10**30, -1, "", "x y", "a" * 200, [], [1], {}, {"budget_mb": 1}]


def places(value, path=()):
    yield path
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in below:
        yield from places(part, (*path, step))


def with_value(file, path, value):
    if not path:
        return value
    changed = copy.deepcopy(file)
    parent = changed
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    return changed


@pytest.mark.parametrize("kind", FILES, ids=lambda kind: kind.__name__)
def test_no_message_has_the_words_of_pydantic(kind):
    kind.model_validate_json(json.dumps(FILES[kind]), strict=True)
    refused = 0
    for path in places(FILES[kind]):
        for value in WRONG:
            try:
                kind.model_validate_json(json.dumps(with_value(FILES[kind], path, value)), strict=True)
            except ValidationError as error:
                refused += 1
                for detail, (_, sentence) in zip(error.errors(), invalid_values.problems(error, kind), strict=True):
                    assert detail["type"] == "value_error" or detail["msg"] not in sentence
                    assert "is not allowed here" not in sentence
    assert refused > 10


def problem(kind, text):
    with pytest.raises(ValidationError) as caught:
        kind.model_validate_json(text, strict=True)
    return invalid_values.first_problem(caught.value, kind)


def test_a_problem_names_the_key_the_value_and_the_rule():
    card = {"vram_mib": 4096, "tenants": {"namespace": {"budget_mib": "2 GiB"}}}

    assert problem(Card, json.dumps(card)) == "tenants.namespace.budget_mib: must be a whole number, not '2 GiB'"


def test_an_unknown_key_of_a_tenant_that_is_named_like_a_key_has_the_keys_of_a_tenant():
    card = {"vram_mib": 4096, "tenants": {"namespace": TENANT | {"budget_mb": 1}}}

    assert problem(Card, json.dumps(card)) == (
        "tenants.namespace.budget_mb: unknown key budget_mb (did you mean budget_mib?); "
        "allowed: budget_mib, namespace, selector, unit, expects"
    )


def test_what_is_no_json_is_named_so():
    assert problem(Ledger, "{") == "it is not JSON (EOF while parsing an object at line 1 column 1)"
