"""Open the pages of the local stack in a browser: llama-swap's own, and the exporter's account of the card.

llama-swap's pages are at /ui/ of the front door, for the operator alone: where the stack has keys, a browser gets none
of them, because it sends no key.  They are also in no llama-swap that corral builds: the Go module has their source and
not what is built of it.  A released program has them: LLAMA_SWAP=/path/to/llama-swap corral up.

The exporter's page is there while `corral exporter` runs; where it needs a key, the browser asks for it.

On a terminal each page that is there is opened; else its address is printed.  Exit code 1 when there is none.  In a
cluster the door always has keys; docs/getting-started.md has the way to the exporter's page there.

examples:
  corral open
  corral open --json | jq -r '.[] | select(.address) | .address'
"""

from __future__ import annotations

import argparse
import sys
import webbrowser
from contextlib import suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus

import httpx2

from corral import output, paths
from corral.cli import options
from corral.cli.exporter import PORT
from corral.engine import ports, stack
from corral.errors import ExitCode

_LIMIT_S = 3.0
_TITLE = "<title>corral: who holds the card</title>"
_REALM = 'realm="corral"'


@dataclass(frozen=True)
class _Page:
    """A page: its address, empty: there is none, for a reason and with a command that helps."""

    name: str
    address: str = ""
    problem: str = ""
    next_step: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    port = options.whole_number(1, 65535)
    parser.add_argument("--exporter-port", type=port, default=PORT, metavar="N", help=f"default: {PORT}")
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    pages = (_llama_swaps(), _exporters(args.exporter_port))
    code = ExitCode.OK if any(one.address for one in pages) else ExitCode.FAILED
    if args.json:
        output.data_json([asdict(one) for one in pages])
        return code
    for one in pages:
        if one.address:
            output.data(one.address)
            if sys.stdout.isatty():
                webbrowser.open(one.address)
        else:
            output.info(f"{one.name}: {one.problem}\n  → {one.next_step}")
    return code


def _llama_swaps() -> _Page:
    name, instead = "llama-swap's pages", "corral status, corral logs"
    running = stack.running(paths.state_dir())
    if running is None:
        return _Page(name, problem="no local stack is running.", next_step=stack.start_command(paths.state_dir()))
    if running.door.keys:
        problem = "the door requires a key with every request, and a browser sends none."
        return _Page(name, problem=problem, next_step=instead)
    if not running.client().has_pages():
        problem = "this llama-swap was built without them."
        return _Page(name, problem=problem, next_step=f"{instead}; or LLAMA_SWAP=/path/to/a/release corral up")
    return _Page(name, address=f"{running.endpoint}/ui/")


def _exporters(port: int) -> _Page:
    address = f"http://{ports.HOST}:{port}/"
    with suppress(httpx2.HTTPError), httpx2.Client(timeout=_LIMIT_S, trust_env=False, verify=False) as client:
        answer = client.get(address)
        is_closed = answer.status_code == HTTPStatus.UNAUTHORIZED
        if _REALM in answer.headers.get("WWW-Authenticate", "") if is_closed else _TITLE in answer.text:
            return _Page("the exporter's page", address=address)
    problem = f"no exporter of corral answers at {address}"
    return _Page("the exporter's page", problem=problem, next_step="corral exporter")
