"""`corral prune --context`: a Job finds and removes a model that left the applied catalog, and the other serves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes import client

from tests.support.cluster.homelab import homelab
from tests.support.cluster.pods import eventually
from tests.support.engine_process import chat

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    """On a disk of the node: the Job must run there."""
    folder = cluster.local("pruned")
    store = {"local": {"node": cluster.node, "path": str(folder)}}
    with homelab(cluster, tmp_path_factory.mktemp("pruned"), "pruned", store=store) as lab:
        lab.apply()
        yield lab


@pytest.fixture(scope="module")
def both(lab, tmp_path_factory):
    """The lock with both models."""
    copy = tmp_path_factory.mktemp("both") / "lock.json"
    copy.write_text((lab.catalog / "lock.json").read_text())
    return copy


@pytest.fixture
def store(lab):
    return Path(lab.variables["store"]["local"]["path"])


def prune(lab, *words, code=0):
    return lab.corral("prune", "--context", lab.cluster.context, *words, code=code)


def jobs(lab):
    return [one.metadata.name for one in client.BatchV1Api(lab.cluster.api).list_namespaced_job(lab.namespace).items]


def everything(store):
    return sorted((str(path), path.lstat().st_ino, path.lstat().st_uid) for path in store.rglob("*"))


def test_the_applied_lock_decides_and_not_the_one_of_this_machine(lab, both, store):
    (lab.catalog / "models" / "tiny-vision.yaml").unlink()
    assert lab.lock()["models"].keys() < json.loads(both.read_text())["models"].keys()

    done = prune(lab, "--grace", "0", "--yes")

    assert done.stderr.endswith("Nothing to remove.\n")
    assert (store / "tiny-vision" / "model.gguf").is_file()
    assert jobs(lab) == ["download-models"]


def test_a_model_that_left_the_applied_catalog_waits_a_day_and_is_listed_without_a_change(lab, store):
    lab.apply()
    before = everything(store)

    assert "Idle for less than 24 h 00 min: 4 things" in prune(lab).stderr
    done = prune(lab, "--grace", "0")
    found = json.loads(prune(lab, "--grace", "0", "--json").stdout)

    assert "tiny-vision\t0 B\t" in done.stdout
    assert "that no lock names" in done.stdout
    assert f"Remove it with: corral prune --yes --grace 0 --context {lab.cluster.context}" in done.stderr
    assert [one["path"].partition("/")[0] for one in found["removals"]] == ["tiny-vision", "sets", "blobs", "blobs"]
    assert found["bytes"] > 100_000
    assert everything(store) == before
    assert jobs(lab) == ["download-models"]


def test_a_model_that_another_lock_names_stays(lab, both):
    assert prune(lab, "--grace", "0", "--yes", "--keep-lock", str(both)).stderr.endswith("Nothing to remove.\n")


def test_after_an_interrupt_no_job_is_left_and_nothing_was_removed(lab, store):
    before = everything(store)
    words = [Path(sys.executable).with_name("corral"), "prune", "--context", lab.cluster.context, "--grace", "0"]
    with subprocess.Popen(
        [*words, "--yes"], cwd=lab.clone, env=lab.environment, stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            if line.startswith("job/prune-models-"):
                process.send_signal(signal.SIGTERM)
                break
        left = process.stderr.read()

    assert process.returncode == 130, left
    assert "What the Job had removed by then is not known" in left
    assert jobs(lab) == ["download-models"]
    assert everything(store) == before


def test_with_yes_it_is_removed_by_its_owner_and_the_other_model_still_answers(lab, store, endpoint):
    done = prune(lab, "--grace", "0", "--yes")

    assert "Removed 4 things" in done.stderr
    assert sorted(path.name for path in store.iterdir() if path.name[0] != ".") == ["blobs", "sets", "tiny-text"]
    assert len(list((store / "blobs").iterdir())) == 1
    assert chat(endpoint, "Are you there?", model="tiny-text", api_key=lab.key())["message"]["content"] == "OK"
    assert prune(lab, "--grace", "0").stderr.endswith("Nothing to remove.\n")
    assert jobs(lab) == ["download-models"]
    pods = client.CoreV1Api(lab.cluster.api)
    eventually(
        lambda: [one.metadata.name for one in pods.list_namespaced_pod(lab.namespace).items],
        lambda names: not [one for one in names if one.startswith("prune-models")],
    )
