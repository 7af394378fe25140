"""What the GPU of this machine takes from models that are served without Kubernetes, and why.

The Ansible role llama_server chooses it by platform, and records it as JSON in a comment of the service that it
installs: a systemd unit, or a property list of launchd on a Mac.
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
    """A service that the role has installed on this machine.

    Attributes:
        program: ``llama-swap`` or ``llama-server``.
        file: the unit, or the property list.
        serves: one model's id, or how many models, as ``2 models``.
        layers: ``all`` or ``none``.
        reason: why, in words.
    """

    program: str
    file: Path
    serves: str
    layers: str
    reason: str

    @property
    def banner(self) -> str:
        """All of it in one line."""
        return f"{self.program} ({self.file}): {self.serves}, GPU layers {self.layers}: {self.reason}"

    @property
    def next_step(self) -> str:
        """The command that shows why it does not run."""
        if self.file.suffix == ".service":
            return f"journalctl --unit {self.file.name} --lines 50"
        return f"sudo launchctl print system/{self.file.stem}"

    def state(self) -> str:
        """What the machine's service manager says of it: ``active``, ``inactive``, ``failed``, …; else ``unknown``."""
        is_unit = self.file.suffix == ".service"
        asked = (
            ["systemctl", "is-active", self.file.name]
            if is_unit
            else ["launchctl", "print", f"system/{self.file.stem}"]
        )
        try:
            done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            return "unknown"
        if is_unit:
            return done.stdout.strip() or "unknown"
        return "active" if "state = running" in done.stdout else "inactive"


def installed(root: Path = Path("/")) -> tuple[HostService, ...]:
    """The services of this machine that the role installed; none where it never ran.

    A file that cannot be read, or that has no such record, is passed over.

    Args:
        root: where the machine's file system begins.
    """
    files = [root / "etc/systemd/system" / f"{program}.service" for program in _PROGRAMS]
    files += [root / "Library/LaunchDaemons" / f"corral.{program}.plist" for program in _PROGRAMS]
    found = (_read(file) for file in files)
    return tuple(service for service in found if service is not None)


def _read(file: Path) -> HostService | None:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if not (found := _RECORD.search(text)):
        return None
    try:
        record = json.loads(found["json"])
        program, layers, reason = (str(record[key]) for key in ("program", "gpu_layers", "reason"))
        serves = str(record["model"] or count(int(record["models"]), "model"))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if program not in file.name or program not in _PROGRAMS or layers not in ("all", "none"):
        return None
    return HostService(program, file, serves, layers, reason)
