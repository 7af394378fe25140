"""Write docs/metrics.md: the table of the exporter's metrics, made from corral.exporter.metric_table.

python tools/dev/metrics_docs.py            exit 1 when it is out of date
python tools/dev/metrics_docs.py --write    bring it up to date
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from corral.exporter.metric_table import DURATIONS_S, METRICS

FILE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
HEAD = """\
# Metrics

`corral exporter` serves these at `/metrics`; the exporter in a cluster those of the card.
`make fix` writes this table from `tools/corral/exporter/metric_table.py`.

What is unknown has no series, and a query must not take that for 0.
A holder without `corral_held_bytes` has `corral_held_unknown`.
Where nothing held on a card is known, `corral_unknown` has the [reason](architecture/vram.md#who-holds-the-card).
Models and tenants are those of the lock; requests for other models count as `(other)`.
So do pods and processes beyond the 20 that hold most of a card.

"""


def document() -> str:
    """The whole document."""
    rows = [
        f"| `{one.series}` | {one.type} | {', '.join(f'`{label}`' for label in one.labels) or '-'} | {one.help} |"
        for one in METRICS.values()
    ]
    bounds = ", ".join(f"{bound:g}" for bound in DURATIONS_S)
    table = "\n".join(["| metric | type | labels | meaning |", "| --- | --- | --- | --- |", *rows])
    return f"{HEAD}{table}\n\nThe histograms have the bounds {bounds} seconds.\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when the document is up to date or was written, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write it instead of comparing it")
    args = parser.parse_args(argv)
    text = document()
    if args.write:
        FILE.write_text(text, encoding="utf-8")
    elif not FILE.exists() or FILE.read_text(encoding="utf-8") != text:
        print(f"{FILE} is out of date. Run: make fix", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
