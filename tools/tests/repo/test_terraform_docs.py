"""The READMEs' tables follow the modules."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "dev" / "terraform_docs.py"))["main"]

TABLES = """\
# Thing

| name | type | default | description |
| --- | --- | --- | --- |
| `old` | `string` | required | Gone. |

| name | description |
| --- | --- |

The end.
"""


@pytest.fixture
def module(tmp_path):
    folder = tmp_path / "modules" / "thing"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(TABLES)
    (folder / "variables.tf").write_text(
        'variable "size" {\n'
        '  description = "Its size, e.g. \\"big|small\\"."\n'
        "  type        = number\n"
        "  default     = 1\n"
        "}\n"
    )
    (folder / "outputs.tf").write_text('output "name" {\n  description = "Its name."\n  value       = var.size\n}\n')
    return folder


def test_the_readmes_of_this_repository_are_up_to_date():
    assert main([]) == 0


def test_a_stale_table_is_named(tmp_path, module, capsys):
    assert main(["--root", str(tmp_path)]) == 1

    assert "modules/thing/README.md: its tables are out of date" in capsys.readouterr().err
    assert (module / "README.md").read_text() == TABLES


def test_tables_are_written_and_the_text_around_them_is_kept(tmp_path, module):
    assert main(["--root", str(tmp_path), "--write"]) == 0

    text = (module / "README.md").read_text()
    assert '| `size` | `number` | `1` | Its size, e.g. "big\\|small". |\n' in text
    assert "| `name` | Its name. |\n" in text
    assert "`old`" not in text
    assert text.startswith("# Thing\n")
    assert text.endswith("\nThe end.\n")
    assert main(["--root", str(tmp_path)]) == 0


def test_a_variable_without_description_is_an_error(tmp_path, module, capsys):
    (module / "variables.tf").write_text('variable "size" {\n  type = number\n}\n')

    assert main(["--root", str(tmp_path), "--write"]) == 1

    assert 'variable "size" needs a description' in capsys.readouterr().err


def test_a_module_without_readme_is_an_error(tmp_path, module, capsys):
    (module / "README.md").unlink()

    assert main(["--root", str(tmp_path)]) == 1

    assert "modules/thing" in capsys.readouterr().err


def test_a_table_that_is_missing_is_an_error(tmp_path, module, capsys):
    (module / "README.md").write_text("# Thing\n")

    assert main(["--root", str(tmp_path), "--write"]) == 1

    assert "has no table headed" in capsys.readouterr().err


def test_no_module_at_all_is_an_error(tmp_path, capsys):
    assert main(["--root", str(tmp_path)]) == 1

    assert "no module and no stack below" in capsys.readouterr().err


def test_a_type_of_several_lines_is_written_on_one(module):
    (module / "variables.tf").write_text(
        'variable "store" {\n'
        '  description = "Where it is."\n'
        "  type = map(object({\n"
        "    nfs = optional(object({\n"
        "      server = string\n"
        "    }))\n"
        "    size = number\n"
        "  }))\n"
        "  nullable = false\n"
        "}\n"
    )

    assert main(["--root", str(module.parents[1]), "--write"]) == 0

    kind = "map(object({ nfs = optional(object({ server = string })), size = number }))"
    assert f"| `store` | `{kind}` | required | Where it is. |" in (module / "README.md").read_text().splitlines()
