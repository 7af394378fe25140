"""`corral open`: which pages a browser gets of the real llama-swap, door and exporter."""

from __future__ import annotations

import json

import pytest

from corral import paths
from corral.cli.main import main
from corral.engine import stack
from tests.support.demo_stack import demo_stack, exporter_beside
from tests.support.engine_process import free_port, get

pytestmark = [pytest.mark.timeout(180), pytest.mark.long]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    with demo_stack(tmp_path_factory.mktemp("demo")) as found:
        yield found


@pytest.fixture
def running(demo, monkeypatch):
    monkeypatch.setenv("CORRAL_STATE", str(demo[1]))
    return stack.running(demo[1])


def test_the_llama_swap_that_corral_builds_has_no_pages_and_open_states_it(running, capsys):
    assert get(f"{running.endpoint}/ui/")[0] == 404
    assert main(["open", "--exporter-port", str(free_port())]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "llama-swap's pages: this llama-swap was built without them." in shown.err
    assert "LLAMA_SWAP=/path/to/a/release corral up" in shown.err
    assert "the exporter's page: no exporter of corral answers at" in shown.err


def test_pages_that_are_there_have_their_address(running, monkeypatch, capsys):
    """A stub stands for a llama-swap with assets: no package registry has one."""
    monkeypatch.setattr("corral.engine.llama_swap.LlamaSwap.has_pages", lambda _: True)
    assert main(["open", "--exporter-port", str(free_port())]) == 0
    assert capsys.readouterr().out == f"{running.endpoint}/ui/\n"


def test_the_page_of_an_exporter_has_its_address(running, capsys):
    with exporter_beside() as address:
        port = address.rpartition(":")[2]
        assert main(["open", "--exporter-port", port, "--json"]) == 0
        assert [one["address"] for one in json.loads(capsys.readouterr().out)] == ["", f"{address}/"]


def test_another_program_at_its_port_is_not_called_the_exporter(running, capsys):
    assert main(["open", "--exporter-port", str(running.door.port)]) == 1
    assert "no exporter of corral answers" in capsys.readouterr().err


def test_with_keys_a_browser_gets_none_of_llama_swaps_pages(demo, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))
    store = ["--store", str(demo[1] / "store")]
    words = ["up", "--detach", "--keys", "--catalog", str(demo[0]), "--port", str(free_port()), *store]
    try:
        assert main(words) == 0
        assert get(f"{stack.running(paths.state_dir()).endpoint}/ui/")[0] == 401
        assert main(["open", "--exporter-port", str(free_port())]) == 1
        assert "requires a key with every request, and a browser sends none" in capsys.readouterr().err
    finally:
        stack.stop(paths.state_dir(), drain_s=0)


def test_without_a_stack_the_next_step_starts_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path))
    assert main(["open", "--exporter-port", str(free_port())]) == 1
    assert "llama-swap's pages: no local stack is running.\n  → corral up --detach" in capsys.readouterr().err
