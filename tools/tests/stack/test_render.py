"""The seam to Terraform, with the real Terraform."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import stat
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from corral import keys, paths
from corral.card import local as promised
from corral.catalog.catalog import load
from corral.catalog.intent import Model
from corral.drill.small_disk import fill
from corral.engine.door import Door
from corral.errors import CannotRun, CatalogInvalid, ProgramMissing, Refused
from corral.exporter.config import read_config
from corral.files import OwnFolder
from corral.keys import LocalKeys
from corral.lock import lock
from corral.terraform import local, runner, without_provider
from corral.terraform.program import find_terraform
from tests.support.kernel import modes, small_disk, umask
from tests.support.locked_catalog import SMALLEST_INTENT, write_catalog, write_lock, write_sources

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
    assert command.split()[:3] == [str(ENGINE), "-m", f"{tmp_path}/store/text/model.gguf"]
    assert command.split()[-2:] == ["--port", "${PORT}"]
    assert config["startPort"] == 6100


def test_an_exporter_elsewhere_has_the_promises_that_this_machine_computes(tmp_path):
    budget = {"consumer": "desk", "prompt_tokens": 300, "answer_tokens": 120, "p95_seconds": 4.5}
    card = {
        "vram_mib": 8192,
        "yield": {"floor_mib": 1024},
        "tenants": {"plex": {"budget_mib": 300, "unit": "plex.service"}, "desktop": {"budget_mib": 200}},
    }
    intents = {"text": SMALLEST_INTENT | {"latency": [budget]}, "writer": SMALLEST_INTENT | {"group": "side"}}
    catalog = write_sources(tmp_path / "catalog", intents, {"laptop": card})
    write_lock(catalog)
    read = json.loads(local.render_promises(catalog, state=tmp_path / "state"))
    own = {
        "version": 1,
        "listen": {"host": "127.0.0.1", "port": 0},
        "operator_keys": "/keys.json",
        "engines": {"units": []},
        "door": None,
        "records": "/records",
        "alertmanager": None,
        "driver_pid_namespace": None,
    }
    (tmp_path / "config.json").write_text(json.dumps(own | read))

    found, present = read_config(tmp_path / "config.json"), lock.read(catalog / "lock.json")
    assert found.seal == present.seal
    assert found.promises == promised.promises(present)
    assert found.budgets == promised.budgets(present)
    assert found.yields == promised.rules(present)
    assert list(found.tenant_units.values()) == [{"plex": "plex.service", "desktop": None}]


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
    assert f"-m {tmp_path}/other/text/model.gguf" in changed
    assert "No changes." in plan("store"), "a plan must change nothing"


def test_a_key_is_in_no_plan_no_state_and_no_file_of_terraforms(catalog, tmp_path):
    state = tmp_path / "state"
    store = LocalKeys(state)
    made = [keys.add(store, "photos"), keys.ensure_operator(store)]
    secrets = [secret.encode() for secret in (*made, *itertools.chain(*store.read().of.values()))]
    door = Door(8080, swap_port=8081, keys=store.file)

    places = [local.plan_local(catalog, tmp_path / "store", ENGINE, state=state, door=door).encode()]
    configuration = local.render_stack(catalog, tmp_path / "store", ENGINE, state=state, start_port=8082, door=door)
    places += [str(configuration).encode()]
    places += [file.read_bytes() for file in (state / "terraform").rglob("*") if file.is_file()]
    with zipfile.ZipFile(state / "terraform" / "plan") as plan:
        places += [plan.read(name) for name in plan.namelist()]

    assert (
        sum(str(store.file).encode() in place for place in places) >= 4
    )  # plan, state and configuration name the file
    assert len(secrets) == 4  # two keys, and the hash of each
    assert not [secret for secret in secrets if any(secret in place for place in places)]


def test_a_plan_refuses_what_a_rendering_refuses(catalog, tmp_path):
    (catalog / "lock.json").unlink()

    with pytest.raises(Refused, match=r"no lock\.json"):
        local.plan_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")


def test_the_model_list_of_terraform_has_the_defaults_of_the_catalog(catalog, tmp_path):
    local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")
    outputs = json.loads((tmp_path / "state" / "terraform" / "terraform.tfstate").read_text())["outputs"]

    rendered = outputs["models"]["value"][0]
    assert rendered == {
        "id": "text",
        **Model.model_validate(SMALLEST_INTENT).model_dump(mode="json", include=set(rendered)),
    }


def test_a_set_that_does_not_fit_has_no_configuration(catalog, tmp_path):
    (catalog / "cards" / "laptop.yaml").write_text("vram_mib: 600\ntenants: {desktop: {budget_mib: 300}}\n")
    write_lock(catalog)

    with pytest.raises(Refused) as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert caught.value.message == (
        "Card laptop is short of 312 MiB: desktop 300, group main 100 (text, writer), the reserve 512 add up to 912 of "
        "its 600 MiB. For remedies run: corral seat"
    )
    assert caught.value.next_step == f"corral seat --catalog {catalog}"


def test_paths_with_spaces_and_quotes_are_fine(tmp_path):
    odd = tmp_path / 'it\'s a "folder" (x) # $y'
    catalog = write_catalog(odd / "cata log", {"text": SMALLEST_INTENT})

    text = local.render_local(catalog, odd / "st ore", odd / "llama server", state=odd / "st ate")

    quoted = str(odd).replace("'", "'\\''")
    command = yaml.safe_load(text)["models"]["text"]["cmd"].partition(" -- ")[2]
    assert command.splitlines()[:2] == [f"'{quoted}/llama server'", f"-m '{quoted}/st ore/text/model.gguf'"]


def test_nothing_is_written_beside_the_stack(catalog, tmp_path):
    before = sorted(local.STACK.rglob("*"))

    local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert sorted(local.STACK.rglob("*")) == before


@pytest.mark.parametrize("mask", [0, 0o077])
def test_all_that_a_rendering_writes_is_closed_to_other_users(catalog, tmp_path, mask):
    with umask(mask):
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")
        local.plan_local(catalog, tmp_path / "other", ENGINE, state=tmp_path / "state")

    assert (tmp_path / "state" / "terraform" / "terraform.tfstate").exists()
    assert modes(tmp_path / "state") == {"folders": {0o700}, "files": {0o600}}


def test_renderings_in_one_state_folder_wait_for_each_other(catalog, tmp_path):
    stores = [tmp_path / f"store-{number}" for number in range(4)]
    with ThreadPoolExecutor(len(stores)) as pool:
        runs = [pool.submit(local.render_local, catalog, store, ENGINE, state=tmp_path / "state") for store in stores]

    for store, run in zip(stores, runs, strict=True):
        assert f"-m {store}/text/model.gguf" in run.result()


def test_a_state_folder_that_stays_busy_is_reported(catalog, tmp_path, monkeypatch):
    monkeypatch.setattr(without_provider, "_BUSY_LIMIT_S", 0.1)
    with (
        OwnFolder(tmp_path / "state", "").exclusive_lock(tmp_path / "state" / "terraform", timeout_s=1),
        pytest.raises(CannotRun, match=r"Another corral .* has been at work in .*/state/terraform"),
    ):
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")


def test_a_state_folder_that_is_a_file_is_reported(catalog, tmp_path):
    (tmp_path / "state").write_text("")

    with pytest.raises(CannotRun, match=r"The folder .*/state/terraform cannot be used: File exists") as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert "CORRAL_STATE" in caught.value.next_step


def change_every_kind_of_file(catalog: Path) -> None:
    for file in ("models/text.yaml", "cards/laptop.yaml"):
        with (catalog / file).open("a") as text:
            text.write("\n# a comment\n")
    (catalog / "models" / "writer.yaml").rename(catalog / "models" / "author.yaml")
    (catalog / "images.yaml").write_text("fetch: python:3.13-slim\n")
    (catalog / "measured.json").write_text("{}")


def edit_the_lock(catalog: Path) -> None:
    file = catalog / "lock.json"
    file.write_text(file.read_text().replace('"context": 512', '"context": 1024', 1))


def replace_the_lock_by_a_folder(catalog: Path) -> None:
    (catalog / "lock.json").unlink()
    (catalog / "lock.json").mkdir()


FAULTS = {
    "missing": (
        lambda catalog: (catalog / "lock.json").unlink(),
        "The catalog has no lock.json; nothing is served that was not resolved and pinned.",
    ),
    "no JSON": (
        lambda catalog: (catalog / "lock.json").write_text("<<<<<<< ours\n"),
        "lock.json cannot be read: it is not JSON with a version.",
    ),
    "no text": (
        lambda catalog: (catalog / "lock.json").write_bytes(b"\xff"),
        "lock.json cannot be read: it is not JSON with a version.",
    ),
    "no object": (
        lambda catalog: (catalog / "lock.json").write_text("[2]"),
        "lock.json cannot be read: it is not JSON with a version.",
    ),
    "a folder": (
        replace_the_lock_by_a_folder,
        "lock.json is not a file; a lock is one. Remove it.",
    ),
    "version 1": (
        lambda catalog: (catalog / "lock.json").write_text('{"version": 1, "models": {"text": 1}}'),
        "lock.json has version 1, and this corral reads version 2.",
    ),
    "no seal": (
        lambda catalog: (catalog / "lock.json").write_text('{"version": 2, "models": 7}'),
        "lock.json was edited or merged after corral lock had written it: its seal does not match.",
    ),
    "edited": (
        edit_the_lock,
        "lock.json was edited or merged after corral lock had written it: its seal does not match.",
    ),
    "stale": (
        change_every_kind_of_file,
        (
            "lock.json is stale: cards/laptop.yaml was changed, images.yaml was added, measured.json was added, "
            "models/author.yaml was added, models/text.yaml was changed, models/writer.yaml was removed. "
            "It must be made from the catalog's files as they are."
        ),
    ),
    "dangling ledger": (
        lambda catalog: (catalog / "measured.json").symlink_to("nowhere"),
        "lock.json is stale: measured.json was added. It must be made from the catalog's files as they are.",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lock_that_cannot_be_trusted_is_refused_once(fault, catalog, tmp_path):
    inflict, message = FAULTS[fault]
    inflict(catalog)

    with pytest.raises(Refused) as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    command = "corral lock --check" if " version" in message else "corral lock"
    assert caught.value.message == f"{message} Run: {command}"
    assert caught.value.next_step == f"{command} --catalog {catalog}"


@pytest.mark.parametrize(
    ("harm", "change"),
    [
        (lambda file: file.write_text("{{ message }}"), "changed"),
        (lambda file: file.unlink(), "removed"),
        (lambda file: (file.unlink(), file.symlink_to("nowhere")), "changed"),
    ],
    ids=["changed", "removed", "dangling"],
)
def test_a_text_of_the_catalog_is_rendered_and_another_one_is_stale(harm, change, tmp_path):
    file = tmp_path / "catalog" / "files" / "chat.jinja"
    file.parent.mkdir(parents=True)
    file.write_text("{{ messages }}\n")
    intent = SMALLEST_INTENT | {"args": {"chat-template-file": "files/chat.jinja"}}
    catalog = write_catalog(tmp_path / "catalog", {"text": intent})
    text = local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")
    assert "\n--chat-template '{{ messages }}''\n'''\n" in yaml.safe_load(text)["models"]["text"]["cmd"]

    harm(file)

    with pytest.raises(Refused, match=rf"lock\.json is stale: files/chat\.jinja was {change}\."):
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")


@pytest.mark.parametrize(
    ("link", "named"),
    [
        ("models/text.yaml", "models/text.yaml is a link that leads nowhere"),
        ("models/new.yaml", "a file of models/ or cards/ is a link that leads nowhere"),
        ("cards/new.yaml", "a file of models/ or cards/ is a link that leads nowhere"),
    ],
)
def test_a_source_that_is_a_dangling_link_is_refused(link, named, catalog, tmp_path):
    """By Python with its name, by Terraform with what it can find out."""
    (catalog / link).unlink(missing_ok=True)
    (catalog / link).symlink_to("nowhere")

    with pytest.raises(CatalogInvalid, match=rf"{link}:1: is a link that leads nowhere"):
        load(catalog)
    with pytest.raises(Refused) as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert caught.value.message == (
        f"The catalog cannot be listed: {named}, and Terraform's fileset fails at one. "
        "For its name run: corral validate"
    )
    assert caught.value.next_step == f"corral validate --catalog {catalog}"


@pytest.mark.parametrize("link", ["models/.#text.yaml", "cards/.#laptop.yaml", ".#images.yaml", ".#lock.json"])
def test_an_editors_lock_does_not_matter(link, catalog, tmp_path):
    (catalog / link).symlink_to("root@host.1:2")
    lock.require_fresh(load(catalog))

    assert local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")


def test_terraform_and_python_find_the_same_lock_fresh(catalog, tmp_path):
    """Also one with text that Unicode writes in two ways, and whose files are linked."""
    intent = {
        **SMALLEST_INTENT,
        "smoke": {"prompt": "Wie geht\u2019s, Rene\u0301? \U0001f40e\u2028<&>", "expect": "OK"},
    }
    (catalog / "models" / ".linked").write_text(json.dumps(intent, ensure_ascii=False), encoding="utf-8")
    (catalog / "models" / "linked.yaml").symlink_to(".linked")
    write_lock(catalog)
    lock.require_fresh(load(catalog))

    assert "linked" in local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")


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


def test_a_disk_that_fills_while_the_state_is_written_leaves_the_old_state(catalog, tmp_path):
    bigger = write_catalog(tmp_path / "bigger", {f"text-{number}": SMALLEST_INTENT for number in range(20)})
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=disk / "state")
        state = disk / "state" / "terraform" / "terraform.tfstate"
        before = state.read_bytes()
        for room in (0, len(before) // 4096 + 3):  # in pages: for nothing; for the old state and a part of the new one
            filler = fill(disk)
            os.truncate(filler, filler.stat().st_size - room * 4096)

            with pytest.raises(CannotRun, match=f"^{state.parent} is full: No space left on device") as caught:
                local.render_local(bigger, tmp_path / "store", ENGINE, state=disk / "state")

            assert caught.value.next_step == f"Make room there: df -h {state.parent}"
            assert state.read_bytes() == before
            filler.unlink()
        assert "text-19" in local.render_local(bigger, tmp_path / "store", ENGINE, state=disk / "state")


def test_settings_of_the_shell_for_terraform_do_not_matter(catalog, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CLI_ARGS_apply", "-destroy")
    monkeypatch.setenv("TF_WORKSPACE", "elsewhere")
    monkeypatch.setenv("TF_VAR_start_port", "7000")

    text = local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert yaml.safe_load(text)["startPort"] == 5800


def test_no_secret_of_the_shell_reaches_terraform(catalog, tmp_path, monkeypatch):
    fake_terraform(tmp_path, monkeypatch, f'env >> {tmp_path}/environment; exec {find_terraform()} "$@"')
    for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "PG_CONN_STR", "TF_TOKEN_app_terraform_io", "TF_VAR_password"):
        monkeypatch.setenv(name, "hunter2")

    local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    reached = (tmp_path / "environment").read_text()
    assert "TF_DATA_DIR=" in reached
    assert "hunter2" not in reached


def test_where_there_is_no_terraform_the_way_to_one_is_named(catalog, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("corral.terraform.program.WHEEL", "no_such_wheel")

    with pytest.raises(
        ProgramMissing, match=r"There is no terraform and no tofu on PATH, and .* not installed"
    ) as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert caught.value.next_step.startswith("make setup")
    assert "https://developer.hashicorp.com/terraform/install" in caught.value.next_step


@pytest.mark.parametrize(
    ("name", "called", "page"),
    [
        ("terraform", "Terraform", "https://developer.hashicorp.com/terraform/install"),
        ("tofu", "OpenTofu", "https://opentofu.org/docs/intro/install/"),
    ],
)
def test_an_old_terraform_is_named_with_its_version_and_its_own_page(
    catalog, tmp_path, monkeypatch, name, called, page
):
    program = fake_terraform(
        tmp_path, monkeypatch, """[ "$1" = version ] && echo '{"terraform_version": "1.5.7"}' && exit; exit 1"""
    )
    program = program.rename(program.with_name(name))
    monkeypatch.setenv("PATH", f"{program.parent}:{tmp_path}")

    with pytest.raises(ProgramMissing, match=rf"is {called} 1\.5\.7; corral needs 1\.9 or newer") as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert str(program) in caught.value.message
    assert f"Upgrade or repair it: {page}; " in caught.value.next_step


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 1", "it prints nothing (exit code 1)"),
        ("echo No version is set for command terraform >&2; exit 126", "No version is set for command terraform"),
        ('[ "$1" = version ] && echo "[]" && exit; exit 1', 'its last line is "[]" (exit code 0)'),
        ("printf 'a\\033[31m\\n'; exit 1", r'"a\x1b[31m"'),
    ],
)
def test_a_terraform_that_does_not_work_is_reported_with_its_last_line(catalog, tmp_path, monkeypatch, script, words):
    program = fake_terraform(tmp_path, monkeypatch, script)

    with pytest.raises(ProgramMissing, match=f"^{program} does not print its version: ") as caught:
        local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert words in caught.value.message
    assert "\n" not in caught.value.message


VERSION = """{"@message":"Terraform 1.12.0","type":"version"}"""


@pytest.mark.parametrize("call", [local.render_local, local.plan_local])
@pytest.mark.parametrize("output", ["", "Hello", "[]", '{"@message', '{"@message":"Hello"}'])
def test_a_program_that_is_no_terraform_is_not_believed_when_it_ends_well(catalog, tmp_path, monkeypatch, call, output):
    program = fake_terraform(tmp_path, monkeypatch, f"echo '{output}'")

    with pytest.raises(ProgramMissing, match=f"^{program} does not answer as Terraform and OpenTofu do: ") as caught:
        call(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert caught.value.next_step.startswith("Upgrade or repair it: ")


@pytest.mark.parametrize("outputs", ["", '{"@message":"","type":"outputs","outputs":{"llama_swap_config":{}}}'])
def test_an_apply_that_reports_no_outputs_is_an_error_and_keeps_the_state(catalog, tmp_path, monkeypatch, outputs):
    state = tmp_path / "state"
    local.render_local(catalog, tmp_path / "store", ENGINE, state=state)
    before = (state / "terraform" / "terraform.tfstate").read_bytes()
    program = fake_terraform(tmp_path, monkeypatch, f"echo '{VERSION}'; echo '{outputs}'")

    with pytest.raises(ProgramMissing, match=f"^{program} does not answer as Terraform and OpenTofu do: "):
        local.render_local(catalog, tmp_path / "store", ENGINE, state=state)

    assert (state / "terraform" / "terraform.tfstate").read_bytes() == before


def test_the_version_of_terraform_takes_no_start_of_its_own(catalog, tmp_path, monkeypatch):
    real = find_terraform()
    fake_terraform(tmp_path, monkeypatch, f'echo "$1" >>{tmp_path}/started; exec {real} "$@"')

    local.render_local(catalog, tmp_path / "store", ENGINE, state=tmp_path / "state")

    assert (tmp_path / "started").read_text().split() == ["init", "apply"]


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
