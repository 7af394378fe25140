"""A catalog of two models, and stand-ins for hub, engine and registry."""

from __future__ import annotations

import pytest

from tests.support.relocking import (
    FETCH,
    SWAP,
    TEXT,
    TWO,
    VISION,
    Engine,
    Hub,
)


@pytest.fixture
def hub():
    return Hub()


@pytest.fixture
def engine(folder):
    return Engine(folder)


@pytest.fixture
def folder(tmp_path):
    for name, text in {"models/text": TEXT, "models/vision": VISION, "cards/t4": "vram_mib: 15360\n"}.items():
        file = tmp_path / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return tmp_path


@pytest.fixture
def images(folder):
    """The catalog with images, of which fetch names its digest itself."""

    def write(swap=SWAP, fetch=f"{FETCH}@{TWO}"):
        (folder / "images.yaml").write_text(f"llama-swap: {swap}\nfetch: {fetch}\n")

    write()
    return write
