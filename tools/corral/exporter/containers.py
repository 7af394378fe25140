"""Which container and pod a process belongs to, by its control groups.

Four forms are in use: the drivers ``cgroupfs`` and ``systemd``, each on version 1 and 2 of the kernel's control groups
(https://kubernetes.io/docs/setup/production-environment/container-runtimes/#cgroup-drivers).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"  # the second: a static pod
_POD = re.compile(
    rf"(?:kubepods|^[^:]*:[^:]*:/\.\.).*?[/-]pod({_UID})(?:\.slice)?"
    r"[/:](?:cri-containerd[-:]|crio-|docker-)?([0-9a-f]{64})(?:\.scope)?(?:/|$)"
)


@dataclass(frozen=True)
class Container:
    """A container of a pod: the pod's uid as the API server writes it, and the runtime's 64 digits."""

    pod_uid: str
    container_id: str


def container_of(cgroups: str) -> Container | None:
    """The container that the text of ``/proc/PID/cgroup`` names; None: the process is in no pod.

    Only the first pod of a path counts: a process may make groups of any name below its own.
    """
    for line in cgroups.splitlines():
        if found := _POD.search(line):
            return Container(found[1].replace("_", "-"), found[2])
    return None


def read_cgroups(pid: int, *, proc: Path = Path("/proc")) -> str | None:
    """The text of ``/proc/PID/cgroup``; None: the process is not visible from here, or has ended."""
    try:
        return (proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def has_ended(pid: int) -> bool:
    """Whether there is no process *pid*; that /proc shows none (``hidepid``) does not prove it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False
