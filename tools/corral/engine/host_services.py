"""The services that the Ansible role llama_server installed on this machine, without Kubernetes.

A service is a systemd unit, or a property list of launchd on a Mac.  The role records in a comment of it, as JSON,
which models it serves, how many of their layers the GPU takes, and why.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from corral.agent.progress import count

_PROGRAMS = ("llama-swap", "llama-server")
_RECORD = re.compile(r"^(?:# |<!-- )corral-service: (?P<json>\{.*\})(?: -->)?$", re.MULTILINE)


@dataclass(frozen=True)
class HostService:
    """A service that the role has installed on this machine."""

    program: str  # llama-swap or llama-server
    file: Path  # the systemd unit, or the property list
    serves: str  # one model's id, or how many models, as "2 models"
    layers: str  # all or none
    reason: str  # why, in words

    @property
    def banner(self) -> str:
        """One line for people."""
        return f"{self.program} ({self.file}): {self.serves}, GPU layers {self.layers}: {self.reason}"

    @property
    def next_step(self) -> str:
        """The command that shows why it does not run."""
        if self.file.suffix == ".service":
            return f"journalctl --unit {self.file.name} --lines 50"
        return f"sudo launchctl print system/{self.file.stem}"

    def state(self) -> str:
        """Of the machine's service manager: ``active``, ``inactive``, ``failed``, …; else ``unknown``."""
        systemd, launchd = (
            ["systemctl", "is-active", self.file.name],
            ["launchctl", "print", f"system/{self.file.stem}"],
        )
        is_unit = self.file.suffix == ".service"
        try:
            done = subprocess.run(
                systemd if is_unit else launchd, capture_output=True, text=True, check=False, timeout=5
            )
        except (OSError, subprocess.TimeoutExpired):
            return "unknown"
        if is_unit:
            return done.stdout.strip() or "unknown"
        return "active" if "state = running" in done.stdout else "inactive"


def installed(root: Path = Path("/")) -> tuple[HostService, ...]:
    """The services that the role installed on the machine whose file system is at *root*.

    A file that cannot be read, or that has no valid record, is passed over.
    """
    files = [root / "etc/systemd/system" / f"{program}.service" for program in _PROGRAMS]
    files += [root / "Library/LaunchDaemons" / f"corral.{program}.plist" for program in _PROGRAMS]
    return tuple(filter(None, map(_read, files)))


def _read(file: Path) -> HostService | None:
    try:
        found = _RECORD.search(file.read_text(encoding="utf-8"))
        record = json.loads(found["json"] if found else "")
        program, layers, reason = (str(record[key]) for key in ("program", "gpu_layers", "reason"))
        serves = str(record["model"] or count(int(record["models"]), "model"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if program not in file.name or program not in _PROGRAMS or layers not in ("all", "none"):
        return None
    return HostService(program, file, serves, layers, reason)
