"""What the GPU of this machine takes from models that are served without Kubernetes, and why.

The Ansible role llama_server chooses it by platform, and says so in the description of the service that it installs:
a systemd unit, or a property list of launchd on a Mac.  That is the only record, and it is read here.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_PROGRAMS = ("llama-swap", "llama-server")
_DESCRIPTION = re.compile(r"(?P<program>[\w-]+): (?P<serves>.+), GPU layers (?P<layers>all|none) \((?P<reason>.*)\)$")


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
    """The services of this machine that tell what their GPU takes; none where the role never ran.

    A file that cannot be read, or that somebody else wrote, tells nothing.

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
    told = _DESCRIPTION.match(_description(text, is_unit=file.suffix == ".service"))
    if told is None or told["program"] not in file.name:
        return None
    return HostService(told["program"], file, told["serves"], told["layers"], told["reason"])


def _description(text: str, *, is_unit: bool) -> str:
    if is_unit:
        lines = [line for line in text.splitlines() if line.startswith("Description=")]
        return lines[-1].removeprefix("Description=").replace("%%", "%") if lines else ""
    lines = [line for line in text.splitlines() if line.startswith("<!-- ") and line.endswith(" -->")]
    return lines[-1].removeprefix("<!-- ").removesuffix(" -->").replace("- -", "--") if lines else ""
