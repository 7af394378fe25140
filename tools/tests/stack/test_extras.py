"""A draft model and adapters of other repositories: locked, fetched and run by the lock, with the seat they take."""

from __future__ import annotations

import json

import pytest

from corral import paths
from corral.cli.main import main
from corral.demo import tiny_gguf
from corral.demo.hub import Hub, RepoContent
from corral.engine import stack
from corral.lock import lock as locks
from corral.measure.comparison import LIMIT
from tests.support.adapters import header_of, write_adapter, write_answering
from tests.support.engine_process import chat, free_port, post, question
from tests.support.locked_catalog import write_sources
from tests.support.why_command import diagnose, wait_for_evidence

pytestmark = pytest.mark.timeout(240)

PLAIN = {"card": "laptop", "context": 1024, "modalities": ["text"]}
REPOS = {name: f"corral/{name}-GGUF" for name in ("base", "draft", "red", "foreign", "wide")}


def source(name):
    return {"source": {"repo": REPOS[name], "file": f"{name}.gguf"}}


MODELS = {
    "plain": PLAIN | source("base"),
    "drafted": PLAIN | source("base") | {"draft": source("draft"), "args": {"spec-draft-n-max": 4}},
    "adapted": PLAIN | source("base") | {"draft": source("draft"), "adapters": [source("red") | {"scale": 1.25}]},
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extras")
    files = {name: folder / f"{name}.gguf" for name in REPOS}
    tiny_gguf.write_text(files["base"])
    tiny_gguf.write_text(files["draft"], n_ff=128)
    tiny_gguf.write_text(files["wide"], vision=True)
    base = header_of(files["base"])
    write_answering(files["red"], "red")
    write_adapter(files["foreign"], base, 4, architecture="llama")
    repositories = {REPOS[name]: RepoContent({path.name: path}) for name, path in files.items()}
    with Hub(repositories) as present, pytest.MonkeyPatch.context() as settings:
        settings.setenv("HF_ENDPOINT", present.endpoint)
        settings.setenv("OMP_WAIT_POLICY", "passive")
        settings.setenv("CORRAL_STATE", str(folder / "state"))
        yield present, folder


@pytest.fixture(scope="module")
def running(hub):
    """A stack of models with and without extras: (catalog, state folder)."""
    _, folder = hub
    catalog = write_sources(folder / "catalog", MODELS, {"laptop": {"vram_mib": 4096}})
    assert main(["lock", "--catalog", str(catalog)]) == 0
    assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(free_port())]) == 0
    yield catalog, folder / "state"
    stack.stop(folder / "state", drain_s=0)


@pytest.fixture
def present(running, hub, monkeypatch):
    monkeypatch.setenv("CORRAL_STATE", str(running[1]))
    monkeypatch.setenv("HF_ENDPOINT", hub[0].endpoint)
    found = stack.running(paths.state_dir())
    assert found is not None
    return found, running[0], running[1] / "store"


def test_the_lock_has_each_file_with_the_commit_of_its_own_repository(present, hub):
    entry = locks.require(present[1]).models["adapted"]
    assert [(one.role, one.repo, one.path) for one in entry.files] == [
        ("model", None, "base.gguf"),
        ("draft", REPOS["draft"], "draft.gguf"),
        ("adapter", REPOS["red"], "red.gguf"),
    ]
    commits = [hub[0].repositories.commit(REPOS[name], "main").id for name in ("draft", "red")]
    assert [one.revision for one in entry.files[1:]] == commits
    assert "--lora-scaled ${STORE}/adapted/adapter-1.gguf:1.25" in " ".join(entry.argv)
    assert "-md ${STORE}/adapted/draft.gguf --spec-type draft-simple --spec-draft-ngl 99" in " ".join(entry.argv)
    assert '"repo": null' not in present[1].joinpath("lock.json").read_text().partition('"files"')[2].partition("]")[0]


