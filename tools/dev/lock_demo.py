"""Write the lock of the demo's catalog again, against the demo's own hub; takes the options of `corral lock`.

With --upgrade it locks the files that the demo makes now: without, the commits stay, and with them the files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from corral import output, paths
from corral.demo.hub import Hub
from corral.demo.smollm2 import SMOLLM2
from corral.demo.tour import demo_repositories

CATALOG = paths.REPOSITORY / "terraform" / "catalog-demo"


def main() -> int:
    with (
        tempfile.TemporaryDirectory() as folder,
        Hub(demo_repositories(Path(folder), SMOLLM2.bring(output.info))) as hub,
    ):
        # A process of its own: huggingface_hub reads HF_ENDPOINT when it is imported.
        command = [sys.executable, "-m", "corral.cli.main", "lock", "--catalog", str(CATALOG), *sys.argv[1:]]
        return subprocess.run(command, env={**os.environ, "HF_ENDPOINT": hub.endpoint}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
