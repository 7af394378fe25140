"""`terraform apply` in stacks/homelab: from nothing to a smoked Service, what a change touches, and the end of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
import urllib.request

import pytest
from kubernetes import client, watch

from corral import paths
from corral.cluster.client import connect
from corral.cluster.port_forward import forwarded
from tests.support.cluster.homelab import homelab
from tests.support.engine_process import authorization, chat, question, wait_for
from tests.support.faulty_hub import Hold

pytestmark = pytest.mark.timeout(300)
NAMESPACE = "llama-cpp"
JOB = "module.model_fetch.kubernetes_job_v1.download_models"
APPLIED = "terraform_data.applied_lock"
JOBS_INPUT = "module.model_fetch.terraform_data.files"
CONFIG_MAP = ".kubernetes_config_map_v1.by_content["  # and its key: one instance is made, and the one before is removed
LOCK, CONFIG, DOOR = (
    "module.model_fetch.module.lock",
    'module.llama_swap["first"].module.config',
    'module.llama_swap["first"].module.door',
)
DEPLOYMENT = 'module.llama_swap["first"].kubernetes_deployment_v1.llama_swap'


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory, say):
    with homelab(cluster, tmp_path_factory.mktemp("apply"), NAMESPACE) as lab:
        lab.model("tiny-slow", modalities=["text"], group="slow")
        lab.lock()
        begin = time.monotonic()
        lab.apply()
        lab.first_smoke = json.loads(lab.corral("smoke", "--json").stdout)
        say(f"from nothing to smoked answers: {time.monotonic() - begin:.1f} s")
        yield lab


def job(lab):
    """The download Job; None while it is replaced."""
    try:
        return client.BatchV1Api(lab.cluster.api).read_namespaced_job("download-models", NAMESPACE)
    except client.ApiException as error:
        if error.status == 404:
            return None
        raise


def planned(lab):
    """What a plan would do: to ConfigMaps by their module, and to everything else by its address."""
    objects, contents = {}, {}
    for address, actions in lab.planned().items():
        module, is_content, _ = address.partition(CONFIG_MAP)
        if is_content:
            contents.setdefault(module, set()).update(actions)
        else:
            objects[address] = actions
    return objects, contents


def test_the_guide_counts_what_an_apply_makes(lab):
    made = lab.terraform("state", "list").stdout.split()
    in_the_state_alone = [address for address in made if "terraform_data." in address]
    guide = (paths.REPOSITORY / "docs" / "getting-started.md").read_text()

    for sentence in (
        f"Plan: {len(made)} to add, 0 to change, 0 to destroy.",
        f"Two of the {len(made)} (`terraform_data`) exist only in the state",
        f"Resources: {len(made)} added, 0 changed, 0 destroyed.",
        f"0 to change, {len(made)} to destroy.",
        f"0 changed, {len(made)} destroyed.",
    ):
        assert sentence in guide
    assert (len(in_the_state_alone), len(made) - 2) == (2, 17), "the guide has both in words"


def test_an_apply_from_nothing_ends_with_a_right_answer_of_each_model_text_and_vision(lab):
    passed = {(one["model"], one["check"]) for one in lab.first_smoke["checks"] if one["status"] == "passed"}

    assert lab.first_smoke["passed"]
    assert {("tiny-text", "answer"), ("tiny-vision", "images"), ("tiny-vision", "images-swapped")} <= passed


def test_the_job_is_complete_and_the_pod_is_ready(lab):
    deployment = client.AppsV1Api(lab.cluster.api).read_namespaced_deployment("llama-swap", NAMESPACE)

    assert job(lab).status.succeeded == 1
    assert deployment.status.ready_replicas == 1


def test_the_state_is_a_file_beside_the_stack_by_default(lab):
    assert (lab.stack / "terraform.tfstate").is_file()
    assert DEPLOYMENT in lab.terraform("state", "list").stdout.splitlines()


def test_status_shows_it_on_one_screen_and_finds_nothing_wrong(lab):
    status = json.loads(lab.corral("status", "--json").stdout)

    assert status["findings"] == []
    assert len(lab.corral("status").stdout.splitlines()) < 50


def test_a_model_is_unloaded_and_loaded_by_name(lab):
    lab.corral("unload", "tiny-text", "--context", lab.cluster.context, "--namespace", NAMESPACE)
    loaded = json.loads(lab.corral("load", "tiny-text", "--json").stdout)

    assert (loaded["loaded"], loaded["was_loaded"]) == (True, False)
    models = json.loads(lab.corral("status", "--json").stdout)["models"]
    assert ("tiny-text", "ready") in [(one["model"], one["state"]) for one in models]


def test_a_second_plan_has_no_changes(lab):
    assert "No changes." in lab.terraform("plan", "-input=false", "-no-color").stdout


def test_nfs_is_mounted_with_its_options_and_the_server_cannot_write_to_it(lab):
    mounts = [line.split() for line in lab.cluster.nfs_mounts() if line.startswith(f"nas.test:/{NAMESPACE} ")]

    assert mounts
    for _, _, options in mounts:
        assert {"hard", "nconnect=8", "rsize=1048576", "wsize=1048576", "noatime"} <= set(options.split(","))
    assert lab.tries_to_write().count("Read-only file system") == 2
    assert not (lab.store / "new").exists()


def test_a_change_of_the_context_alone_leaves_the_job_as_it_is(lab):
    lab.model("tiny-text", modalities=["text"], group="text", context=1024)
    lab.lock()

    objects, contents = planned(lab)
    assert objects == {DEPLOYMENT: ["update"], APPLIED: ["update"]}
    assert contents == {CONFIG: {"create", "delete"}}


def test_a_model_that_is_added_changes_the_job_its_files_and_the_pod_and_cuts_no_answer(lab, endpoint, say):
    lab.model("tiny-more", modalities=["text"], group="more")
    lab.lock()
    objects, contents = planned(lab)
    apply = threading.Thread(target=lab.apply)
    serving, before = lab.server_pod().metadata.name, job(lab).metadata.uid
    chat(endpoint, "Go on.", model="tiny-slow", api_key=lab.key())
    held = Hold(times=None)  # the old pod does not end before the crowd is there
    lab.hub.faults.append(held)

    apply.start()
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(held.until.set)
        wait_for(lambda: (new := job(lab)) and new.metadata.uid != before, limit_s=120, what="the new Job")
        crowd = Crowd(endpoint, lab.key(), "tiny-slow", 10)
        at_the_end.callback(crowd.stop)
        wait_for(lambda: crowd.answers, what="the crowd's first answer")
        held.until.set()
        wait_for(lambda: crowd.observes(lambda: is_leaving(lab, serving)), limit_s=120, what="the end of the old pod")
    apply.join()
    lab.hub.faults.clear()

    assert objects == {
        JOB: ["delete", "create"],  # in this order: two of one name cannot be
        JOBS_INPUT: ["update"],
        DEPLOYMENT: ["update"],
        APPLIED: ["update"],
    }
    assert contents == {one: {"create", "delete"} for one in (LOCK, CONFIG, DOOR)}
    whole, in_flight = crowd.begun_before_the_change()
    say(f"{in_flight} streams were in flight at the change; {sum(whole)} of {len(whole)} ended with [DONE]")
    assert in_flight
    assert all(whole)
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE) as address:
        assert chat(address, "Are you there?", model="tiny-more", api_key=lab.key())["message"]["content"] == "OK"


def test_a_deleted_pod_ends_its_streams_before_the_next_one_has_a_node(lab, endpoint, say):
    core, label = client.CoreV1Api(lab.cluster.api), "app.kubernetes.io/name=llama-swap"
    first = lab.server_pod().metadata.name
    chat(endpoint, "Go on.", model="tiny-slow", api_key=lab.key())
    crowd, history = Crowd(endpoint, lab.key(), "tiny-slow", 4), []
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(crowd.stop)
        wait_for(lambda: crowd.answers, what="the crowd's first answer")
        assert not crowd.observes(lambda: is_leaving(lab, first))
        version = core.list_namespaced_pod(NAMESPACE, label_selector=label).metadata.resource_version
        core.delete_namespaced_pod(first, NAMESPACE)
        assert crowd.observes(lambda: is_leaving(lab, first))
        events = watch.Watch().stream(
            core.list_namespaced_pod, NAMESPACE, label_selector=label, resource_version=version, timeout_seconds=240
        )
        for event in events:
            pod = event["object"]
            if pod.metadata.name == first:
                # Its containers have ended before the object is gone; the scheduler counts it no longer.
                has_ended = event["type"] == "DELETED" or pod.status.phase in ("Succeeded", "Failed")
                history.append("the first has ended" if has_ended else "the first answers")
                continue
            history.append("the next has a node" if pod.spec.node_name else "the next waits")
            if any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ()):
                break
    assert history.index("the next waits") < history.index("the first has ended") < history.index("the next has a node")
    waits = core.list_namespaced_event(NAMESPACE, field_selector=f"involvedObject.name={pod.metadata.name}").items
    assert any("anti-affinity" in one.message for one in waits if one.reason == "FailedScheduling")
    whole, in_flight = crowd.begun_before_the_change()
    say(f"{in_flight} streams were in flight at the delete; {sum(whole)} of {len(whole)} ended with [DONE]")
    assert in_flight
    assert all(whole)


def is_leaving(lab, name):
    """Whether the pod *name* is being stopped."""
    try:
        found = client.CoreV1Api(lab.cluster.api).read_namespaced_pod(name, NAMESPACE)
    except client.ApiException as error:
        return error.status == 404
    return found.metadata.deletion_timestamp is not None


class Crowd:
    """*size* clients that have one streamed answer after the other, until they are stopped.

    The model has one slot, so all but one of them wait for it: at no time are all of them between two answers.
    """

    def __init__(self, endpoint, key, model, size):
        self.answers, self._over = [], threading.Event()
        self._stayed = self._left = 0.0
        self._clients = [threading.Thread(target=self._ask, args=(endpoint, key, model)) for _ in range(size)]
        for one in self._clients:
            one.start()

    def _ask(self, endpoint, key, model):
        body = question("Go on.", model=model, stream=True, ignore_eos=True, max_tokens=200)
        headers = {"Content-Type": "application/json"} | authorization(key)
        while not self._over.is_set():
            begun, text = time.monotonic(), b""
            request = urllib.request.Request(f"{endpoint}/v1/chat/completions", json.dumps(body).encode(), headers)
            with contextlib.suppress(OSError, http.client.HTTPException), urllib.request.urlopen(request) as answer:
                text = answer.read()
            self.answers.append((begun, time.monotonic(), text.endswith(b"data: [DONE]\n\n")))

    def observes(self, is_leaving):
        """Ask whether the pod leaves, and note when it was last observed to stay."""
        begun = time.monotonic()
        if is_leaving():
            self._left = time.monotonic()
            return True
        self._stayed = begun
        return False

    def stop(self):
        self._over.set()
        for one in self._clients:
            one.join()

    def begun_before_the_change(self):
        """Whether each answer is whole that was begun while the pod stayed; how many ended as it was leaving."""
        before = [(ended, whole) for begun, ended, whole in self.answers if begun <= self._stayed]
        return [whole for _, whole in before], sum(ended >= self._left for ended, _ in before)


def test_a_policy_that_is_gone_is_found_and_the_next_apply_restores_it(lab):
    policies = client.NetworkingV1Api(lab.cluster.api)
    policies.delete_namespaced_network_policy("llama-swap", NAMESPACE)

    (finding,) = json.loads(lab.corral("status", "--json", code=1).stdout)["findings"]
    assert finding["what"].startswith("has no NetworkPolicy llama-swap:")
    assert finding["next_step"] == "corral apply"
    lab.apply()
    assert lab.corral("status").returncode == 0


def test_what_is_destroyed_leaves_nothing_but_the_models(lab, say):
    files = {file: file.stat().st_size for file in lab.store.rglob("*.gguf")}

    say(f"destroy: {lab.destroy():.1f} s")

    core = client.CoreV1Api(lab.cluster.api)
    assert NAMESPACE not in [one.metadata.name for one in core.list_namespace().items]
    assert [one.metadata.name for one in core.list_persistent_volume().items if NAMESPACE in one.metadata.name] == []
    assert {file: file.stat().st_size for file in lab.store.rglob("*.gguf")} == files != {}
