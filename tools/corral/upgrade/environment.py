"""A virtual environment with packages of its own in front of those of this one: a second wheel in seconds."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from corral.errors import CannotRun

_SCRIPTS = ("corral", "corral-llama-server", "corral-terraform")
_PROGRAMS = ("caddy",)  # of packages: no script of Python


@dataclass(frozen=True)
class Environment:
    """The environment in *folder*."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Where packages of its own go."""
        return self.folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

    def make(self, tools: Path) -> None:
        """Make it, with the corral in the folder *tools*, and then the packages of this environment.

        Raises:
            CannotRun: no virtual environment can be made.
        """
        command = [sys.executable, "-m", "venv", "--without-pip", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotRun(f"A virtual environment cannot be made: {done.stderr.strip()}.", next_step="make setup")
        # Its own corral first: of the other packages, the entry that leads to their corral is not read.
        others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        (self.packages / "corral.pth").write_text("".join(f"{path}\n" for path in (tools, *others)))
        scripts = Path(sysconfig.get_path("scripts"))
        for name in _PROGRAMS:
            (self.folder / "bin" / name).symlink_to(scripts / name)
        for name in _SCRIPTS:
            script = (scripts / name).read_text()
            own = self.folder / "bin" / name
            own.write_text(re.sub(r"\A#!.*", f"#!{self.python}", script))
            own.chmod(0o755)
