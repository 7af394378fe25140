"""The catalogs in the repository satisfy corral's rules and the editors' schemas."""

from __future__ import annotations

import json

import jsonschema
import pytest

from corral import paths
from corral.catalog import catalog, yaml_reader
from corral.engine import builds
from corral.engine.embedded import LLAMA_CPP_BUILD
from corral.lock import headers, lock, schemas

TERRAFORM = paths.REPOSITORY / "terraform"
FILES = sorted([*TERRAFORM.glob("catalog*/*/*.yaml"), *TERRAFORM.glob("catalog*/images.yaml")])


def test_there_are_catalogs_to_check():
    assert len(FILES) >= 9


def test_the_operator_serves_four_models():
    models = catalog.load(TERRAFORM / "catalog").models

    assert {name: (model.context, model.vision) for name, model in models.items()} == {
        "qwen3-8b": (16384, False),
        "qwen3vl-8b": (3072, True),
        "minicpm-v-4-5": (3072, True),
        "qwen3vl-4b": (3072, True),
    }


def test_the_operators_images_name_their_version_and_the_engine_is_the_one_that_predicts():
    images = catalog.load(TERRAFORM / "catalog").images

    assert builds.in_tag(images["llama-server"].tag) == LLAMA_CPP_BUILD
    assert images["llama-swap"].tagged == "ghcr.io/mostlygeek/llama-swap:v252-cuda-b10775-non-root"
    assert images["fetch"].digest


@pytest.mark.parametrize("file", FILES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_a_file_names_the_schema_that_it_satisfies(file):
    first = file.read_text().splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")

    named = json.loads((file.parent / first.split("=", 1)[1]).read_text())
    jsonschema.validate(yaml_reader.read(file).value, named)


def test_the_schemas_follow_the_classes():
    assert schemas.drift(TERRAFORM / "catalog" / "schemas") == []


def test_the_demo_lock_satisfies_its_schema_and_has_its_headers():
    named = json.loads((TERRAFORM / "catalog" / "schemas" / "lock.schema.json").read_text())
    present = lock.read(TERRAFORM / "catalog-demo" / "lock.json")

    jsonschema.validate(json.loads((TERRAFORM / "catalog-demo" / "lock.json").read_text()), named)
    assert headers.missing(TERRAFORM / "catalog-demo", present) == {}
    assert all(entry.predicted.gpu_bytes for entry in present.models.values())


def test_the_demo_lock_is_fresh():
    assert list(lock.stale(catalog.load(TERRAFORM / "catalog-demo"))) == []


def test_the_editors_schema_refuses_an_unknown_flag():
    model = json.loads(schemas.schemas()["model.schema.json"])
    wrong = yaml_reader.read(TERRAFORM / "catalog/models/qwen3-8b.yaml").value | {"args": {"port": 1}}

    with pytest.raises(jsonschema.ValidationError, match="port"):
        jsonschema.validate(wrong, model)
