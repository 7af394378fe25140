"""Two installations by one stack, with the real Terraform: neither is planned against the state of the other."""

from __future__ import annotations

import json

import pytest

from corral.errors import Refused
from corral.terraform.homelab import Homelab
from tests.support.tiny_stack import set_variables, write_stack

_OF_THE_HOMELAB = """
variable "card" {
  type    = string
  default = "t4"
}
variable "node" {
  type    = string
  default = "node1"
}
resource "terraform_data" "applied_lock" {
  input = { cards = { (var.card) = { node = var.node } } }
}
resource "terraform_data" "namespace" {
  input = var.namespace
}
output "namespace" {
  value = terraform_data.namespace.output
}
"""


class Guard:
    """Finds nothing."""

    def inspect(self, kinds):
        return ()

    def begin(self, kinds):
        pass


@pytest.fixture
def stack(tmp_path):
    """A stack that was applied for the namespace llama-cpp and the card t4."""
    stack = write_stack(tmp_path / "stack", catalog="../catalog")
    (stack / "installation.tf").write_text(_OF_THE_HOMELAB)
    apply(stack)
    return stack


def apply(stack, **options):
    lab = Homelab(stack)
    with lab.plan(**options) as plan:
        lab.apply(plan, guard=Guard())


def refused(stack, **options):
    with pytest.raises(Refused) as error, Homelab(stack).plan(**options):
        pass
    return error.value


def test_another_namespace_is_not_planned_against_the_state_of_the_first(stack):
    set_variables(stack, catalog="../catalog", namespace="card2")

    for options in ({}, {"destroy": True}):
        error = refused(stack, **options)
        assert error.message == (
            "The state of workspace default is that of namespace llama-cpp, and the variables name card2: "
            "all of llama-cpp would be destroyed."
        )
        assert f"-chdir={stack} workspace new card2; then: export TF_WORKSPACE=card2" in error.next_step


def test_another_catalog_is_not_planned_against_the_state_of_the_first(stack):
    set_variables(stack, catalog="../other", card="p40", node="node2")

    error = refused(stack)

    assert error.message == (
        "The state of workspace default is that of another catalog, with card t4 in node1; "
        "this catalog has p40 in node2."
    )
    assert error.next_step.endswith(
        "where the card moved from node1, declare it in cards/ for this apply once more, as a card without models: "
        "node: node1"
    )


def test_a_card_that_gets_another_name_is_the_same_installation(stack):
    set_variables(stack, catalog="../catalog", card="p40")
    apply(stack)
    assert Homelab(stack).outputs()["namespace"] == "llama-cpp"


def test_another_state_of_the_same_namespace_is_refused_with_the_workspace_that_has_it(stack, monkeypatch):
    monkeypatch.setenv("TF_WORKSPACE", "card2")

    error = refused(stack)

    assert error.message == (
        "The state of workspace card2 has nothing, and namespace llama-cpp is that of workspace default."
    )
    assert error.next_step.startswith("export TF_WORKSPACE=default; ")


def test_two_installations_have_a_workspace_each_and_leave_each_other_alone(stack, monkeypatch):
    first = json.loads((stack / "terraform.tfstate").read_text())
    monkeypatch.setenv("TF_WORKSPACE", "card2")
    assert Homelab(stack).outputs() == {}  # and is no damaged state of the first
    set_variables(stack, catalog="../other", namespace="card2", card="p40", node="node2")

    apply(stack)

    assert Homelab(stack).outputs()["namespace"] == "card2"
    assert json.loads((stack / "terraform.tfstate").read_text()) == first
    apply(stack, destroy=True)
    monkeypatch.delenv("TF_WORKSPACE")
    assert Homelab(stack).outputs()["namespace"] == "llama-cpp"


def test_a_destroyed_installation_leaves_its_state_to_any_other(stack):
    apply(stack, destroy=True)
    set_variables(stack, catalog="../other", namespace="card2", card="p40", node="node2")
    apply(stack)
    assert Homelab(stack).outputs()["namespace"] == "card2"
