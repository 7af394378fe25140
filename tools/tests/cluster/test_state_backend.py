"""Where Terraform keeps its state: in PostgreSQL by choice; test_apply.py has the file beside the stack."""

from __future__ import annotations

import re
import subprocess

import pytest

from corral.terraform.program import find_terraform
from tests.support.cluster.homelab import homelab
from tests.support.engine_process import wait_for
from tests.support.postgres import postgres

pytestmark = pytest.mark.timeout(300)
ONLY_THE_NAMESPACE = "-target=kubernetes_namespace_v1.llama_cpp"


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    with homelab(cluster, tmp_path_factory.mktemp("state"), "state") as lab:
        yield lab


def test_by_choice_the_state_is_in_postgresql_and_is_locked_there(lab, monkeypatch, tmp_path):
    with postgres() as address:
        monkeypatch.setenv("PG_CONN_STR", address)
        initialised = lab.run("bash", "tools/dev/terraform_init.sh", env=lab.environment | {"BACKEND": "pg"})
        assert initialised.returncode == 0, initialised.stderr
        lab.apply(ONLY_THE_NAMESPACE)
        assert "No changes." in lab.terraform("plan", "-input=false", "-no-color", ONLY_THE_NAMESPACE).stdout
        assert tables(address) == ["states"]

        words = (find_terraform(), "apply", "-destroy", "-no-color")  # asks, and holds the lock meanwhile
        log = tmp_path / "first"
        with log.open("wb") as out, asking(words, lab, out) as first:
            wait_for(lambda: "Enter a value:" in log.read_text(), limit_s=60, what="the question of the first apply")
            second = lab.terraform("apply", "-auto-approve", "-input=false", "-no-color", code=1)
            planned = lab.corral("plan", code=3)
            first.communicate(b"no\n")

        assert "Error acquiring the state lock" in second.stderr
        assert "is in use" in planned.stderr
        assert re.search(r"only if there is none: \S+ -chdir=\S+ force-unlock [0-9a-f-]{36}", planned.stderr)
        lab.destroy()


def asking(words, lab, out):
    return subprocess.Popen(words, cwd=lab.stack, env=lab.environment, stdin=subprocess.PIPE, stdout=out)


def tables(address):
    query = "select tablename from pg_tables where schemaname = 'llama-cpp'"
    words = ["psql", address, "--tuples-only", "--no-align", "--command", query]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
