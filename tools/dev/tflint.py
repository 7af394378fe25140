"""tflint on every module and stack, with terraform/.tflint.hcl; built with Go into the user's cache if it is missing.

tools/dev/tflint.sh [ARGUMENTS]     exit 2 where it finds something, 3 where it cannot be built
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from corral import output, paths
from corral.engine.go_build import Programs
from corral.errors import CorralError

PROGRAMS = Programs(
    name="tflint-0.64.0",
    pins=Path(__file__).with_name("tflint"),
    packages=("github.com/terraform-linters/tflint",),
    stamps={},
    minutes=1.5,
)


def main() -> int:
    """Return 0 when every module and stack is clean."""
    root = paths.REPOSITORY / "terraform"
    try:
        program = PROGRAMS.build(output.info) / "tflint"
    except CorralError as error:
        print(f"tflint: {error.message}\n{error.next_step}", file=sys.stderr)
        return 3
    words = [str(program), f"--config={root / '.tflint.hcl'}", "--minimum-failure-severity=notice", *sys.argv[1:]]
    folders = sorted(folder for kind in ("modules", "stacks") for folder in (root / kind).glob("*/") if folder.is_dir())
    if not folders:
        print(f"tflint: no module and no stack below {root}", file=sys.stderr)
        return 2
    return max(subprocess.run([*words, f"--chdir={folder}"], check=False).returncode for folder in folders)


if __name__ == "__main__":
    sys.exit(main())
