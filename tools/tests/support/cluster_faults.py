"""Deployments and Jobs that cannot work, each for one reason, and the finding that corral makes of it.

The cluster tests make every one of them for real.  ``python -m tests.support.cluster_faults``, with KUBECONFIG set,
makes them too and records what the API showed, for the unit tests: ``tests/unit/cluster_snapshots/<name>.jsonl``, of
each object only the fields that ``corral.cluster`` reads.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral import cluster as rules
from corral.agent import termination
from corral.agent.errors import CannotRun, Code, CorralError, Refused
from corral.cluster import diagnosis
from corral.cluster.client import Cluster, Object, connect
from corral.cluster.collect import collect
from corral.cluster.finding import Cause, Finding
from corral.cluster.snapshot import Snapshot, quantity, requested

RECORDED = Path(__file__).parents[1] / "unit" / "cluster_snapshots"
_AMOUNTS = ("allocatable", "capacity", "limits", "requests")  # maps whose keys, resources, no rule knows beforehand
_USER = 10001
GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Place:
    """Where a fault is made: its namespace, the node, an image that has Python, and how many GPU slices are free."""

    namespace: str
    node: str
    image: str
    slices: int


@dataclass(frozen=True)
class Fault:
    """Something that cannot work.

    Attributes:
        make: the objects.
        subject, what, event, next_step: patterns of the finding.
        is_stuck, cause: of the finding; None: either.
        count: how many findings there are in all.
        labels: of the namespace.
    """

    make: Callable[[Place], list[Object]]
    subject: str
    what: str
    cause: Cause
    event: str = ""
    next_step: str = "kubectl"
    is_stuck: bool | None = True
    count: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)

    def matches(self, found: tuple[Finding, ...]) -> bool:
        """Whether *found* has the finding, and as many findings as there should be."""
        return len(found) == self.count and any(not self.difference(one) for one in found)

    def difference(self, one: Finding) -> str:
        """In what *one* is not as it should be; empty when it is."""
        for name in ("subject", "what", "event", "next_step"):
            if not re.search(getattr(self, name), getattr(one, name)):
                return f"{name}: {getattr(one, name)!r} is not {getattr(self, name)!r}"
        if one.cause is not self.cause:
            return f"cause: {one.cause} is not {self.cause}"
        return "" if self.is_stuck in (None, one.is_stuck) else f"is_stuck: {one.is_stuck}"


# -- objects --------------------------------------------------------------------------------------------------


def _metadata(place: Place, name: str, **more: Any) -> Object:
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "corral"}
    return {"name": name, "namespace": place.namespace, "labels": labels, **more}


def _container(place: Place, name: str, command: str, **more: Any) -> Object:
    closed = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    words = ["python3", "-c", command]
    return {"name": name, "image": place.image, "command": words, "securityContext": closed, **more}


SERVE = "import http.server as h; h.ThreadingHTTPServer(('', 8080), h.SimpleHTTPRequestHandler).serve_forever()"


def server(place: Place, program: str = SERVE, *, pod: Object | None = None, **container: Any) -> list[Object]:
    """A Deployment and a Service with the names and labels of ours."""
    one = _container(place, "llama-swap", program, ports=[{"name": "http", "containerPort": 8080}])
    one |= {"readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1}}
    spec = {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 1,
        "containers": [one | container],
    }
    metadata, labels = _metadata(place, "llama-swap"), {"app.kubernetes.io/name": "llama-swap"}
    template = {"metadata": {"labels": metadata["labels"]}, "spec": spec | (pod or {})}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": labels},
                "template": template,
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"port": 8080, "targetPort": "http"}]},
        },
    ]


def job(place: Place, error: CorralError | None, *, backoff: int = 0, suspend: bool = False) -> list[Object]:
    """A Job whose init container ends as the agent does with *error*; beside a server."""
    program = "pass"
    if error:
        log = f"agent fetch: {error.message}\n  → {error.next_step}"
        program = (
            f"import sys; print({log!r}, file=sys.stderr); "
            f"open('/dev/termination-log', 'w').write({termination.as_text(termination.of_error(error))!r}); "
            f"sys.exit({error.exit_code})"
        )
    fetch = _container(place, "fetch", program)
    warm = _container(place, "warm", "pass")
    spec = {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": _USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [fetch],
        "containers": [warm],
    }
    made = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(place, "download-models"),
        "spec": {
            "backoffLimit": backoff,
            "suspend": suspend,
            "template": {"metadata": {"labels": _metadata(place, "download-models")["labels"]}, "spec": spec},
        },
    }
    return [made, *server(place)]


def claim(place: Place, **spec: Any) -> Object:
    """The claim ``models``."""
    wanted = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _metadata(place, "models"),
        "spec": wanted | spec,
    }


def volume(place: Place, *, of: str = "models", **source: Any) -> Object:
    """A volume that is reserved for the claim *of*; for none when that is empty."""
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "", **source}
    spec |= {"persistentVolumeReclaimPolicy": "Retain"}
    spec |= {"claimRef": {"namespace": place.namespace, "name": of}} if of else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{place.namespace}-models"},
        "spec": spec,
    }


def _local(place: Place, path: str) -> Object:
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [place.node]}]}]
    return {"local": {"path": path}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


def _with_claim(place: Place) -> list[Object]:
    models = {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}
    return server(place, pod={"volumes": [models]}, volumeMounts=[{"name": "models", "mountPath": "/models"}])


def _with_volume(place: Place, **source: Any) -> list[Object]:
    return server(place, pod={"volumes": [{"name": "v", **source}]}, volumeMounts=[{"name": "v", "mountPath": "/v"}])


def _on_node(name: str) -> Object:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def _asks(**amounts: str) -> Object:
    return {"requests": amounts, "limits": amounts}


def _gpu_holders(place: Place) -> list[Object]:
    """A pod that takes every slice that is free, and a server that wants one more."""
    frigate = _container(place, "frigate", SERVE, resources=_asks(**{GPU: str(place.slices)}))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "frigate", "namespace": place.namespace},
        "spec": {"containers": [frigate], "terminationGracePeriodSeconds": 1},
    }
    return [pod, *server(place, pod=_on_node(place.node), resources=_asks(**{GPU: "1"}))]


def _scaled_to_nothing(place: Place) -> list[Object]:
    made = server(place)
    made[0]["spec"]["replicas"] = 0
    return made


def _handler(place: Place) -> list[Object]:
    name = f"{place.namespace}-handler"
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "nowhere"}
    return [kind, *server(place, pod={"runtimeClassName": name})]


NOT_STARTED = "startup: file-missing path=/models/a/model.gguf: it is not in the store"
STORE_FULL = CannotRun(
    "/models has 3.0 GB free; 5.1 GB are to be fetched and 0.5 GB kept free.",
    next_step="Make room there",
    code=Code.STORE_FULL,
    fields={"path": "/models", "free_bytes": 3 * 10**9, "needed_bytes": 5_100_000_000, "reserved_bytes": 5 * 10**8},
)
NOT_ON_HUB = Refused(
    "qwen3-8b: https://hub/a/resolve/1/a.gguf does not exist (the hub answered 404).",
    code=Code.NOT_ON_HUB,
    fields={"model": "qwen3-8b", "address": "https://hub/a/resolve/1/a.gguf", "status": 404},
)
NOT_PERMITTED = Refused(
    "The hub answered 403 for a/b: it is gated.",
    next_step="accept its terms",
    code=Code.NOT_PERMITTED,
    fields={"model": "qwen3-8b", "address": "https://hub/a/b", "status": 403},
)
HUB_UNREACHABLE = CannotRun("hub:443 gave no answer for 60 s.", code=Code.HUB_UNREACHABLE)

FAULTS: dict[str, Fault] = {
    "claim-never-binds": Fault(
        lambda place: [claim(place), *_with_claim(place)],
        r"^persistentvolumeclaim/models$",
        r"not bound: no PersistentVolume fits, and no StorageClass makes one",
        Cause.CLAIM,
        event="no persistent volumes available for this claim",
    ),
    "claim-names-a-missing-volume": Fault(
        lambda place: [claim(place, volumeName="nowhere"), *_with_claim(place)],
        r"^persistentvolumeclaim/models$",
        r"PersistentVolume nowhere that it names does not exist",
        Cause.CLAIM,
    ),
    "claim-of-a-foreign-volume": Fault(
        lambda place: [
            volume(place, of="other", hostPath={"path": "/tmp"}),
            claim(place, volumeName=f"{place.namespace}-models"),
            *_with_claim(place),
        ],
        r"^persistentvolumeclaim/models$",
        r"belongs to the claim \S+/other",
        Cause.CLAIM,
    ),
    "claim-larger-than-its-volume": Fault(
        lambda place: [
            volume(place, of="", hostPath={"path": "/tmp"}, storageClassName=place.namespace),
            claim(
                place,
                volumeName=f"{place.namespace}-models",
                storageClassName=place.namespace,
                resources={"requests": {"storage": "2Gi"}},
            ),
            *_with_claim(place),
        ],
        r"^persistentvolumeclaim/models$",
        r"it requests 2Gi, the volume has 1Gi",
        Cause.CLAIM,
    ),
    "local-folder-missing": Fault(
        lambda place: [
            volume(place, **_local(place, "/nowhere/models")),
            claim(place, volumeName=f"{place.namespace}-models"),
            *_with_claim(place),
        ],
        r"^pod/llama-swap-",
        r"cannot mount its volume local /nowhere/models on \S+: .*does not exist",
        Cause.VOLUME,
        next_step=r"^ssh \S+ ls -ldn /nowhere/models$",
    ),
    "claim-missing": Fault(
        _with_claim, r"^pod/llama-swap-", r"waits for the claim models, which does not exist", Cause.CLAIM
    ),
    "secret-missing": Fault(
        lambda place: _with_volume(place, secret={"secretName": "hf-token"}),
        r"^pod/llama-swap-",
        r"waits for the Secret hf-token, which does not exist in",
        Cause.CONFIGURATION,
        event="FailedMount|MountVolume.SetUp failed",
        next_step=r"create secret generic hf-token --from-file=token=/dev/stdin$",
    ),
    "config-map-missing": Fault(
        lambda place: _with_volume(place, configMap={"name": "llama-swap"}),
        r"^pod/llama-swap-",
        r"waits for the ConfigMap llama-swap, which does not exist",
        Cause.CONFIGURATION,
        next_step="^corral apply$",
    ),
    "key-missing": Fault(
        lambda place: [
            {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(place, "hf-token"), "stringData": {"a": "b"}},
            *_with_volume(place, secret={"secretName": "hf-token", "items": [{"key": "token", "path": "token"}]}),
        ],
        r"^pod/llama-swap-",
        r"waits for the key token, which its Secret does not have",
        Cause.CONFIGURATION,
    ),
    "secret-missing-in-environment": Fault(
        lambda place: server(
            place, env=[{"name": "T", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token"}}}]
        ),
        r"^pod/llama-swap-",
        r"waits for the Secret hf-token",
        Cause.CONFIGURATION,
        event="CreateContainerConfigError",
    ),
    "image-unknown": Fault(
        lambda place: server(place, image=f"{place.image.partition('/')[0]}/nothing:1"),
        r"^pod/llama-swap-",
        r"cannot get the image \S+/nothing:1: there is no such image",
        Cause.IMAGE,
        next_step="^corral lock --upgrade llama-swap$",
    ),
    "image-name-invalid": Fault(
        lambda place: server(place, image="UPPER/case:1:2"),
        r"^pod/llama-swap-",
        r"cannot get the image UPPER/case:1:2: that is no name of an image",
        Cause.IMAGE,
        next_step="^corral lock --upgrade llama-swap$",
    ),
    "registry-unreachable": Fault(
        lambda place: server(place, image="127.0.0.1:1/llama-swap:1"),
        r"^pod/llama-swap-",
        r"the node does not reach the registry",
        Cause.IMAGE,
        is_stuck=False,
    ),
    "image-of-root": Fault(
        lambda place: server(place, pod={"securityContext": {"runAsNonRoot": True}}),
        r"^pod/llama-swap-",
        r"may not run as root",
        Cause.IMAGE,
        next_step="^corral lock$",
    ),
    "no-free-slice": Fault(
        _gpu_holders,
        r"^pod/llama-swap-",
        r"finds no free slice of nvidia.com/gpu on node \S+: (\d+) of \1 are taken by .*/frigate",
        Cause.SCHEDULING,
        event="Insufficient nvidia.com/gpu",
        next_step=r"describe node/",
    ),
    "no-device-plugin": Fault(
        lambda place: server(place, pod=_on_node(place.node), resources=_asks(**{"amd.com/gpu": "1"})),
        r"^pod/llama-swap-",
        r"waits for amd.com/gpu: node \S+ offers none \(no device plugin",
        Cause.SCHEDULING,
    ),
    "no-memory": Fault(
        lambda place: server(place, resources=_asks(memory="9000Gi")),
        r"^pod/llama-swap-",
        r"requests more memory than node \S+ has left: it wants 9000.0 GiB, the node has \d",
        Cause.SCHEDULING,
    ),
    "no-such-node": Fault(
        lambda place: server(place, pod=_on_node("gpu-9")),
        r"^pod/llama-swap-",
        r"wants a node with kubernetes.io/hostname In gpu-9, and there is none; the nodes are: ",
        Cause.SCHEDULING,
        next_step="get nodes --show-labels",
    ),
    "pod-security": Fault(
        lambda place: server(place, securityContext={"privileged": True}),
        r"^deployment/llama-swap$",
        r"it breaks Pod Security restricted of the namespace: privileged",
        Cause.REFUSED,
        event="violates PodSecurity",
        labels={"pod-security.kubernetes.io/enforce": "restricted"},
    ),
    "runtime-class-missing": Fault(
        lambda place: server(place, pod={"runtimeClassName": "nowhere"}),
        r"^deployment/llama-swap$",
        r"there is no RuntimeClass nowhere in this cluster",
        Cause.REFUSED,
        next_step="get runtimeclasses",
    ),
    "runtime-handler-missing": Fault(
        _handler,
        r"^pod/llama-swap-",
        r"the container runtime of node \S+ has no handler nowhere",
        Cause.RUNTIME,
    ),
    "program-missing": Fault(
        lambda place: server(place, command=["/nowhere/llama-swap"]),
        r"^pod/llama-swap-",
        r"cannot start its container llama-swap",
        Cause.RUNTIME,
        event="no such file or directory",
    ),
    "crash": Fault(
        lambda place: server(place, "import sys; print('no config.yaml'); sys.exit(7)"),
        r"^pod/llama-swap-",
        r"has a container llama-swap that ends again and again \(exit code 7, \d restarts? so far\); "
        "its last log line: no config.yaml",
        Cause.CRASH,
        next_step=r"logs pod/\S+ -c llama-swap --previous$",
        is_stuck=None,  # from the third restart on
    ),
    "out-of-memory": Fault(
        lambda place: server(place, "x = [b'1' * 2**20 for _ in range(900)]", resources=_asks(memory="64Mi")),
        r"^pod/llama-swap-",
        r"took more memory than its container llama-swap may have \(64Mi\) and was killed for it .*, \d restart",
        Cause.MEMORY,
        is_stuck=None,
    ),
    "evicted": Fault(
        lambda place: server(
            place,
            "import time; open('/v/f', 'wb').write(b'1' * 2**23); time.sleep(600)",
            pod={"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]},
            volumeMounts=[{"name": "v", "mountPath": "/v"}],
            readinessProbe=None,
        ),
        r"^pod/llama-swap-",
        r"was evicted from node \S+: Usage of EmptyDir volume",
        Cause.EVICTED,
        is_stuck=False,
    ),
    "probe-fails": Fault(
        lambda place: server(
            place,
            "import time; time.sleep(600)",
            readinessProbe=None,
            startupProbe={
                "exec": {
                    "command": [
                        "sh",
                        "-c",
                        f"echo {NOT_STARTED}; exit 1",
                    ]
                },
                "periodSeconds": 1,
                "failureThreshold": 600,
            },
        ),
        r"^pod/llama-swap-",
        r"runs, but its startup probe fails",
        Cause.PROBE,
        event=NOT_STARTED,
        is_stuck=False,
    ),
    "scaled-to-nothing": Fault(
        _scaled_to_nothing,
        r"^deployment/llama-swap$",
        "is scaled to 0",
        Cause.ABSENT,
        next_step="scale deployment/llama-swap --replicas=1",
    ),
    "nothing-deployed": Fault(
        lambda place: [],
        "^namespace/",
        "has no Deployment llama-swap, and no Job download-models",
        Cause.ABSENT,
        next_step="^corral apply$",
        is_stuck=False,
    ),
    "store-full": Fault(
        lambda place: job(place, STORE_FULL),
        "^job/download-models$",
        r"has failed: the store is full: /models has 3.0 GB free; 5.1 GB are to be fetched",
        Cause.DOWNLOAD,
        event="BackoffLimitExceeded",
    ),
    "file-not-on-hub": Fault(
        lambda place: job(place, NOT_ON_HUB),
        "^job/download-models$",
        r"has failed: the hub does not have a file of the lock: qwen3-8b: \S+ does not exist",
        Cause.DOWNLOAD,
        next_step="^corral lock --upgrade$",
    ),
    "repo-gated": Fault(
        lambda place: job(place, NOT_PERMITTED),
        "^job/download-models$",
        r"has failed: the hub does not give a file \(a gated repo, or a wrong token\): The hub answered 403 for a/b",
        Cause.DOWNLOAD,
        next_step="create secret generic hf-token --from-file=token=/dev/stdin$",
    ),
    "download-retries": Fault(
        lambda place: job(place, HUB_UNREACHABLE, backoff=6),
        "^job/download-models$",
        r"has failed \d times? \(it gives up after 7\), last with: hub:443 gave no answer for 60 s\.",
        Cause.DOWNLOAD,
        is_stuck=False,
    ),
    "download-suspended": Fault(
        lambda place: job(place, None, suspend=True), "^job/download-models$", "is suspended", Cause.DOWNLOAD
    ),
}


# -- making and recording -------------------------------------------------------------------------------------


_PATHS = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "Namespace": "/api/v1/namespaces",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Pod": "/api/v1/namespaces/{}/pods",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
}


def _policies(place: Place) -> list[Object]:
    """The NetworkPolicies without which a namespace has a finding of its own."""
    closed = {"podSelector": {}, "policyTypes": ["Ingress"]}
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": _metadata(place, name),
            "spec": closed,
        }
        for name in diagnosis.POLICIES
    ]


def make(cluster: Cluster, fault: Fault, place: Place) -> None:
    """Make *fault* in a new namespace."""
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": place.namespace, "labels": dict(fault.labels)},
    }
    _send(cluster, "POST", _PATHS["Namespace"], space)
    accounts = f"/api/v1/namespaces/{place.namespace}/serviceaccounts"
    _wait(lambda: cluster.items(accounts), "the default ServiceAccount")
    for one in (*_policies(place), *fault.make(place)):
        path = _PATHS[one["kind"]].format(place.namespace)
        _send(cluster, "POST", path, one)
        if one["kind"] == "Pod":  # it holds what the next one wants
            _wait(lambda: cluster.items(path)[0]["spec"].get("nodeName"), "a node for the first pod")  # noqa: B023


def free_slices(cluster: Cluster, node: Object) -> int:
    """How many GPU slices of *node* are free."""
    pods = cluster.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node['metadata']['name']}")
    return int(quantity(node["status"]["allocatable"].get(GPU, 0)) - sum(requested(one, GPU) for one in pods))


def remove(cluster: Cluster, place: Place) -> None:
    """Remove what ``make`` made; does not wait for it."""
    _send(cluster, "DELETE", f"{_PATHS['Namespace']}/{place.namespace}", {"gracePeriodSeconds": 0})
    _send(cluster, "DELETE", f"{_PATHS['PersistentVolume']}/{place.namespace}-models")
    _send(cluster, "DELETE", f"{_PATHS['RuntimeClass']}/{place.namespace}-handler")


def _send(cluster: Cluster, method: str, path: str, body: Object | None = None) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    cluster.api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
    answer = cluster.api.call_api(method, cluster.server + path, headers, body or {})
    body = answer.read()
    assert answer.status < 300 or (method == "DELETE" and answer.status == 404), body


def findings_of(
    cluster: Cluster, places: Mapping[str, Place], limit_s: float = 90.0
) -> dict[str, tuple[Snapshot, tuple[Finding, ...]]]:
    """The snapshot and findings of each fault, once they match it or after *limit_s* seconds."""
    deadline = time.monotonic() + limit_s
    last: dict[str, tuple[Snapshot, tuple[Finding, ...]]] = {}
    waiting = list(places)
    while waiting and time.monotonic() < deadline:
        for name in list(waiting):
            snapshot = collect(cluster, places[name].namespace)
            last[name] = (snapshot, diagnosis.findings(snapshot))
            if FAULTS[name].matches(last[name][1]):
                waiting.remove(name)
        time.sleep(1)
    return last


def _wait(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@functools.cache
def _names_in_rules() -> frozenset[str]:
    """Every string that stands in the code of ``corral.cluster``; with them, the names of all fields that it reads."""
    trees = [
        ast.parse(file.read_text(encoding="utf-8")) for folder in rules.__path__ for file in Path(folder).glob("*.py")
    ]
    return frozenset(
        one.value
        for tree in trees
        for one in ast.walk(tree)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    )


def _trimmed(value: Any) -> Any:
    """*value* without the fields that no rule reads."""
    if isinstance(value, list):
        return [_trimmed(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {name: one for name, one in value.items() if name in _names_in_rules()}
    return {name: one if name in _AMOUNTS else _trimmed(one) for name, one in kept.items()}


def saved(snapshot: Snapshot) -> str:
    """*snapshot* as lines of JSON, each a list: first ``[null, {…}]`` with what is no list, then ``[kind, one]``."""
    plain = dataclasses.asdict(dataclasses.replace(snapshot, logs={})) | {"kubeconfig": None}
    lists = {kind: list(value) for kind, value in plain.items() if isinstance(value, tuple)}
    head = {name: value for name, value in plain.items() if name not in (*lists, "logs")}
    head["namespace_object"] = _trimmed(head["namespace_object"])
    namespace = snapshot.namespace
    lists["volumes"] = [one for one in lists["volumes"] if one["metadata"]["name"].startswith(namespace)]
    lists["running"] = [
        one for one in lists["running"] if one["metadata"]["namespace"] == namespace or requested(one, GPU)
    ]
    rows: list[list[Any]] = [[None, head]]
    rows += [[kind, _trimmed(one)] for kind in sorted(lists) for one in lists[kind]]
    rows += [["logs", [*key, text]] for key, text in snapshot.logs.items()]
    return "".join(f"{json.dumps(row, sort_keys=True, separators=(',', ':'))}\n" for row in rows)


def loaded(path: Path) -> Snapshot:
    """What ``saved`` wrote."""
    (_, head), *rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    lists: dict[str, list[Any]] = {}
    for kind, one in rows:
        lists.setdefault(kind, []).append(one)
    logs = {(pod, container): text for pod, container, text in lists.pop("logs", ())}
    return Snapshot(**head, **{kind: tuple(found) for kind, found in lists.items()}, logs=logs)


def main(names: list[str]) -> int:
    """Make faults, print their findings, record those that match; ``--trim``: only trim these."""
    if names == ["--trim"]:
        for file in RECORDED.iterdir():
            file.write_text(saved(loaded(file)), encoding="utf-8")
        return 0
    cluster = connect()
    node = cluster.items("/api/v1/nodes")[0]
    images = [name for one in node["status"]["images"] for name in one["names"] if "python" in name]
    slices = free_slices(cluster, node)
    RECORDED.mkdir(exist_ok=True)
    places = {name: Place(f"fault-{name}", node["metadata"]["name"], images[0], slices) for name in names or FAULTS}
    wrong = 0
    try:
        for name, place in places.items():
            make(cluster, FAULTS[name], place)
        for name, (snapshot, found) in findings_of(cluster, places).items():
            for one in found:
                sys.stdout.write(f"{name}: {one.subject}: {one.what}\n    {one.event}\n    → {one.next_step}\n")
            if FAULTS[name].matches(found):
                (RECORDED / f"{name}.jsonl").write_text(saved(snapshot), encoding="utf-8")
            else:
                wrong += 1
                sys.stdout.write(f"!!! {name}: {[FAULTS[name].difference(one) for one in found]}\n")
    finally:
        for place in places.values():
            remove(cluster, place)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
