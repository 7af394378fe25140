"""The demo's sets of cases are what their program makes, and are sets."""

from __future__ import annotations

import re
import runpy

from corral.evaluation import cases
from corral.paths import REPOSITORY
from corral.smoke.images import solid_png

MADE = runpy.run_path(str(REPOSITORY / "tools" / "dev" / "eval_sets.py"))
FOLDER = REPOSITORY / "terraform" / "catalog-demo" / "evals"


def test_the_committed_files_are_the_bytes_that_their_program_makes():
    assert len(MADE["files"]()) > 30
    assert MADE["files"]() == MADE["files"]()
    assert MADE["stale"](FOLDER) == []


def test_a_file_that_is_another_or_of_no_set_is_found(tmp_path):
    for name, content in MADE["files"]().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "digests" / "cases" / "c01.yaml").write_text("prompt: Another.\n")
    (tmp_path / "colours" / "set.yaml").unlink()
    (tmp_path / "stray.yaml").touch()
    assert MADE["stale"](tmp_path) == ["colours/set.yaml", "digests/cases/c01.yaml", "stray.yaml"]


def test_thirty_candidates_have_five_who_fit_and_each_requirement_is_missed_by_some():
    found = cases.load(FOLDER / "digests")
    fitting = [
        case.id
        for case in found.cases
        if case.expect == {"python": True, "kubernetes": True, "german": True, "city": "Berlin"}
        and case.between["years"][0] >= 5
    ]
    assert len(found.cases) == 30
    assert len(fitting) == 5
    assert tuple(fitting) == found.score.best
    assert {len(case.images) for case in cases.load(FOLDER / "colours").cases} == {1, 2, 3, 4}


def test_the_set_of_the_page_is_one(tmp_path):
    shared, case = re.findall(r"```yaml\n(.*?)```", (REPOSITORY / "docs" / "eval.md").read_text(), re.DOTALL)
    (tmp_path / "cases").mkdir()
    (tmp_path / "images").mkdir()
    (tmp_path / "set.yaml").write_text(shared)
    for name in ("anna", "otto", "paula"):
        (tmp_path / "cases" / f"{name}.yaml").write_text(case)
    (tmp_path / "images" / "anna-1.png").write_bytes(solid_png("red", 16))
    (tmp_path / "images" / "anna-2.jpg").write_bytes(b"\xff\xd8\xff")
    found = cases.load(tmp_path)
    assert (found.top, found.rules.right, found.rules.p95_seconds) == (2, 0.9, 6)
    assert found.cases[0].fields == ("german", "city", "years")
