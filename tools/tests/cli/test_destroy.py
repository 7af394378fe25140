"""`corral destroy`, the real Terraform on a stack without a provider; tests/cluster/test_destroy.py has a cluster."""

from __future__ import annotations

import io
import json
import sys

import pytest

from corral.cli.main import main
from corral.terraform import guard, homelab
from tests.support.fake_kubernetes import fake_kubernetes
from tests.support.tiny_catalog import write_tiny_catalog
from tests.support.tiny_stack import set_variables, write_stack


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny_catalog(tmp_path_factory.mktemp("tiny") / "catalog")


@pytest.fixture
def stack(tmp_path, tiny, monkeypatch, capsys):
    """Applied."""
    folder = write_stack(tmp_path / "stack", catalog=str(tiny), kubeconfig="/kube/config", namespace="llm")
    monkeypatch.setattr(homelab, "STACK", folder)
    monkeypatch.setattr(guard.ClusterGuard, "inspect", lambda _self, _kinds: ())
    for method in ("give_keys", "give_monitor_keys", "give_gateway_keys"):
        monkeypatch.setattr(guard.ClusterGuard, method, lambda _self: None)
    assert main(["apply", "--yes", "--no-smoke"]) == 0
    capsys.readouterr()
    return folder


def is_there(stack):
    return homelab.Homelab(stack).outputs().get("note") == "first"


def test_what_goes_and_what_stays_is_shown_before_the_question_and_again_with_commands(stack, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Terminal("yes\n"))

    assert main(["destroy"]) == 0

    out, err = capsys.readouterr()
    state = (
        f"Terraform's state {stack}/terraform.tfstate: a destroy takes the objects out of it, and its backup has them"
    )
    assert "Plan: 0 to add, 0 to change, 1 to destroy." in out
    assert out.endswith(f"\n\nstays: {state}\n")
    asked, _, after = err.partition("Destroy this? Only yes destroys it.\n")
    assert asked.endswith("server restarts: no (there is none)\n")
    assert "terraform_data.thing: Destruction complete" in after
    assert after.endswith(f"Destroyed.\nstays: {state}\n  → rm {stack}/terraform.tfstate*\n")
    assert not is_there(stack)


@pytest.mark.parametrize("answer", ["no\n", "y\n", "\n", "", "YES\n"])
def test_only_yes_destroys(answer, stack, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Terminal(answer))

    assert main(["destroy"]) == 1

    assert capsys.readouterr().err.endswith("Destroy this? Only yes destroys it.\nNothing was changed.\n")
    assert is_there(stack)


def test_without_a_terminal_nothing_is_destroyed(stack, capsys):
    assert main(["destroy"]) == 2

    error = capsys.readouterr().err
    assert "There is no terminal for the question" in error
    assert "→ See what goes and what stays: corral destroy --json; then: corral destroy --yes" in error
    assert is_there(stack)


def test_json_alone_changes_nothing_and_with_yes_it_destroys(stack, capsys):
    assert main(["destroy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["destroyed"], found["changes"]["resources"]["destroy"], found["foreign"]) == (False, 1, [])
    assert [one["remove"] for one in found["stays"]] == [f"rm {stack}/terraform.tfstate*"]
    assert is_there(stack)

    assert main(["destroy", "--json", "--yes"]) == 0
    assert json.loads(capsys.readouterr().out)["destroyed"] is True
    assert not is_there(stack)


@pytest.mark.parametrize("lock", ["stale", "gone", "no catalog"])
def test_a_lock_that_cannot_be_used_is_in_no_ones_way(lock, stack, tmp_path, capsys):
    catalog = write_tiny_catalog(tmp_path / "catalog")
    if lock == "stale":
        (catalog / "lock.json").write_text("{}")
    else:
        (catalog / "lock.json").unlink()
    if lock == "no catalog":
        catalog = tmp_path / "none"
    set_variables(stack, catalog=str(catalog), note="broken")
    assert main(["plan"]) != 0

    assert main(["destroy", "--yes"]) == 0

    assert not is_there(stack)


@pytest.fixture
def emptied(stack, tiny, tmp_path):
    """The state of the stack has nothing; a cluster whose API is a stub's, which also has nothing."""
    assert main(["destroy", "--yes"]) == 0
    with fake_kubernetes(tmp_path) as fake:
        fake.objects["/version"] = {"gitVersion": "v1.34.4"}
        set_variables(stack, catalog=str(tiny), kubeconfig=str(fake.kubeconfig), kube_context="lab", namespace="llm")
        yield fake


def test_where_nothing_is_there_it_is_one_line_and_no_question(emptied, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    capsys.readouterr()

    assert main(["destroy"]) == 0

    out, err = capsys.readouterr()
    assert out.startswith("No changes.\n")
    assert "Only yes" not in err


@pytest.mark.parametrize(
    "path",
    [
        "/apis/apps/v1/namespaces/llm/deployments/llama-swap",
        "/apis/batch/v1/namespaces/llm/jobs/download-models",
        "/api/v1/namespaces/llm/services/llama-swap",
    ],
)
@pytest.mark.parametrize("is_file_lost", [True, False])
def test_a_state_without_the_stack_that_the_cluster_has_is_no_success(emptied, stack, path, is_file_lost, capsys):
    emptied.objects[path] = {"metadata": {"name": "x", "labels": {"app.kubernetes.io/part-of": "corral"}}}
    if is_file_lost:
        (stack / "terraform.tfstate").unlink()

    assert main(["destroy", "--yes"]) == 2

    error = capsys.readouterr().err
    assert "Terraform's state has nothing, and the cluster has " in error
    assert "→ corral adopt, then corral destroy; docs/runbooks/state-lost-or-behind.md" in error


def test_whether_anything_is_there_is_unknown_without_the_cluster(stack, capsys):
    assert main(["destroy", "--yes"]) == 0

    assert main(["destroy", "--yes"]) == 2

    assert "There is no kubeconfig /kube/config" in capsys.readouterr().err


def test_a_file_of_variables_that_is_not_there_is_refused(stack, capsys):
    assert main(["destroy", "--yes", "--var-file", "/nowhere/x"]) == 2
    assert "There is no file /nowhere/x" in capsys.readouterr().err
    assert is_there(stack)


def test_what_a_destroy_that_failed_has_left_is_in_the_state_for_the_next_one(stack, capsys):
    main_tf = stack / "main.tf"
    making = '  provisioner "local-exec" {'
    removing = f'{making}\n    when    = destroy\n    command = "exit 1"\n  }}\n\n'
    main_tf.write_text(main_tf.read_text().replace(making, removing + making))

    assert main(["destroy", "--yes"]) == 3

    assert "corral destroy: Terraform failed." in capsys.readouterr().err
    (left,) = json.loads((stack / "terraform.tfstate").read_text())["resources"]
    assert left["type"] == "terraform_data"
