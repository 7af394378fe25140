"""Show which llama-server and llama-swap `corral up` would use, and which builds they are.

llama-server: LLAMA_SERVER=, then PATH, then the embedded engine (llama.cpp from a Python wheel, on the CPU).
llama-swap: LLAMA_SWAP=, then PATH, then the cache, where it is built from the pinned version when it is missing.

examples:
  corral engine             show both, and build nothing
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
    engine, supervisor = binaries.llama_server(), binaries.find_llama_swap()
    programs = {
        "llama-server": (str(engine.path), engine.origin, engine.build),
        "llama-swap": (str(supervisor.path), supervisor.origin, supervisor.build),
    }
    columns = ("path", "origin", "build")
    document = {name: dict(zip(columns, facts, strict=True)) for name, facts in programs.items()}
    rows = [(name, *facts) for name, facts in programs.items()]
    output.result(document, ("program", *columns), rows, as_json=args.json)