def test_the_store_has_them_under_names_of_their_own_and_verifies_them(present):
    _, catalog, store = present
    assert sorted(path.name for path in (store / "adapted").iterdir()) == ["adapter-1.gguf", "draft.gguf", "model.gguf"]
    assert main(["verify", "--catalog", str(catalog)]) == 0


def test_an_adapter_changes_the_answer_and_a_draft_does_not(present):
    found, *_ = present
    answers = {model: chat(found.endpoint, "Hello.", model=model)["message"]["content"] for model in MODELS}
    assert answers == {"plain": "OK", "drafted": "OK", "adapted": "red"}
    _, body = post(f"{found.endpoint}/v1/chat/completions", question("Hello.", model="drafted"))
    assert json.loads(body)["timings"]["draft_n"] > 0


def test_models_with_extras_take_what_was_predicted_within_the_limit(present, capsys):
    _, catalog, _ = present
    assert main(["measure", "--json", "--catalog", str(catalog)]) == 0
    measured = {one["model"]: one for one in json.loads(capsys.readouterr().out)["measurements"]}
    assert measured.keys() == MODELS.keys()
    assert max(abs(one["deviation"]) for one in measured.values()) <= LIMIT
    lock = locks.require(catalog)
    seats = {model: entry.predicted.gpu for model, entry in lock.models.items()}
    assert seats["plain"].draft == 0 < seats["drafted"].draft == seats["adapted"].draft
    assert seats["plain"].adapters == 0 < seats["adapted"].adapters


@pytest.fixture(params=["draft.gguf", "adapter-1.gguf"])
def extra(request, present):
    """The link to an extra of the model `adapted`, which is unloaded; the same link is there again at the end."""
    found, _, store = present
    found.client().unload("adapted")
    link = store / "adapted" / request.param
    kept = link.rename(link.with_name("kept"))
    yield link
    link.unlink(missing_ok=True)
    kept.rename(link)


def test_an_extra_that_is_missing_is_named_and_the_model_is_not_healthy(present, extra, capsys, monkeypatch):
    wait_for_evidence(monkeypatch)
    verdict = diagnose(capsys, "adapted", "--catalog", str(present[1]))
    assert (verdict["class"], verdict["culprit"]) == ("file-missing", str(extra))
    assert verdict["next"][0].startswith("corral fetch adapted ")


def test_an_extra_that_is_damaged_is_blamed_and_the_weights_are_not(present, extra, capsys, monkeypatch):
    wait_for_evidence(monkeypatch)
    other = extra.with_name("other.gguf")
    whole = extra.with_name("kept").read_bytes()
    other.write_bytes(b"????" + whole[4:])  # of the same size: the engine alone finds it out
    extra.symlink_to(other)
    try:
        assert post(f"{present[0].endpoint}/v1/chat/completions", question("Hello.", model="adapted"))[0] >= 500
        verdict = diagnose(capsys, "adapted", "--catalog", str(present[1]))
    finally:
        other.unlink()
    assert (verdict["class"], verdict["culprit"]) == ("file-damaged", str(extra))


@pytest.mark.parametrize(
    ("extras", "why"),
    [
        ({"adapters": [source("foreign")]}, "is for the architecture llama, and the model is of qwen3"),
        ({"adapters": [source("base")]}, "is no LoRA adapter"),
        ({"draft": {"source": {"repo": REPOS["draft"], "quant": "Q4_K_M"}}}, "no GGUF with quant Q4_K_M"),
        ({"draft": {"source": {"repo": REPOS["draft"], "quant": "Q4_K_M"}}}, "→ Correct draft.source.quant, or name"),
        ({"draft": source("red")}, "its draft: it is a LoRA adapter, and no model."),
        (
            {"adapters": [source("red"), {"source": {"repo": "corral/gone-GGUF", "file": "x.gguf"}}]},
            "its adapter: There",
        ),
        (
            {"adapters": [source("red"), {"source": {"repo": "corral/gone-GGUF", "file": "x.gguf"}}]},
            "→ Correct adapters.1.source.repo",
        ),
        (source("red"), "it is a LoRA adapter, and no model."),
    ],
)
def test_an_extra_that_is_not_for_the_model_is_refused_at_the_lock(hub, tmp_path, monkeypatch, capsys, extras, why):
    monkeypatch.setenv("HF_ENDPOINT", hub[0].endpoint)
    catalog = write_sources(tmp_path, {"m": PLAIN | source("base") | extras}, {"laptop": {"vram_mib": 4096}})
    assert main(["lock", "--catalog", str(catalog)]) == 2
    assert why in capsys.readouterr().err


