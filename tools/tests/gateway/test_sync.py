"""`corral gateway sync` with the real proxy, as far as that goes without PostgreSQL: reading its list, and its refusal.

What it writes is in tests/cli/test_gateway.py, with a stand-in for the API: LiteLLM's client of PostgreSQL starts a
program that it downloads, and neither its wheel nor an npm package has that.
"""

from __future__ import annotations

import pytest

from corral import paths
from corral.cli.main import main
from tests.support.gateway import KEY, WRONG_KEY
from tests.support.locked_catalog import SMALLEST_INTENT, write_catalog

DEMO = paths.REPOSITORY / "terraform" / "catalog-demo"


@pytest.fixture
def sync(litellm, monkeypatch):
    monkeypatch.setenv("LITELLM_MASTER_KEY", KEY)

    def run(*words, catalog=DEMO):
        return main(["gateway", "sync", "--url", litellm.endpoint, "--catalog", str(catalog), *words])

    return run


def test_without_a_database_it_is_refused_with_the_way_that_works(sync, capsys):
    assert sync("--yes") == 2
    shown = capsys.readouterr()
    assert "+ tiny-text" in shown.out
    assert "LiteLLM keeps no models" in shown.err
    assert "Nothing was changed." in shown.err
    assert "corral render --print litellm" in shown.err


def test_a_name_in_litellms_own_file_is_refused(sync, tmp_path, capsys):
    catalog = write_catalog(tmp_path / "catalog", {"text": SMALLEST_INTENT})
    assert sync("--json", catalog=catalog) == 2
    assert "LiteLLM has other entries called text, without the mark corral" in capsys.readouterr().err


def test_another_key_is_refused(sync, monkeypatch, capsys):
    monkeypatch.setenv("LITELLM_MASTER_KEY", WRONG_KEY)
    assert sync("--yes") == 2
    assert "LiteLLM does not accept the key" in capsys.readouterr().err
