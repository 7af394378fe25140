"""What stands at the top of the repository, and that the overview lists every folder."""

from __future__ import annotations

import re

import pytest

from corral import paths
from tests.support import clone

ALLOWED = {"terraform", "ansible", "tools", "docs", "post-mortems", "Makefile"}
CUSTOMARY = {
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE"),
    *(".ci", ".github", ".editorconfig", ".gitignore"),
}


@pytest.fixture(scope="module")
def tracked():
    files = clone.files()
    assert len(files) > 100
    return files


def test_the_top_level_is_what_the_design_names(tracked):
    assert {file.split("/")[0] for file in tracked} <= ALLOWED | CUSTOMARY


def test_the_overview_lists_every_folder_of_the_tools(tracked):
    overview = (paths.REPOSITORY / "docs" / "architecture" / "overview.md").read_text()
    tree = overview.split("## Where things are")[1].split("## ")[0]
    folders = {found[1] for file in tracked if (found := re.match(r"tools/(?:corral/)?([a-z-]+)/", file))}

    assert folders - {"corral"} == {name for name in folders if f"    {name}/" in tree or f"  {name}/" in tree} - {
        "corral"
    }


def test_the_readme_is_short():
    assert len((paths.REPOSITORY / "README.md").read_text().splitlines()) <= 120
