"""Print a shell's completion script for corral.

example:
  corral completion bash > ~/.local/share/bash-completion/completions/corral
"""

from __future__ import annotations

import argparse

import shtab

from corral import output

_FOLDER = "terraform/catalog/models"
_FIND = f"""\
_corral_models() {{
  local folder=$PWD
  while [[ -n $folder && ! -d $folder/{_FOLDER} ]]; do folder=${{folder%/*}}; done
"""
_MODELS = {
    "bash": f"""{_FIND}\
  local file
  for file in "$folder"/{_FOLDER}/*.yaml; do
    [[ -e $file ]] && file=${{file##*/}} && compgen -W "${{file%.yaml}}" -- "$1"
  done
}}
""",
    "zsh": f"""{_FIND}\
  compadd -- $folder/{_FOLDER}/*.yaml(N:t:r)
}}
""",
}
"""The function that ``main`` names for each MODEL: the ids of the models in the nearest catalog, here or above."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="whose script to print")


def run(args: argparse.Namespace) -> None:
    from corral.cli.main import build_parser

    output.data(shtab.complete(build_parser(only="*"), shell=args.shell, preamble=_MODELS.get(args.shell, "")))
