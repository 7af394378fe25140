"""Compare the llama-swap configuration of the demo catalog with the reviewed one.

The reviewed file shows in a pull request what a change of the catalog, the lock or the modules does to the server.

    python tools/dev/golden_config.py            show the difference; exit 1 when there is one
    python tools/dev/golden_config.py --write    accept what is rendered now
"""

from __future__ import annotations

import argparse
import difflib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from corral.errors import CorralError
from corral.paths import REPOSITORY
from corral.terraform.local import STACK, render_local

CATALOG = REPOSITORY / "terraform" / "catalog-demo"
GOLDEN = STACK / "tests" / "golden" / "llama-swap.yaml"


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when the file equals the rendered one, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalog", type=Path, default=CATALOG, help="catalog with a lock (default: the demo's)")
    parser.add_argument("--golden", type=Path, default=GOLDEN, help="the reviewed file")
    parser.add_argument("--write", action="store_true", help="write the file instead of comparing")
    args = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="corral-golden-") as state:
            rendered = render_local(args.catalog, Path("/models"), Path("llama-server"), state=Path(state))
            rendered = rendered.replace(str(REPOSITORY), "/corral")  # wherever this clone is
    except CorralError as error:
        print(f"{error.message}\n  → {error.next_step}", file=sys.stderr)
        return error.exit_code
    if args.write:
        args.golden.parent.mkdir(parents=True, exist_ok=True)
        args.golden.write_text(rendered, encoding="utf-8")
        return 0
    reviewed = args.golden.read_text(encoding="utf-8") if args.golden.exists() else ""
    if reviewed == rendered:
        return 0
    lines = difflib.unified_diff(
        reviewed.splitlines(keepends=True), rendered.splitlines(keepends=True), str(args.golden), "rendered now"
    )
    sys.stdout.writelines(lines)
    print("The reviewed configuration is out of date.\n  → When the change is meant, run: make fix", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
