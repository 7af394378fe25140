"""`corral add` and `corral remove` around a real stack: what was added answers, what was removed is not served."""

from __future__ import annotations

import json

import pytest

from corral import paths
from corral.cli.main import main
from corral.demo.hub import Hub, RepoContent
from corral.demo.tour import write_tiny_repositories
from corral.engine import stack
from tests.support.engine_process import free_port
from tests.support.tiny_catalog import write_tiny_catalog

pytestmark = [pytest.mark.timeout(180), pytest.mark.long]


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    repositories = {repo: RepoContent(files) for repo, files in write_tiny_repositories(tmp_path / "hub").items()}
    with Hub(repositories) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield write_tiny_catalog(tmp_path / "catalog")
        stack.stop(paths.state_dir(), drain_s=0)


def test_an_added_model_answers_and_a_removed_one_is_gone(catalog, capsys):
    words = ["--catalog", str(catalog)]
    up = ["up", "--detach", "--port", str(free_port()), *words]
    assert main(["add", "corral/tiny-vision-GGUF:F16", "--name", "another", "--yes", *words]) == 0
    assert main(up) == 0
    assert main(["smoke", "another", *words]) == 0
    assert "another\timages\tpassed" in capsys.readouterr().out

    assert main(["remove", "another", "--yes", *words]) == 0
    assert main(up) == 0
    capsys.readouterr()
    main(["status", "--json"])
    assert [one["model"] for one in json.loads(capsys.readouterr().out)["models"]] == [
        "tiny-text",
        "tiny-think",
        "tiny-vision",
    ]
    main(["prune", "--grace", "0", *words])
    assert "another" in capsys.readouterr().out
