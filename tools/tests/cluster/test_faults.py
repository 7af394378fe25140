"""What cannot work: `corral apply` ends with the reason, `corral status` tells it, and the next apply mends it.

The stories run side by side, each with a clone and in a namespace of its own; the tests ask what came of them.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psutil
import pytest
from kubernetes import client

from tests.support.cluster.cluster import GPU, SLICES
from tests.support.cluster.homelab import homelab
from tests.support.cluster.pods import eventually, leave, pod

pytestmark = pytest.mark.timeout(600)  # Terraform's own limits: 17 minutes for the server, 3 hours for the download
LIMIT_S = 300.0
NOWHERE = f"sha256:{'0' * 64}"


@dataclass
class FaultReport:
    """The report of a fault: of the apply that it ended, and of `corral status --json` afterwards."""

    code: int
    stderr: str
    first: dict
    is_unlocked: bool

    def assert_is(self, subject, what, event, next_step, cause):
        """All of it, with these patterns."""
        assert (self.code, self.first["is_stuck"], self.first["cause"]) == (1, True, cause), self.stderr
        for text in (self.stderr, f"{self.first['subject']} {self.first['what']} {self.first['event']}"):
            assert re.search(f"{subject} .*{what}", text), text
            assert re.search(event, text), text
        assert re.search(next_step, self.first["next_step"])
        assert self.stderr.rstrip().endswith(f"→ {self.first['next_step']}")
        assert self.is_unlocked


def refused(lab):
    """`corral apply`, which fails, and then `corral status --json`."""
    done = lab.corral("apply", "--yes", "--no-smoke", code=None)
    first = json.loads(lab.corral("status", "--json", code=1).stdout)["findings"][0]
    is_unlocked = not list(lab.stack.glob(".*.lock.info"))
    return FaultReport(done.returncode, done.stderr.partition("\ncorral apply: ")[2], first, is_unlocked)


def on_node(cluster, *command):
    """Run *command* where the node has its mounts."""
    shell = psutil.Process(int((cluster.folder / "pid").read_text()))
    subprocess.run(["nsenter", "-t", str(shell.children()[0].pid), "-m", *command], check=True)


class Stories:
    """Each makes one fault after the other, keeps its reports, and repairs it."""

    def __init__(self, cluster, folder):
        self.cluster, self.core = cluster, client.CoreV1Api(cluster.api)
        self._folder, self._slices_are_back = folder, threading.Event()

    def _lab(self, name, **variables):
        folder = self._folder / name
        folder.mkdir()
        return homelab(self.cluster, folder, f"fault-{name}", **variables)

    def _repaired(self, lab):
        """Whether the next apply, which waits for the server, succeeds; the server needs a slice."""
        assert self._slices_are_back.wait(LIMIT_S)
        return lab.corral("apply", "--yes", "--no-smoke", code=None).returncode == 0

    def _made(self, namespace, wanted):
        """Whether there is such a pod and it has a node; it is made as soon as its namespace can have one."""
        try:
            self.core.create_namespaced_pod(namespace, wanted)
        except client.ApiException as error:
            if error.status not in (403, 409):  # no ServiceAccount yet; it is there
                raise
        return any(one.spec.node_name for one in self.core.list_namespaced_pod(namespace).items)

    def slices(self):
        reports = {}
        try:
            with self._lab("slices") as lab:
                self.core.create_namespace({"metadata": {"name": "frigate"}})
                holder = pod("frigate", self.cluster.images["fetch"], "sleep", "600", gpus=SLICES)
                eventually(lambda: self._made("frigate", holder), bool)
                reports["taken"] = refused(lab)
                self.cluster.set_gpus(0)
                self.core.delete_namespaced_pod("frigate", "frigate", grace_period_seconds=0)
                reports["none"] = refused(lab)
                reports["screen"] = lab.corral("status", code=1).stdout
                self.cluster.set_gpus(SLICES)
                self._slices_are_back.set()
                reports["repaired"] = self._repaired(lab)
                reports["afterwards"] = lab.corral("status", code=None).returncode
        finally:
            self.cluster.set_gpus(SLICES)
            self._slices_are_back.set()
            leave(self.cluster, "frigate")
        return reports

    def image_and_secret(self):
        reports = {}
        with self._lab("image") as lab:
            lab.lose_image("fetch", NOWHERE)
            reports["image"] = refused(lab)
            assert reports["image"].first["next_step"].startswith("corral "), reports["image"]
            lab.corral(*shlex.split(reports["image"].first["next_step"])[1:])
            lab.set(hf_token_secret="hf-token")
            reports["secret"] = refused(lab)
            apply = threading.Thread(target=lab.apply)
            apply.start()
            reports["waiting"] = eventually(
                lambda: json.loads(lab.corral("status", "--json", code=1).stdout)["findings"][0],
                lambda one: one["subject"].startswith("pod/"),
            )
            subprocess.run(shlex.split(reports["secret"].first["next_step"]), input="hf_x", text=True, check=True)
            assert self._slices_are_back.wait(LIMIT_S)
            apply.join()
            reports["job"] = client.BatchV1Api(self.cluster.api).read_namespaced_job("download-models", lab.namespace)
        return reports

    def store(self):
        reports = {}
        with self._lab("store") as lab:
            on_node(self.cluster, "mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", str(lab.store))
            reports["full"] = refused(lab)
            on_node(self.cluster, "umount", str(lab.store))
            memory = lab.clone / "terraform" / "modules" / "model-fetch" / "memory.tf"
            usual = memory.read_text()
            memory.write_text(usual.replace("fetch_mib = 256", "fetch_mib = 10"))
            reports["memory"] = refused(lab)
            memory.write_text(usual)
            reports["repaired"] = self._repaired(lab)
        return reports

    def volume(self):
        reports = {}
        with self._lab("volume") as lab:
            lab.terraform("apply", "-target=module.model_store", "-auto-approve", "-input=false")
            (claim,) = self.core.list_namespaced_persistent_volume_claim(lab.namespace).items
            self.core.delete_namespaced_persistent_volume_claim(claim.metadata.name, lab.namespace)
            eventually(
                lambda: self.core.read_persistent_volume(claim.spec.volume_name).status.phase,
                lambda phase: phase == "Released",
            )
            reports["released"] = refused(lab)
            reports["volume"] = claim.spec.volume_name
            subprocess.run(shlex.split(reports["released"].first["next_step"]), check=True)
            reports["repaired"] = self._repaired(lab)
            self.core.delete_namespaced_persistent_volume_claim(claim.metadata.name, lab.namespace)
            reports["leaving"] = json.loads(lab.corral("status", "--json", code=1).stdout)["findings"][0]
            subprocess.run(shlex.split(reports["leaving"]["next_step"]), check=True)
            eventually(
                lambda: [
                    one.metadata.name for one in self.core.list_namespaced_persistent_volume_claim(lab.namespace).items
                ],
                lambda names: not names,
            )
            subprocess.run(shlex.split(refused(lab).first["next_step"]), check=True)
            reports["repaired again"] = self._repaired(lab)
        return reports

    def claim(self):
        reports = {}
        name = "fault-claim"
        self.core.create_namespace({"metadata": {"name": name}})
        try:
            with self._lab("claim", store={"claim": "own"}) as lab:
                reports["missing"] = refused(lab)
                spec = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
                wanted = {**spec, "resources": {"requests": {"storage": "1Gi"}}}
                self.core.create_namespaced_persistent_volume_claim(name, {"metadata": {"name": "own"}, "spec": wanted})
                reports["unbound"] = refused(lab)
                source = {"nfs": {"server": "nas.test", "path": "/claim"}, "capacity": {"storage": "1Gi"}}
                assert self.cluster.nfs("/claim").is_dir()
                held = {"claimRef": {"namespace": name, "name": "own"}, "persistentVolumeReclaimPolicy": "Retain"}
                self.core.create_persistent_volume({"metadata": {"name": name}, "spec": spec | source | held})
                reports["repaired"] = self._repaired(lab)
        finally:
            leave(self.cluster, name)
        return reports


@pytest.fixture(scope="module")
def stories(cluster, tmp_path_factory):
    """What came of each story, by its name: ask for ``result()``."""
    reports = Stories(cluster, tmp_path_factory.mktemp("faults"))
    with ThreadPoolExecutor() as pool:
        yield {
            one.__name__: pool.submit(one)
            for one in (reports.slices, reports.image_and_secret, reports.store, reports.volume, reports.claim)
        }


def test_a_node_without_any_slice_of_a_card_ends_the_apply_with_the_schedulers_reason(stories, cluster):
    stories["slices"].result()["none"].assert_is(
        "pod/llama-swap-[a-z0-9-]+",
        rf"waits for {GPU}: node {cluster.node} offers none",
        f"1 Insufficient {GPU}",
        f"^kubectl .*--context {cluster.context} describe node/{cluster.node}$",
        "scheduling",
    )


def test_slices_that_are_all_taken_end_the_apply_with_the_names_of_those_who_have_them(stories, cluster):
    stories["slices"].result()["taken"].assert_is(
        "pod/llama-swap-[a-z0-9-]+",
        rf"finds no free slice of {GPU} on node {cluster.node}: 4 of 4 are taken by .*frigate/frigate \(4\)",
        f"1 Insufficient {GPU}",
        f"describe node/{cluster.node}$",
        "scheduling",
    )


def test_the_screen_has_the_sentence_the_event_and_the_next_command_in_lines_of_their_own(stories):
    reports = stories["slices"].result()
    first = reports["none"].first

    assert f"{first['subject']}: {first['what']}\n  {first['event']}\n  → {first['next_step']}\n" in reports["screen"]
    assert reports["afterwards"] == 0


def test_an_image_that_the_registry_does_not_have_ends_the_apply_and_is_named(stories):
    stories["image_and_secret"].result()["image"].assert_is(
        "pod/download-models-[a-z0-9]+",
        rf"cannot get the image \S+@{NOWHERE}: there is no such image",
        "ErrImagePull|ImagePullBackOff",
        "^corral lock --upgrade fetch$",
        "image",
    )


def test_a_secret_that_is_not_there_ends_the_apply_and_the_next_command_makes_it(stories, cluster):
    stories["image_and_secret"].result()["secret"].assert_is(
        "pod/download-models-[a-z0-9]+",
        "waits for the Secret hf-token, which does not exist in fault-image",
        'secret "hf-token" not found',
        r"^kubectl .* -n fault-image create secret generic hf-token --from-file=token=/dev/stdin$",
        "configuration",
    )


def test_a_download_that_waits_for_its_secret_goes_on_by_itself_when_it_is_there(stories):
    reports = stories["image_and_secret"].result()

    assert "waits for the Secret hf-token" in reports["waiting"]["what"]
    assert reports["job"].status.succeeded == 1
    assert not reports["job"].status.failed


def test_a_full_store_ends_the_apply_with_what_is_free_and_what_is_wanted(stories):
    stories["store"].result()["full"].assert_is(
        "job/download-models",
        r"the store is full: /models has 1.0 MB free; \S+ MB are to be fetched",
        "exit code 3|DeadlineExceeded",
        r"^ssh nas\.test df -h /fault-store$",
        "download",
    )


def test_a_download_that_is_killed_for_its_memory_ends_the_apply_when_it_is_again(stories):
    stories["store"].result()["memory"].assert_is(
        "job/download-models",
        "its container fetch took more memory than it may have and was killed",
        "OOMKilled, exit code 137|DeadlineExceeded",
        r"^kubectl .* describe job/download-models$",
        "download",
    )


def test_a_claim_that_is_not_there_ends_the_apply_and_is_named(stories):
    stories["claim"].result()["missing"].assert_is(
        "pod/download-models-[a-z0-9]+",
        "waits for the claim own, which does not exist in fault-claim",
        'persistentvolumeclaim "own" not found',
        r"^kubectl .* -n fault-claim get persistentvolumeclaims$",
        "claim",
    )


def test_a_claim_that_never_binds_ends_the_apply_with_the_reason(stories):
    stories["claim"].result()["unbound"].assert_is(
        "persistentvolumeclaim/own",
        "is not bound: no PersistentVolume fits, and no StorageClass makes one",
        "no persistent volumes available for this claim",
        r"^kubectl .* get persistentvolumes$",
        "claim",
    )


def test_a_volume_that_is_kept_for_a_deleted_claim_ends_the_apply_and_the_next_command_frees_it(stories):
    found = stories["volume"].result()
    found["released"].assert_is(
        "persistentvolumeclaim/models-[0-9a-f]+",
        f"is not bound: the PersistentVolume {found['volume']} belongs to an earlier claim of the same name",
        "",
        r"^kubectl .* patch persistentvolume/.* --type=json",
        "claim",
    )


def test_a_claim_that_is_being_deleted_is_named_and_following_the_next_commands_restores_service(stories):
    found = stories["volume"].result()
    assert re.search("being deleted: .* Used by download-models-.*, llama-swap-.*", found["leaving"]["what"])
    assert found["repaired again"]


@pytest.mark.parametrize("story", ["slices", "store", "volume", "claim"])
def test_the_apply_after_the_fault_is_gone_brings_everything_up(stories, story):
    assert stories[story].result()["repaired"]
