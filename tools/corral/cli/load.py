"""Load a model now, and wait until it is ready.

It is loaded as by a request, with the same preflight: models of its group beside which it does not fit are unloaded
once their requests are over.  The state is shown every few seconds, then the seconds it took and what was unloaded for
it.  A model that is loaded already stays as it is; its ttl begins anew.

A load that fails is exit code 1, with the reason, the evidence and the next commands of `corral why`.  Ctrl-C ends the
wait at once: a load that waits for its group's requests is dropped, and one whose engine is starting goes on.

With --json: {"model", "loaded", "was_loaded", "seconds", "unloaded": [...]}, and of a load that failed also "class",
"culprit", "evidence" and "next".

examples:
  corral load qwen3-8b
  corral load qwen3-8b --context homelab
  corral load qwen3-8b --json | jq .seconds
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Thread

from corral import output
from corral.cli import one_model, options, why
from corral.cli.one_model import OneModel
from corral.errors import CannotRun, CorralError, ExitCode

_REPORT_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    one_model.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    with one_model.opened(args) as one:
        before = _states(one)
        was_loaded = before.get(one.model) == "ready"
        began = time.monotonic()
        try:
            problem = _loaded(one)
        except KeyboardInterrupt:
            output.info(_left(args, one))
            raise
        seconds = round(time.monotonic() - began, 2)
        after = _states(one).keys()
    unloaded = sorted(before.keys() - after - {one.model})
    document = {
        "model": one.model,
        "loaded": not problem,
        "was_loaded": was_loaded,
        "seconds": seconds,
        "unloaded": unloaded,
    }
    if problem:
        return _failed(args, one, problem, document)
    if one.model not in after:
        message = f"{one.model} was ready after {seconds:.1f} s and is unloaded again: other requests want its group."
        raise CannotRun(message, next_step=options.again(args, "load", one.model))
    if args.json:
        output.data_json(document)
    elif was_loaded:
        output.data(f"{one.model} was loaded already.")
    else:
        output.data(f"{one.model} is ready after {seconds:.1f} s.{_evicted(unloaded)}")
    return ExitCode.OK


def _loaded(one: OneModel) -> str:
    """Load it; why it could not be, empty: it is ready."""
    loading: Future[str] = Future()
    # No thread that the end of this process waits for: with it the request ends, and llama-swap drops it.
    Thread(target=_load, args=(one, loading), daemon=True).start()
    began = time.monotonic()
    while not wait([loading], timeout=_REPORT_S).done:
        with suppress(CannotRun):  # what is wrong is in the answer
            states = _states(one)
            others = [f"{model} {state}" for model, state in states.items() if model != one.model]
            beside = f"; beside it: {', '.join(others)}" if others else ""
            state = states.get(one.model, "waiting")
            output.info(f"{one.model}: {state}, {time.monotonic() - began:.0f} s{beside}")
    return loading.result()


def _load(one: OneModel, loading: Future[str]) -> None:
    try:
        loading.set_result(one.client.load(one.model))
    except CorralError as error:
        loading.set_exception(error)


def _states(one: OneModel) -> dict[str, str]:
    return {resident.model: resident.state for resident in one.client.residents()}


def _left(args: argparse.Namespace, one: OneModel) -> str:
    """What becomes of a load that is not waited for any more."""
    with suppress(CannotRun):
        if state := _states(one).get(one.model):
            return f"{one.model} is {state}, and that goes on.  To end it: {options.again(args, 'unload', one.model)}"
        return f"{one.model} was waiting to be loaded, and is not loaded."
    return f"Whether {one.model} is loaded is not known: {options.again(args, 'status')}"


def _failed(args: argparse.Namespace, one: OneModel, problem: str, document: dict[str, object]) -> int:
    (verdict,) = why.investigated(args, one.target, one.model)
    if args.json:
        output.data_json({**document, "problem": problem, **verdict.as_json()})
        return ExitCode.FAILED
    output.info(f"{one.model} could not be loaded ({problem}).")
    output.data(why.text(verdict))
    return ExitCode.FAILED


def _evicted(models: list[str]) -> str:
    return f"  Unloaded for it: {', '.join(models)}." if models else ""
