"""renovate.json knows every pin of the repository: each file with one is matched by exactly what reads it."""

from __future__ import annotations

import json
import re

import pytest

from corral import paths
from corral.engine.embedded import WHEEL_VERSION
from tests.support import clone

CONFIG = json.loads((paths.REPOSITORY / ".github" / "renovate.json").read_text())
CUSTOM = CONFIG["customManagers"]
# Managers whose own patterns find these names anywhere.
BUILT_IN = {"gomod": r"(^|/)go\.mod$", "terraform": r"\.tf$", "github-actions": r"^\.github/workflows/[^/]+\.ya?ml$"}
PINNED = {  # what a file with a pin looks like
    r"(^|/)go\.mod$": r"(?m)^require",
    r"\.lock$": r"(?m)^[\w.-]+==",
    r"requirements\.in$": r"==",
    r"(^|/)pyproject\.toml$": r"(?m)^dependencies = ",
    r"(^|/)requirements\.yml$": r"version:",
    r"(^|/)versions\.tf$": r"version *=",
    r"^\.github/workflows/": r"uses: \S+@",
    r"^terraform/catalog/images\.yaml$": r":",
    r"^tools/(?!tests/(?!support/)).*\.py$": r"(?m)^_?(?:WHEEL_)?(?:VERSION|UV)(?:: Final)? = \"v?\d+\.",
}


def patterns(manager):
    """What *manager* reads, as regular expressions."""
    if manager in BUILT_IN:
        return [BUILT_IN[manager]]
    listed = [CONFIG[manager]] if manager != "custom.regex" else CUSTOM
    return [pattern.removeprefix("/").removesuffix("/") for one in listed for pattern in one["managerFilePatterns"]]


READ = [(manager, re.compile(pattern)) for manager in CONFIG["enabledManagers"] for pattern in patterns(manager)]


def files_with_pins():
    found = []
    for name in clone.files():
        path = paths.REPOSITORY / name
        if path.is_file() and any(
            re.search(kind, name) and re.search(pin, path.read_text(errors="replace")) for kind, pin in PINNED.items()
        ):
            found.append(name)
    return found


def test_every_file_with_a_pin_is_read_by_a_manager():
    pinned = files_with_pins()

    assert len(pinned) >= 20
    assert [name for name in pinned if not any(pattern.search(name) for _, pattern in READ)] == []


def test_every_kind_of_pin_and_every_pattern_finds_a_file():
    names = clone.files()

    assert [kind for kind in PINNED if not any(re.search(kind, name) for name in names)] == []
    assert [pattern.pattern for _, pattern in READ if not any(pattern.search(name) for name in names)] == []


@pytest.mark.parametrize("manager", CUSTOM, ids=lambda one: one["managerFilePatterns"][0])
def test_every_expression_of_our_own_finds_a_version(manager):
    [pattern] = [one.strip("/") for one in manager["managerFilePatterns"]]
    [name] = [name for name in clone.files() if re.search(pattern, name)]
    text = (paths.REPOSITORY / name).read_text()

    for expression in manager["matchStrings"]:
        found = list(re.finditer(re.sub(r"\(\?<(?=\w)", "(?P<", expression), text))
        assert found, name
        assert all(one["currentValue"] for one in found)


def test_the_engine_is_moved_by_its_own_command_alone():
    disabled = {
        name
        for rule in CONFIG["packageRules"]
        if rule.get("enabled") is False
        for name in rule.get("matchPackageNames", ())
    }

    assert {"xllamacpp", "ghcr.io/ggml-org/llama.cpp"} <= disabled
    assert WHEEL_VERSION in (paths.REPOSITORY / "tools" / "pyproject.toml").read_text()


def test_every_image_of_the_catalog_is_found():
    [manager] = [one for one in CUSTOM if one["datasourceTemplate"] == "docker"]
    expression = re.sub(r"\(\?<(?=\w)", "(?P<", manager["matchStrings"][0])
    text = (paths.REPOSITORY / "terraform" / "catalog" / "images.yaml").read_text()

    found = {one["depType"]: one["depName"] for one in re.finditer(expression, text)}
    assert found == {
        "llama-swap": "ghcr.io/mostlygeek/llama-swap",
        "llama-server": "ghcr.io/ggml-org/llama.cpp",
        "door": "caddy",
        "fetch": "python",
    }
