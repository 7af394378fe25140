"""Take tiny models through the whole path, on this machine, without a GPU.

Generated models with known answers, a hub on loopback, then the commands that an operator types: lock, up, smoke. The
engines are real, and so is the front door.  It stops what it started; --keep leaves it running.
"""

from __future__ import annotations

import argparse

from corral import output, paths
from corral.cli import options
from corral.engine import ports


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", action="store_true", help="leave the local stack running")
    port = f"of the front door (default: {ports.DOOR}, or a free one where that is taken)"
    parser.add_argument("--port", type=options.whole_number(1, 65535), metavar="N", help=port)
    parser.add_argument("--keys", action="store_true", help="with a client that has a key")


def run(args: argparse.Namespace) -> None:
    from corral.demo.tour import Tour

    Tour(paths.state_dir(), output.info).run(keep=args.keep, with_keys=args.keys, port=args.port)