def test_extras_on_disk_are_locked_verified_and_linked_from_where_they_are(hub, tmp_path):
    folder = hub[1]
    files = {name: {"source": {"path": str(folder / f"{name}.gguf")}} for name in ("base", "draft", "red")}
    extras = {"draft": files["draft"], "adapters": [files["red"]]}
    catalog = write_sources(tmp_path / "c", {"m": PLAIN | files["base"] | extras}, {"laptop": {"vram_mib": 4096}})
    assert main(["lock", "--catalog", str(catalog)]) == 0
    entry = locks.require(catalog).models["m"]
    assert [(one.role, one.repo, one.path) for one in entry.files] == [
        (role, None, str(folder / f"{name}.gguf"))
        for role, name in (("model", "base"), ("draft", "draft"), ("adapter", "red"))
    ]
    assert entry.predicted.gpu.draft > 0 < entry.predicted.gpu.adapters
    store = tmp_path / "store"
    assert main(["fetch", "--catalog", str(catalog), "--store", str(store)]) == 0
    assert main(["verify", "--catalog", str(catalog), "--store", str(store)]) == 0
    assert {one.name: one.read_bytes() for one in (store / "m").iterdir()} == {
        name: (folder / of).read_bytes()
        for name, of in (("model.gguf", "base.gguf"), ("draft.gguf", "draft.gguf"), ("adapter-1.gguf", "red.gguf"))
    }


def test_an_extra_that_a_locked_model_gets_later_is_locked_too(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub[0].endpoint)
    catalog = write_sources(tmp_path, {"m": PLAIN | source("base")}, {"laptop": {"vram_mib": 4096}})
    for extras, roles in (
        ({}, ["model"]),
        ({"adapters": [source("red")]}, ["model", "adapter"]),
        ({"draft": source("draft")}, ["model", "draft"]),
        ({}, ["model"]),
    ):
        (catalog / "models" / "m.yaml").write_text(json.dumps(PLAIN | source("base") | extras))
        assert main(["lock", "--catalog", str(catalog)]) == 0
        assert [one.role for one in locks.require(catalog).models["m"].files] == roles


@pytest.mark.parametrize(
    "change", [{"context": 512}, {"adapters": [source("red")]}], ids=["another context", "an adapter beside it"]
)
def test_an_extra_stays_on_its_commit_until_it_is_upgraded(hub, tmp_path, monkeypatch, change):
    folder, newer = hub[1], tmp_path / "draft.gguf"
    tiny_gguf.write_text(newer, n_ff=192)
    # A hub of its own: other tests compare the first commits of the common one.
    contents = {
        REPOS[name]: RepoContent({f"{name}.gguf": folder / f"{name}.gguf"}) for name in ("base", "draft", "red")
    }
    with Hub(contents) as own:
        monkeypatch.setenv("HF_ENDPOINT", own.endpoint)
        catalog = write_sources(tmp_path, {"m": MODELS["drafted"]}, {"laptop": {"vram_mib": 4096}})

        def draft(*options):
            assert main(["lock", "--catalog", str(catalog), *options]) == 0
            (found,) = [one for one in locks.require(catalog).models["m"].files if one.role == "draft"]
            return found

        before = draft()
        own.repositories.add(REPOS["draft"], RepoContent({"draft.gguf": newer}))
        (catalog / "models" / "m.yaml").write_text(json.dumps(MODELS["drafted"] | change))
        assert draft() == before
        assert draft("--upgrade", "m").sha256 != before.sha256
