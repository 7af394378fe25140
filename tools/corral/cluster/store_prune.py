"""Prunes the store of a cluster: a Job runs the agent there, with image, program and lock of the download Job.

The lock of the download Job is the one that was applied last.  A server whose update failed still has the models of the
one before: they stay, too, by the configurations that the server's pods and its Deployment mount.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Sequence

import yaml
from pydantic import TypeAdapter, ValidationError

from corral.agent import termination
from corral.agent.errors import Code
from corral.agent.hub_policy import printable
from corral.agent.lock_file import Lock, extract_of
from corral.agent.progress import human
from corral.agent.prune import Pruned
from corral.cluster import waiting_pod
from corral.cluster.client import Cluster, Conflict, NotFound, Object
from corral.cluster.snapshot import (
    DOWNLOAD,
    NAME,
    PART_OF,
    SERVER,
    at,
    is_stopping,
    is_true,
    last_end,
    listed,
    name_of,
    pod_spec,
)
from corral.errors import CannotRun, CorralError, ExitCode, Refused

START_LIMIT_S = 180.0
"""Seconds until the Job's pod runs; its image may have to be pulled."""

_NAME = "prune-models"
_LABELS = {NAME: _NAME, PART_OF: "corral", "app.kubernetes.io/managed-by": "corral"}
_USER = 10001  # as terraform/modules/model-fetch
_RUN_LIMIT_S = 3600
_KEPT_S = 600  # the cluster removes a Job whose command was killed
_MOST_BYTES = 900_000  # of a ConfigMap, which may have 1 MiB
_FOLDER, _STORE = "/opt/corral", "/models"
_PINNED = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_ROUND_S = 0.5
_PRUNED = TypeAdapter(Pruned)


def prune(
    cluster: Cluster,
    namespace: str,
    *,
    others: Sequence[Lock],
    grace: float,
    delete: bool,
    report: Callable[[str], None],
) -> Pruned:
    """Prune the store in *namespace*, or list what would be removed; the Job is gone when this returns or raises.

    Args:
        cluster: where the store is.
        namespace: of the download Job.
        others: the locks of other catalogs that use the store.
        grace: seconds that must have passed since something was needed.
        delete: remove it; without it the store is mounted read-only.
        report: takes a sentence for each step.

    Raises:
        Refused: models are being downloaded, there is no store, the user may not make a Job, or the agent refuses.
        CannotRun: the Job does not start, its result cannot be read, or the API server does not respond.
    """
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    download = _download(cluster, namespace)
    _require_claim(cluster, namespace, download)
    kept = sorted(served(cluster, namespace))
    extracts = {f"{number}.json": extract_of(lock) for number, lock in enumerate(others)}
    if (size := sum(map(len, extracts.values()))) > _MOST_BYTES:
        raise Refused(
            f"The other locks have {human(size)}, and a ConfigMap takes {human(_MOST_BYTES)}.",
            next_step="Run corral prune --store DIR on a machine that mounts the store",
        )
    name = f"{_NAME}-{secrets.token_hex(3)}"
    spec = _job(cluster, name, download, kept, tuple(extracts), grace=grace, delete=delete)
    metadata = {"name": name, "namespace": namespace, "labels": _LABELS}
    try:
        job = cluster.create(jobs, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
        if extracts:  # the pod waits for it, and it goes with the Job
            own = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name} | _owned_by(job)}
            cluster.create(f"/api/v1/namespaces/{namespace}/configmaps", own | {"data": extracts})
        report(f"job/{name} of namespace {namespace} {'prunes' if delete else 'reads'} the store")
        return _result(cluster, namespace, _ended(cluster, namespace, name))
    except KeyboardInterrupt:
        if delete:
            report("What the Job had removed by then is not known; what is left to remove is listed without --yes.")
        raise
    finally:
        try:
            _delete(cluster, f"{jobs}/{name}")
        except CorralError as error:
            remove = cluster.kubectl("delete", f"job/{name}", namespace=namespace)
            report(f"job/{name} could not be deleted: {error.message}\n  → {remove}")


