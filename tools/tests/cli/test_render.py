"""`corral render`: what is written from the catalog, and what is stale."""

from __future__ import annotations

import shutil

import pytest
import yaml

from corral import documents, paths
from corral.catalog import catalog
from corral.cli.main import main
from corral.lock import lock
from corral.vram.prediction import mib

DEMO = paths.REPOSITORY / "terraform" / "catalog-demo"


@pytest.fixture
def clone(tmp_path):
    """The parts of the repository that are rendered, with the demo catalog as its own."""
    shutil.copytree(DEMO, tmp_path / "terraform" / "catalog")
    (tmp_path / "docs").mkdir()
    return tmp_path


def rendered(clone):
    wanted = catalog.load(clone / "terraform" / "catalog")
    return documents.repository_documents(wanted, lock.read(wanted.lock_file), clone)


def write(clone):
    for document in rendered(clone):
        document.path.write_text(document.text)


def test_a_table_row_has_the_facts_of_the_lock(clone):
    write(clone)

    entry = lock.read(DEMO / "lock.json").models["tiny-vision"]
    cells = [
        "`tiny-vision`",
        "chat",
        "corral/tiny-vision-GGUF",
        "F16",
        "2,048",
        "mmproj-tiny-vision-F32.gguf",
        "1.3 MiB",
        f"{mib(entry.predicted.gpu_bytes)} MiB",
        f"`{entry.revision[:12]}`",
    ]
    row = f"| {' | '.join(cells)} |"
    assert row in (clone / "docs" / "models.md").read_text()


def test_what_was_rendered_is_fresh_until_the_catalog_changes(clone):
    write(clone)
    assert [item.path.name for item in rendered(clone) if item.stale] == []

    model = clone / "terraform" / "catalog" / "models" / "tiny-text.yaml"
    model.write_text(model.read_text().replace("context: 2048", "context: 1024"))

    assert [item.path.name for item in rendered(clone) if item.stale] == ["models.md"]
    assert "| 1,024 | none | not locked | not locked | not locked |" in rendered(clone)[0].text


def test_a_seat_that_is_not_predicted_is_marked(clone):
    model = clone / "terraform" / "catalog" / "models" / "tiny-text.yaml"
    model.write_text(model.read_text() + "vram: {declared_mib: 9000, why: measured}\n")
    wanted = catalog.load(clone / "terraform" / "catalog")
    present = lock.read(wanted.lock_file)
    entry = present.models["tiny-text"].model_copy(update={"intent": wanted.models["tiny-text"].normalised()})
    lock.write(wanted.lock_file, present.model_copy(update={"models": present.models | {"tiny-text": entry}}))

    assert "| 9,000 MiB *declared* |" in rendered(clone)[0].text


def test_the_repositorys_own_files_are_fresh(capsys):
    assert main(["render", "--check", "--catalog", str(paths.REPOSITORY / "terraform" / "catalog")]) == 0


def test_another_catalog_does_not_overwrite_the_repositorys_documents(capsys):
    assert main(["render", "--catalog", str(DEMO)]) == 2
    assert "corral render --print models" in capsys.readouterr().err


def test_the_litellm_list_has_every_name_a_request_may_use(capsys):
    assert main(["render", "--catalog", str(DEMO), "--print", "litellm", "--api-base", "http://h:1/v1"]) == 0

    listed = yaml.safe_load(capsys.readouterr().out)["model_list"]

    assert [entry["model_name"] for entry in listed] == ["smollm2", "tiny-text", "tiny", "tiny-think", "tiny-vision"]
    assert listed[2]["litellm_params"]["model"] == "openai/tiny-text"
    assert [entry["model_info"]["supports_vision"] for entry in listed] == [False, False, False, False, True]
    assert {entry["litellm_params"]["api_base"] for entry in listed} == {"http://h:1/v1"}


def test_what_litellm_waits_for_and_its_key_are_those_of_the_options(capsys):
    more = ["--load-seconds", "600", "--answer-seconds", "60", "--api-key-env", "DOOR_KEY"]
    assert main(["render", "--catalog", str(DEMO), "--print", "litellm", *more]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    found = {(one["litellm_params"]["timeout"], one["litellm_params"]["api_key"]) for one in printed["model_list"]}
    assert found == {(660, "os.environ/DOOR_KEY")}


def test_a_litellm_list_needs_a_fresh_lock(clone, capsys):
    catalog = clone / "terraform" / "catalog"
    (catalog / "lock.json").unlink()
    assert main(["render", "--catalog", str(catalog), "--print", "litellm"]) == 2
    assert "corral lock" in capsys.readouterr().err


def test_print_writes_nothing_but_stdout(clone, capsys):
    before = sorted(clone.rglob("*"))
    assert main(["render", "--catalog", str(clone / "terraform" / "catalog"), "--print", "litellm"]) == 0
    assert capsys.readouterr().out
    assert sorted(clone.rglob("*")) == before


@pytest.mark.parametrize("is_file", [False, True], ids=["empty", "a-file"])
def test_manifests_go_into_a_folder_that_is_named(is_file, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("x")
    monkeypatch.chdir(tmp_path)

    if is_file:
        assert main(["render", "--manifests", "file"]) == 2
        assert "file is not a folder." in capsys.readouterr().err
    else:
        with pytest.raises(SystemExit, match="2"):
            main(["render", "--manifests", ""])
        assert "an empty name would be the working folder" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
