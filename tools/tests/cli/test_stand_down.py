"""`corral stand-down`: what it refuses before it asks a cluster.  tests/cluster has what it does in a real one."""

from __future__ import annotations

import pytest

from corral.cli.main import main
from corral.terraform import homelab
from tests.support import smoke_catalog


@pytest.fixture(autouse=True)
def nothing_applied(monkeypatch, tmp_path):
    monkeypatch.setattr(homelab, "STACK", tmp_path / "stack")


@pytest.fixture
def catalog(tmp_path):
    return str(smoke_catalog.write(tmp_path / "catalog", {"text": {"smoke": {"expect": "OK"}}}))


def test_without_a_cluster_it_names_the_option(capsys):
    assert main(["stand-down", "immich-ml"]) == 2
    assert "needs a cluster" in (error := capsys.readouterr().err)
    assert "--context NAME" in error


@pytest.mark.parametrize("time", ["19s", "25h", "30", "0m", "-5m", "1d"])
def test_a_time_that_is_too_short_too_long_or_none_is_refused(time, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["stand-down", "immich-ml", "--for", time])
    assert f"'{time}' is no time from 20s to 24h" in capsys.readouterr().err or time.startswith("-")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--", "true"], "A command needs a tenant"),
        (["immich-ml", "--json", "--", "true"], "--json has no place there"),
        (["immich-ml", "--for", "30m", "--"], "No command follows --"),
        (["immich-ml", "--end", "--", "true"], "A command needs a tenant"),
        (["immich-ml", "--", "no-such-program"], "There is no program 'no-such-program'"),
        (["immich-ml", "--for", "30m", "--", "no-such-program", "--for", "x"], "There is no program"),
    ],
)
def test_what_has_no_meaning_is_refused_before_a_cluster_is_asked(words, problem, catalog, capsys):
    assert main(["stand-down", "--context", "none-such", "--catalog", catalog, *words]) == 2
    assert problem in capsys.readouterr().err
