"""The golden files' tool prints a difference, and writes only with --write."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.support.locked_catalog import SMALLEST_INTENT, write_catalog

main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "dev" / "golden_config.py"))["main"]


@pytest.fixture
def options(tmp_path):
    catalog = write_catalog(tmp_path / "catalog", {"text": SMALLEST_INTENT})
    golden = tmp_path / "golden"
    files = ["--golden", str(golden / "llama-swap.yaml"), "--gateway", str(golden / "litellm.yaml")]
    return ["--catalog", str(catalog), *files]


def test_what_was_written_is_what_is_rendered(options):
    assert main([*options, "--write"]) == 0

    assert main(options) == 0


@pytest.mark.parametrize(
    ("name", "key", "right", "wrong"), [("llama-swap", "startPort", 5800, 5900), ("litellm", "num_retries", 0, 2)]
)
def test_a_difference_is_shown_and_nothing_is_written(options, tmp_path, capsys, name, key, right, wrong):
    main([*options, "--write"])
    golden = tmp_path / "golden" / f"{name}.yaml"
    edited = golden.read_text().replace(f'"{key}": {right}', f'"{key}": {wrong}', 1)
    golden.write_text(edited)

    assert main(options) == 1

    printed = capsys.readouterr()
    lines = [line.replace(" ", "") for line in printed.out.splitlines()]
    assert (f'-"{key}":{wrong}' in lines, f'+"{key}":{right}' in lines) == (True, True)
    assert "make fix" in printed.err
    assert golden.read_text() == edited


def test_a_missing_golden_file_is_a_difference(options, tmp_path):
    assert main(options) == 1

    assert not (tmp_path / "golden").exists()


def test_a_catalog_that_is_refused_keeps_its_exit_code(options, tmp_path, capsys):
    (tmp_path / "catalog" / "lock.json").unlink()

    assert main(options) == 2

    assert "corral lock" in capsys.readouterr().err
