"""The seam to Terraform, with the real Terraform."""

from __future__ import annotations

import json
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from corral import paths
from corral.catalog.intent import Card, Model
from corral.errors import CannotRun, ProgramMissing, Refused
from corral.files import exclusive_lock
from corral.terraform import local, runner
from tests.support.locked_catalog import SMALLEST_INTENT, write_catalog

ENGINE = Path("/opt/llama-server")


@pytest.fixture
def catalog(tmp_path):
    return write_catalog(tmp_path / "catalog", {"text": SMALLEST_INTENT, "writer": SMALLEST_INTENT})


def fake_terraform(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    program = folder / "bin" / "terraform"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def test_a_locked_catalog_becomes_a_configuration(catalog, tmp_path):
    text = local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state", start_port=6100)

    config = yaml.safe_load(text)
    assert list(config["models"]) == ["text", "writer"]
    before, _, command = config["models"]["text"]["cmd"].partition(" -- ")
    assert before.split()[1:] == ["--model", "text", "--need-mib", "100"]
    assert command.split() == [str(ENGINE), "-m", f"{tmp_path}/store/model.gguf", "--port", "${PORT}"]
    assert config["startPort"] == 6100


def test_the_second_rendering_is_the_same(catalog, tmp_path):
    first = local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state") == first


def test_a_plan_tells_what_a_rendering_would_change(catalog, tmp_path):
    def plan(store: str) -> str:
        return local.plan_local(catalog, tmp_path / store, ENGINE, state=tmp_path / "state")

    assert "llama_swap_config = <<-EOT" in plan("store")
    local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert "No changes." in plan("store")
    changed = plan("other")
    assert f"-m {tmp_path}/other/model.gguf" in changed
    assert "No changes." in plan("store"), "a plan must change nothing"


def test_a_plan_refuses_what_a_rendering_refuses(catalog, tmp_path):
    (catalog / "lock.json").unlink()

    with pytest.raises(Refused, match=r"no lock\.json"):
        local.plan_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")


def test_the_defaults_of_terraform_are_those_of_the_catalog(catalog, tmp_path):
    text = local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")
    outputs = json.loads((tmp_path / "state" / "terraform" / "terraform.tfstate").read_text())["outputs"]

    rendered = outputs["models"]["value"][0]
    intended = Model.model_validate(SMALLEST_INTENT).model_dump(mode="json", include=set(rendered))
    assert rendered == {"id": "text", **intended}
    assert yaml.safe_load(text)["models"]["text"]["ttl"] == intended["ttl"]


def test_the_seating_has_the_defaults_of_the_catalog(catalog, tmp_path):
    chart = local.seating(catalog, state=tmp_path / "state")

    assert chart["models"]["text"]["slot"] == Model.model_validate(SMALLEST_INTENT).slot
    assert chart["cards"]["laptop"]["reserve_mib"] == Card(vram_mib=8192).reserve_mib


def test_a_set_that_does_not_fit_has_a_chart_and_no_configuration(catalog, tmp_path):
    (catalog / "cards" / "laptop.yaml").write_text("vram_mib: 600\ntenants: {desktop: {budget_mib: 300}}\n")

    card = local.seating(catalog, state=tmp_path / "state")["cards"]["laptop"]
    assert (card["fits"], card["free_mib"], card["short_mib"]) == (False, -312, 312)

    with pytest.raises(Refused, match="Card laptop is short of 312 MiB") as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")
    assert caught.value.message == (
        "Card laptop is short of 312 MiB: desktop 300, slot main 100 (text, writer), the reserve 512 add up to 912 of "
        "its 600 MiB. No single change of a context, a slot or a budget would do: the largest are desktop 300, "
        "slot main 100 (text, writer). For the chart and the exact edit run: corral seat"
    )
    assert caught.value.next_step == f"corral seat --catalog {catalog}"


def test_a_catalog_that_no_chart_is_true_of_has_none(catalog, tmp_path):
    (catalog / "models" / "writer.yaml").write_text(json.dumps({**SMALLEST_INTENT, "context": 1024}))

    with pytest.raises(Refused, match=r"^Stale in lock\.json: writer\.") as caught:
        local.seating(catalog, state=tmp_path / "state")

    assert caught.value.next_step == f"corral lock --catalog {catalog}"


def test_a_catalog_without_models_has_no_chart(tmp_path):
    with pytest.raises(Refused, match=r"^The catalog .* has no models; it must be a folder with [^\n]*$"):
        local.seating(tmp_path, state=tmp_path / "state")


@pytest.mark.parametrize("broken", ["[", "{}", '{"version": 1, "measurements": [{}]}'])
def test_a_ledger_that_cannot_be_read_is_refused(broken, catalog, tmp_path):
    (catalog / "measured.json").write_text(broken)

    with pytest.raises(Refused, match=r"^measured\.json is not a ledger of version 1"):
        local.seating(catalog, state=tmp_path / "state")


def test_a_card_that_is_not_utf_8_is_refused(catalog, tmp_path):
    (catalog / "cards" / "laptop.yaml").write_bytes(b"vram_mib: 8192 # \xff\n")

    with pytest.raises(Refused, match=r"^Cards that cannot be read: laptop"):
        local.seating(catalog, state=tmp_path / "state")


def test_advice_is_passed_on_once_and_stops_nothing(tmp_path):
    catalog = write_catalog(tmp_path / "catalog", {"text": SMALLEST_INTENT}, ["llama-server", "--port", "${PORT}"])
    heard: list[str] = []

    assert local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state", warn=heard.append)
    local.plan_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state", warn=heard.append)

    assert [text.split(".")[0] for text in heard] == ["Flash attention is not on: text"] * 2


def test_paths_with_spaces_and_quotes_are_fine(tmp_path):
    odd = tmp_path / 'it\'s a "folder" (x) # $y'
    catalog = write_catalog(odd / "cata log", {"text": SMALLEST_INTENT})

    text = local.render_local(catalog, odd / "st ore", odd / "llama server", state=odd / "st ate")

    quoted = str(odd).replace("'", "'\\''")
    command = yaml.safe_load(text)["models"]["text"]["cmd"].partition(" -- ")[2]
    assert command.splitlines() == [
        f"'{quoted}/llama server'",
        f"-m '{quoted}/st ore/model.gguf'",
        "--port ${PORT}",
    ]


def test_nothing_is_written_beside_the_stack(catalog, tmp_path):
    before = sorted(local.STACK.rglob("*"))

    local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert sorted(local.STACK.rglob("*")) == before


def test_renderings_in_one_state_folder_wait_for_each_other(catalog, tmp_path):
    stores = [tmp_path / f"store-{number}" for number in range(4)]
    with ThreadPoolExecutor(len(stores)) as pool:
        runs = [pool.submit(local.render_local, catalog, store, ENGINE, state=tmp_path / "state") for store in stores]

    for store, run in zip(stores, runs, strict=True):
        assert f"-m {store}/model.gguf" in run.result()


def test_a_state_folder_that_stays_busy_is_reported(catalog, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_PATIENCE", 0.1)
    with (
        exclusive_lock(tmp_path / "state" / "terraform", timeout_s=1, remedy=""),
        pytest.raises(CannotRun, match=r"Another corral has been at work in .*/state/terraform"),
    ):
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")


def test_a_state_folder_that_is_a_file_is_reported(catalog, tmp_path):
    (tmp_path / "state").write_text("")

    with pytest.raises(CannotRun, match=r"The folder .*/state/terraform cannot be used: Not a directory") as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert "CORRAL_STATE" in caught.value.next_step


def test_a_stale_lock_is_refused_by_name(catalog, tmp_path):
    (catalog / "models" / "writer.yaml").write_text(json.dumps({**SMALLEST_INTENT, "context": 1024}))

    with pytest.raises(Refused) as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert caught.value.message == (
        "Stale in lock.json: writer. The intent changed after it was locked. Run: corral lock"
    )
    assert caught.value.next_step == f"corral lock --catalog {catalog}"


def test_what_is_stale_is_told_in_one_sentence_by_two_modules(catalog, tmp_path):
    for model in ("text", "writer"):
        (catalog / "models" / f"{model}.yaml").write_text(json.dumps({**SMALLEST_INTENT, "context": 1024}))

    with pytest.raises(Refused) as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert caught.value.message.count("\n") == 0


def test_a_missing_lock_is_refused_alone(catalog, tmp_path):
    (catalog / "lock.json").unlink()

    with pytest.raises(Refused) as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert caught.value.message == (
        "The catalog has no lock.json; nothing is served that was not resolved and pinned. Run: corral lock"
    )


def test_a_lock_that_is_no_json_is_refused(catalog, tmp_path):
    (catalog / "lock.json").write_text("<<<<<<< ours\n")

    with pytest.raises(Refused, match=r"^lock\.json has version none; this module reads version 1\. "):
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")


def test_all_refusals_are_told_at_once(catalog, tmp_path):
    (catalog / "models" / "writer.yaml").rename(catalog / "models" / "author.yaml")

    with pytest.raises(Refused) as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert set(caught.value.message.splitlines()) == {
        "Not in lock.json: author. Every model of the catalog must be locked. Run: corral lock",
        (
            "In lock.json but no longer in the catalog: writer. The lock must name the catalog's models and no other. "
            "Run: corral lock"
        ),
    }


def test_a_catalog_without_models_is_refused(tmp_path):
    with pytest.raises(Refused, match=r"^The catalog .* has no models; it must be a folder with [^\n]*$"):
        local.render_local(tmp_path, tmp_path / "store", ENGINE, state=tmp_path / "state")


def test_a_catalog_path_that_terraform_takes_for_a_pattern_is_refused(tmp_path):
    catalog = write_catalog(tmp_path / "[main]", {"text": SMALLEST_INTENT})

    with pytest.raises(Refused, match="must not hold any of") as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert "has no models" not in caught.value.message


def test_a_damaged_state_names_the_folder_to_delete(catalog, tmp_path):
    local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")
    (tmp_path / "state" / "terraform" / "terraform.tfstate").write_text("{")

    with pytest.raises(CannotRun, match="Terraform failed") as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert f"{tmp_path}/state/terraform, delete that folder" in caught.value.next_step
    shutil.rmtree(tmp_path / "state" / "terraform")
    assert local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")


def test_what_the_shell_says_to_terraform_does_not_matter(catalog, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CLI_ARGS_apply", "-destroy")
    monkeypatch.setenv("TF_WORKSPACE", "elsewhere")
    monkeypatch.setenv("TF_VAR_start_port", "7000")

    text = local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert yaml.safe_load(text)["startPort"] == 5800


def test_a_missing_terraform_is_named_with_its_version_and_source(catalog, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ProgramMissing, match=r"Terraform is not installed; corral needs 1\.9 or newer\.") as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert "https://developer.hashicorp.com/terraform/install" in caught.value.next_step


def test_an_old_terraform_is_named_with_its_version(catalog, tmp_path, monkeypatch):
    program = fake_terraform(
        tmp_path, monkeypatch, """[ "$1" = version ] && echo '{"terraform_version": "1.5.7"}' && exit; exit 1"""
    )

    with pytest.raises(ProgramMissing, match=r"is Terraform 1\.5\.7; corral needs 1\.9 or newer") as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert str(program) in caught.value.message


def test_a_terraform_that_does_not_work_is_reported(catalog, tmp_path, monkeypatch):
    fake_terraform(tmp_path, monkeypatch, "exit 1")

    with pytest.raises(ProgramMissing, match="does not say its version"):
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")


def test_a_terraform_that_fails_is_quoted(catalog, tmp_path, monkeypatch):
    fake_terraform(
        tmp_path,
        monkeypatch,
        """[ "$1" = version ] && echo '{"terraform_version": "1.12.0-beta1"}' && exit
        echo 'no space left' >&2
        exit 1""",
    )

    with pytest.raises(CannotRun, match=r"Terraform failed\.\nno space left"):
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")


def test_every_module_asks_for_the_same_terraform():
    files = sorted((paths.REPOSITORY / "terraform").glob("*/*/versions.tf"))

    assert len(files) >= 2
    wanted = ".".join(str(number) for number in runner.MINIMUM_VERSION)
    for file in files:
        assert f'required_version = ">= {wanted}"' in file.read_text(), file
