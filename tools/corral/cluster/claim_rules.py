"""Rules for the store: claims that do not bind, and volumes that do not mount."""

from __future__ import annotations

import re

from corral.cluster.client import Object
from corral.cluster.finding import Cause, Finding
from corral.cluster.snapshot import Snapshot, claims_of, quantity

_HEALS = re.compile(r"timed out|refused|no route to host|unreachable|i/o timeout|temporary failure", re.IGNORECASE)
_NO_OBJECT = re.compile(r'(?P<kind>secret|configmap) "(?P<name>[^"]+)" not found', re.IGNORECASE)
_NO_KEY = re.compile(r"references non-existent (?P<kind>secret|config) key: (?P<key>\S+)")


def unbound(seen: Snapshot, claim: Object) -> Finding | None:
    """It has no volume."""
    name, phase = claim["metadata"]["name"], claim.get("status", {}).get("phase")
    subject = f"persistentvolumeclaim/{name}"
    look = seen.kubectl("describe", subject)
    if phase == "Bound":
        return None
    if phase == "Lost":
        wanted = claim["spec"].get("volumeName")
        what = f"has lost its volume: the PersistentVolume {wanted}, to which it was bound, is gone."
        return Finding(subject, what, _said(seen, claim), look, is_stuck=True, cause=Cause.CLAIM)
    if phase != "Pending":
        what = f"is in the unknown phase {phase!r}."
        return Finding(subject, what, _said(seen, claim), look, is_stuck=False, cause=Cause.UNKNOWN)
    said = _said(seen, claim)
    if "first consumer" in said:
        return None  # it binds when a pod is placed; what keeps the pod is told of the pod
    if "the volumes" in seen.unseen:
        return Finding(subject, "is not bound.", said, look, is_stuck=True, cause=Cause.CLAIM)
    return _no_volume(seen, claim, subject, said)


def _no_volume(seen: Snapshot, claim: Object, subject: str, said: str) -> Finding:
    wanted, volume = claim["spec"].get("volumeName"), seen.volume_of(claim)
    step = seen.kubectl("describe", subject)
    storage_class = claim["spec"].get("storageClassName")
    if wanted and volume is None:
        what = f"is not bound: the PersistentVolume {wanted} that it names does not exist."
        step = seen.kubectl("get", "persistentvolumes", is_namespaced=False)
    elif volume is not None and (holder := _holder(volume, claim)):
        what = f"is not bound: the PersistentVolume {wanted} belongs to {holder}."
        step = _release(seen, volume)
    elif volume is not None:
        what = f"is not bound to the PersistentVolume {wanted} that it names{_mismatch(claim, volume)}."
    elif storage_class:
        what = f"is not bound: the StorageClass {storage_class} has made no volume for it, and none that exists fits."
        step = seen.kubectl("get", "storageclasses,persistentvolumes", is_namespaced=False)
    else:
        what = "is not bound: no PersistentVolume fits, and no StorageClass makes one."
        step = seen.kubectl("get", "persistentvolumes", is_namespaced=False)
    return Finding(subject, what, said, step, is_stuck=True, cause=Cause.CLAIM)


def _holder(volume: Object, claim: Object) -> str:
    """Whose *volume* is, when it is not *claim*'s: in words; empty when it is free or *claim*'s own."""
    ref = volume["spec"].get("claimRef") or {}
    mine = claim["metadata"]
    same_name = (ref.get("namespace"), ref.get("name")) == (mine.get("namespace"), mine["name"])
    if not ref or (same_name and ref.get("uid") in (None, "", mine.get("uid"))):
        return ""
    if same_name:
        return "an earlier claim of the same name, and is kept for it (Released)"
    return f"the claim {ref.get('namespace')}/{ref.get('name')}"


def _release(seen: Snapshot, volume: Object) -> str:
    patch = '[{"op": "remove", "path": "/spec/claimRef"}]'
    name = f"persistentvolume/{volume['metadata']['name']}"
    if volume.get("status", {}).get("phase") != "Released":
        return seen.kubectl("describe", name, is_namespaced=False)
    return seen.kubectl("patch", name, "--type=json", f"--patch={patch}", is_namespaced=False)


def _mismatch(claim: Object, volume: Object) -> str:
    wants = (claim["spec"].get("resources") or {}).get("requests", {}).get("storage", "0")
    has = (volume["spec"].get("capacity") or {}).get("storage", "0")
    if quantity(wants) > quantity(has):
        return f": it asks for {wants}, the volume has {has}"
    if (claim["spec"].get("storageClassName") or "") != (volume["spec"].get("storageClassName") or ""):
        return ": their StorageClasses differ"
    if not set(claim["spec"].get("accessModes") or ()) <= set(volume["spec"].get("accessModes") or ()):
        return ": the volume does not have its access mode"
    return ""


def _said(seen: Snapshot, claim: Object) -> str:
    return seen.said(claim, "PersistentVolumeClaim")


# -- mounting -------------------------------------------------------------------------------------------------


