"""Take tiny models through the whole path, on this machine, without a GPU.

Generated models with known answers, a hub on loopback, then the commands that an operator types: lock, up, smoke. The
engines are real.  It stops what it started; --keep leaves it running.
"""

from __future__ import annotations

import argparse

from corral import output, paths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", action="store_true", help="leave the local stack running")


def run(args: argparse.Namespace) -> None:
    from corral.demo.tour import Tour

    Tour(paths.state_dir(), output.info).run(keep=args.keep)
