"""Which models an Apple chip computes on its CPU; the chips are names, as sysctl prints them."""

from __future__ import annotations

import re

import pytest

from corral import paths
from corral.engine import apple

PROJECTORS = {"eyes": "BF16", "sharp-eyes": "F16", "text": None}


@pytest.mark.parametrize(
    ("chip", "reason"),
    [
        ("Apple M1", "Apple M1: before M5 bf16 Metal kernels are missing, and its projector is BF16"),
        ("Apple M4 Max", "Apple M4: before M5 bf16 Metal kernels are missing, and its projector is BF16"),
        ("Apple A18 Pro", "Apple A18 Pro is not a known Apple chip, and its projector is BF16"),
        (apple.UNKNOWN, "an unknown processor is not a known Apple chip, and its projector is BF16"),
    ],
)
def test_a_bf16_projector_is_on_the_cpu_of_an_older_or_unknown_chip_and_others_are_not(chip, reason):
    assert apple.on_cpu(chip, PROJECTORS) == {"eyes": reason}


@pytest.mark.parametrize("chip", ["Apple M5", "Apple M10 Ultra", ""])
def test_a_newer_chip_and_another_system_keep_every_model_on_the_card(chip):
    assert apple.on_cpu(chip, PROJECTORS) == {}


def test_the_role_for_hosts_has_the_same_first_chip_and_the_same_reason():
    text = (paths.REPOSITORY / "ansible" / "roles" / "llama_server" / "vars" / "main.yml").read_text(encoding="utf-8")
    assert re.findall(r"__llama_server_apple \| int >= (\d+)", text) == [str(apple.FIRST_WITH_BF16)]
    assert f"before M{apple.FIRST_WITH_BF16} bf16 Metal kernels are missing" in text
    assert "is not a known Apple chip" in text


@pytest.fixture
def sysctl(tmp_path, monkeypatch):
    """Sets what sysctl prints on a macOS that this is not."""
    program = tmp_path / "sysctl"
    monkeypatch.setattr(apple, "_SYSCTL", str(program))
    monkeypatch.setattr(apple.platform, "system", lambda: "Darwin")

    def prints(text, code=0):
        (tmp_path / "text").write_text(text, encoding="utf-8")
        program.write_text(f'#!/bin/sh\n[ "$*" = "-n machdep.cpu.brand_string" ] && cat {tmp_path}/text\nexit {code}\n')
        program.chmod(0o755)

    return prints


@pytest.mark.parametrize(
    ("text", "code", "found"),
    [
        ("Apple M2 Pro\n", 0, "Apple M2 Pro"),
        ("Apple M3\x1b[31m${PORT}\n", 0, "Apple M331mPORT"),
        ("\n", 0, apple.UNKNOWN),
        ("Apple M2\n", 1, apple.UNKNOWN),
    ],
    ids=["a-chip", "what-a-terminal-obeys", "nothing", "an-error"],
)
def test_the_processor_is_what_sysctl_prints_and_unknown_without_it(sysctl, text, code, found):
    sysctl(text, code)
    assert apple.processor() == found


def test_a_macos_without_sysctl_has_an_unknown_processor(sysctl):
    assert apple.processor() == apple.UNKNOWN


def test_another_system_has_none(monkeypatch):
    monkeypatch.setattr(apple.platform, "system", lambda: "Linux")
    assert apple.processor() == ""
