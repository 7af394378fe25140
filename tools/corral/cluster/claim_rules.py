"""Rules for the store: claims that do not bind, and volumes that do not mount."""

from __future__ import annotations

import re

from corral.cluster import keys
from corral.cluster.client import Object
from corral.cluster.finding import Cause, Finding
from corral.cluster.snapshot import (
    PART_OF,
    Snapshot,
    at,
    claims_of,
    has_started,
    is_stopping,
    listed,
    name_of,
    quantity,
)

# "not registered": the kubelet has not read the ConfigMap or the Secret yet (pkg/kubelet/util/manager).
_TRANSIENT = re.compile(
    r"timed out|refused|no route to host|unreachable|i/o timeout|temporary failure|not registered", re.IGNORECASE
)
# Of a StorageClass that waits for a pod, or whose provisioner is at work (pkg/controller/volume/persistentvolume).
_WAITS_FOR_A_POD = re.compile(r"first consumer|waiting for pod \S+ to be scheduled")
_IS_MADE = re.compile(r"waiting for a volume to be created|provisioner is provisioning volume", re.IGNORECASE)
_OF_VOLUME = re.compile(r'for volume "(?P<name>[^"]+)"')
_MISSING = (
    re.compile(r'(?P<kind>secret|configmap) "(?P<name>[^"]+)" not found', re.IGNORECASE),
    re.compile(r"references non-existent (?P<kind>secret|config) key: (?P<key>\S+)"),
    re.compile(r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) \S+"),
)


def unbound(snapshot: Snapshot, claim: Object) -> Finding | None:
    """It has no volume, or will soon have none."""
    if is_stopping(claim):
        return _leaving(snapshot, claim)
    phase, wanted = at(claim, "status", "phase"), at(claim, "spec", "volumeName")
    subject, message = f"persistentvolumeclaim/{name_of(claim)}", snapshot.last_message(claim, "PersistentVolumeClaim")
    step, cause, stuck = snapshot.kubectl("describe", subject), Cause.CLAIM, True
    if phase == "Bound" or (phase == "Pending" and _WAITS_FOR_A_POD.search(message)):
        return None  # it binds when a pod is placed; what prevents that is a finding about the pod
    if phase == "Lost":
        what = f"has lost its volume: the PersistentVolume {wanted}, to which it was bound, is gone."
    elif phase != "Pending":
        what, cause, stuck = f"is in the unknown phase {phase!r}.", Cause.UNKNOWN, False
    elif "the volumes" in snapshot.unread:
        what = "is not bound."
    elif _IS_MADE.search(message):
        what = f"waits for the volume that the StorageClass {at(claim, 'spec', 'storageClassName')} makes."
        stuck = False
    else:
        what, step = _no_volume(snapshot, claim, step)
        stuck = not _TRANSIENT.search(message)  # a provisioner tries again
    return Finding(subject, what, message, step, is_stuck=stuck, cause=cause)


def _leaving(snapshot: Snapshot, claim: Object) -> Finding:
    """It was deleted, and stays, called Bound, as long as a pod uses it; one that has finished counts too."""
    name = name_of(claim)
    users = sorted(name_of(pod) for pod in snapshot.pods if name in claims_of(pod["spec"]))
    policy = at(snapshot.volume_of(claim), "spec", "persistentVolumeReclaimPolicy")
    files = "with it go the files of its volume" if policy == "Delete" else "the files of its volume stay"
    what = f"is being deleted: it is gone when no pod uses it any more, and {files}."
    if users:
        what = f"{what} Used by {', '.join(users)}."
    step = snapshot.kubectl("delete", "pods", f"--selector={PART_OF}=corral")
    return Finding(f"persistentvolumeclaim/{name}", what, "", step, is_stuck=True, cause=Cause.CLAIM)


def _no_volume(snapshot: Snapshot, claim: Object, describe: str) -> tuple[str, str]:
    wanted, volume = at(claim, "spec", "volumeName"), snapshot.volume_of(claim)
    if volume is not None:
        if holder := _holder(volume, claim):
            return f"is not bound: the PersistentVolume {wanted} belongs to {holder}.", _release(snapshot, volume)
        return f"is not bound to the PersistentVolume {wanted} that it names{_mismatch(claim, volume)}.", describe
    kinds = "persistentvolumes"
    if wanted:
        what = f"is not bound: the PersistentVolume {wanted} that it names does not exist."
    elif storage_class := at(claim, "spec", "storageClassName"):
        what = f"is not bound: the StorageClass {storage_class} has made no volume for it, and none that exists fits."
        kinds = "storageclasses,persistentvolumes"
    else:
        what = "is not bound: no PersistentVolume fits, and no StorageClass makes one."
    return what, snapshot.kubectl("get", kinds)


def _holder(volume: Object, claim: Object) -> str:
    """The other owner of *volume*, in words; empty when it is free or belongs to *claim*."""
    ref, own = at(volume, "spec", "claimRef") or {}, claim["metadata"]
    same_name = (ref.get("namespace"), ref.get("name")) == (own.get("namespace"), own["name"])
    if not ref or (same_name and ref.get("uid") in (None, "", own.get("uid"))):
        return ""
    if same_name:
        return "an earlier claim of the same name, and is kept for it (Released)"
    return f"the claim {ref.get('namespace')}/{ref.get('name')}"


