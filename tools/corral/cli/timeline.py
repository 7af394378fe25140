"""Print what happened on the cards, minute by minute: who held memory, what was loaded, and what failed.

The exporter records a sample every 15 s, 64 MiB at most, which is more than seven days, and keeps them over restarts.
On one machine that is `corral exporter`, while it runs; in a cluster the exporter of the card's node: --context names
the cluster; without it, without --catalog and without a local stack, it is the one that terraform/stacks/homelab was
applied to.

A line of the curves is the card's free memory, or what a holder had of the card; a full block is the whole card, ?
is unknown, and a gap was not recorded.  What follows from the samples (over the promise, no room) is computed by the
rules of `corral card` and of the alerts.

--post-mortem writes a file into post-mortems/ with the timeline, in UTC, and empty headings.

times: 14:00 (the last one that has passed), 2026-11-23T14:00, or how long ago: 90m, 2h, 3d

examples:
  corral timeline --since 14:00
  corral timeline --since 2026-11-22T22:00 --until 2026-11-23T06:00 --context homelab
  corral timeline --since 2h --json | jq '.events[] | select(.event == "no-room")'
  corral timeline --since 3h --post-mortem "no room for qwen3-8b"
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from corral import output, paths
from corral.cli import options
from corral.engine import stack
from corral.errors import CannotRun, ExitCode, Refused

_UNITS_S = {"m": 60, "h": 3600, "d": 86400}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--catalog", "--json")
    parser.add_argument("--since", type=_time, default="1h", metavar="TIME", help="default: 1h")
    parser.add_argument("--until", type=_time, metavar="TIME", help="default: now")
    parser.add_argument("--utc", action="store_true", help="show times in UTC, not in this machine's zone")
    parser.add_argument("--post-mortem", metavar="TITLE", help="write a file with the timeline into post-mortems/")
    parser.add_argument("--node", default="", help="whose records, where the exporter runs on several")
    options.add_cluster(parser, namespace="where the exporter is (default: the only one)")


def run(args: argparse.Namespace) -> int:
    from corral.timeline import post_mortem, recording, report

    until = time.time() if args.until is None else args.until
    if until <= args.since:
        raise Refused("--until must be later than --since.", next_step="corral timeline --since 2h --until 1h")
    found = recording.read(_lines(args))
    zone = UTC if args.utc or args.post_mortem is not None else None
    timeline = report.Timeline(found, args.since, until, zone)
    if found.damaged:
        output.warn(f"{recording.damaged(found.damaged)}, and left out.")
    if not timeline.moments:
        message = "Nothing was recorded in this time."
        last = found.moments[-1].at if found.moments else None
        when = f" The last sample is of {timeline.time(last, form='%Y-%m-%d %H:%M')}." if last else ""
        raise CannotRun(f"{message}{when}", next_step="corral timeline --since 7d, or see that corral exporter runs")
    if args.post_mortem is not None:
        path = str(post_mortem.write(timeline, paths.REPOSITORY / "post-mortems", args.post_mortem))
        output.data(json.dumps({"file": path}) if args.json else path)
    elif args.json:
        output.data_json(timeline.as_json())
    else:
        begin, end = (timeline.time(at, form="%Y-%m-%d %H:%M %Z") for at in (args.since, until))
        output.info(f"{begin} to {end}")
        output.data("\n".join(report.curves(timeline)))
        output.table(report.COLUMNS, list(report.rows(timeline)))
    return ExitCode.OK


def _lines(args: argparse.Namespace) -> Sequence[bytes]:
    """What was recorded: in the cluster that *args* mean, or on this machine."""
    target = options.cluster(args)
    if args.node and target is None:
        target = options.applied()
    if target is None and args.catalog is None and stack.recorded(paths.state_dir()) is None:
        target = options.applied()
    if target:
        from corral.card import remote
        from corral.cluster.client import connect

        cluster = connect(target.kubeconfig, target.context)
        place = {"namespace": args.namespace, "of": target.namespace, "node": args.node}
        return remote.records(cluster, args.since, **place).splitlines()
    from corral.exporter import recorder

    try:
        with ExitStack() as opened:
            found = [opened.enter_context(one) for one in recorder.open_since(paths.records_dir(), args.since)]
            lines = [line for stream in found for line in stream]
    except OSError as error:
        message = f"{paths.records_dir()} cannot be read: {error.strerror}."
        raise CannotRun(message, next_step=f"ls -l {shlex.quote(str(paths.records_dir()))}") from None
    if not lines:
        raise CannotRun("Nothing is recorded on this machine.", next_step="Let it run: corral exporter")
    return lines


def _time(text: str) -> float:
    """Seconds since 1970 of a time that a person typed."""
    now = datetime.now()  # noqa: DTZ005 - a clock time is one of this machine's zone, whatever the season
    try:
        if ago := re.fullmatch(r"(\d{1,5})([mhd])", text):
            return now.timestamp() - int(ago[1]) * _UNITS_S[ago[2]]
        if re.fullmatch(r"\d{1,2}:\d\d", text):
            hour, minute = map(int, text.split(":"))
            today = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return (today if today <= now else today - timedelta(days=1)).timestamp()
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        message = f"{text!r} is no time: 14:00, 2026-11-23T14:00, 90m, 2h or 3d"
        raise argparse.ArgumentTypeError(message) from None
