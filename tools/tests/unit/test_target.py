"""`corral.terraform.target`: the command line first, then what Terraform applied; never a mix of two clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.cluster.target import ClusterTarget
from corral.errors import CannotRun
from corral.terraform import homelab, target

OUTPUTS = {
    "endpoint": "http://models.ai.svc.cluster.local:8080",
    "namespace": "ai",
    "service": "models",
    "seating": {"cards": {"t4": {}}},
}


@pytest.fixture
def applied(monkeypatch, tmp_path):
    """What stands in for Terraform, which tests/cluster runs for real: its outputs and its variables."""
    terraform = {"outputs": dict(OUTPUTS), "target": ClusterTarget(Path("/lab/config"), "lab", "ai")}

    class Homelab:
        def __init__(self, stack):
            assert stack == tmp_path

        def outputs(self):
            if isinstance(terraform["outputs"], Exception):
                raise terraform["outputs"]
            return terraform["outputs"]

        def target(self):
            return terraform["target"]

    (tmp_path / "terraform.tfstate").write_text("{}")
    monkeypatch.setattr(homelab, "STACK", tmp_path)
    monkeypatch.setattr(homelab, "Homelab", Homelab)
    return terraform


def test_what_was_applied_is_read_from_its_outputs_and_variables(applied):
    found = target.applied_target()
    assert (found.kubeconfig, found.context) == (Path("/lab/config"), "lab")
    assert (found.namespace, found.service, found.url) == ("ai", "models", OUTPUTS["endpoint"])
    assert found.chart == OUTPUTS["seating"]


def test_a_stack_that_was_never_prepared_is_not_read_and_not_prepared(applied, tmp_path):
    applied["outputs"] = AssertionError("Terraform was started")
    (tmp_path / "terraform.tfstate").unlink()
    assert target.applied_target() is None


def test_a_stack_without_outputs_was_not_applied(applied):
    applied["outputs"] = {}
    assert target.applied_target() is None


def test_the_context_of_the_apply_brings_its_namespace_service_and_chart(applied):
    found = target.resolve_target(None, "lab", None)
    assert (found.namespace, found.service, found.kubeconfig) == ("ai", "models", Path("/lab/config"))


def test_another_context_gets_the_defaults_and_nothing_of_the_apply(applied):
    found = target.resolve_target(None, "prod", None)
    assert (found.context, found.namespace, found.service, found.kubeconfig) == (
        "prod",
        "llama-cpp",
        "llama-swap",
        None,
    )
    assert found.chart == {}
    assert found.url == "http://llama-swap.llama-cpp.svc.cluster.local:8080"


def test_another_namespace_of_the_same_cluster_has_no_chart_of_the_apply(applied):
    found = target.resolve_target(None, None, "other")
    assert (found.context, found.namespace, found.service) == ("lab", "other", "llama-swap")
    assert found.chart == {}


def test_another_kubeconfig_alone_means_its_own_current_context(applied):
    found = target.resolve_target(Path("/mine"), None, None)
    assert (found.kubeconfig, found.context, found.namespace) == (Path("/mine"), None, "llama-cpp")


def test_the_applied_kubeconfig_is_known_by_any_of_its_names(applied, tmp_path, monkeypatch):
    applied["target"] = ClusterTarget(tmp_path / "stack" / ".." / "config", "lab", "ai")
    monkeypatch.chdir(tmp_path)
    assert target.resolve_target(Path("config"), None, None).namespace == "ai"


def test_an_apply_without_a_kubeconfig_is_known_by_that_of_the_environment(applied, tmp_path, monkeypatch):
    applied["target"] = ClusterTarget(None, "lab", "ai")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)

    assert target.resolve_target(Path("config"), None, None).namespace == "ai"
    assert target.resolve_target(Path("another"), None, None).namespace == "llama-cpp"


def test_a_kubeconfig_that_is_named_wins(applied):
    assert target.resolve_target(Path("/mine"), "lab", None).kubeconfig == Path("/mine")


def test_a_state_that_cannot_be_read_does_not_prevent_the_use_of_a_named_cluster(applied):
    applied["outputs"] = CannotRun("The database of the state does not answer.")
    found = target.resolve_target(None, "lab", "ai")
    assert (found.context, found.namespace) == ("lab", "ai")
    assert found.trouble == "The database of the state does not answer."


def test_a_state_that_cannot_be_read_is_an_error_where_nothing_else_was_named(applied):
    applied["outputs"] = CannotRun("The database of the state does not answer.")
    with pytest.raises(CannotRun):
        target.applied_target()


def test_the_catalog_is_the_one_that_was_applied(applied):
    applied["target"] = ClusterTarget(Path("/lab/config"), "lab", "ai", catalog=Path("/lab/catalog"))

    assert target.applied_target().catalog == Path("/lab/catalog")
