"""`corral.cluster.diagnosis` on recordings of a real Kubernetes (tests.support.cluster_faults), and changes of them."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest

from corral.agent import termination
from corral.agent.errors import CannotRun, Code, Failed, Refused
from corral.agent.stopping import Stopped
from corral.cluster import diagnosis
from corral.cluster.finding import Cause, Finding
from corral.cluster.job_rules import ENDED_FOR
from corral.cluster.keys import SECRET
from corral.exporter.attribution import MODEL
from tests.support.cluster_faults import FAULTS, RECORDED, loaded, saved


def snapshot(name):
    return loaded(RECORDED / f"{name}.jsonl")


def findings(found):
    return diagnosis.findings(found)


def only(found):
    (one,) = findings(found)
    return one


def changed(one, change):
    """A copy of the object *one* after *change*."""
    copied = copy.deepcopy(one)
    change(copied)
    return copied


def with_pods(found, change):
    return replace(found, pods=tuple(changed(pod, change) for pod in found.pods))


def with_nodes(found, change):
    return replace(found, nodes=tuple(changed(node, change) for node in found.nodes))


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_every_fault_of_a_real_cluster_has_its_finding(name):
    found = findings(snapshot(name))
    assert FAULTS[name].matches(found), [FAULTS[name].difference(one) for one in found]


def test_every_recording_belongs_to_a_fault():
    assert {path.stem for path in RECORDED.iterdir()} == set(FAULTS)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_recording_has_no_field_that_no_rule_reads(name):
    recorded = (RECORDED / f"{name}.jsonl").read_text(encoding="utf-8")
    assert saved(snapshot(name)) == recorded, "Run: python -m tests.support.cluster_faults --trim"


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_every_next_step_is_a_command_of_this_cluster(name):
    for one in findings(snapshot(name)):
        program, *words = one.next_step.split()
        assert program in ("kubectl", "corral", "ssh")
        assert program != "kubectl" or words[:2] == ["--context", snapshot(name).context]


# -- scheduling -----------------------------------------------------------------------------------------------


def test_a_node_without_a_device_plugin_is_not_called_full():
    found = with_nodes(snapshot("no-free-slice"), lambda node: node["status"]["allocatable"].pop("nvidia.com/gpu"))
    assert "offers none (no device plugin runs there" in only(found).what


def test_holders_of_slices_that_could_not_be_read_are_reported_as_such():
    found = snapshot("no-free-slice")
    blind = replace(found, running=(), unread={"the pods of all namespaces": "403"})
    (finding,) = [one for one in findings(blind) if one.cause is Cause.SCHEDULING]
    assert finding.what.endswith("which has 4; their holders could not be read.")


TAINT = "0/1 nodes are available: 1 node(s) had untolerated taint(s). no new claims to deallocate."


def pending(found, message):
    def change(pod):
        if pod["metadata"]["name"].startswith("llama-swap"):
            for one in pod["status"]["conditions"]:
                if one["type"] == "PodScheduled":
                    one["message"] = message

    return with_pods(found, change)


@pytest.mark.parametrize(
    ("taint", "what", "is_stuck"),
    [
        ({"key": "dedicated", "value": "games", "effect": "NoSchedule"}, "dedicated=games:NoSchedule", True),
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, "takes no new pods", False),
        ({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, "which is not ready", False),
    ],
)
def test_a_taint_is_named_and_what_may_pass_is_not_called_stuck(taint, what, is_stuck):
    found = pending(snapshot("no-free-slice"), TAINT)
    finding = only(with_nodes(found, lambda node: node["spec"].update(taints=[taint])))
    assert what in finding.what
    assert finding.is_stuck is is_stuck


def test_a_cordoned_node_is_uncordoned_by_the_next_command():
    found = pending(snapshot("no-free-slice"), TAINT)
    cordoned = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    finding = only(with_nodes(found, lambda node: node["spec"].update(taints=[cordoned])))
    assert finding.next_step.endswith(f"uncordon {found.nodes[0]['metadata']['name']}")


def test_a_taint_that_the_pod_tolerates_is_not_blamed():
    gpu = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}

    def tolerate(pod):
        pod["spec"].setdefault("tolerations", []).append({"key": "nvidia.com/gpu", "operator": "Exists"})

    found = with_pods(snapshot("no-free-slice"), tolerate)
    finding = only(with_nodes(found, lambda node: node["spec"].update(taints=[gpu])))
    assert "no free slice" in finding.what


WHEN = "2100-01-01T00:00:00Z"
BESIDE = "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules. no new claims to deallocate."


@pytest.mark.parametrize(
    ("another", "what", "step"),
    [
        (
            {"deletionTimestamp": "2100-01-01T00:00:00Z"},
            "waits until pod llama-swap-first, which still answers,",
            "get",
        ),
        ({}, "waits for a node without another server: pod llama-swap-first has this one", "--replicas=1"),
    ],
)
def test_a_server_that_waits_for_the_one_before_is_not_stuck(another, what, step):
    found = pending(snapshot("no-free-slice"), BESIDE)
    (waiting,) = found.server_pods
    first = changed(waiting, lambda pod: pod["metadata"].update(name="llama-swap-first", uid="first", **another))
    first["spec"]["nodeName"], first["status"] = found.nodes[0]["metadata"]["name"], {"phase": "Running"}
    finding = next(one for one in findings(replace(found, pods=(*found.pods, first))) if one.event == BESIDE)
    assert finding.what.startswith(what)
    assert step in finding.next_step
    assert not finding.is_stuck


def test_an_unknown_message_of_the_scheduler_is_quoted_and_not_interpreted():
    finding = only(pending(snapshot("no-free-slice"), "0/1 nodes are available: 1 node(s) had the wrong colour."))
    assert finding.what == "waits for a node; the reason is in the scheduler's message."
    assert "wrong colour" in finding.event
    assert not finding.is_stuck


def test_a_local_volume_on_another_node_is_named():
    words = "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity."
    found = pending(snapshot("local-folder-missing"), words)

    def unschedule(pod):
        pod["spec"].pop("nodeName", None)
        pod["status"] = {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}],
        }

    assert "local volume of its claim models is on another node" in only(with_pods(found, unschedule)).what


# -- volumes --------------------------------------------------------------------------------------------------


def test_a_claim_that_is_being_deleted_is_named_with_the_pods_that_keep_it():
    found = snapshot("claim-never-binds")
    claims = tuple(changed(one, lambda it: it["metadata"].update(deletionTimestamp=WHEN)) for one in found.claims)
    assert claims
    users = sorted(pod["metadata"]["name"] for pod in found.pods if "persistentVolumeClaim" in json.dumps(pod))
    assert users
    finding = findings(replace(found, claims=claims))[0]
    assert "the files of its volume stay" in finding.what
    assert finding.what.endswith(f"Used by {', '.join(users)}.")
    assert finding.next_step.endswith("delete pods --selector=app.kubernetes.io/part-of=corral")
    assert (finding.cause, finding.is_stuck) == (Cause.CLAIM, True)


def with_event(found, reason, message):
    def change(event):
        if event["reason"] == "FailedMount":
            event.update(reason=reason, message=message)

    return replace(found, events=tuple(changed(event, change) for event in found.events))


def nfs(volume):
    volume["spec"].pop("local", None)
    volume["spec"].pop("nodeAffinity", None)
    volume["spec"]["nfs"] = {"server": "10.0.0.5", "path": "/srv/models"}


MOUNT = (
    'MountVolume.SetUp failed for volume "fault-local-folder-missing-models" : mount failed: exit status 32 '
    "Mounting command: mount Mounting arguments: -t nfs 10.0.0.5:/srv/models /var/lib/kubelet/x Output: {}"
)


@pytest.mark.parametrize(
    ("message", "is_stuck"),
    [
        ("mount.nfs: access denied by server while mounting 10.0.0.5:/srv/models", True),
        ("mount.nfs: mounting 10.0.0.5:/srv/models failed, reason given by server: No such file or directory", True),
        ("mount: bad option; for several filesystems (e.g. nfs, cifs) you might need a mount.<type> helper", True),
        ("mount.nfs: Connection refused", False),
        ("mount.nfs: No route to host", False),
        ("mount.nfs: Connection timed out", False),
    ],
)
def test_a_failed_nfs_mount_has_the_message_of_mount_and_whether_waiting_helps(message, is_stuck):
    found = snapshot("local-folder-missing")
    found = replace(found, volumes=tuple(changed(volume, nfs) for volume in found.volumes))
    finding = only(with_event(found, "FailedMount", MOUNT.format(message)))
    assert finding.what == f"cannot mount its volume nfs 10.0.0.5:/srv/models: {message}."
    assert finding.is_stuck is is_stuck
    assert finding.next_step == "ssh 10.0.0.5 ls -ldn /srv/models"


@pytest.mark.parametrize(
    ("message", "is_stuck"),
    [
        ('object "corral"/"kube-root-ca.crt" not registered', False),
        ("failed to sync configmap cache: timed out waiting for the condition", False),
        ("hostPath type check failed: /dev/nvidia0 is not a character device", True),
    ],
)
def test_a_volume_that_is_not_the_stores_is_named_and_the_store_is_not_blamed(message, is_stuck):
    found = snapshot("local-folder-missing")
    event = f'MountVolume.SetUp failed for volume "kube-api-access-x2x" : {message}'
    finding = only(with_event(found, "FailedMount", event))
    assert finding.what == f"cannot mount its volume kube-api-access-x2x: {message}."
    assert finding.is_stuck is is_stuck
    assert "describe" in finding.next_step
    assert "ssh" not in finding.next_step


def test_volumes_that_could_not_be_mounted_in_time_are_the_stores():
    found = snapshot("local-folder-missing")
    found = replace(found, volumes=tuple(changed(volume, nfs) for volume in found.volumes))
    event = "Unable to attach or mount volumes: unmounted volumes=[models], unattached volumes=[]: timed out waiting"
    finding = only(with_event(found, "FailedMount", event))
    assert "nfs 10.0.0.5:/srv/models" in finding.what
    assert finding.next_step == "ssh 10.0.0.5 ls -ldn /srv/models"


def test_an_old_mount_event_of_a_pod_that_runs_is_no_finding():
    found = snapshot("local-folder-missing")

    def run(pod):
        pod["status"]["phase"] = "Running"
        pod["status"]["containerStatuses"] = [{"name": "llama-swap", "restartCount": 0, "state": {"running": {}}}]
        pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]

    assert findings(with_pods(found, run)) == ()


def test_a_volume_that_is_kept_for_an_earlier_claim_is_released_by_the_next_command():
    found = snapshot("claim-of-a-foreign-volume")

    def release(volume):
        volume["spec"]["claimRef"].update(name="models", uid="of-an-earlier-claim")
        volume["status"]["phase"] = "Released"

    finding = only(replace(found, volumes=tuple(changed(one, release) for one in found.volumes)))
    assert "belongs to an earlier claim of the same name" in finding.what
    assert " patch persistentvolume/" in finding.next_step
    assert "/spec/claimRef" in finding.next_step


def of_storage_class(message):
    """The findings about a claim of a StorageClass whose last event has *message*, before there is a pod."""
    found = snapshot("claim-never-binds")

    def report(event):
        if event["involvedObject"]["kind"] == "PersistentVolumeClaim":
            event["message"] = message

    claims = tuple(changed(one, lambda it: it["spec"].update(storageClassName="longhorn")) for one in found.claims)
    events = tuple(changed(event, report) for event in found.events)
    waiting = replace(found, claims=claims, events=events, pods=(), deployments=())
    return [one for one in findings(waiting) if one.subject.startswith("persistentvolumeclaim")]


@pytest.mark.parametrize(
    "message",
    [
        "waiting for first consumer to be created before binding",
        "waiting for pod download-models-x2x4q to be scheduled",
    ],
)
def test_a_claim_that_waits_for_its_first_pod_is_no_finding_by_itself(message):
    assert not of_storage_class(message)


@pytest.mark.parametrize(
    "message",
    [
        "Waiting for a volume to be created either by the external provisioner 'driver.longhorn.io' or manually.",
        'External provisioner is provisioning volume for claim "llama-cpp/models-1a2b3c4d"',
    ],
)
def test_a_claim_whose_volume_is_being_made_is_waited_for(message):
    (finding,) = of_storage_class(message)

    assert finding.what == "waits for the volume that the StorageClass longhorn makes."
    assert not finding.is_stuck


def test_a_claim_whose_volume_goes_with_it_is_named_so_while_it_is_deleted():
    found = snapshot("claim-never-binds")

    def leave(claim):
        claim["metadata"]["deletionTimestamp"] = WHEN
        claim["spec"]["volumeName"] = "made"

    claims = tuple(changed(one, leave) for one in found.claims)
    volume = {"metadata": {"name": "made"}, "spec": {"persistentVolumeReclaimPolicy": "Delete"}}
    finding = findings(replace(found, claims=claims, volumes=(volume,)))[0]
    assert "and with it go the files of its volume." in finding.what


def test_a_claim_of_a_storage_class_that_does_not_exist_is_stuck_and_one_whose_driver_was_late_is_not():
    (missing,) = of_storage_class('storageclass.storage.k8s.io "longhorn" not found')
    (late,) = of_storage_class("failed to provision volume: rpc error: code = DeadlineExceeded desc = timed out")

    assert missing.what.startswith("is not bound: the StorageClass longhorn has made no volume for it")
    assert missing.next_step.endswith("get storageclasses,persistentvolumes")
    assert (missing.is_stuck, late.is_stuck) == (True, False)


def test_a_claim_whose_volume_is_gone_is_lost():
    found = snapshot("claim-never-binds")

    def lose(claim):
        claim["status"]["phase"] = "Lost"
        claim["spec"]["volumeName"] = "old"

    assert (
        "lost its volume: the PersistentVolume old"
        in only(replace(found, claims=tuple(changed(c, lose) for c in found.claims))).what
    )


def beside(found):
    """The server of *found* as the one of a model on vLLM."""

    def rename(one):
        one["metadata"]["labels"] |= {"app.kubernetes.io/name": "vllm", MODEL: "chat"}

    def rename_all(one):
        rename(one)
        one["metadata"]["name"] = "vllm-chat"

    return replace(
        found,
        deployments=tuple(changed(one, rename_all) for one in found.deployments),
        pods=tuple(changed(one, rename) for one in found.pods),
    )


@pytest.mark.parametrize("name", ["crash", "image-name-invalid", "no-such-node", "pod-security", "probe-fails"])
def test_the_pod_of_a_model_on_vllm_has_the_findings_of_a_server(name):
    server = only(snapshot(name))
    found = findings(beside(snapshot(name)))
    assert [one.what for one in found if "Deployment llama-swap" not in one.what] == [server.what]


def test_the_image_of_a_model_on_vllm_is_corrected_under_its_own_key():
    def rename(pod):
        for one in (*pod["spec"]["containers"], *pod["status"]["containerStatuses"]):
            one["name"] = "vllm"

    found = findings(with_pods(beside(snapshot("image-unknown")), rename))
    assert "corral lock --upgrade vllm" in [one.next_step for one in found]


def test_a_model_on_vllm_that_is_scaled_to_nothing_is_named():
    (found,) = (one for one in findings(beside(snapshot("scaled-to-nothing"))) if one.subject.startswith("deployment/"))
    assert (found.what, found.is_stuck) == ("is scaled to 0: chat is not served.", True)


# -- images and containers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "what", "is_stuck"),
    [
        ("pull access denied, repository does not exist or may require authorization", "does not give it", True),
        ("429 Too Many Requests - toomanyrequests: rate limit", "limits the rate", False),
        ("dial tcp: lookup ghcr.io: no such host", "does not reach the registry", False),
        ("no match for platform in manifest: not found", "architecture", True),
        ("a message of a later release", "the reason is in the runtime's message", False),
    ],
)
def test_messages_of_a_registry_are_classified_and_an_unknown_one_is_not_called_stuck(message, what, is_stuck):
    def change(pod):
        for one in pod["status"]["containerStatuses"]:
            one["state"] = {"waiting": {"reason": "ErrImagePull", "message": f"failed to pull: {message}"}}

    finding = only(with_pods(snapshot("image-unknown"), change))
    assert what in finding.what
    assert finding.is_stuck is is_stuck


def of_the_variable(found):
    """The same, with an image that terraform.tfvars names and not the lock."""
    noted = {"corral/image-from": "variable image"}
    change = [changed(one, lambda one: one["metadata"].update(annotations=noted)) for one in found.deployments]
    return replace(found, deployments=tuple(change))


@pytest.mark.parametrize(
    ("name", "locked"), [("image-unknown", "corral lock --upgrade llama-swap"), ("image-of-root", "corral lock")]
)
def test_an_image_that_the_lock_does_not_name_is_corrected_where_it_is_named(name, locked):
    finding, other = only(snapshot(name)), only(of_the_variable(snapshot(name)))

    assert finding.next_step == locked
    assert other.what == f"{finding.what} It is not the lock's: correct image in terraform.tfvars."
    assert other.next_step == "corral apply"


def test_the_downloads_image_is_the_locks_wherever_the_servers_comes_from():
    def rename(pod):
        for one in (*pod["spec"]["containers"], *pod["status"]["containerStatuses"]):
            one["name"] = "fetch"

    finding = only(with_pods(of_the_variable(snapshot("image-unknown")), rename))
    assert finding.next_step == "corral lock --upgrade fetch"


def test_a_back_off_without_a_reason_takes_it_from_the_event_of_the_attempt():
    def change(pod):
        for one in pod["status"]["containerStatuses"]:
            one["state"] = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}}

    assert "there is no such image" in only(with_pods(snapshot("image-unknown"), change)).what


def restarted(count, **end):
    def change(pod):
        for one in pod["status"]["containerStatuses"]:
            one["restartCount"] = count
            one["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
            one["lastState"] = {"terminated": {"exitCode": 7, "reason": "Error", **end}}

    return change


@pytest.mark.parametrize(("count", "is_stuck"), [(1, False), (2, False), (3, True), (9, True)])
def test_a_crash_loop_is_stuck_from_the_third_restart_on(count, is_stuck):
    assert only(with_pods(snapshot("crash"), restarted(count))).is_stuck is is_stuck


def test_a_crash_whose_log_is_gone_reports_that():
    found = replace(snapshot("crash"), logs={})
    assert "its log could not be read" in only(with_pods(found, restarted(1))).what


def test_an_end_by_a_signal_has_its_number():
    assert "killed by signal 11" in only(with_pods(snapshot("crash"), restarted(1, exitCode=139))).what


def test_an_unknown_state_is_a_finding_and_not_fine():
    def change(pod):
        for one in pod["status"]["containerStatuses"]:
            one["state"] = {"waiting": {"reason": "BrandNewTrouble", "message": "of a later Kubernetes"}}

    finding = only(with_pods(snapshot("crash"), change))
    assert "BrandNewTrouble" in finding.what
    assert not finding.is_stuck


def test_a_ready_server_that_was_killed_lately_is_a_finding_and_an_old_end_is_none():
    found = snapshot("out-of-memory")

    def ready(pod):
        pod["status"]["phase"] = "Running"
        pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        for one in pod["status"]["containerStatuses"]:
            ended = one["lastState"].get("terminated") or one["state"].get("terminated")
            one["state"], one["lastState"] = {"running": {}}, {"terminated": ended}

    running = with_pods(found, ready)
    assert "was killed for it" in only(running).what
    assert findings(replace(running, now=running.now + 7200)) == ()


def test_a_server_whose_policies_are_gone_is_a_finding_and_policies_that_were_not_read_are_none():
    def ready(pod):
        pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}

    running = replace(with_pods(snapshot("no-free-slice"), ready), policies=None)
    policies = [{"metadata": {"name": name}} for name in ("default-deny", "llama-swap", "others")]

    assert findings(running) == findings(replace(running, policies=tuple(policies))) == ()
    assert only(replace(running, policies=tuple(policies[1:]))).what.startswith("has no NetworkPolicy default-deny:")
    found = only(replace(running, policies=()))
    assert found.what.startswith("has no NetworkPolicy default-deny and no llama-swap: ")
    assert (found.next_step, found.is_stuck) == ("corral apply", False)


def test_a_pod_that_is_not_ready_for_long_without_a_reason_is_a_finding():
    def change(pod):
        pod["status"]["containerStatuses"] = [{"name": "llama-swap", "restartCount": 0, "state": {"running": {}}}]
        pod["status"]["phase"] = "Running"

    found = replace(with_pods(snapshot("probe-fails"), change), events=())
    late = replace(found, now=found.now + 600)
    assert findings(replace(found, now=found.now - 3600)) == ()
    assert "no object or event shows why" in only(late).what


# -- nodes, and sources that could not be read ----------------------------------------------------------------


def test_a_node_that_no_longer_reports_is_a_finding_though_its_pod_is_called_ready():
    found = snapshot("probe-fails")

    def silent(node):
        for one in node["status"]["conditions"]:
            if one["type"] == "Ready":
                one.update(status="Unknown", message="Kubelet stopped posting node status.")

    (finding,) = [one for one in findings(with_nodes(found, silent)) if one.subject.startswith("node/")]
    assert finding.what == "is not ready: its kubelet no longer reports."
    assert finding.event == "Kubelet stopped posting node status."


def test_a_node_under_pressure_is_a_finding():
    def press(node):
        for one in node["status"]["conditions"]:
            if one["type"] == "DiskPressure":
                one.update(status="True", message="kubelet has disk pressure")

    (finding,) = [
        one for one in findings(with_nodes(snapshot("probe-fails"), press)) if one.subject.startswith("node/")
    ]
    assert "has DiskPressure" in finding.what


def test_a_source_that_could_not_be_read_is_a_finding_and_never_fine():
    found = replace(snapshot("nothing-deployed"), unread={"the pods": 'pods is forbidden: User "me" cannot list'})
    finding = only(found)
    assert finding.cause is Cause.UNSEEN
    assert "what is wrong there is not known" in finding.what
    assert finding.next_step.endswith("auth can-i --list")


def test_a_missing_namespace_is_no_finding_that_ends_an_apply():
    finding = only(replace(snapshot("nothing-deployed"), namespace_object=None))
    assert "does not exist" in finding.what
    assert not finding.is_stuck


def test_a_namespace_that_is_being_deleted_is_a_finding():
    found = snapshot("nothing-deployed")
    going = changed(
        found.namespace_object, lambda one: one["metadata"].update(deletionTimestamp="2026-11-21T18:00:00Z")
    )
    assert "is being deleted" in only(replace(found, namespace_object=going)).what


# -- the download ---------------------------------------------------------------------------------------------


def ending(found, error):
    """The same, with an agent that ended with *error*; None: without a termination message."""
    message = termination.as_text(termination.of_error(error)) if error else ""

    def end(pod):
        for one in pod["status"].get("initContainerStatuses") or ():
            for state in (one["state"], one.get("lastState") or {}):
                if state.get("terminated"):
                    state["terminated"].update(message=message)

    return with_pods(found, end)


@pytest.mark.parametrize(
    ("error", "what", "next_step"),
    [
        (CannotRun("It is read-only.", code=Code.STORE_UNUSABLE), "the store cannot be written: It is", "kubectl"),
        (CannotRun("Self-signed.", code=Code.HUB_ADDRESS), "the hub's address is not accepted: Self", "kubectl"),
        (Refused("It is gone.", code=Code.LOCK_UNUSABLE), "the lock is not usable: It is gone.", "corral lock"),
        (Failed("It is damaged", code=Code.CONTENT_DIFFERS), "is not what was locked: It is", "corral lock --upgrade"),
        (CannotRun("KeyError: 'x'"), "has failed: KeyError: 'x'.", "kubectl"),
    ],
)
def test_a_failed_download_is_explained_by_the_agents_code(error, what, next_step):
    found = only(ending(snapshot("file-not-on-hub"), error))
    assert what in found.what
    assert found.next_step.startswith(next_step)
    assert found.is_stuck


@pytest.mark.parametrize(
    ("log", "what"),
    [
        ("Traceback (most recent call last):\nKeyError: 'x'", "has failed: KeyError: 'x'."),
        ("agent fetch: There is no room left in /models.", "has failed: There is no room left in /models."),
        ("", "ended with exit code 2 and gave no reason"),
    ],
)
def test_a_download_without_a_reason_is_quoted_and_not_interpreted(log, what):
    silent = ending(snapshot("file-not-on-hub"), None)
    found = only(replace(silent, logs=dict.fromkeys(silent.logs, log)))
    assert what.removeprefix("has failed: ") in found.what
    assert found.what.startswith("has failed: ")
    assert " logs " in found.next_step or " describe " in found.next_step


def test_a_failed_download_whose_pod_is_gone_reports_that_the_reason_is_gone():
    found = snapshot("store-full")
    ours = tuple(pod for pod in found.pods if pod["metadata"]["name"].startswith("llama-swap"))
    assert "the reason is gone with its pod" in only(replace(found, pods=ours, logs={})).what


def test_a_download_that_ran_out_of_time_goes_on_with_the_next_apply():
    found = snapshot("store-full")

    def late(job):
        job["spec"]["activeDeadlineSeconds"] = 3600
        job["status"]["conditions"] = [
            {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "x"}
        ]

    ours = tuple(pod for pod in found.pods if pod["metadata"]["name"].startswith("llama-swap"))
    finding = only(replace(found, pods=ours, logs={}, jobs=tuple(changed(job, late) for job in found.jobs)))
    assert finding.what == "was not done within 1 h 00 min; the reason is gone with its pod."
    assert finding.next_step == "corral apply"


@pytest.mark.parametrize(
    ("noted", "what", "next_step"),
    [
        (
            Finding("pod/x", "waits.", "not found", "kubectl create", is_stuck=True, cause=Cause.IMAGE),
            "was ended with the apply that waited for it, because pod/x waits. When that is fixed: corral apply",
            "kubectl create",
        ),
        (
            None,
            "was ended, because its operator stopped the apply that waited for it; the next goes on where it was.",
            "corral apply",
        ),
    ],
)
def test_a_download_that_was_ended_with_its_apply_has_the_reason(noted, what, next_step):
    found = snapshot("store-full")
    note = {ENDED_FOR: json.dumps(noted and noted.as_json())}
    jobs = tuple(changed(job, lambda job: job["metadata"].update(annotations=note)) for job in found.jobs)
    ours = tuple(pod for pod in found.pods if pod["metadata"]["name"].startswith("llama-swap"))

    finding = only(replace(found, pods=ours, logs={}, jobs=jobs))

    assert (finding.what, finding.next_step) == (what, next_step)
    assert finding.cause is (noted.cause if noted else Cause.DOWNLOAD)


def ended_early(found, noted, reason="DeadlineExceeded"):
    """The Job of *found*, called late by a guard that noted *noted*."""
    failed = {"type": "Failed", "status": "True", "reason": reason, "message": "Job was active longer than specified"}

    def end(job):
        job["metadata"]["annotations"] = {ENDED_FOR: json.dumps(noted and noted.as_json())}
        job["status"]["conditions"] = [failed]

    return replace(found, jobs=tuple(changed(job, end) for job in found.jobs))


def test_an_apply_that_its_operator_stopped_is_reported_though_a_pod_of_the_download_still_exists():
    finding = only(ended_early(snapshot("store-full"), None))

    assert finding.what.startswith("was ended, because its operator stopped the apply")
    assert finding.next_step == "corral apply"


def test_a_download_that_failed_while_its_apply_was_stopped_has_its_own_reason():
    assert "the store is full" in only(ended_early(snapshot("store-full"), None, reason="PodFailurePolicy")).what


def test_the_end_of_a_pod_that_was_taken_away_is_no_reason():
    noted = Finding("pod/x", "waits.", "not found", "kubectl create", is_stuck=True, cause=Cause.IMAGE)
    leaving = ending(snapshot("store-full"), Stopped())

    assert "because pod/x waits." in only(ended_early(leaving, noted)).what
    assert "the store is full" in only(ended_early(snapshot("store-full"), noted)).what


def test_an_unreadable_note_still_reports_that_the_apply_was_stopped():
    found = snapshot("store-full")
    jobs = tuple(changed(job, lambda job: job["metadata"].update(annotations={ENDED_FOR: "{"})) for job in found.jobs)
    finding = only(replace(found, pods=(), deployments=found.deployments, logs={}, jobs=jobs))
    assert finding.what == "was ended, because the apply that waited for it was stopped."


def test_a_full_store_on_nfs_is_inspected_on_its_server():
    found = snapshot("store-full")
    claim = {"metadata": {"name": "models", "labels": {}}, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}
    volume = {"metadata": {"name": "v"}, "spec": {"nfs": {"server": "nas", "path": "/srv/models"}}}

    def mount(job):
        models = {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}
        job["spec"]["template"]["spec"]["volumes"] = [models]

    jobs = tuple(changed(job, mount) for job in found.jobs)
    assert only(replace(found, jobs=jobs, claims=(claim,), volumes=(volume,))).next_step == "ssh nas df -h /srv/models"


def test_a_download_that_tries_again_is_stuck_only_when_the_agent_exits_with_2():
    found = snapshot("download-retries")

    def refused(pod):
        for one in pod["status"].get("initContainerStatuses") or ():
            for state in (one["state"], one.get("lastState") or {}):
                if state.get("terminated"):
                    state["terminated"]["exitCode"] = 2

    assert not only(found).is_stuck
    assert only(with_pods(found, refused)).is_stuck


def test_an_older_failed_job_is_forgotten_once_a_newer_one_is_complete():
    found = snapshot("store-full")
    newer = changed(
        found.jobs[0],
        lambda job: (
            job["metadata"].update(uid="newer", creationTimestamp="2999-01-01T00:00:00Z"),
            job.update(status={"conditions": [{"type": "Complete", "status": "True"}]}),
        ),
    )
    assert findings(replace(found, jobs=(*found.jobs, newer))) == ()


def test_those_that_no_waiting_heals_come_first():
    found = snapshot("registry-unreachable")
    job = snapshot("store-full")
    pods = [pod for pod in job.pods if pod["metadata"]["name"].startswith("download-models")]
    both = replace(found, jobs=job.jobs, pods=(*found.pods, *pods), logs={**found.logs, **job.logs})
    assert [one.is_stuck for one in findings(both)] == [True, False]


def test_a_pod_that_waits_for_its_keys_gets_the_command_that_makes_them(tmp_path):
    (tmp_path / "keys.jsonl").write_text((RECORDED / "secret-missing.jsonl").read_text().replace("hf-token", SECRET))
    found = loaded(tmp_path / "keys.jsonl")

    finding = only(found)

    assert finding.what == f"waits for the Secret corral-keys, which does not exist in {found.namespace}."
    assert finding.is_stuck
    assert finding.next_step.startswith(
        f"corral keys add operator --context {found.context} --namespace {found.namespace}"
    )


def test_an_image_of_the_door_that_cannot_be_pulled_is_locked_again():
    def rename(pod):
        for one in (*pod["spec"]["containers"], *pod["status"]["containerStatuses"]):
            one["name"] = "door"

    assert only(with_pods(snapshot("image-unknown"), rename)).next_step == "corral lock --upgrade door"


def beside_an_engine_of_its_own_image(pod):
    """The pod, with a container that has copied llama-swap."""
    pod["spec"]["initContainers"] = [{"name": "copy-llama-swap", "image": "swap:v1"}]
    end = {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:00Z"}
    pod["status"]["initContainerStatuses"] = [{"name": "copy-llama-swap", "state": {"terminated": end}}]


def test_an_engines_own_image_that_cannot_be_pulled_is_locked_again():
    found = only(with_pods(snapshot("image-unknown"), beside_an_engine_of_its_own_image))

    assert found.next_step == "corral lock --upgrade llama-server"


def test_an_image_of_llama_swap_alone_that_cannot_be_pulled_is_named_and_locked_again():
    def change(pod):
        beside_an_engine_of_its_own_image(pod)
        (copies,), (server,) = pod["status"]["initContainerStatuses"], pod["status"]["containerStatuses"]
        copies["state"], server["state"] = server["state"], {"waiting": {"reason": "PodInitializing"}}

    found = only(with_pods(snapshot("image-unknown"), change))

    assert "cannot get the image swap:v1: there is no such image" in found.what
    assert (found.next_step, found.is_stuck) == ("corral lock --upgrade llama-swap", True)
