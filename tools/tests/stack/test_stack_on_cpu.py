"""A model that is kept off the card: real llama-swap and a real engine, on a machine that is called an Apple M2.

There is no such chip here, and no card: the name of the chip and the number format in the lock are a test's.  What is
real is what follows from them: configuration, the engine's environment and command line, and what is shown.
"""

from __future__ import annotations

import json

import psutil
import pytest

from corral import paths
from corral.catalog import catalog as catalogs
from corral.cli.main import main
from corral.demo.hub import Hub
from corral.demo.tour import demo_repositories
from corral.engine import apple, stack
from corral.lock import lock as locks
from tests.support.demo_stack import pid_of
from tests.support.engine_process import chat, free_port
from tests.support.tiny_catalog import write_tiny_catalog

pytestmark = pytest.mark.timeout(300)
REASON = "Apple M2: before M5 bf16 Metal kernels are missing, and its projector is BF16"


@pytest.fixture
def catalog(tmp_path):
    """The tiny catalog, whose lock has a BF16 projector."""
    folder = write_tiny_catalog(tmp_path / "catalog")
    lock = locks.require(folder)
    vision = lock.models["tiny-vision"]
    predicted = vision.predicted.model_copy(update={"projector_type": "BF16"})
    models = {**lock.models, "tiny-vision": vision.model_copy(update={"predicted": predicted})}
    locks.write(catalogs.load(folder).lock_file, lock.model_copy(update={"models": models}))
    return folder


def test_a_bf16_projector_on_an_older_apple_chip_runs_without_a_card_and_says_why(
    catalog, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(apple, "processor", lambda: "Apple M2 Pro")
    with Hub(demo_repositories(tmp_path / "hub")) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        assert main(["up", "--detach", "--catalog", str(catalog), "--port", str(free_port())]) == 0
    try:
        assert f"tiny-vision: CPU, 0 layers on the card of this machine ({REASON})" in capsys.readouterr().err
        endpoint = stack.running(paths.state_dir()).endpoint
        for model, shown, answer in (("tiny-vision", ["red", "blue"], "red, blue"), ("tiny-text", ["Hello."], "OK")):
            assert chat(endpoint, *shown, model=model)["message"]["content"] == answer

        vision, text = (psutil.Process(pid_of(model)) for model in ("tiny-vision", "tiny-text"))
        without = {"LLAMA_ARG_DEVICE": "none", "LLAMA_ARG_MMPROJ_OFFLOAD": "0"}
        assert without.items() <= vision.environ().items()
        assert not without.keys() & text.environ().keys()
        argv = locks.require(catalog).models["tiny-vision"].argv
        assert argv[argv.index("-ngl") + 1] == vision.cmdline()[vision.cmdline().index("-ngl") + 1]

        monkeypatch.setattr(apple, "processor", lambda: "")  # status shows what was started
        assert main(["status"]) == 0
        assert REASON in capsys.readouterr().err
        assert main(["status", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["on_cpu"] == {"tiny-vision": REASON}
    finally:
        stack.stop(paths.state_dir(), drain_s=0)


def test_the_seating_chart_names_it_too_and_elsewhere_there_is_nothing_of_it(catalog, monkeypatch, capsys):
    monkeypatch.setattr(apple, "processor", lambda: "Apple M2 Pro")
    main(["seat", "--catalog", str(catalog)])
    assert f"tiny-vision: CPU, 0 layers on the card of this machine ({REASON})" in capsys.readouterr().err
    monkeypatch.setattr(apple, "processor", lambda: "Apple M5")
    main(["seat", "--catalog", str(catalog)])
    assert "CPU" not in capsys.readouterr().err
