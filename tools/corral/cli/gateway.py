"""Bring the models of a LiteLLM that is there already to the catalog, by its API.

`sync` adds, changes and removes the entries that carry the mark (`model_info.corral`), shows the difference first and
asks.  What has not the same mark stays as it is.  A name of the catalog that another entry has is refused: LiteLLM
would share the requests between both.  Without a terminal for the question, --yes is needed; --json alone changes
nothing.

LiteLLM's API keeps models only where it has PostgreSQL (DATABASE_URL and STORE_MODEL_IN_DB=True).  Without it, write
what `corral render --print litellm` prints into its configuration.

LiteLLM's key is read from --key-file, else from LITELLM_MASTER_KEY.  The key with which LiteLLM asks the front door is
read from --door-key-file; without it LiteLLM sends none.  Give it a client of its own: `corral keys add litellm`.

What LiteLLM has for all of its models is not changed, and is printed where it is needed: the fallbacks of the catalog,
and the settings without which its health checks load models.  The stack's own gateway needs no sync: `corral apply`.

examples:
  corral gateway sync --url http://litellm.home.arpa:4000
  corral gateway sync --url https://litellm.home.arpa --key-file master.key --door-key-file door.key --yes
  corral gateway sync --url http://127.0.0.1:4000 --json       what would change
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from urllib.parse import urlsplit

from corral import output
from corral.cli import options
from corral.errors import ExitCode, Refused

_KEY = "LITELLM_MASTER_KEY"
_MARK = "corral"
_SETTINGS = {
    "general_settings": {"health_check_skip_disabled_background_models": True},
    "router_settings": {"disable_cooldowns": True},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("sync",), help="what to do")
    parser.add_argument("--url", metavar="URL", type=_url, required=True, help="LiteLLM's address, without /v1")
    parser.add_argument("--key-file", metavar="FILE", type=Path, help=f"LiteLLM's master key (default: {_KEY})")
    parser.add_argument("--door-key-file", metavar="FILE", type=Path, help="the key with which LiteLLM asks the door")
    parser.add_argument(
        "--mark",
        metavar="NAME",
        default=_MARK,
        type=options.name,
        help="of the entries that are ours (default: corral)",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options.add_gateway(parser)
    options.add(parser, "--catalog", "--json")


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError(f"{text!r} is no address with http:// or https://")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise argparse.ArgumentTypeError("it must be an address alone, without a key in it")
    if parts.path.rstrip("/").endswith("/v1"):
        raise argparse.ArgumentTypeError(f"{text!r} ends in /v1: LiteLLM's own API is beside that")
    return text


def run(args: argparse.Namespace) -> int:
    if not args.yes and not args.json and not sys.stdin.isatty():
        raise Refused(
            "There is no terminal for the question, and --yes was not given.",
            next_step=f"What would change: {shlex.join(['corral', 'gateway', 'sync', '--url', args.url, '--json'])}",
        )
    from corral.gateway import entries
    from corral.gateway.litellm import LiteLLM

    key = _key(args)
    door_key = _read(args.door_key_file) if args.door_key_file else "none"
    wanted = options.gateway_list(args, options.catalog_dir(args))
    with LiteLLM(args.url, key) as proxy:
        listed = [entries.marked(one, args.mark, door_key) for one in wanted.models]
        found = entries.changes(listed, proxy.entries(), args.mark)
        if args.json:
            output.data_json({"changes": [one.as_json() for one in found], "fallbacks": wanted.fallbacks})
        else:
            output.data("\n".join(map(str, found)) or f"LiteLLM at {args.url} has the models of the catalog.")
        if not found or (args.json and not args.yes):
            return ExitCode.OK
        if not (args.yes or _agreed(args.url)):
            output.info("Nothing was changed.")
            return ExitCode.FAILED
        for at, change in enumerate(found):
            try:
                proxy.make(change)
            except Refused as error:
                raise Refused(f"{error.message} {_done(at, len(found))}", next_step=error.next_step) from None
            output.info(f"done: {change}")
    _state_the_rest(wanted.fallbacks)
    return ExitCode.OK


def _agreed(url: str) -> bool:
    from corral.cli.plan import agreed

    return agreed(f"Change LiteLLM at {url}? Only yes changes it.")


def _done(made: int, number: int) -> str:
    return (
        f"{made} of {number} changes were made; the same command makes the others." if made else "Nothing was changed."
    )


def _state_the_rest(fallbacks: object) -> None:
    """What LiteLLM has once for all models, so that its operator must write it."""
    settings = json.loads(json.dumps(_SETTINGS))
    if fallbacks:
        settings["router_settings"]["fallbacks"] = fallbacks
    output.info(
        "LiteLLM's own configuration must have, for health checks that load nothing and the catalog's fallbacks:"
    )
    for section, values in settings.items():
        output.info(f"  {section}: {json.dumps(values)}")


def _key(args: argparse.Namespace) -> str:
    if args.key_file:
        return _read(args.key_file)
    if key := os.environ.get(_KEY, "").strip():
        return key
    raise Refused("LiteLLM's key is not known.", next_step=f"Set {_KEY}, or name a file with it: --key-file FILE")


def _read(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Refused(f"{file} cannot be read: {why}.", next_step=f"ls -l {shlex.quote(str(file))}") from None
    if not text or not text.isprintable() or " " in text:
        raise Refused(f"{file} has no key: a key is one word.", next_step=f"wc {shlex.quote(str(file))}")
    return text
