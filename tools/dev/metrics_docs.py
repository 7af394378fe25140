"""Write docs/metrics.md: the metrics of the cards and of the store, from the tables of both exporters.

python tools/dev/metrics_docs.py            exit 1 when it is out of date
python tools/dev/metrics_docs.py --write    bring it up to date
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from corral.agent import store_metrics
from corral.exporter.metric_table import DURATIONS_S, METRICS

FILE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
HEAD = """\
# Metrics

`corral exporter` serves these at `/metrics`.
In a cluster two exporters do: one on the node of each card, and one beside the model store.
On a machine without Kubernetes [a service](hosts.md#who-holds-the-card-of-a-machine-without-kubernetes) does, \
for the card alone: without metrics of llama-swap, of pods and of yields.
`make fix` writes these tables from `tools/corral/exporter/metric_table.py` and `tools/corral/agent/store_metrics.py`.

## The card, and what is served

What is unknown has no series, and a query must not take that for 0.
A holder without `corral_held_bytes` has `corral_held_unknown`.
Where nothing held on a card is known, `corral_unknown` has the [reason](architecture/vram.md#who-holds-the-card).
Models and tenants are those of the lock; requests for other models count as `(other)`.
So do pods and processes beyond the 20 that hold most of a card.

"""


BUDGETS = """\
## Latency budgets

What is known of a request is the list of llama-swap: its model, its status, its seconds and its tokens, \
and not its client.
A request of any client therefore counts for each [budget](models.md#latency-budgets) of its model whose tokens it \
does not exceed, and so do those of a smoke test and of `corral bench`.
How many were under way at once is not known either: one of more than `requests_at_once` counts as well.
A request without an answer, or whose tokens are not reported (an embedding, a stream that broke off), counts for none.

With `cold: excluded`, a request counts where it is known not to have waited for a load: its model was ready at each \
scrape since one before the request can have begun.
The first requests after a load, after a start of the exporter and after a time in which llama-swap did not answer \
count for none, however fast they were.
A model that is unloaded and loaded again between two scrapes goes unnoticed, and its first request counts.

"""
STORE = """\
## The model store

They are read every 30 seconds.
A store that does not answer, as an NFS server that is down, leaves `corral_store_up` at 0 and nothing else.
The kernel reports what of a file is in memory to its owner alone: to another user, `corral_store_model_cached_bytes` \
is missing.

"""


def document() -> str:
    """The whole document."""
    cards = _table((one.series, one.type, one.labels, one.help) for one in METRICS.values())
    store = _table((one.name, "gauge", one.labels, one.help) for one in store_metrics.METRICS)
    bounds = ", ".join(f"{bound:g}" for bound in DURATIONS_S)
    return f"{HEAD}{cards}\n\nThe histograms have the bounds {bounds} seconds.\n\n{BUDGETS}{STORE}{store}\n"


def _table(metrics: Iterable[tuple[str, str, tuple[str, ...], str]]) -> str:
    rows = [
        f"| `{series}` | {kind} | {', '.join(f'`{label}`' for label in labels) or '-'} | {meaning} |"
        for series, kind, labels, meaning in metrics
    ]
    return "\n".join(["| metric | type | labels | meaning |", "| --- | --- | --- | --- |", *rows])


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
