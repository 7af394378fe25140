"""Print a shell's completion script for corral.

example:
  corral completion bash > ~/.local/share/bash-completion/completions/corral
"""

from __future__ import annotations

import argparse

import shtab

from corral import output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="whose script to print")


def run(args: argparse.Namespace) -> None:
    from corral.cli.main import build_parser

    output.data(shtab.complete(build_parser(only="*"), shell=args.shell))
