"""Writes ``terraform/catalog/schemas`` from the Python classes, or exits 1 when they have drifted.

python tools/dev/schemas.py --write
"""

from __future__ import annotations

import argparse
import sys

from corral.lock.schemas import drift, schemas
from corral.paths import REPOSITORY

FOLDER = REPOSITORY / "terraform" / "catalog" / "schemas"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the files instead of comparing")
    if parser.parse_args().write:
        FOLDER.mkdir(exist_ok=True)
        for name, text in schemas().items():
            (FOLDER / name).write_text(text)
        return 0
    stale = drift(FOLDER)
    for name in stale:
        print(f"{FOLDER / name} is not what the classes say. Run: make fix", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
