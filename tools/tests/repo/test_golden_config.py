"""The golden file's tool prints a difference, and writes only with --write."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.support.locked_catalog import SMALLEST_INTENT, write_catalog

main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "dev" / "golden_config.py"))["main"]


@pytest.fixture
def options(tmp_path):
    catalog = write_catalog(tmp_path / "catalog", {"text": SMALLEST_INTENT})
    return ["--catalog", str(catalog), "--golden", str(tmp_path / "golden" / "llama-swap.yaml")]


def test_what_was_written_is_what_is_rendered(options):
    assert main([*options, "--write"]) == 0

    assert main(options) == 0


def test_a_difference_is_shown_and_nothing_is_written(options, tmp_path, capsys):
    main([*options, "--write"])
    golden = tmp_path / "golden" / "llama-swap.yaml"
    golden.write_text(golden.read_text().replace("5800", "5900"))

    assert main(options) == 1

    printed = capsys.readouterr()
    assert '-"startPort": 5900\n+"startPort": 5800\n' in printed.out
    assert "make fix" in printed.err
    assert "5900" in golden.read_text()


def test_a_missing_golden_file_is_a_difference(options, tmp_path):
    assert main(options) == 1

    assert not (tmp_path / "golden").exists()


def test_a_catalog_that_is_refused_keeps_its_exit_code(options, tmp_path, capsys):
    (tmp_path / "catalog" / "lock.json").unlink()

    assert main(options) == 2

    assert "corral lock" in capsys.readouterr().err
