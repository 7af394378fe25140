"""`corral lock` against a real hub client and a hub on loopback."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys

import pytest

from corral import output, paths
from corral.catalog import ledger
from corral.catalog.ledger import FirstToken, NextToken, Speed, argv_sha256
from corral.cli.main import main
from corral.demo.hub import Hub, RepoContent
from corral.demo.smollm2 import SMOLLM2
from corral.demo.tour import copy_catalog, demo_repositories, write_tiny_repositories
from corral.engine.embedded import LLAMA_CPP_BUILD
from corral.lock import headers, image_room
from corral.lock import lock as locks
from corral.vram import image_tokens
from tests.support.registry import registry_on_loopback
from tests.support.terminal import on_a_terminal
from tests.support.tiny_catalog import write_tiny_catalog

DEMO = paths.REPOSITORY / "terraform" / "catalog-demo"
CORRAL = [sys.executable, "-m", "corral.cli.main"]


@pytest.fixture(scope="module")
def hub_files(tmp_path_factory):
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def repositories(hub_files):
    return write_tiny_repositories(hub_files)


@pytest.fixture
def hub(repositories, monkeypatch):
    with Hub({repo: RepoContent(files) for repo, files in repositories.items()}) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        yield running


@pytest.fixture
def catalog(tmp_path):
    """The demo catalog with its tiny models, not locked yet."""
    copy_catalog(tmp_path, tiny=True)
    shutil.copy(DEMO / "measured.json", tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny_catalog(tmp_path_factory.mktemp("tiny") / "catalog")


@pytest.fixture
def locked(catalog, tiny):
    """The same after a first ``lock(catalog)``, which has its own test."""
    shutil.copy(tiny / "lock.json", catalog)
    shutil.copytree(tiny / "headers", catalog / "headers")


def lock(catalog, *words):
    return main(["lock", "--catalog", str(catalog), *words])


def edit(catalog, old, new, model="tiny-text"):
    file = catalog / "models" / f"{model}.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def kept(catalog):
    """The headers beside the lock."""
    return {file.name: file.read_bytes() for file in (catalog / "headers").iterdir()}


def test_the_demo_lock_is_what_the_hub_has(hub_files, tmp_path, monkeypatch):
    copy_catalog(tmp_path)
    shutil.copy(DEMO / "measured.json", tmp_path)

    with Hub(demo_repositories(hub_files, SMOLLM2.bring(output.info))) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        assert lock(tmp_path) == 0

    assert (tmp_path / "lock.json").read_text() == (DEMO / "lock.json").read_text()
    assert kept(tmp_path) == kept(DEMO)
    assert len(kept(DEMO)) >= 4


def test_check_needs_no_network_and_names_what_is_stale(catalog, locked, hub, capsys, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert lock(catalog, "--check") == 0
    before = (catalog / "lock.json").read_bytes()
    file = catalog / "models" / "tiny-text.yaml"
    file.write_text(file.read_text().replace("context: 2048", "context: 1024"))
    capsys.readouterr()

    assert lock(catalog, "--check", "--json") == 1
    shown = json.loads(capsys.readouterr().out)
    reason = "has changed since it was locked"
    assert shown["stale"] == [{"source": "models/tiny-text.yaml", "code": "changed", "reason": reason}]
    assert (catalog / "lock.json").read_bytes() == before


def test_upgrade_moves_to_the_newest_commit_and_prints_what_changed(catalog, locked, hub, hub_files, tmp_path, capsys):
    newer = tmp_path / "newer.gguf"
    newer.write_bytes((hub_files / "tiny-think-F16.gguf").read_bytes())
    hub.update("corral/tiny-text-GGUF", RepoContent(files={"tiny-text-F16.gguf": newer}))
    assert lock(catalog) == 0
    assert "tiny-text:" not in capsys.readouterr().out

    assert lock(catalog, "--upgrade", "tiny-text") == 0

    shown = capsys.readouterr().out
    assert shown.startswith("tiny-text: upgraded\n  revision ")
    assert "~ tiny-text-F16.gguf: 655,712 → 655,936 bytes" in shown


def test_upgrade_of_an_unknown_model_is_refused(catalog, locked, hub, capsys):
    assert lock(catalog, "--upgrade", "gpt-5") == 2
    assert "No model gpt-5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("repo: corral/tiny-text-GGUF", "repo: corral/gone-GGUF", "There is no repository corral/gone-GGUF"),
        ("quant: F16", "quant: Q4_K_M", "no GGUF with quant Q4_K_M; the repository has: tiny-text-F16.gguf"),
        ("quant: F16", "quant: F16, revision: v9", "corral/tiny-text-GGUF has no revision v9"),
    ],
    ids=["repository", "quant", "revision"],
)
def test_what_the_hub_does_not_have_is_refused_by_name(catalog, hub, capsys, old, new, message):
    file = catalog / "models" / "tiny-text.yaml"
    file.write_text(file.read_text().replace(old, new))

    assert lock(catalog) == 2
    assert message in capsys.readouterr().err
    assert not (catalog / "lock.json").exists()


def test_a_hub_that_is_away_is_exit_3(catalog, monkeypatch, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")

        assert lock(catalog) == 3
    assert "is unreachable" in capsys.readouterr().err


def test_a_model_on_disk_is_hashed_where_it_lies(catalog, locked, hub_files, hub, capsys):
    file = catalog / "models" / "tiny-vision.yaml"
    source = hub_files / "tiny-vision-F16.gguf"
    text = file.read_text().replace("repo: corral/tiny-vision-GGUF, quant: F16", f"path: {source}")
    file.write_text(text)

    assert lock(catalog) == 0

    entry = json.loads((catalog / "lock.json").read_text())["models"]["tiny-vision"]
    demo = json.loads((DEMO / "lock.json").read_text())["models"]["tiny-vision"]
    assert (entry["repo"], entry["revision"], entry["licence"]) == (None, None, None)
    assert [item["sha256"] for item in entry["files"]] == [item["sha256"] for item in demo["files"]]
    assert entry["files"][0]["path"] == str(source)
    assert entry["argv"] == demo["argv"]


# -- what it takes on the card -------------------------------------------------------------------------------


def test_what_every_model_takes_is_shown_in_mib(catalog, locked, hub, capsys):
    lock(catalog)

    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert ["model", "weights", "context", "compute", "projector", "rules", "seat"] in lines
    [vision] = [line for line in lines if line[0] == "tiny-vision"]
    assert len(vision) == 7
    assert int(vision[4]) > 0
    assert abs(sum(map(int, vision[1:6])) - int(vision[6])) <= 3


def test_and_in_bytes_as_json(catalog, locked, hub, capsys):
    lock(catalog, "--json")

    shown = json.loads(capsys.readouterr().out)["vram"]
    entries = json.loads((catalog / "lock.json").read_text())["models"]
    assert list(shown) == ["tiny-text", "tiny-think", "tiny-vision"]
    for model, rows in shown.items():
        assert rows["gpu"] == entries[model]["predicted"]["gpu"]
        assert rows["seat"] == rows["predicted"] == sum(rows["gpu"].values()) + sum(rows["rules"].values())
        assert (rows["basis"], rows["declared"], rows["measured"], rows["unmeasured"]) == (
            "predicted",
            None,
            None,
            None,
        )


def test_what_was_measured_on_a_card_stands_beside_the_prediction(catalog, locked, hub, capsys):
    entry = locks.read(catalog / "lock.json").models["tiny-text"]
    measured = {
        "model": "tiny-text",
        "argv_sha256": argv_sha256(entry.argv),
        "engine": "b11549",
        "device": "Tesla T4",
        "source": "nvidia-smi",
        "date": "2026-11-21T00:00:00Z",
        "gpu_bytes": entry.predicted.gpu_bytes * 2,
        "host_bytes": None,
        "predicted_gpu_bytes": entry.predicted.gpu_bytes,
        "predicted_host_bytes": None,
    }
    (catalog / "measured.json").write_text(json.dumps({"version": 1, "measurements": [measured]}))
    capsys.readouterr()

    lock(catalog)

    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    cells = {line[0]: line[-1] for line in lines}
    assert cells["model"] == "measured on a card"
    assert cells["tiny-text"].endswith("(+100.0%)")
    assert cells["tiny-think"] == "-"


def test_a_declaration_is_shown_as_one_and_not_as_a_prediction(catalog, hub, capsys):
    edit(catalog, "card: laptop", 'card: laptop\nvram: {declared_mib: 900, why: "measured under load"}')

    lock(catalog)

    shown = capsys.readouterr().out
    assert "tiny-text: added" in shown
    assert any(line.startswith("tiny-text\t") and line.endswith("\t900 declared") for line in shown.splitlines())
    entry = json.loads((catalog / "lock.json").read_text())["models"]["tiny-text"]["intent"]
    assert entry["vram"] == {"declared_mib": 900, "why": "measured under load"}


def test_a_changed_context_is_predicted_without_the_hub(catalog, locked, hub, capsys, monkeypatch):
    before = kept(catalog)
    hub.log.clear()
    edit(catalog, "context: 2048", "context: 4096\nparallel: 2\nargs: {cache-type-k: q8_0}")
    capsys.readouterr()

    assert lock(catalog) == 0

    assert hub.log == []
    assert kept(catalog) == before
    assert " MiB → " in capsys.readouterr().out
    assert lock(catalog, "--check") == 0


def test_a_context_beyond_the_trained_one_is_refused_with_the_remedy(catalog, hub, capsys):
    edit(catalog, "context: 2048", "context: 8192")

    assert lock(catalog) == 2

    messages = capsys.readouterr().err
    assert "tiny-text: its context is 8,192, and it was trained for 4,096 tokens" in messages
    assert "tiny-text.yaml:4)" in messages
    assert "Set context to 4096 or less" in messages
    assert not (catalog / "lock.json").exists()
    assert not (catalog / "headers").exists()


def test_every_model_that_cannot_be_predicted_is_named_at_once(catalog, hub, capsys):
    edit(catalog, "context: 2048", "context: 8192")
    edit(catalog, "context: 2048", "context: 2048\nargs: {moe-cache-mib: 64}", model="tiny-think")

    assert lock(catalog) == 2

    messages = capsys.readouterr().err
    assert "tiny-text: its context is 8,192" in messages
    assert "tiny-think: The engine cannot predict" in messages


def test_the_headers_of_a_removed_model_go_and_the_others_stay(catalog, locked, hub):
    before = set(kept(catalog))
    (catalog / "models" / "tiny-vision.yaml").unlink()

    lock(catalog)

    left = {sha256 for entry in locks.read(catalog / "lock.json").models.values() for sha256 in entry.predicted.headers}
    assert set(kept(catalog)) == {f"{sha256}.gguf.gz" for sha256 in left} < before


def test_a_missing_header_is_reported_and_brought_back(catalog, locked, hub, capsys):
    before = kept(catalog)
    lost = next((catalog / "headers").iterdir())
    lost.unlink()
    capsys.readouterr()

    assert lock(catalog, "--check") == 1
    assert f"has no sound header {lost.name[:12]} in headers/" in capsys.readouterr().out

    assert lock(catalog) == 0
    assert kept(catalog) == before
    assert lock(catalog, "--check") == 0


def test_the_headers_are_there_before_the_lock_that_names_them(catalog, hub, monkeypatch):
    written = []

    def watching(path, new, write=locks.write):
        assert headers.missing(catalog, new) == {}
        written.append(path)
        return write(path, new)

    monkeypatch.setattr(locks, "write", watching)

    assert lock(catalog) == 0
    assert written == [catalog / "lock.json"]


def test_a_lock_that_cannot_be_written_keeps_the_headers_that_it_names(catalog, locked, hub, capsys, monkeypatch):
    (catalog / "models" / "tiny-vision.yaml").unlink()

    def full(path, new):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(locks, "write", full)
    assert lock(catalog) == 2

    assert "No space left on device" in capsys.readouterr().err
    assert headers.missing(catalog, locks.read(catalog / "lock.json")) == {}


def test_of_a_lock_of_an_older_corral_the_commits_are_kept(catalog, locked, hub, hub_files, tmp_path, capsys):
    """In the form that version 1 had; the hub has moved on since."""
    whole = (catalog / "lock.json").read_text()
    document = json.loads(whole)
    kept_keys = ("repo", "revision", "licence", "files", "argv")
    models = {
        model_id: {"intent_sha256": "0" * 64, **{key: entry[key] for key in kept_keys}}
        for model_id, entry in document["models"].items()
    }
    (catalog / "lock.json").write_text(json.dumps({"version": 1, "models": models}))
    shutil.rmtree(catalog / "headers")
    newer = tmp_path / "newer.gguf"
    newer.write_bytes((hub_files / "tiny-think-F16.gguf").read_bytes())
    hub.update("corral/tiny-text-GGUF", RepoContent(files={"tiny-text-F16.gguf": newer}, licence="apache-2.0"))
    capsys.readouterr()

    assert lock(catalog, "--check") == 1
    assert capsys.readouterr().out == "lock.json has version 1, and this corral reads version 2\n"

    assert lock(catalog) == 0
    assert "has version 1, and this corral reads version 2. Only its commits are reused." in capsys.readouterr().err
    assert (catalog / "lock.json").read_text() == whole


def test_a_lock_that_was_edited_by_hand_is_stale_and_written_anew(catalog, locked, hub, capsys):
    whole = (catalog / "lock.json").read_text()
    (catalog / "lock.json").write_text(whole.replace('"on"', '"off"', 1))
    capsys.readouterr()

    assert lock(catalog, "--check") == 1
    assert "lock.json was edited or merged after `corral lock` had written it" in capsys.readouterr().out

    assert lock(catalog) == 0
    assert (catalog / "lock.json").read_text() == whole


def test_a_pinned_commit_that_is_gone_is_named_with_the_command_that_moves_on(catalog, locked, hub, capsys):
    whole = (catalog / "lock.json").read_text()
    commit = json.loads(whole)["models"]["tiny-text"]["revision"]
    (catalog / "lock.json").write_text(whole.replace(commit, "f" * 40))
    damaged = (catalog / "lock.json").read_text()
    capsys.readouterr()

    assert lock(catalog) == 2

    shown = capsys.readouterr().err
    assert f"tiny-text: corral/tiny-text-GGUF no longer has commit {'f' * 40}, on which the lock pins" in shown
    assert shown.endswith(f"→ corral lock --catalog {catalog} --upgrade tiny-text\n")
    assert (catalog / "lock.json").read_text() == damaged

    assert lock(catalog, "--upgrade", "tiny-text") == 0
    assert (catalog / "lock.json").read_text() == whole


def test_a_lock_that_is_not_there_is_missing_and_not_stale(catalog, capsys):
    again = f"corral lock --catalog {catalog}"
    assert lock(catalog, "--check") == 1
    assert capsys.readouterr().err == f"The lock is missing. Run: {again}\n"

    assert main(["validate", "--catalog", str(catalog)]) == 0
    assert f"the lock is missing. Run: {again}\n" in capsys.readouterr().err


def test_a_next_step_names_the_catalog_quoted(catalog, capsys, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    spaced = catalog.rename(catalog.with_name("my catalog"))

    assert lock(spaced) == 3
    assert capsys.readouterr().err.endswith(f"then: corral lock --catalog '{spaced}'\n")

    assert main(["fetch", "--catalog", str(spaced)]) == 2
    assert capsys.readouterr().err.endswith(f"corral lock --catalog '{spaced}'\n")


# -- a key that has another name now --------------------------------------------------------------------------------


@pytest.fixture
def slots(catalog, hub):
    """The demo catalog as it was written for an older corral, of which two files have the old key."""
    texts = {}
    for name in ("tiny-text", "tiny-think"):
        file = catalog / "models" / f"{name}.yaml"
        texts[file] = file.read_text()
        file.write_text(texts[file].replace("group:", "slot:"))
        assert file.read_text() != texts[file]
    return texts


def test_an_old_key_is_refused_with_its_new_name(catalog, slots, capsys):
    assert lock(catalog) == 2

    messages = capsys.readouterr().err
    assert messages.count("slot is called group now") == 2
    assert messages.count(f"corral lock --rename-slots --catalog {catalog}\n") == 2
    assert not (catalog / "lock.json").exists()


def test_rename_slots_renames_it_and_then_locks(catalog, slots, tiny, capsys):
    assert lock(catalog, "--rename-slots") == 0

    assert {file: file.read_text() for file in slots} == slots
    assert capsys.readouterr().err.count("slot is group now") == 2
    assert (catalog / "lock.json").read_text() == (tiny / "lock.json").read_text()


def test_a_file_with_both_keys_is_refused_until_one_is_removed(catalog, slots, capsys):
    file = catalog / "models" / "tiny-text.yaml"
    file.write_text(file.read_text() + "group: other\n")
    before = file.read_text()

    assert lock(catalog, "--rename-slots") == 2

    shown = capsys.readouterr().err
    assert "slot is called group now, and both keys stand here: remove one of them." in shown
    assert "--rename-slots" not in shown
    assert file.read_text() == before


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("yes", 0), ("", 2), ("n", 2)])
def test_on_a_terminal_it_is_offered(catalog, locked, slots, hub, answer, code):
    ended, shown = on_a_terminal([*CORRAL, "lock", "--catalog", str(catalog)], f"{answer}\n")

    assert ended == code, shown
    assert "Rename slot to group in 2 of these files? Comments stay. [y/N]" in shown
    assert ({file: file.read_text() for file in slots} == slots) == (code == 0)
    assert shown.count("slot is called group now") == len(slots)
    assert ("Nothing was renamed." in shown) == (code == 2)


def test_a_token_for_the_hub_does_not_reach_the_data_host(catalog, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")

    lock(catalog)

    assert {entry.headers.get("authorization") for entry in hub.log if entry.is_data} == {None}
    assert {entry.headers.get("authorization") for entry in hub.log if not entry.is_data} == {"Bearer hf_secret"}


def test_the_hub_gets_requests_for_the_models_only(catalog, hub):
    # A process of its own: huggingface_hub reads HF_ENDPOINT when it is imported.
    subprocess.run([sys.executable, "-m", "corral.cli.main", "lock", "--catalog", str(catalog)], check=True)

    assert {entry.path.split("/")[1] for entry in hub.log} == {"api", "cdn", "corral"}
    assert [entry.path for entry in hub.log if not entry.path.startswith(("/api/models/", "/cdn/", "/corral/"))] == []


# -- the images of the cluster --------------------------------------------------------------------------------


TAG = f"v1-{LLAMA_CPP_BUILD}"


@pytest.fixture
def registry(catalog):
    """A registry that wants a token first, and the catalog with two images, one of them from there."""
    digest = "sha256:" + "2" * 64
    with registry_on_loopback() as running:
        running.needs_token = True
        text = f"llama-swap: {running.address}/org/swap:{TAG}\nfetch: python:3.13-slim@{digest}\n"
        (catalog / "images.yaml").write_text(text)
        yield running


def test_a_tag_is_locked_at_the_digest_of_its_registry(catalog, locked, hub, registry, capsys):
    digest = registry.put("org/swap", TAG)

    assert lock(catalog) == 0

    printed = capsys.readouterr()
    image = f"{registry.address}/org/swap:{TAG}"
    assert f"image llama-swap: added\n  {image}@{digest}\n" in printed.out
    assert f"image llama-swap: {image}\n" in printed.err
    assert json.loads((catalog / "lock.json").read_text())["images"]["llama-swap"] == f"{image}@{digest}"


def test_an_image_with_another_build_than_predicts_is_a_warning(catalog, locked, hub, registry, capsys):
    text = (catalog / "images.yaml").read_text()
    (catalog / "images.yaml").write_text(text.replace(TAG, "v1-b11063"))
    registry.put("org/swap", "v1-b11063")

    assert lock(catalog) == 0
    assert f"warning: The image runs llama.cpp b11063, and {LLAMA_CPP_BUILD} predicted" in capsys.readouterr().err
    assert lock(catalog, "--json") == 0
    engine = json.loads(capsys.readouterr().out)["engine"]
    assert engine == {"predicts": LLAMA_CPP_BUILD, "runs": "b11063", "known_by": "tag"}


def test_a_locked_image_is_not_asked_again_and_upgrade_asks(catalog, locked, hub, registry, capsys):
    registry.put("org/swap", TAG)
    lock(catalog)
    registry.requests.clear()
    digest = registry.put("org/swap", TAG, "rebuilt")

    assert lock(catalog) == 0
    assert lock(catalog, "--upgrade", "tiny-text") == 0
    assert registry.requests == []

    for words in (["llama-swap"], []):
        assert lock(catalog, "--upgrade", *words) == 0
        assert len(registry.requests) == 3
        registry.requests.clear()
    assert digest in capsys.readouterr().out


def test_check_covers_the_images_without_network(catalog, locked, hub, registry, capsys):
    registry.put("org/swap", TAG)
    lock(catalog)
    registry.requests.clear()
    assert lock(catalog, "--check") == 0
    images = catalog / "images.yaml"
    images.write_text(images.read_text().replace("swap:v1-b", "swap:v2-b"))
    capsys.readouterr()

    assert lock(catalog, "--check") == 1
    assert capsys.readouterr().out == "images.yaml has changed since it was locked\n"
    assert lock(catalog, "--check", "--json") == 1
    [stale] = json.loads(capsys.readouterr().out)["stale"]
    assert (stale["source"], stale["code"]) == ("images.yaml", "changed")
    assert registry.requests == []


def test_a_tag_that_is_not_there_leaves_no_lock(catalog, hub, registry, capsys):
    assert lock(catalog) == 2

    assert "image llama-swap: " in (messages := capsys.readouterr().err)
    assert f"has no image org/swap:{TAG}" in messages
    assert not (catalog / "lock.json").exists()


def test_upgrade_refuses_what_is_neither_model_nor_image(catalog, locked, hub, registry, capsys):
    registry.put("org/swap", TAG)

    assert lock(catalog, "--upgrade", "llama-swap", "gpt-5") == 2
    assert "No model gpt-5" in capsys.readouterr().err


BUDGET = "\nlatency:\n  - {consumer: triage, prompt_tokens: 100, answer_tokens: 50, p95_seconds: %s, cold: excluded}\n"


def with_speed(catalog):
    """Let the ledger state that tiny-text takes 10 s for its first token on a card."""
    argv = locks.require(catalog).models["tiny-text"].argv
    speed = Speed(
        model="tiny-text",
        argv_sha256=argv_sha256(argv),
        card="laptop",
        engine="b11549",
        device="Tesla T4",
        date="2026-11-24T00:00:00Z",
        first_token=(FirstToken(prompt_tokens=10, seconds=10.0), FirstToken(prompt_tokens=200, seconds=10.0)),
        next_token=tuple(NextToken(at_once=1, context_tokens=at, seconds=0.1) for at in (26, 216)),
        answers=200,
        p95_ratio=1.1,
        load_seconds=None,
    )
    ledger.write(catalog, ledger.read(catalog).with_speed(speed))


def test_a_latency_budget_that_its_benchmark_shows_impossible_is_refused(catalog, locked, hub, capsys):
    with_speed(catalog)
    assert lock(catalog) == 0
    before = (catalog / "lock.json").read_bytes()
    file = catalog / "models" / "tiny-text.yaml"
    plain = file.read_text()
    file.write_text(plain + BUDGET % 14)
    capsys.readouterr()
    assert lock(catalog) == 2
    assert (catalog / "lock.json").read_bytes() == before
    printed = capsys.readouterr().err
    assert "tiny-text: the latency budget of triage is 14 s, and half of the answers take 0.90 s longer" in printed
    assert "Raise p95_seconds" in printed

    file.write_text(plain + BUDGET % 16.5)
    assert lock(catalog, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["latency"]
    assert (found["state"], found["p50"], found["p95"]) == ("holds", pytest.approx(14.9), pytest.approx(16.39))


def test_a_latency_budget_without_a_benchmark_is_shown_as_unknown(catalog, locked, hub, capsys):
    edit(catalog, "context:", BUDGET.strip() % 14 + "\ncontext:")
    assert lock(catalog) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "triage" in line and "unknown" in line]
    assert "corral bench --speeds tiny-text" in row


def with_images(catalog, images, context=2048):
    """Let a request of tiny-vision hold *images*."""
    file = catalog / "models" / "tiny-vision.yaml"
    plain = (DEMO / "models" / "tiny-vision.yaml").read_text()
    file.write_text(plain.replace("context: 2048", f"context: {context}\nimages_per_request: {images}"))


def test_a_context_without_room_for_the_images_of_a_request_is_refused(catalog, locked, hub, capsys):
    before = (catalog / "lock.json").read_bytes()
    with_images(catalog, 28)
    assert lock(catalog) == 2
    assert (catalog / "lock.json").read_bytes() == before
    printed = capsys.readouterr().err
    assert (
        "tiny-vision: 28 images of 896 pixels a side take 66 tokens each, with 256 of text 2,104, more than" in printed
    )
    assert "context: 2304 would do, or images_per_request: 27" in printed

    with_images(catalog, 28, context=2304)
    assert lock(catalog, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["images"]
    assert (found["state"], found["tokens_an_image"], found["needed"]) == ("fits", 66, 2104)

    with_images(catalog, 27)
    assert lock(catalog) == 0
    assert "tiny-vision\t27\t66\t2,038\t2,048\tfits\t10 tokens are left" in capsys.readouterr().out


def test_images_of_a_projector_without_a_rule_are_shown_as_unknown(catalog, locked, hub, capsys, monkeypatch):
    monkeypatch.setattr(image_tokens, "_OF_ANY_SIZE", ())
    with_images(catalog, 1000)
    assert lock(catalog) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "unknown" in line]
    assert row.split("\t")[:6] == ["tiny-vision", "1,000", "-", "-", "2,048", "unknown"]
    assert "of projector qwen3vl_merger; corral contract vision tiny-vision measures it" in row


def test_images_whose_header_is_missing_are_unknown_and_not_fine(catalog, locked):
    with_images(catalog, 1)
    assert lock(catalog) == 0
    models = locks.require(catalog).models
    (known,) = image_room.rooms(models, catalog)
    assert known.state is image_room.State.FITS
    shutil.rmtree(catalog / "headers")
    (unknown,) = image_room.rooms(models, catalog)
    assert unknown.state is image_room.State.UNKNOWN
