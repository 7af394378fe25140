"""Unload a model now, and state what that ends.

Its engine ends and its memory is free; the next request loads it again.  Requests that are under way are cut off: they
are counted before.  A model that is not loaded stays as it is.

With --json: {"model", "was_loaded", "requests_cut_off", "seconds"}.

examples:
  corral unload qwen3-8b
  corral unload qwen3-8b --context homelab
"""

from __future__ import annotations

import argparse
import time

from corral import output
from corral.agent.progress import count
from corral.cli import one_model
from corral.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    one_model.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    with one_model.opened(args) as one:
        loaded = {resident.model: resident.state for resident in one.client.residents()}
        cut_off = sum(request.model == one.model for request in one.client.in_flight())
        began = time.monotonic()
        if one.model in loaded:
            if not args.json:
                cut = f", with {count(cut_off, 'request')} under way, cut off" if cut_off else "; it serves no request"
                output.info(f"Ending the engine of {one.model} ({loaded[one.model]}){cut} ...")
            one.client.unload(one.model)
        seconds = round(time.monotonic() - began, 2)
    was_loaded = one.model in loaded
    if args.json:
        document = {"model": one.model, "was_loaded": was_loaded, "requests_cut_off": cut_off if was_loaded else 0}
        output.data_json(document | {"seconds": seconds})
    else:
        output.data(f"{one.model} is unloaded." if was_loaded else f"{one.model} was not loaded.")
    return ExitCode.OK
