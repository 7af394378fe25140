"""Options that several commands share."""

from argparse import Namespace
from pathlib import Path

from corral.cli import options


def test_a_next_step_is_about_the_same_catalog_and_store():
    args = Namespace(catalog=Path("/my catalog"), store=Path("/srv/models"), json=False)

    assert options.again(args, "prune", "--yes") == "corral prune --yes --catalog '/my catalog' --store /srv/models"


def test_a_next_step_names_nothing_that_was_not_given():
    assert options.again(Namespace(catalog=None), "lock") == "corral lock"
