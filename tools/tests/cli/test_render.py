"""`corral render`: what is written from the catalog, and what is stale."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from corral import documents, paths
from corral.catalog import catalog
from corral.cli.main import main
from corral.errors import Refused
from corral.lock import lock
from corral.lock.predicted import mib

DEMO = paths.REPOSITORY / "terraform" / "catalog-demo"


@pytest.fixture
def clone(tmp_path):
    """The parts of the repository that are rendered, with the demo catalog as its own."""
    shutil.copytree(DEMO, tmp_path / "terraform" / "catalog")
    shutil.copy(paths.REPOSITORY / "README.md", tmp_path)
    (tmp_path / "docs").mkdir()
    return tmp_path


def rendered(clone):
    wanted = catalog.load(clone / "terraform" / "catalog")
    return documents.repository_documents(wanted, lock.read(wanted.lock_file), clone)


def write(clone):
    for document in rendered(clone):
        document.path.write_text(document.text)


def test_a_table_row_says_what_the_lock_says(clone):
    write(clone)

    entry = lock.read(DEMO / "lock.json").models["tiny-vision"]
    cells = [
        "`tiny-vision`",
        "corral/tiny-vision-GGUF",
        "F16",
        "2,048",
        "mmproj-tiny-vision-F32.gguf",
        "1.1 MiB",
        f"{mib(entry.vram.gpu_total)} MiB",
        f"`{entry.revision[:12]}`",
    ]
    row = f"| {' | '.join(cells)} |"
    assert row in (clone / "docs" / "models.md").read_text()
    assert row in (clone / "README.md").read_text()


def test_what_was_rendered_is_fresh_until_the_catalog_changes(clone):
    write(clone)
    assert [item.path.name for item in rendered(clone) if item.stale] == []

    model = clone / "terraform" / "catalog" / "models" / "tiny-text.yaml"
    model.write_text(model.read_text().replace("context: 2048", "context: 1024"))

    assert [item.path.name for item in rendered(clone) if item.stale] == ["README.md", "models.md", "litellm.yaml"]
    assert "| 1,024 | none | not locked | not locked | not locked |" in rendered(clone)[1].text


@pytest.mark.parametrize(
    ("harm", "cell"),
    [
        (lambda entry: entry.pop("vram"), "| not measured |"),
        (
            lambda entry: entry["vram"].update(declared={"mib": 9000, "why": "seen"}, gpu_total=9000 << 20),
            "| 9,000 MiB *declared* |",
        ),
    ],
    ids=["not measured", "declared"],
)
def test_what_was_not_measured_does_not_look_as_if_it_were(clone, harm, cell):
    file = clone / "terraform" / "catalog" / "lock.json"
    document = json.loads(file.read_text())
    harm(document["models"]["tiny-text"])
    file.write_text(json.dumps(document))

    assert cell in rendered(clone)[1].text


def test_the_litellm_list_has_every_name_a_request_may_use(clone):
    write(clone)

    listed = yaml.safe_load((clone / "docs" / "litellm.yaml").read_text())["model_list"]

    assert [entry["model_name"] for entry in listed] == ["tiny-text", "tiny", "tiny-think", "tiny-vision"]
    assert listed[1]["litellm_params"]["model"] == "openai/tiny-text"
    assert [entry["model_info"]["supports_vision"] for entry in listed] == [False, False, False, True]


def test_a_readme_that_lost_its_block_is_refused(clone):
    readme = clone / "README.md"
    readme.write_text(readme.read_text().replace("<!-- models: end -->", ""))

    with pytest.raises(Refused, match="must have one block"):
        rendered(clone)


def test_the_repositorys_own_files_are_fresh(capsys):
    assert main(["render", "--check", "--catalog", str(paths.REPOSITORY / "terraform" / "catalog")]) == 0


def test_another_catalog_does_not_overwrite_the_repositorys_documents(capsys):
    assert main(["render", "--catalog", str(DEMO)]) == 2
    assert "corral render --print models" in capsys.readouterr().err


def test_print_writes_nothing_but_stdout(capsys):
    assert main(["render", "--catalog", str(DEMO), "--print", "litellm", "--api-base", "http://h:1/v1"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["model_list"][0]["litellm_params"]["api_base"] == "http://h:1/v1"
