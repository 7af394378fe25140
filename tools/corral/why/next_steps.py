"""The commands that a verdict recommends, to be typed as they are: one table for the local stack and a cluster."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corral.cluster.client import kubectl
from corral.cluster.target import ClusterTarget
from corral.why.facts import StackFacts

Action = Literal[
    "up", "restart", "inspect", "smoke", "why", "status", "validate", "lock", "seat", "fetch", "verify", "repair",
    "warm", "engine", "memory", "kills", "listeners", "unload", "card", "widen", "measure",
]  # fmt: skip

_EXEC = "{kubectl} exec deployment/{service} -- "
_DESCRIBE = "{kubectl} describe pods -l app.kubernetes.io/name={service}"
_FETCH_AGAIN = "{kubectl} delete job/download-models\ncorral apply"  # Terraform creates a Job that is missing
_UNLOAD = "{curl} -X POST {endpoint}/api/models/unload/{model}"
_KILLS = (
    "sudo dmesg | grep -i -e out.of.memory -e oom-kill\n"
    "cat /sys/fs/cgroup$(sed -n s/^0:://p /proc/{pid}/cgroup)/memory.events\nfree -h"
)
_COMMANDS: dict[Action, tuple[str, str]] = {  # a line each: in the local stack; in a cluster
    "up": ("{start}", "corral apply"),
    "restart": ("corral down\n{start}", "corral apply"),
    "inspect": ("corral logs {model} -n 50", "{kubectl} logs deployment/{service} --tail=200"),
    "smoke": ("corral smoke {model}{catalog}", "corral smoke {model}{cluster}{catalog}"),
    "why": ("corral why {model}{catalog}", "corral why {model}{cluster}{catalog}"),
    "status": ("corral status", "corral status{cluster}"),
    "validate": ("corral validate{catalog}", "corral validate{catalog}"),
    "lock": ("corral lock{catalog}", "corral lock{catalog}"),
    "seat": ("corral seat{catalog}", "corral seat{catalog}"),
    "measure": ("corral measure {model}{catalog}", "corral measure {model}{cluster}{catalog}"),
    "widen": ("corral seat --what-if parallel={parallel} {model}{catalog}",) * 2,
    "fetch": ("corral fetch {model}{catalog}{store}", _FETCH_AGAIN),
    "verify": ("corral verify {model}{catalog}{store}", f"{_EXEC}sh -c 'sha256sum /models/{{model}}/*.gguf'"),
    "repair": ("corral verify {model} --repair{catalog}{store}", _FETCH_AGAIN),
    "warm": ("corral warm {model}{catalog}{store}", "{kubectl} logs job/download-models -c warm"),
    "engine": ("corral engine", f"{_EXEC}llama-server --version"),
    "memory": ("free -h", _DESCRIBE),
    "kills": (_KILLS, f"{_EXEC}cat /sys/fs/cgroup/memory.events\n{_DESCRIBE}"),
    "listeners": ("ss -ltnp sport = :{engine_port}", f"{_EXEC}cat /proc/net/tcp"),
    "unload": (_UNLOAD, "{kubectl} rollout restart deployment/{service}"),  # the door is closed without a key
    "card": ("corral card{catalog}", "{card}"),
}


@dataclass(frozen=True)
class StepOptions:
    """The options that commands must have; None where the default applies."""

    catalog: Path | None = None
    store: Path | None = None
    start: str = "corral up --detach"  # of the local stack, with its own options where one is recorded
    cluster: ClusterTarget | None = None  # None for the local stack


def commands(options: StepOptions, stack: StackFacts, *actions: Action, **values: object) -> list[str]:
    """The commands of *actions* about *stack*, with *options*; *values*: ``model``, ``engine_port``, ``parallel``."""
    target = options.cluster
    known: dict[str, object] = {
        "catalog": _option("catalog", options.catalog),
        "store": _option("store", options.store),
        "start": options.start,
        "endpoint": stack.endpoint,
        "curl": stack.curl,
        "pid": stack.pid,
        **{name: shlex.quote(str(value)) for name, value in values.items()},
    }
    if target:
        known["service"] = target.service
        known["kubectl"] = kubectl(target.context or "", target.kubeconfig, namespace=target.namespace)
        named = {"context": target.context, "namespace": target.namespace, "kubeconfig": target.kubeconfig}
        known["cluster"] = "".join(_option(name, value) for name, value in named.items())
        exporter = "".join(_option(name, value) for name, value in (named | {"namespace": stack.exporter}).items())
        known["card"] = f"corral card{exporter}" if stack.exporter else f"{_EXEC}nvidia-smi".format_map(known)
    templates = [_COMMANDS[action][1 if target else 0] for action in actions]
    return [line.format_map(known) for template in templates for line in template.splitlines()]


def for_pod(options: StepOptions, pod: str, verb: str) -> str:
    """The command ``kubectl`` *verb* for *pod* (``NAMESPACE/NAME``) of the cluster."""
    namespace, _, name = pod.partition("/")
    target = options.cluster or ClusterTarget()
    return kubectl(target.context or "", target.kubeconfig, verb, "pod", name, namespace=namespace)


def _option(name: str, value: object) -> str:
    return f" --{name} {shlex.quote(str(value))}" if value else ""
