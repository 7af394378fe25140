"""docs/llama-cpp.md: its commands, typed in their order, print what stands below them; its figures are the engine's."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from pathlib import Path

import pytest

from corral.engine.go_build import find_go
from corral.paths import REPOSITORY
from corral.vram import oracle
from tests.support import gguf_models, typed_page
from tests.support.by_hand import fetched
from tests.support.engine_process import free_port
from tests.support.typed_page import Typed

PAGE = REPOSITORY / "docs" / "llama-cpp.md"
LIMIT_S = 1500.0
MIB = 1 << 20
NEEDS = {"gdb": "a debugger", "gcc": "a C compiler", "jq": "a reader of JSON"}
"""Programs of the page that a machine may lack; their commands are left out then, and never in CI."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(LIMIT_S + 300)]


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """The commands of the page as they ran in a folder that is laid out as a clone after `make demo`."""
    folder = tmp_path_factory.mktemp("clone")
    with fetched(folder / ".corral" / "demo", real=True) as one:
        (folder / ".corral" / "demo" / "state" / "store").rename(folder / ".corral" / "store")
        (folder / "docs").symlink_to(REPOSITORY / "docs")
        go = find_go(print, (1, 26)).parent
        path = typed_page.path_with(Path(sys.executable).parent, go)
        variables = one.variables | {"CORRAL_STATE": str(folder / ".corral"), "PATH": path, "GOFLAGS": "-mod=readonly"}
        port = str(free_port())
        commands = [
            Typed(command.command.replace("8081", port), tuple(line.replace("8081", port) for line in command.expected))
            for command in typed_page.read(PAGE)
        ]
        runnable = [one for one in commands if not missing(one)]
        assert runnable == commands or not os.environ.get("CI"), [missing(one) for one in commands]
        yield typed_page.type_all(runnable, folder, variables, limit_s=LIMIT_S)


def missing(command: Typed) -> list[str]:
    """The programs that *command* needs and this machine lacks."""
    words = set(re.findall(r"[\w.-]+", command.command))
    lacking = [name for name in NEEDS if name in words and shutil.which(name) is None]
    return lacking + (["x86-64"] if "gcc" in words and platform.machine() != "x86_64" else [])


def test_every_command_prints_what_the_page_has(typed):
    assert len(typed) > 15
    wrong = [
        f"$ {one.command}\n{chr(10).join(one.lines)}\n(exit code {one.code})" for one in typed if not one.is_as_printed
    ]
    assert not wrong, "\n".join(wrong)


def test_no_layer_on_the_card_still_takes_the_memory_that_the_page_names():
    argv = [
        "llama-server",
        "-m",
        "${STORE}/m/model.gguf",
        "-c",
        "8192",
        "-np",
        "1",
        "-fa",
        "on",
        "-fit",
        "off",
        "--offline",
    ]
    (found,) = oracle.ask([gguf_models.header("qwen3-8b-q4km")], [[*argv, "-ngl", "0"]])
    assert (found.gpu.weights, found.gpu.context) == (0, 0)
    assert f"and {found.gpu.compute // MIB} MiB of compute buffers" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("lines", "code", "is_as_printed"),
    [
        (("a 12 b", "c"), 0, True),
        (("a 12 b", "x", "y", "c"), 0, False),
        (("a 12 b", "c"), 1, False),
        (("a 12",), 0, False),
    ],
)
def test_a_command_that_prints_something_else_or_fails_is_found(lines, code, is_as_printed):
    assert Typed("x", ("a … b", "c"), lines, code).is_as_printed is is_as_printed


def test_a_line_of_dots_stands_for_any_lines():
    assert Typed("x", ("a", "…"), ("a", "b", "c"), 0).is_as_printed
    assert not Typed("x", ("a", "…"), ("b",), 0).is_as_printed