def _release(snapshot: Snapshot, volume: Object) -> str:
    subject = f"persistentvolume/{name_of(volume)}"
    if at(volume, "status", "phase") != "Released":
        return snapshot.kubectl("describe", subject)
    patch = '--patch=[{"op": "remove", "path": "/spec/claimRef"}]'
    return snapshot.kubectl("patch", subject, "--type=json", patch)


def _mismatch(claim: Object, volume: Object) -> str:
    wants = at(claim, "spec", "resources", "requests", "storage") or "0"
    has = at(volume, "spec", "capacity", "storage") or "0"
    if quantity(wants) > quantity(has):
        return f": it requests {wants}, the volume has {has}"
    if (at(claim, "spec", "storageClassName") or "") != (at(volume, "spec", "storageClassName") or ""):
        return ": their StorageClasses differ"
    if not set(listed(claim, "spec", "accessModes")) <= set(listed(volume, "spec", "accessModes")):
        return ": the volume does not have its access mode"
    return ""


# -- mounting -------------------------------------------------------------------------------------------------


def unmounted(snapshot: Snapshot, pod: Object) -> Finding | None:
    """It has a node and waits for a volume, a Secret or a ConfigMap."""
    message = snapshot.last_message(pod, "Pod", "FailedMount", "FailedAttachVolume", "FailedMapVolume")
    # Events outlive their subject: only a pod none of whose containers has started still waits for a volume.
    if not message or has_started(pod):
        return None
    subject = f"pod/{name_of(pod)}"
    if found := missing_object(snapshot, subject, message):
        return found
    volumes, of = volumes_of(snapshot, pod["spec"]), _OF_VOLUME.search(message)
    # Without a name, in "Unable to attach or mount volumes", it is the only one that can keep a pod waiting so long.
    named = (one for one in volumes if of is None or name_of(one) == of["name"])
    volume = next(named, None)
    place = place_of(volume) if volume else of["name"] if of else ""
    what = f"cannot mount its volume{f' {place}' if place else ''}: {_mount_error(message)}"
    step = command_at_store(snapshot, volume) if volume else snapshot.kubectl("describe", subject)
    return Finding(subject, what, message, step, is_stuck=not _TRANSIENT.search(message), cause=Cause.VOLUME)


def missing_object(snapshot: Snapshot, subject: str, message: str) -> Finding | None:
    """A Secret or a ConfigMap that *message* names, or a key of it, does not exist."""
    found = next((found for pattern in _MISSING if (found := pattern.search(message))), None)
    if found is None:
        return None
    is_secret, names = found["kind"].lower() == "secret", found.groupdict()
    kind = "Secret" if is_secret else "ConfigMap"
    if name := names.get("name"):
        what = f"waits for the {kind} {name}, which does not exist in {snapshot.namespace}."
        step = "corral apply"
        if is_secret:
            step = create_token(snapshot, name)
        if is_secret and name == keys.SECRET:
            step = keys.add_operator(snapshot.context, snapshot.namespace, snapshot.kubeconfig)
    else:
        what = f"waits for the key {names['key']}, which its {kind} does not have."
        step = snapshot.kubectl("describe", f"{kind.lower()}s")
    return Finding(subject, what, message, step, is_stuck=True, cause=Cause.CONFIGURATION)


def create_token(snapshot: Snapshot, name: str) -> str:
    """The command that makes the Secret *name* with the hub's token, read from stdin so that no shell records it."""
    return snapshot.kubectl("create", "secret", "generic", name, "--from-file=token=/dev/stdin")


def volumes_of(snapshot: Snapshot, spec: Object) -> list[Object]:
    """The PersistentVolumes that a pod with *spec* mounts."""
    claims = [one for one in snapshot.claims if name_of(one) in claims_of(spec)]
    return [volume for claim in claims if (volume := snapshot.volume_of(claim))]


def place_of(volume: Object) -> str:
    """Where the bytes of a PersistentVolume are: ``nfs 10.0.0.5:/srv/models``."""
    kind, machine, path = _location(volume)
    if kind == "nfs":
        return f"nfs {machine}:{path}"
    if kind:
        return f"{kind} {path}{f' on {machine}' if machine else ''}"
    driver = at(volume, "spec", "csi", "driver")
    return f"csi {driver}" if driver else name_of(volume)


def command_at_store(snapshot: Snapshot, volume: Object, command: str = "ls -ldn") -> str:
    """*command* on the folder of *volume*, on the machine that has it."""
    _, machine, path = _location(volume)
    if machine:
        return f"ssh {machine} {command} {path}"
    return snapshot.kubectl("describe", f"persistentvolume/{name_of(volume)}")


def _location(volume: Object) -> tuple[str, str, str]:
    """Kind, machine and path of a volume on a disk; each is empty where it is not known."""
    terms = listed(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms")
    nodes = [value for term in terms for one in listed(term, "matchExpressions") for value in listed(one, "values")]
    node = str(nodes[0]) if len(nodes) == 1 else ""
    for kind in ("nfs", "local", "hostPath"):
        if source := at(volume, "spec", kind):
            return kind, source["server"] if kind == "nfs" else node, source["path"]
    return "", "", ""


def _mount_error(message: str) -> str:
    """What the program ``mount`` reported, without the kubelet's frame around it."""
    output = re.search(r"Output: (?P<output>.*)", message)
    text = output["output"] if output else re.sub(r"^MountVolume\.\S+ failed for volume \S+ ?: ", "", message)
    text = re.sub(r"^Running scope as unit: \S+ ", "", text).strip()
    return text if text.endswith(".") else f"{text}."
