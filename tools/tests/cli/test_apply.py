"""`corral plan` and `corral apply`, with the real Terraform on a stack without a provider."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from corral import paths
from corral.catalog import catalog as catalogs
from corral.cli.main import main
from corral.cli.seating_help import seating_help
from corral.cluster import client, keys, port_forward
from corral.demo.tour import tiny_hub
from corral.errors import CannotRun, Refused
from corral.lock import lock
from corral.seating import report
from corral.terraform import guard, homelab, remedies
from tests.support.stub_endpoint import fails_to_load, serve
from tests.support.tiny_catalog import write_tiny_catalog
from tests.support.tiny_stack import set_variables, write_stack

DEMO = paths.REPOSITORY / "terraform" / "catalog-demo"
MODELS = ("tiny-text", "tiny-think", "tiny-vision")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny_catalog(tmp_path_factory.mktemp("tiny") / "catalog")


@pytest.fixture
def stack(tmp_path, tiny, monkeypatch):
    folder = write_stack(tmp_path / "stack", catalog=str(tiny), kubeconfig="/kube/config", namespace="llm")
    monkeypatch.setattr(homelab, "STACK", folder)
    return folder


@pytest.fixture(autouse=True)
def unseen(monkeypatch):
    monkeypatch.setattr(guard.ClusterGuard, "inspect", lambda _self, _kinds: ())
    for method in ("give_keys", "give_monitor_keys", "give_gateway_keys"):
        monkeypatch.setattr(guard.ClusterGuard, method, lambda _self: None)


class Connected(NamedTuple):
    """A cluster that is only asked for the command that shows its logs."""

    kubeconfig: Path
    context: str | None

    def kubectl(self, *words, namespace=""):
        return shlex.join(["kubectl", "--namespace", namespace, *words])


@pytest.fixture
def forwarding(monkeypatch):
    """A cluster whose forwarded port is the stub's; which cluster was asked for is remembered."""
    asked = []

    @contextmanager
    def forwarded(cluster, namespace, _service, *, port=None):
        asked.append((cluster, namespace))
        yield asked[0]

    def to(stub):
        asked[:] = [stub.root]
        return asked

    monkeypatch.setattr(client, "connect", Connected)
    monkeypatch.setattr(port_forward, "forwarded", forwarded)
    monkeypatch.setattr(keys, "operator_key", lambda _cluster, _namespace: "corral-key-of-the-operator")
    return to


def applied(stack):
    return homelab.Homelab(stack).outputs().get("note")


def test_a_plan_is_printed_in_words_and_then_by_terraform_and_changes_nothing(stack, capsys):
    assert main(["plan"]) == 0

    out = capsys.readouterr().out
    words, _, rest = out.partition("\n\n")
    assert words == "Models, images, cards and clients stay as they are.\nserver restarts: no (there is none)"
    assert rest.startswith("Terraform used the selected providers")
    assert "Plan: 1 to add, 0 to change, 0 to destroy." in rest
    assert applied(stack) is None


