"""Compare the configurations of llama-swap and of LiteLLM for the demo catalog with the reviewed ones.

The reviewed files show in a pull request what a change of the catalog, the lock or the modules does to the server.

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

from corral.cli.options import IN_CLUSTER
from corral.errors import CorralError
from corral.paths import REPOSITORY
from corral.terraform.gateway_list import render
from corral.terraform.local import STACK, render_local

CATALOG = REPOSITORY / "terraform" / "catalog-demo"
GOLDEN = STACK / "tests" / "golden" / "llama-swap.yaml"
GATEWAY = REPOSITORY / "docs" / "litellm.yaml"


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when both files equal the rendered ones, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalog", type=Path, default=CATALOG, help="catalog with a lock (default: the demo's)")
    parser.add_argument("--golden", type=Path, default=GOLDEN, help="the reviewed file of llama-swap")
    parser.add_argument("--gateway", type=Path, default=GATEWAY, help="the reviewed file of LiteLLM")
    parser.add_argument("--write", action="store_true", help="write the files instead of comparing")
    args = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="corral-golden-") as state:
            swap = render_local(args.catalog, Path("/models"), Path("llama-server"), state=Path(state))
        gateway = render(args.catalog, IN_CLUSTER, api_key_env="CORRAL_DOOR_KEY").yaml
    except CorralError as error:
        print(f"{error.message}\n  → {error.next_step}", file=sys.stderr)
        return error.exit_code
    rendered = {args.golden: swap.replace(str(REPOSITORY), "/corral"), args.gateway: gateway}  # wherever this clone is
    if args.write:
        for file, text in rendered.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return 0
    reviewed = {file: file.read_text(encoding="utf-8") if file.exists() else "" for file in rendered}
    if reviewed == rendered:
        return 0
    for file, text in rendered.items():
        before, now = (one.splitlines(keepends=True) for one in (reviewed[file], text))
        sys.stdout.writelines(difflib.unified_diff(before, now, str(file), "rendered now"))
    print("A reviewed configuration is out of date.\n  → When the change is meant, run: make fix", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
