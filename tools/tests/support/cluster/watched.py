"""A lab whose card has an exporter, a tenant that takes most of it, and a stand-in for the driver.

The node has no card: a stand-in for nvidia-smi lists the processes that a card would have, as the node counts them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubernetes import client

from tests.support.cluster import pods
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.homelab import CARD, Homelab, homelab

SOURCE = "CORRAL_VRAM_SOURCE"
NAMESPACE, EXPORTERS, TENANTS = "llama-cpp", "corral-exporter", "immich"  # as the runbooks name them
MODEL = "qwen3-8b"
MIB = 1 << 20
STAND_IN = """#!/usr/bin/python3
import pathlib, sys

table, full = [], False
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        words = (process / "cmdline").read_bytes().split(b"\\0")
    except OSError:
        continue
    held = 10726 if b"balloon" in words else 100 if b"--alias" in words else 0
    full |= held == 10726
    if held:
        table.append(f"GPU-1, Tesla T4, {process.name}, {held}, {words[0].decode()}")
if sys.argv[1].startswith("--query-gpu="):
    table = [f"GPU-1, 15360, {1 if full else 15000}, Tesla T4"]
else:
    table.append("GPU-1, Tesla T4, 4194300, 34, /gone")
print(*table, sep="\\n")
"""


@contextmanager
def watched(cluster: Cluster, folder: Path, **keys: object) -> Iterator[Homelab]:
    """An applied lab with a text model called ``MODEL``; its card has the tenants immich-ml and frigate, and *keys*."""
    with homelab(cluster, folder, NAMESPACE) as lab:
        _without_haste(lab.clone / "tools" / "corral" / "exporter" / "driver.py")
        card = {"vram_mib": 15360, "reserve_mib": 512, "compute_capability": "7.5", "node": cluster.node} | keys
        tenants = {
            "immich-ml": {
                "budget_mib": 2100,
                "namespace": TENANTS,
                "selector": "app=immich-machine-learning",
                "expects": {"env": {"MACHINE_LEARNING_MODEL_TTL": ">0"}},
            },
            "frigate": {"budget_mib": 2300, "namespace": TENANTS, "selector": "app=frigate"},
        }
        (lab.catalog / "cards" / f"{CARD}.yaml").write_text(json.dumps(card | {"tenants": tenants}))
        source = {"repo": "corral/tiny-text-GGUF", "quant": "F16"}
        lab.model(
            MODEL, source=source, modalities=["text"], group="text", smoke={"prompt": "Are you there?", "expect": "OK"}
        )
        (lab.catalog / "models" / "tiny-text.yaml").unlink()
        lab.lock()
        set_exporter(lab)
        for namespace in (EXPORTERS, TENANTS):
            pods.wait_until_left(cluster, namespace)
        try:
            lab.corral("apply", "--yes", "--no-smoke")
            kubectl(lab, "rollout", "restart", "daemonset/card-exporter")  # its keys are there since the apply ended
            wait_for_exporter(lab)
            client.CoreV1Api(cluster.api).create_namespace({"metadata": {"name": TENANTS}})
            yield lab
        finally:
            for namespace in (EXPORTERS, TENANTS):
                pods.leave(cluster, namespace)
            for kind in ("clusterrole", "clusterrolebinding"):
                lab.run("kubectl", "delete", kind, f"{EXPORTERS}-card-exporter", "--ignore-not-found")


def set_exporter(lab: Homelab, **options: int) -> None:
    """Let the next apply install the exporter, with its records beside the lab: several labs share this machine."""
    lab.set(card_exporter={"namespace": EXPORTERS, "records": str(lab.clone.parent / "corral" / "records")} | options)


def _without_haste(driver: Path) -> None:
    """Let the lab's exporter wait for the stand-in, a program in Python, on a node with other work."""
    text = driver.read_text()
    assert text.count("\nLIMIT_S = 1.0\n") == 1
    driver.write_text(text.replace("\nLIMIT_S = 1.0\n", "\nLIMIT_S = 30.0\n"))


def grow_tenant(lab: Homelab, name: str = "ml-0") -> None:
    """Start a pod of immich-ml that holds 10,726 MiB by the stand-in, whose card is full then."""
    variables = {"MACHINE_LEARNING_MODEL_TTL": "600"}  # as expected
    _start_tenant(lab, name, "immich-machine-learning", "balloon", **variables)


def start_frigate(lab: Homelab) -> None:
    """Start the pod of frigate; it holds nothing."""
    _start_tenant(lab, "frigate-0", "frigate")


