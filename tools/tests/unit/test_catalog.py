"""Every rule of the catalog has a fixture that breaks it, named for what is wrong.

Its first line has the line that must be named and the words of the message: ``# expect LINE: TEXT``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path

import pytest

from corral.catalog import catalog
from corral.errors import CatalogInvalid, Refused

FIXTURES = Path(__file__).parents[1] / "fixtures" / "catalogs"
INVALID = sorted((FIXTURES / "invalid").glob("*.yaml"))
VALID = sorted((FIXTURES / "valid").glob("*.yaml"))
CARD = "vram_mib: 15360\n"
OTHER = "source: {repo: org/m, quant: Q8_0}\ncard: t4\ncontext: 1\nmodalities: [text]\naliases: [big]\n"


@pytest.fixture
def folder(tmp_path):
    """A valid catalog: card t4, and a model `a-model` with the alias `big`."""
    (tmp_path / "models").mkdir()
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "t4.yaml").write_text(CARD)
    # Read first, so that a clash is blamed on the fixture.
    (tmp_path / "models" / "a-model.yaml").write_text(OTHER)
    return tmp_path


def place(fixture: Path, folder: Path) -> Path:
    kind = fixture.stem.partition("-")[0]
    target = folder / {"images": "images.yaml", "clients": "clients.yaml", "card": f"cards/{fixture.name}"}.get(
        kind, f"models/{fixture.name}"
    )
    shutil.copy(fixture, target)
    return target


ON_VLLM = "engine: vllm\nsource: {repo: org/m}\ncard: t4\ncontext: 4096\nmodalities: [text]\n"


@pytest.mark.parametrize(
    ("ids", "problems"),
    [
        (["look.1", "look-1"], ["vllm-look-1 would be the Service of look-1", "would be the Service of look.1"]),
        (["m" * 59], ["its pod's Service, has more than 63 characters: rename the file."]),
        (["m" * 58, "look.1", "look-2"], []),
    ],
)
def test_each_model_on_vllm_has_a_service_of_its_own(folder, ids, problems):
    (folder / "cards" / "t4.yaml").write_text(f'{CARD}compute_capability: "7.5"\n')
    for one in ids:
        (folder / "models" / f"{one}.yaml").write_text(ON_VLLM)
    if not problems:
        assert set(ids) < set(catalog.load(folder).models)
        return
    with pytest.raises(CatalogInvalid) as caught:
        catalog.load(folder)
    found = sorted(str(one) for one in caught.value.problems)
    assert len(found) == len(problems)
    assert all(any(problem in one for one in found) for problem in problems), found


def test_there_are_at_least_25_ways_to_be_wrong():
    assert len(INVALID) >= 25
    assert len(VALID) >= 5


@pytest.mark.parametrize("fixture", INVALID, ids=lambda path: path.stem)
def test_a_wrong_file_is_refused_with_file_line_and_rule(fixture, folder):
    expected = re.match(r"# expect (\d+): (.+)\n", fixture.read_text())
    assert expected, "the fixture's first line must have what is expected"
    file = place(fixture, folder)

    with pytest.raises(CatalogInvalid) as caught:
        catalog.load(folder)

    [problem] = caught.value.problems
    assert problem.file == file
    assert expected[2] in problem.message
    assert problem.line == int(expected[1])


@pytest.mark.parametrize("fixture", VALID, ids=lambda path: path.stem)
def test_a_right_file_is_accepted(fixture, folder):
    place(fixture, folder)

    loaded = catalog.load(folder)
    assert fixture.stem in (loaded.cards if fixture.stem.startswith("card-") else loaded.models)


def test_a_circle_of_fallbacks_is_named_at_each_model_in_it_and_at_no_other(folder):
    for name, fallback in {"a-model": "b-model", "b-model": "c-model", "c-model": "b-model"}.items():
        text = OTHER.replace("aliases: [big]", f"fallback: {fallback}")
        (folder / "models" / f"{name}.yaml").write_text(text)
    with pytest.raises(CatalogInvalid) as caught:
        catalog.load(folder)
    found = {problem.file.stem: problem.message.partition(" is a circle")[0] for problem in caught.value.problems}
    assert found == {"b-model": "b-model → c-model → b-model", "c-model": "c-model → b-model → c-model"}


@pytest.fixture
def text(folder):
    """``files/chat.jinja`` of a catalog, whose model ``b-model`` has it as its template."""
    (folder / "files").mkdir()
    file = folder / "files" / "chat.jinja"
    file.write_text("{{ messages }}\n")
    model = OTHER.replace("aliases: [big]", "args: {chat-template-file: files/chat.jinja}")
    (folder / "models" / "b-model.yaml").write_text(model)
    return file


def test_a_text_stands_in_for_the_path_of_its_file(folder, text):
    elsewhere = folder / "files" / "other.jinja"
    text.rename(elsewhere)
    text.symlink_to(elsewhere)

    loaded = catalog.load(folder)

    assert loaded.models["b-model"].args == {"chat-template": "{{ messages }}\n"}
    assert loaded.sources["files/chat.jinja"] == hashlib.sha256(b"{{ messages }}\n").hexdigest()


def leads_out(file):
    outside = file.parents[2] / "secret"
    outside.write_text("secret")
    file.unlink()
    file.symlink_to(outside)


def folder_leads_out(file):
    outside = file.parents[2] / "elsewhere"
    file.parent.rename(outside)
    file.parent.symlink_to(outside)


def is_no_file(file):
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (leads_out, r"files/chat\.jinja is a link that leads out of the catalog"),
        (folder_leads_out, r"files/chat\.jinja is a link that leads out of the catalog"),
        (is_no_file, r"files/chat\.jinja cannot be read: It is no regular file"),
        (lambda file: file.write_bytes(b"\xff"), r"files/chat\.jinja is not UTF-8 text \(byte 0\)"),
        (lambda file: file.write_text(""), "the value of --chat-template must not be empty"),
        (lambda file: file.write_text("${env.HOME}"), r"the value of --chat-template must not hold \${"),
        (
            lambda file: file.write_text("x" * (64 * 1024 + 1)),
            "the value of --chat-template must not have more than 64",
        ),
    ],
    ids=["link", "folder-is-a-link", "fifo", "not-utf-8", "empty", "macro", "long"],
)
def test_a_text_that_cannot_be_a_word_of_the_command_line_is_refused_with_its_line(folder, text, harm, message):
    harm(text)

    with pytest.raises(CatalogInvalid, match=rf"b-model\.yaml:5: args\.chat-template-file: {message}") as caught:
        catalog.load(folder)

    assert len(caught.value.problems) == 1


def test_a_text_and_the_file_of_it_are_the_same_flag(folder, text):
    model = folder / "models" / "b-model.yaml"
    model.write_text(model.read_text().replace("{chat-", "{chat-template: chatml, chat-"))

    with pytest.raises(CatalogInvalid, match="chat-template-file and chat-template are the same flag: keep one"):
        catalog.load(folder)


def test_a_catalog_needs_no_images(folder):
    assert catalog.load(folder).images == {}


def test_images_are_read_by_their_keys(folder):
    digest = "sha256:" + "a" * 64
    (folder / "images.yaml").write_text(f"fetch: python:3.13-slim@{digest}\nllama-swap: localhost:5000/swap:v1\n")

    images = catalog.load(folder).images

    assert {key: (image.tagged, image.digest) for key, image in images.items()} == {
        "llama-swap": ("localhost:5000/swap:v1", None),
        "fetch": ("python:3.13-slim", digest),
    }


def test_an_engine_may_have_an_image_of_its_own(folder):
    engine = "ghcr.io/ggml-org/llama.cpp:server-cuda-b11549"
    (folder / "images.yaml").write_text(f"fetch: python:3.13-slim\nllama-swap: o/swap:v1\nllama-server: {engine}\n")

    assert {key: image.tagged for key, image in catalog.load(folder).images.items()} == {
        "llama-swap": "o/swap:v1",
        "llama-server": engine,
        "fetch": "python:3.13-slim",
    }


def test_images_that_cannot_be_read_are_not_taken_for_none(folder):
    (folder / "images.yaml").symlink_to(folder / "nowhere")

    with pytest.raises(CatalogInvalid, match=r"images\.yaml:1: cannot be read"):
        catalog.load(folder)


def test_a_catalog_needs_no_clients(folder):
    assert catalog.load(folder).clients == {}


def test_clients_are_read_with_their_models_sorted(folder):
    (folder / "models" / "b-model.yaml").write_text(OTHER.replace("aliases: [big]\n", ""))
    photos = "{models: [b-model, a-model], requests: 4, description: captions}"
    (folder / "clients.yaml").write_text(f"clients:\n  photos: {photos}\n  desk: {{requests: 2}}\n")

    loaded = catalog.load(folder)

    assert {name: (client.models, client.requests) for name, client in loaded.clients.items()} == {
        "desk": (None, 2),
        "photos": (("a-model", "b-model"), 4),
    }
    assert "clients.yaml" in loaded.sources


def test_clients_that_cannot_be_read_are_not_taken_for_none(folder):
    (folder / "clients.yaml").symlink_to(folder / "nowhere")

    with pytest.raises(CatalogInvalid, match=r"clients\.yaml:1: cannot be read"):
        catalog.load(folder)


def test_a_model_that_cannot_be_read_is_still_one_that_a_client_may_name(folder):
    place(FIXTURES / "invalid" / "context-zero.yaml", folder)
    (folder / "clients.yaml").write_text("clients: {desk: {models: [context-zero], requests: 2}}\n")

    with pytest.raises(CatalogInvalid, match="The catalog has 1 problem"):
        catalog.load(folder)


BUDGET = "{consumer: desk, prompt_tokens: 800, answer_tokens: 120, p95_seconds: 4.5, requests_at_once: 3}"


def with_budget(folder, clients):
    """*folder* with a latency budget of `desk` in `b-model`, and *clients*."""
    model = OTHER.replace("aliases: [big]", f"latency:\n- {BUDGET}").replace("context: 1", "context: 2048")
    (folder / "models" / "b-model.yaml").write_text(model)
    (folder / "clients.yaml").write_text(f"clients: {clients}\n")
    return folder


@pytest.mark.parametrize(
    ("clients", "problem"),
    [
        (
            "{tv: {requests: 3}, photos: {requests: 3}}",
            "there is no client desk in clients.yaml; there are: photos, tv",
        ),
        (
            "{desk: {models: [a-model], requests: 3}}",
            "desk may not use b-model: its models in clients.yaml are a-model",
        ),
        ("{desk: {requests: 2}}", "requests_at_once is 3, and desk may have 2 under way at once"),
    ],
)
def test_a_budget_is_of_a_client_that_the_door_lets_send_as_much(folder, clients, problem):
    with pytest.raises(CatalogInvalid, match=rf"b-model\.yaml:6: latency\.0: {re.escape(problem)}") as caught:
        catalog.load(with_budget(folder, clients))

    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("clients", ["{}", "{desk: {requests: 3}}", "{desk: {models: [b-model], requests: 4}}"])
def test_without_clients_a_budget_is_of_anyone(folder, clients):
    (budget,) = catalog.load(with_budget(folder, clients)).models["b-model"].latency
    assert (budget.consumer, budget.p95_seconds, budget.requests_at_once, budget.cold) == ("desk", 4.5, 3, "allowed")


def test_more_requests_at_once_than_slots_wait_within_the_figure(folder):
    loaded = catalog.load(with_budget(folder, "{}")).models["b-model"]
    assert loaded.latency[0].requests_at_once > loaded.parallel


def test_one_tenant_may_sit_on_two_cards(folder):
    for card in ("t4", "p4"):
        tenant = "photos: {budget_mib: 100, namespace: a, selector: app=one}"
        (folder / "cards" / f"{card}.yaml").write_text(f"vram_mib: 15360\ntenants: {{{tenant}}}\n")

    assert list(catalog.load(folder).cards) == ["p4", "t4"]


def test_a_model_of_another_card_is_ours_too(folder):
    (folder / "cards" / "p4.yaml").write_text("vram_mib: 15360\ntenants: {a-model: {budget_mib: 100}}\n")

    with pytest.raises(CatalogInvalid, match=r"p4\.yaml:2: tenants\.a-model: a-model is served from this catalog"):
        catalog.load(folder)


@pytest.mark.parametrize("text", ["{", '{"version": 2, "measurements": []}', "null"])
def test_a_ledger_that_cannot_be_read_is_refused(folder, text):
    (folder / "measured.json").write_text(text)

    with pytest.raises(Refused, match=r"measured\.json is not a ledger"):
        catalog.load(folder)


def test_a_key_of_a_model_is_named_by_file_and_line(folder):
    loaded = catalog.load(folder)

    assert loaded.place("a-model", "context") == f"{folder}/models/a-model.yaml:3"
    assert loaded.place("a-model", "vram", "declared_mib") == f"{folder}/models/a-model.yaml:1"


def test_all_problems_are_found_in_one_pass(folder):
    for name in ("context-zero", "unknown-card", "card-without-vram", "images-tag-latest"):
        place(FIXTURES / "invalid" / f"{name}.yaml", folder)

    with pytest.raises(CatalogInvalid, match="The catalog has 4 problems") as caught:
        catalog.load(folder)

    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("models/x.yml", "one .yaml file per entry"),
        ("models/sub/x.yaml", "one .yaml file per entry"),
        ("models/Upper.yaml", "must be lower case"),
        ("models/blobs.yaml", "and not blobs or sets"),
        ("cards/has space.yaml", "must be lower case"),
        ("extra.yaml", "would be overlooked"),
        ("images.yml", "would be overlooked"),
        ("clients.yml", "would be overlooked"),
        ("models/images/images.yaml", "one .yaml file per entry"),
        ("model/x.yaml", "would be overlooked"),
    ],
)
def test_a_file_that_would_be_overlooked_is_refused(name, message, folder):
    file = folder / name
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(OTHER)

    with pytest.raises(CatalogInvalid, match=message):
        catalog.load(folder)


@pytest.mark.parametrize(
    "name", ["models/.#a-model.yaml", "cards/.#t4.yaml", ".#images.yaml", ".extra.yaml", "models/.x/y.yaml"]
)
def test_an_editors_files_are_no_sources(name, folder):
    """Emacs locks a file with a link that leads nowhere and begins with a dot."""
    sources = catalog.load(folder).sources
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.symlink_to("root@host.1:2")

    assert catalog.load(folder).sources == sources


def test_an_editors_lock_is_no_card(folder):
    (folder / "cards" / ".#t4.yaml").symlink_to("root@host.1:2")
    place(FIXTURES / "invalid" / "unknown-card.yaml", folder)

    with pytest.raises(CatalogInvalid, match=r"there are: t4\."):
        catalog.load(folder)


@pytest.mark.parametrize("name", ["models/x.yaml", "cards/x.yaml"])
def test_a_link_that_leads_nowhere_is_refused(name, folder):
    (folder / name).symlink_to("nowhere.yaml")

    with pytest.raises(CatalogInvalid, match=rf"{name}:1: is a link that leads nowhere \(nowhere\.yaml\): "):
        catalog.load(folder)


def test_a_file_that_is_not_utf8_is_refused(folder):
    (folder / "models" / "x.yaml").write_bytes(b"source: \xff\n")

    with pytest.raises(CatalogInvalid, match="not UTF-8"):
        catalog.load(folder)


def test_an_empty_file_is_refused(folder):
    (folder / "models" / "x.yaml").write_text("# nothing\n")

    with pytest.raises(CatalogInvalid, match="the file is empty"):
        catalog.load(folder)


def test_a_file_that_cannot_be_read_is_named(folder):
    (folder / "models" / "x.yaml").symlink_to(folder / "models")

    with pytest.raises(CatalogInvalid, match=r"one .yaml file per entry"):
        catalog.load(folder)

    (folder / "models" / "x.yaml").unlink()
    (folder / "models" / "deep.yaml").write_text("source: " + "[" * 500 + "]" * 500)
    with pytest.raises(CatalogInvalid, match="nested deeper than 16 levels"):
        catalog.load(folder)


def test_a_folder_without_models_is_no_catalog(tmp_path):
    with pytest.raises(Refused, match="is not a catalog"):
        catalog.load(tmp_path)


def test_a_catalog_without_a_model_is_refused(folder):
    (folder / "models" / "a-model.yaml").unlink()

    with pytest.raises(Refused, match="holds no model"):
        catalog.load(folder)


def test_an_image_takes_at_most_a_third_of_a_small_context(folder):
    place(FIXTURES / "valid" / "vision-auto.yaml", folder)
    small = OTHER.replace("context: 1", "context: 900").replace("[text]", "[text, image]").replace("big", "tiny")
    (folder / "models" / "small.yaml").write_text(small)

    models = catalog.load(folder).models

    assert models["small"].image_tokens == 300
    assert models["vision-auto"].image_tokens == 1024


def test_a_catalog_with_or_without_a_model_is_what_would_be_read(folder):
    (folder / "models" / "b.yaml").write_text(other := OTHER.replace("big", "tiny"))
    with_both = catalog.load(folder)
    (folder / "models" / "b.yaml").unlink()
    alone = catalog.load(folder)

    assert catalog.with_model(alone, "b", other) == with_both
    assert catalog.with_model(with_both, "b", None) == alone
    with pytest.raises(CatalogInvalid, match=r"models/b\.yaml:1: source"):
        catalog.with_model(alone, "b", "source: {}\n")
    assert not (folder / "models" / "b.yaml").exists()


def test_an_alias_that_reads_as_an_adapter_is_refused(folder):
    place(FIXTURES / "valid" / "named-adapters.yaml", folder)
    other = (FIXTURES / "valid" / "named-adapters.yaml").read_text().partition("adapters:")[0]
    (folder / "models" / "other.yaml").write_text(f"{other}aliases: ['named-adapters:sql']\n")

    with pytest.raises(CatalogInvalid) as caught:
        catalog.load(folder)

    assert [one.message for one in caught.value.problems] == ["named-adapters:sql is an adapter of named-adapters."]