def unmounted(seen: Snapshot, pod: Object) -> Finding | None:
    """It has a node and waits for a volume, a Secret or a ConfigMap."""
    said = seen.said(pod, "Pod", "FailedMount", "FailedAttachVolume", "FailedMapVolume")
    if not said:
        return None
    subject = f"pod/{pod['metadata']['name']}"
    if found := missing_object(seen, subject, said):
        return found
    if "timed out waiting for the condition" in said and not re.search(r"mount\.\w+:|exit status", said):
        return None if _mounts_now(pod) else _unmounted(seen, pod, subject, said)
    return _unmounted(seen, pod, subject, said)


def missing_object(seen: Snapshot, subject: str, said: str) -> Finding | None:
    """A Secret or a ConfigMap, or a key of it, is not there."""
    if (found := _NO_OBJECT.search(said)) is not None:
        kind, name = found["kind"].lower(), found["name"]
        spelled = {"secret": "Secret", "configmap": "ConfigMap"}[kind]
        what = f"waits for the {spelled} {name}, which does not exist in {seen.namespace}."
        return Finding(subject, what, said, _make(seen, kind, name), is_stuck=True, cause=Cause.CONFIGURATION)
    key = _NO_KEY.search(said) or re.search(
        r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) (?P<name>\S+)", said
    )
    if key is None:
        return None
    kind = "secrets" if key["kind"].lower() == "secret" else "configmaps"
    what = f"waits for the key {key['key']}, which its {'Secret' if kind == 'secrets' else 'ConfigMap'} does not have."
    step = seen.kubectl("describe", kind)
    return Finding(subject, what, said, step, is_stuck=True, cause=Cause.CONFIGURATION)


def _make(seen: Snapshot, kind: str, name: str) -> str:
    if kind == "secret":  # the hub's token, read from the terminal so that no shell's history has it
        return seen.kubectl("create", "secret", "generic", name, "--from-file=token=/dev/stdin")
    return "corral apply"


def _unmounted(seen: Snapshot, pod: Object, subject: str, said: str) -> Finding:
    volume = _volume_in(seen, pod, said)
    where = f" {place_of(volume)}" if volume else ""
    what = f"cannot mount its volume{where}: {_essence(said)}"
    step = look_at_the_store(seen, volume) if volume else seen.kubectl("describe", subject)
    return Finding(subject, what, said, step, is_stuck=not _HEALS.search(said), cause=Cause.VOLUME)


def _mounts_now(pod: Object) -> bool:
    status = pod.get("status", {}).get("containerStatuses") or ()
    return any((one.get("state") or {}).get("running") for one in status)


def _volume_in(seen: Snapshot, pod: Object, said: str) -> Object | None:
    """The PersistentVolume that *said* is about."""
    claims = [one for one in seen.claims if one["metadata"]["name"] in claims_of(pod["spec"])]
    volumes = [volume for claim in claims if (volume := seen.volume_of(claim))]
    named = [one for one in volumes if f'"{one["metadata"]["name"]}"' in said]
    return next(iter(named or volumes), None)


def place_of(volume: Object) -> str:
    """Where the bytes of a PersistentVolume are: ``nfs 10.0.0.5:/srv/models``."""
    spec = volume["spec"]
    if nfs := spec.get("nfs"):
        return f"nfs {nfs.get('server')}:{nfs.get('path')}"
    if local := spec.get("local") or spec.get("hostPath"):
        return f"{'local' if spec.get('local') else 'hostPath'} {local.get('path')}{_on(volume)}"
    if csi := spec.get("csi"):
        return f"csi {csi.get('driver')}"
    return str(volume["metadata"]["name"])


def _on(volume: Object) -> str:
    node = node_of(volume)
    return f" on {node}" if node else ""


def node_of(volume: Object) -> str:
    """The one node that a local volume is on; empty when it is not tied to one."""
    terms = ((volume["spec"].get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    values = [
        value for term in terms for one in term.get("matchExpressions") or () for value in one.get("values") or ()
    ]
    return str(values[0]) if len(values) == 1 else ""


def look_at_the_store(seen: Snapshot, volume: Object, command: str = "ls -ldn") -> str:
    """*command* on the folder of *volume*, on the machine that has it."""
    spec = volume["spec"]
    if nfs := spec.get("nfs"):
        return f"ssh {nfs.get('server')} {command} {nfs.get('path')}"
    local = spec.get("local") or spec.get("hostPath")
    if local and (node := node_of(volume)):
        return f"ssh {node} {command} {local.get('path')}"
    return seen.kubectl("describe", f"persistentvolume/{volume['metadata']['name']}", is_namespaced=False)


def _essence(said: str) -> str:
    """The part of a mount's failure that tells something: what the program ``mount`` said."""
    told = re.search(r"Output: (?P<output>.*)", said)
    text = told["output"] if told else re.sub(r"^MountVolume\.\S+ failed for volume \S+ ?: ", "", said)
    text = re.sub(r"^Running scope as unit: \S+ ", "", text).strip()
    return text if text.endswith(".") else f"{text}."
