"""The runner of the Terraform tests must not be green on nothing."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "dev" / "terraform_test.py"))["main"]

MODULE = 'output "x" {\n  value = 1\n}\n'
PASSES = (
    'run "one_is_one" {\n  assert {\n    condition     = output.x == 1\n    error_message = "One is one."\n  }\n}\n'
)


@pytest.fixture
def module(tmp_path):
    folder = tmp_path / "modules" / "thing"
    (folder / "tests").mkdir(parents=True)
    (folder / "outputs.tf").write_text(MODULE)
    (folder / "tests" / "thing.tftest.hcl").write_text(PASSES)
    return folder


def test_a_module_whose_runs_pass_is_counted(tmp_path, module, capsys):
    before = sorted(tmp_path.rglob("*"))

    assert main(["--root", str(tmp_path)]) == 0

    assert capsys.readouterr().out == "modules/thing: 1 runs passed\n"
    assert sorted(tmp_path.rglob("*")) == before


def test_no_module_at_all_is_a_failure(tmp_path, capsys):
    assert main(["--root", str(tmp_path)]) == 1

    assert "no module and no stack below" in capsys.readouterr().err


def test_a_module_without_tests_is_a_failure(tmp_path, module, capsys):
    (module / "tests" / "thing.tftest.hcl").unlink()

    assert main(["--root", str(tmp_path)]) == 1

    assert "modules/thing: has no tests" in capsys.readouterr().err


@pytest.mark.parametrize(("characters", "code"), [(160, 0), (161, 1)])
def test_a_line_of_more_than_160_characters_is_a_failure(characters, code, tmp_path, module, capsys):
    (module / "long.tf").write_text("#" * characters + "\n")

    assert main(["--root", str(tmp_path), "--only", "check"]) == code

    assert ("modules/thing: long.tf:1 has 161 characters" in capsys.readouterr().err) == bool(code)


def test_a_test_file_without_runs_is_a_failure(tmp_path, module, capsys):
    (module / "tests" / "thing.tftest.hcl").write_text("")

    assert main(["--root", str(tmp_path)]) == 1

    assert "modules/thing: has no tests" in capsys.readouterr().err


def test_a_failing_run_is_named_with_its_reason(tmp_path, module, capsys):
    (module / "outputs.tf").write_text(MODULE.replace("1", "2"))

    assert main(["--root", str(tmp_path)]) == 1

    errors = capsys.readouterr().err
    assert "tests/thing.tftest.hcl: one_is_one: fail" in errors
    assert "One is one." in errors


def test_a_skipped_run_is_a_failure(tmp_path, module, capsys):
    broken = PASSES.replace("one_is_one", "broken").replace("output.x", "nothing.x")
    (module / "tests" / "thing.tftest.hcl").write_text(f"{broken}\n{PASSES}")

    assert main(["--root", str(tmp_path)]) == 1

    assert "modules/thing: " in capsys.readouterr().err


def test_an_invalid_module_is_a_failure(tmp_path, module, capsys):
    (module / "outputs.tf").write_text('output "x" {\n  value = var.nowhere\n}\n')

    assert main(["--root", str(tmp_path)]) == 1

    assert "terraform validate failed" in capsys.readouterr().err


def test_a_folder_without_terraform_is_a_failure(tmp_path, module, capsys):
    (tmp_path / "stacks" / "empty").mkdir(parents=True)

    assert main(["--root", str(tmp_path)]) == 1

    assert "stacks/empty: holds no *.tf file" in capsys.readouterr().err


def test_untidy_format_is_a_failure(tmp_path, module, capsys):
    (module / "outputs.tf").write_text('output "x" {\n    value=1\n}\n')

    assert main(["--root", str(tmp_path), "--only", "check"]) == 1

    assert "outputs.tf" in capsys.readouterr().err


def test_the_check_alone_runs_no_test(tmp_path, module, capsys):
    (module / "tests" / "thing.tftest.hcl").write_text(PASSES.replace("== 1", "== 2"))

    assert main(["--root", str(tmp_path), "--only", "check"]) == 0

    assert capsys.readouterr().out == "modules/thing: valid\n"