def _start_tenant(lab: Homelab, name: str, app: str, *words: str, **variables: str) -> None:
    core = client.CoreV1Api(lab.cluster.api)
    command = ("python3", "-c", "import time; time.sleep(3600)", *words)
    one = pods.pod(name, lab.cluster.images["fetch"], *command, labels={"app": app})
    one["spec"]["containers"][0]["env"] = [{"name": key, "value": value} for key, value in variables.items()]
    core.create_namespaced_pod(TENANTS, one)
    pods.eventually(lambda: core.read_namespaced_pod(name, TENANTS).status.phase, lambda phase: phase == "Running")


def deploy_tenant(lab: Homelab, *command: str, **variables: str) -> None:
    """Start the Deployment of immich-ml with *variables*; it runs *command*, or holds nothing and waits."""
    labels = {"app": "immich-machine-learning"}
    main = {
        "name": "main",
        "image": lab.cluster.images["fetch"],
        "command": command or ("python3", "-c", "import signal; signal.sigwait([signal.SIGTERM])"),
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [main]}},
    }
    apps = client.AppsV1Api(lab.cluster.api)
    apps.create_namespaced_deployment(TENANTS, {"metadata": {"name": "immich-machine-learning"}, "spec": spec})


def fill_card(lab: Homelab) -> None:
    """Let the preflight find the card full in the server's pod, which has no nvidia-smi here."""
    before = lab.server_pod().metadata.name
    _set_source(lab, f"{SOURCE}=echo 1, 15360")
    pods.eventually(lab.server_pod, lambda pod: pod and pod.metadata.name != before, limit_s=120)
    _wait_for_server(lab)


def empty_card(lab: Homelab) -> None:
    """Let the preflight find no nvidia-smi again."""
    _set_source(lab, f"{SOURCE}-")
    _wait_for_server(lab)


def _set_source(lab: Homelab, change: str) -> None:
    words = ("set", "env", "deployment/llama-swap", "-c", "llama-swap", change)
    done = lab.run("kubectl", "-n", NAMESPACE, *words)
    assert done.returncode == 0, done.stderr


def _wait_for_server(lab: Homelab) -> None:
    lab.run("kubectl", "-n", NAMESPACE, "rollout", "status", "deployment/llama-swap", "--timeout=120s")


def kubectl(lab: Homelab, *words: str) -> str:
    """What kubectl prints about the exporter's namespace."""
    done = lab.run("kubectl", "-n", EXPORTERS, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for_exporter(lab: Homelab) -> None:
    """Return when the pod of the last change runs."""
    kubectl(lab, "rollout", "status", "daemonset/card-exporter", "--timeout=120s")


def wait_for_store_exporter(lab: Homelab) -> None:
    """Return when the exporter beside the store runs."""
    words = ("-n", NAMESPACE, "rollout", "status", "deployment/store-exporter", "--timeout=120s")
    done = lab.run("kubectl", *words)
    assert done.returncode == 0, done.stderr


def install_driver(lab: Homelab) -> None:
    """Give the exporter the stand-in, and take the node's own pids for the driver's."""
    wait_for_exporter(lab)
    number = kubectl(lab, "exec", "daemonset/card-exporter", "--", "stat", "-L", "-c", "%i", "/proc/self/ns/pid")
    set_exporter(lab, driver_pid_namespace=int(number))
    lab.apply()
    core = client.CoreV1Api(lab.cluster.api)
    core.create_namespaced_config_map(EXPORTERS, {"metadata": {"name": "stand-in"}, "data": {"nvidia-smi": STAND_IN}})
    mount_driver(lab)


def mount_driver(lab: Homelab) -> None:
    """Let the exporter's pod have the stand-in that ``install_driver`` made."""
    change = {
        "containers": [
            {
                "name": "card-exporter",
                "env": [{"name": "PATH", "value": "/stand-in:/usr/local/bin:/usr/bin:/bin"}],
                "volumeMounts": [{"name": "stand-in", "mountPath": "/stand-in"}],
            }
        ],
        "volumes": [{"name": "stand-in", "configMap": {"name": "stand-in", "defaultMode": 0o555}}],
    }
    apps = client.AppsV1Api(lab.cluster.api)
    apps.patch_namespaced_daemon_set("card-exporter", EXPORTERS, {"spec": {"template": {"spec": change}}})
    wait_for_exporter(lab)


def lose_driver(lab: Homelab) -> None:
    """Let the exporter's pod find no nvidia-smi."""
    kubectl(lab, "set", "env", "daemonset/card-exporter", "PATH=/usr/local/bin:/usr/bin:/bin")
    wait_for_exporter(lab)
