"""Runs of tests beside each other do not meet."""

from __future__ import annotations

import getpass


def test_a_run_has_a_temporary_folder_that_no_other_run_cleans(tmp_path_factory):
    assert f"pytest-of-{getpass.getuser()}" not in tmp_path_factory.getbasetemp().parts