def _download(cluster: Cluster, namespace: str) -> Object:
    """The download Job, which has ended."""
    try:
        job = cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{DOWNLOAD}")
    except NotFound:
        raise Refused(
            f"There is no job/{DOWNLOAD} in namespace {namespace}, which knows the store and its lock.",
            next_step="Bring it with: corral apply; or name another one: --namespace NS",
        ) from None
    if is_stopping(job) or not (is_true(job, "Complete") or is_true(job, "Failed")):
        raise Refused(
            f"job/{DOWNLOAD} of namespace {namespace} runs: what it has fetched is not linked yet.",
            next_step=f"Wait for it: {cluster.kubectl('get', f'job/{DOWNLOAD}', '--watch', namespace=namespace)}",
        )
    return job


def _require_claim(cluster: Cluster, namespace: str, job: Object) -> None:
    """Raise Refused where the claim of *job* is not bound to a volume."""
    name = _source(cluster, job, "models", "persistentVolumeClaim", "claimName")
    try:
        claim = cluster.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
    except NotFound:
        claim = {}
    phase = at(claim, "status", "phase")
    if phase != "Bound" or is_stopping(claim):
        state = "is being deleted" if is_stopping(claim) else f"is {phase}" if phase else "does not exist"
        raise Refused(
            f"The store is not there: persistentvolumeclaim/{name} of namespace {namespace} {state}.",
            next_step="corral status",
        )


def served(cluster: Cluster, namespace: str) -> set[str]:
    """The ids of the models in the configurations of the server: those of its pods, and the one of its next pod.

    Raises:
        CannotRun: a configuration is not what corral writes, or the API server does not respond.
        Refused: the user may not read one.
    """
    label = f"{NAME}={SERVER}"
    deployments = cluster.items(f"/apis/apps/v1/namespaces/{namespace}/deployments", labelSelector=label)
    pods = cluster.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=label)
    specs = [*(pod_spec(one) for one in deployments), *(one["spec"] for one in pods)]
    mounted = {name for spec in specs for one in listed(spec, "volumes") if (name := at(one, "configMap", "name"))}
    found: set[str] = set()
    for name in sorted(mounted):
        try:
            text = at(cluster.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}"), "data", "config.yaml")
        except NotFound:  # of a pod that waits for it, and serves nothing
            continue
        try:
            found |= set(map(str, yaml.safe_load(text)["models"])) if text else set()
        except (yaml.YAMLError, KeyError, TypeError) as error:
            raise CannotRun(
                f"configmap/{name} of namespace {namespace} has no models that could be read: {error!r}.",
                next_step="corral apply",
            ) from None
    return found


def _source(cluster: Cluster, job: Object, volume: str, kind: str, key: str) -> str:
    """The name of the object behind the *volume* of *job*."""
    for one in listed(pod_spec(job), "volumes"):
        if one.get("name") == volume and (name := at(one, kind, key)):
            return str(name)
    raise _foreign(cluster, job, f"no volume {volume}")


def _foreign(cluster: Cluster, job: Object, has: str) -> Refused:
    step = cluster.kubectl("describe", f"job/{name_of(job)}", namespace=str(at(job, "metadata", "namespace")))
    return Refused(f"job/{name_of(job)} is not the one that corral makes: it has {has}.", next_step=step)


