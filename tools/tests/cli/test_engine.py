"""What `corral engine run` refuses before it starts anything; running is in tests/stack/test_engine_run.py."""

from __future__ import annotations

import pytest

from corral import paths
from corral.cli.main import main

ON_VLLM = paths.REPOSITORY / "terraform" / "stacks" / "homelab" / "tests" / "catalogs" / "vllm"


@pytest.mark.parametrize("name", ["chat", "triage"], ids=["id", "alias"])
def test_a_model_on_vllm_gets_no_program_of_llama_cpp(capsys, name):
    assert main(["engine", "run", name, "--catalog", str(ON_VLLM), "--print"]) != 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "chat has engine: vllm, and this runs llama.cpp's programs." in captured.err
    assert f"corral up --catalog {ON_VLLM}" in captured.err
