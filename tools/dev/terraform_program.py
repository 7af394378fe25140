"""Prints the path of the Terraform that corral runs (corral/terraform/program.py decides); exit 3 if there is none.

terraform=$(.venv/bin/python tools/dev/terraform_program.py)
terraform=$(.venv/bin/python tools/dev/terraform_program.py --started)    exit 3 also if it is none or too old
"""

from __future__ import annotations

import sys

from corral.errors import ProgramMissing
from corral.terraform.program import find_terraform
from corral.terraform.runner import require_version


def main() -> int:
    """Return 0, or 3 with the reason on stderr."""
    try:
        program = find_terraform()
        if sys.argv[1:] == ["--started"]:
            require_version(program)
        print(program)
    except ProgramMissing as error:
        print(f"terraform: {error.message}\n  → {error.next_step}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