def test_a_plan_of_what_is_there_is_one_line(stack, capsys):
    assert main(["apply", "--yes", "--no-smoke"]) == 0
    capsys.readouterr()

    assert main(["plan"]) == 0
    assert capsys.readouterr().out == "No changes.\n"
    assert main(["plan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] is False


def test_a_plan_takes_catalog_and_variables_from_the_command_line(stack, tmp_path, capsys):
    (stack / "terraform.tfvars").unlink()
    (tmp_path / "more.tfvars").write_text('note = "fourth"\n')

    assert main(["plan", "--catalog", str(DEMO), "--var-file", str(tmp_path / "more.tfvars")]) == 0

    assert '"fourth"' in capsys.readouterr().out


@pytest.mark.parametrize("kind", [CannotRun, Refused])
def test_remedies_for_a_short_card_stand_beneath_any_plan_that_failed(kind, monkeypatch):
    monkeypatch.setattr(report, "help_for_short_cards", lambda *_: ["t4 is short of 26 MiB."])
    catalog = catalogs.load(DEMO)

    with (
        pytest.raises(kind, match=r"^No cluster\.\nt4 is short of 26 MiB\.$") as caught,
        seating_help(catalog, lock.require_fresh(catalog)),
    ):
        raise kind("No cluster.", next_step="kubectl get nodes")

    assert caught.value.next_step == "kubectl get nodes"


def test_a_plan_warns_of_an_image_with_another_build_than_predicts(stack, tmp_path, capsys, monkeypatch):
    folder = write_tiny_catalog(tmp_path / "catalog")
    images = [f"{image}@sha256:{'2' * 64}" for image in ("org/swap:v1-b11063", "python:3.13-slim")]
    (folder / "images.yaml").write_text("llama-swap: {}\nfetch: {}\n".format(*images))
    with tiny_hub(tmp_path / "hub") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        assert main(["lock", "--catalog", str(folder)]) == 0
    capsys.readouterr()

    assert main(["plan", "--catalog", str(folder)]) == 0

    assert "warning: The image runs llama.cpp b11063" in capsys.readouterr().err


def test_a_lock_that_only_corral_knows_to_be_stale_is_refused(stack, tmp_path, capsys):
    shutil.copytree(DEMO, tmp_path / "catalog")
    file = tmp_path / "catalog" / "lock.json"
    locked = lock.read(file)
    entry = locked.models["tiny-text"]
    other = entry.model_copy(update={"argv": (*entry.argv, "--props")})  # as another version of corral might lock it
    lock.write(file, locked.model_copy(update={"models": locked.models | {"tiny-text": other}}))

    for words in (["plan"], ["apply", "--yes"]):
        assert main([*words, "--catalog", str(tmp_path / "catalog")]) == 2
        assert "tiny-text was locked by another corral" in capsys.readouterr().err
    assert applied(stack) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan", "--store", "/x"], "--store is for --local"),
        (["plan", "--local", "--json"], "--json is for the homelab"),
        (["plan", "--local", "--var-file", "/x"], "--var-file is for the homelab"),
        (["plan", "--var-file", "/nowhere/x"], "There is no file /nowhere/x"),
    ],
)
def test_options_that_mean_nothing_here_are_refused(words, message, stack, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_only_the_plan_speaks_of_the_local_stack(capsys):
    for command, is_named in (("plan", True), ("apply", False)):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert ("--local" in capsys.readouterr().out) is is_named


def test_without_a_terminal_nothing_is_applied(stack, capsys):
    assert main(["apply", "--no-smoke"]) == 2

    assert "There is no terminal for the question" in capsys.readouterr().err
    assert applied(stack) is None


@pytest.mark.parametrize("answer", ["no\n", "y\n", "\n", "", "YES\n"])
def test_only_yes_applies(answer, stack, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Terminal(answer))

    assert main(["apply", "--no-smoke"]) == 1

    shown = capsys.readouterr()
    assert shown.err.endswith("Apply this plan? Only yes applies it.\nNothing was changed.\n")
    assert "Plan: 1 to add" in shown.out
    assert applied(stack) is None


def test_yes_applies_with_progress_on_stderr(stack, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Terminal("yes\n"))

    assert main(["apply", "--no-smoke"]) == 0

    shown = capsys.readouterr()
    assert "terraform_data.thing: Creating..." in shown.err
    assert "Creating..." not in shown.out
    assert applied(stack) == "first"


def test_an_apply_ends_with_every_model_asked_through_a_forwarded_port(stack, forwarding, capsys):
    with serve(*MODELS) as stub:
        asked = forwarding(stub)
        assert main(["apply", "--yes"]) == 0

    assert set(asked[1:]) == {((Path("/kube/config"), "home"), "llm")}
    assert {model for model, _ in stub.asked} == set(MODELS)
    assert f"{MODELS[0]}\tanswer\tpassed" in capsys.readouterr().out


def test_a_model_that_does_not_answer_fails_the_apply(stack, forwarding, capsys):
    with serve(*MODELS, acts={("tiny-text", "*"): fails_to_load}) as stub:
        forwarding(stub)
        assert main(["apply", "--yes"]) == 1

    assert applied(stack) == "first"


def test_where_nothing_changes_there_is_no_question_and_the_models_are_checked(stack, forwarding, monkeypatch, capsys):
    main(["apply", "--yes", "--no-smoke"])
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    capsys.readouterr()

    with serve(*MODELS) as stub:
        forwarding(stub)
        assert main(["apply"]) == 0

    shown = capsys.readouterr()
    assert shown.out.startswith("No changes.\n")
    assert "Only yes applies" not in shown.err
    assert {model for model, _ in stub.asked} == set(MODELS)


def test_a_failed_apply_smokes_nothing_and_is_exit_code_3(stack, capsys, monkeypatch):
    monkeypatch.setitem(remedies.RESOURCES, "terraform_data.thing", "corral status, docs/runbooks/thing.md")
    set_variables(stack, catalog=str(DEMO), command="exit 1")

    assert main(["apply", "--yes"]) == 3

    shown = capsys.readouterr().err
    assert "corral apply: Terraform failed." in shown
    assert "→ corral status, docs/runbooks/thing.md" in shown


def test_a_file_of_many_lines_takes_one_in_the_plan(stack, capsys):
    set_variables(stack, catalog=str(DEMO), note="".join(f"line {number}\\n" for number in range(100)))

    assert main(["plan"]) == 0

    shown = capsys.readouterr().out
    assert "<<-EOT … 100 lines …EOT" in shown
    assert "line 50" not in shown
