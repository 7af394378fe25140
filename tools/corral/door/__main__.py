"""``python3 -m door CONFIG``: the guard in front of llama-swap.

The access log is written to stdout, one JSON object per line; it has no prompts and no keys.  SIGTERM ends it when the
answers under way have ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .config import Misconfigured, read_config
from .server import serve


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM; 2: the configuration cannot be used, 3: the address cannot."""
    parser = argparse.ArgumentParser(prog="python3 -m door", description=__doc__)
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the configuration, as the package describes it")
    path = parser.parse_args(argv).config
    try:
        asyncio.run(serve(read_config(path), _write))
    except Misconfigured as error:
        print(f"door: {error}", file=sys.stderr)  # noqa: T201 - a program of its own
        return 2
    except OSError as error:
        print(f"door: It cannot listen: {error}.", file=sys.stderr)  # noqa: T201
        return 3
    return 0


def _write(record: dict[str, Any]) -> None:
    with suppress(OSError, ValueError):  # a log that is full or closed ends no request
        sys.stdout.write(json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **record}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