def _job(
    cluster: Cluster,
    name: str,
    download: Object,
    served: Sequence[str],
    others: Sequence[str],
    *,
    grace: float,
    delete: bool,
) -> Object:
    spec = pod_spec(download)
    images = [str(one.get("image")) for one in listed(spec, "initContainers") if one.get("name") == "fetch"]
    if len(images) != 1 or not _PINNED.fullmatch(images[0]):
        raise _foreign(cluster, download, "no container fetch whose image names a digest")
    maps = {volume: _source(cluster, download, volume, "configMap", "name") for volume in ("agent", "lock")}
    maps |= {"others": name} if others else {}
    claim = _source(cluster, download, "models", "persistentVolumeClaim", "claimName")
    container = {
        "name": "prune",
        "image": images[0],
        "imagePullPolicy": "Always",
        "workingDir": _FOLDER,
        "command": _command(served, others, grace=grace, delete=delete),
        "env": [{"name": one, "value": "1"} for one in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")],
        "resources": {
            "requests": {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Mi"},
            "limits": {"cpu": "1", "memory": "256Mi", "ephemeral-storage": "64Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            *({"name": one, "mountPath": f"{_FOLDER}/{one}", "readOnly": True} for one in maps),
            {"name": "models", "mountPath": _STORE, "readOnly": not delete},
        ],
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "serviceAccountName": at(spec, "serviceAccountName"),
        "terminationGracePeriodSeconds": 15,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": at(spec, "affinity"),  # the node of a local store
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [container],
        "volumes": [
            *({"name": one, "configMap": {"name": source, "defaultMode": 0o444}} for one, source in maps.items()),
            {"name": "models", "persistentVolumeClaim": {"claimName": claim}},
        ],
    }
    return {
        "backoffLimit": 0,
        "activeDeadlineSeconds": _RUN_LIMIT_S,
        "ttlSecondsAfterFinished": _KEPT_S,
        "template": {"metadata": {"labels": _LABELS}, "spec": pod},
    }


def _command(served: Sequence[str], others: Sequence[str], *, grace: float, delete: bool) -> list[str]:
    return [
        *("python3", "-m", "agent", "prune", "--json", "--store", _STORE, "--lock", f"{_FOLDER}/lock/lock.json"),
        *("--termination-log", "/dev/termination-log", "--grace", f"{grace:.3f}s"),
        *(f"--served={one}" for one in served),
        *(f"--keep-lock={_FOLDER}/others/{one}" for one in others),
        *(["--yes"] if delete else []),
    ]


def _owned_by(job: Object) -> Object:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name_of(job), "uid": job["metadata"]["uid"]}
    return {"labels": _LABELS, "ownerReferences": [reference]}


def _ended(cluster: Cluster, namespace: str, job: str) -> Object:
    """The pod of *job*, whose container has ended."""
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        pods = cluster.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"job-name={job}")
        for pod in pods:
            states = [one.get("state") or {} for one in listed(pod, "status", "containerStatuses")]
            if any("terminated" in one for one in states):
                return pod
            if any("running" in one for one in states):
                deadline = time.monotonic() + START_LIMIT_S
        if time.monotonic() > deadline:
            why = waiting_pod.reason(cluster, namespace, job)
            raise CannotRun(
                f"The pod of job/{job} does not run after {START_LIMIT_S:.0f} s{why}. Nothing was removed.",
                next_step=cluster.kubectl("get", "events", namespace=namespace),
            )
        time.sleep(_ROUND_S)


def _result(cluster: Cluster, namespace: str, pod: Object) -> Pruned:
    end = last_end(next(iter(listed(pod, "status", "containerStatuses")), {}))
    log = cluster.text(f"/api/v1/namespaces/{namespace}/pods/{name_of(pod)}/log", container="prune")
    for line in log.splitlines():
        if line.startswith("{") and (found := _pruned_in(line)):
            return found
    reason = termination.read(str(end.get("message") or ""))
    if reason is not None and reason.code is not Code.OTHER:
        raise (Refused if end.get("exitCode") == ExitCode.REFUSED else CannotRun)(reason.sentence)
    last = next((line for line in reversed(log.splitlines()) if line.strip()), "it printed nothing")
    raise CannotRun(
        f"The agent ended without a result (exit code {end.get('exitCode')}): {printable(last)}.",
        next_step="corral apply, which brings this corral's agent; then the same command again",
    )


def _pruned_in(line: str) -> Pruned | None:
    """What the agent's *line* of JSON states; None where it is none of `agent prune --json`."""
    try:
        return _PRUNED.validate_json(line)
    except ValidationError:
        return None


def _delete(cluster: Cluster, path: str) -> None:
    while True:
        try:
            cluster.delete(cluster.get(path), path)
        except Conflict:  # its status has changed meanwhile
            continue
        except NotFound:
            pass
        return
