"""The exporter beside the model store, and its alerts, each with its runbook followed word for word."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from corral.cluster.client import connect
from corral.cluster.port_forward import forwarded
from tests.support.cluster import watched
from tests.support.cluster.alerting import notified, receiving
from tests.support.cluster.follower import Follower
from tests.support.cluster.pods import eventually
from tests.support.cluster.watched import MODEL, NAMESPACE
from tests.support.engine_process import get

pytestmark = pytest.mark.timeout(420)


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    with watched.watched(cluster, tmp_path_factory.mktemp("store")) as lab:
        watched.wait_for_store_exporter(lab)
        yield lab


@pytest.fixture(scope="module")
def receiver(lab, tmp_path_factory):
    with receiving(lab, tmp_path_factory.mktemp("monitoring")) as receiver:
        yield receiver


def series(lab):
    """The value of each series by its name and labels."""
    target = connect(lab.cluster.kubeconfig, lab.cluster.context)
    with forwarded(target, NAMESPACE, "store-exporter", port="metrics") as address:
        status, text = get(f"{address}/metrics")
    assert status == 200
    families = text_string_to_metric_families(text)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def in_pod(lab, *words):
    return lab.run("kubectl", "-n", NAMESPACE, "exec", "deployment/store-exporter", "--", *words)


def read_again(lab):
    """The series after all files of the store were read: a kernel may have dropped what the download had left."""
    for file in lab.store.rglob("*.gguf"):
        file.read_bytes()
    return series(lab)


def test_every_model_of_the_lock_is_ready_and_in_the_page_cache_once_its_files_were_read(lab):
    def is_cached(found):
        sizes = {one[1:]: size for one, size in found.items() if one[0] == "corral_store_model_bytes"}
        return sizes and all(found["corral_store_model_cached_bytes", *one] == size for one, size in sizes.items())

    found = eventually(lambda: read_again(lab), is_cached)
    assert found["corral_store_up", NAMESPACE] == 1
    models = {one[2] for one in found if one[0] == "corral_store_model_bytes"}
    assert models == {MODEL, "tiny-vision"}
    for model in models:
        assert found["corral_store_model_state", NAMESPACE, model, "ready"] == 1
        assert found["corral_store_model_bytes", NAMESPACE, model] > 0
    assert 0 < found["corral_store_free_bytes", NAMESPACE] < found["corral_store_size_bytes", NAMESPACE]


def test_the_seal_is_that_of_the_applied_lock(lab):
    seals = [labels[-1] for name, *labels in series(lab) if name == "corral_store_lock_info"]
    assert seals == [json.loads((lab.catalog / "lock.json").read_text())["seal"]]


def test_the_exporter_of_the_store_can_change_nothing_there(lab):
    done = in_pod(lab, "touch", "/models/x")
    assert done.returncode != 0
    assert "Read-only file system" in done.stderr
    account = f"system:serviceaccount:{NAMESPACE}:store-exporter"
    may = lab.run("kubectl", "auth", "can-i", "get", "pods", "-n", NAMESPACE, f"--as={account}").stdout
    assert may.strip() == "no"


def test_a_file_that_changed_is_an_alert_until_the_runbook_has_fetched_it_again(lab, receiver):
    before = len(receiver.all)
    file = (lab.store / MODEL / "model.gguf").resolve()
    whole = file.read_bytes()
    file.write_bytes(b"x" + whole[1:])
    notified(receiver, "CorralModelNotInStore", after=before, limit_s=240, model=MODEL, state="unverified")
    operator = Follower(lab, "model-not-in-store")

    printed = operator.does("Diagnosis", verify=1, status=1)
    assert "damaged" in next(text for command, text in printed.items() if command.startswith("corral verify"))
    operator.does("Mitigation")
    assert (lab.store / MODEL / "model.gguf").read_bytes() == whole
    assert {path.lstat().st_uid for path in lab.store.rglob("*")} == {10001}, "root has repaired it"
    operator.does("Verify")
    notified(receiver, "CorralModelNotInStore", "resolved", after=before, limit_s=240, model=MODEL)
    operator.assert_all_is_done()


def test_a_store_that_cannot_be_read_is_an_alert_until_the_runbook_has_given_it_back(lab, receiver):
    before = len(receiver.all)
    (lab.store / "sets").chmod(0)
    notified(receiver, "CorralStoreSilent", after=before, limit_s=240, store=NAMESPACE)
    operator = Follower(lab, "store-silent")

    printed = operator.does("Diagnosis", status=1)
    assert any("Permission denied" in text for text in printed.values())
    (lab.store / "sets").chmod(0o755)
    operator.does("The store is there, and cannot be read")
    operator.does("The exporter is missing")
    operator.does("Verify")
    notified(receiver, "CorralStoreSilent", "resolved", after=before, limit_s=240, store=NAMESPACE)
    operator.assert_all_is_done()


@pytest.mark.parametrize("name", ["store-filling", "page-cache-cold", "lock-behind"])
def test_the_commands_of_a_runbook_whose_alert_promtool_tests_are_accepted(lab, name):
    """A store that is full, an hour without a page, and a quarter of an hour of another lock are not made here."""
    operator = Follower(lab, name)
    for heading in operator.book.commands:
        operator.does(heading, status=1)
    operator.assert_all_is_done()
