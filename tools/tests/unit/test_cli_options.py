"""Options that several commands share."""

from argparse import Namespace
from pathlib import Path

import pytest

from corral.cli import options


def test_a_next_step_is_about_the_same_catalog_and_store():
    args = Namespace(catalog=Path("/my catalog"), store=Path("/srv/models"), json=False)

    assert options.again(args, "prune", "--yes") == "corral prune --yes --catalog '/my catalog' --store /srv/models"


def test_a_next_step_is_about_the_same_endpoint_or_cluster_and_not_about_the_local_stack():
    elsewhere = Namespace(catalog=Path("/c"), endpoint="http://10.0.0.7:8080/v1", context=None)
    cluster = Namespace(catalog=None, endpoint=None, context="lab", namespace="other", kubeconfig=Path("/k"))

    command = "corral golden record m --endpoint http://10.0.0.7:8080/v1 --catalog /c"
    assert options.again(elsewhere, "golden", "record", "m") == command
    command = "corral golden record --context lab --namespace other --kubeconfig /k"
    assert options.again(cluster, "golden", "record") == command


def test_a_next_step_names_nothing_that_was_not_given():
    assert options.again(Namespace(catalog=None), "lock") == "corral lock"


@pytest.mark.parametrize(
    ("step", "shown"),
    [
        ("corral lock", "corral lock --catalog '/my catalog'"),
        ("Wait, then: corral lock; or edit", "Wait, then: corral lock --catalog '/my catalog'; or edit"),
        ("corral lock --upgrade", "corral lock --catalog '/my catalog' --upgrade"),
        ("corral lock\n  → corral lock", "\n  → ".join(["corral lock --catalog '/my catalog'"] * 2)),
        ("corral lock --catalog /other", "corral lock --catalog /other"),
        ("corral lock --upgrade m --catalog /other", "corral lock --upgrade m --catalog /other"),
        ("corral prune", "corral prune"),
        ("corral up --detach here, corral apply", "corral up --detach --catalog '/my catalog' here, corral apply"),
        ("corral up --detach --port 9 --catalog /other", "corral up --detach --port 9 --catalog /other"),
    ],
)
def test_a_next_step_of_a_catalog_gets_the_one_that_was_named(step, shown):
    assert options.for_catalog(step, Namespace(catalog=Path("/my catalog"))) == shown
    assert options.for_catalog(step, Namespace(catalog=None)) == step
    assert options.for_catalog(step, Namespace()) == step
