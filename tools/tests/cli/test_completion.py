"""The completion script, in the shell that it is for."""

from __future__ import annotations

import subprocess

import pytest

from corral.cli.main import main


@pytest.mark.parametrize("words", ["load", "unload", "why", "remove", "smoke", "engine run", "smoke qwen3-8b"])
def test_bash_offers_the_models_of_the_nearest_catalog(words, tmp_path, capsys):
    models = tmp_path / "terraform" / "catalog" / "models"
    models.mkdir(parents=True)
    for name in ("qwen3-8b", "qwen3-vl", "gemma"):
        (models / f"{name}.yaml").touch()
    below = tmp_path / "docs" / "a folder"
    below.mkdir(parents=True)
    assert main(["completion", "bash"]) == 0
    script = f"""{capsys.readouterr().out}
COMP_WORDS=(corral {words} qw); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE="corral {words} qw"
_shtab_corral corral qw x
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], cwd=below, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["qwen3-8b", "qwen3-vl"], done.stderr


def test_every_shell_has_a_script(capsys):
    for shell in ("bash", "zsh", "tcsh"):
        assert main(["completion", shell]) == 0
        assert "corral" in capsys.readouterr().out
