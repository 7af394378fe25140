"""Serve who holds the card, and what was served, to Prometheus.

Each scrape reads NVIDIA's driver, the local stack's llama-swap and the engines of loaded models.  Every five minutes
each loaded model that is idle gives a short answer: that is its health.  It loads no model and keeps none loaded; what
is unknown has no figure.  Of the model store it reads the room, and what is there of each model.  docs/metrics.md has
every metric.  The promises are those of the lock as it was at the start.

Where the card's file has `yield`, idle models are unloaded while less is free than its floor, the longest idle first;
only by a stack that has neither keys nor TLS, through its front door.

A sample every 15 s is recorded, 64 MiB at most, which is more than seven days: `corral timeline` prints it.

The page at / shows the account of the cards live, the last hour of each holder, models and failed requests.

It listens on this machine alone, unless --listen names another address.  Page, account and records then need the
operator's key, which is made.  On this machine they need it where the local stack requires keys when the exporter
starts; by default it requires none.  While no stack runs, keys that were made for one are reason enough.  A browser
sends the key as the password of any user name, in plain HTTP: --listen is for a network that you trust.  Prometheus
needs none.

examples:
  corral exporter --once                print the metrics of this moment
  corral exporter                       serve them at http://127.0.0.1:9460/metrics, until Ctrl-C
  corral exporter --port 9500 --listen 192.168.1.20
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import ipaddress
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from corral import keys, output, paths
from corral.agent import store_metrics, store_state
from corral.agent.lock_file import read_lock
from corral.agent.store import Store
from corral.agent.store_state import Watch
from corral.card import local
from corral.cli import options
from corral.door.config import Misconfigured, read_config
from corral.door.follower import Follower
from corral.door.llama_swap import FAULTS
from corral.engine import stack
from corral.engine.stack import Running
from corral.engine.stack_folder import StackFolder
from corral.errors import CannotRun, ExitCode
from corral.exporter import replay
from corral.exporter.account import CardAccount
from corral.exporter.keys import OperatorKeys
from corral.exporter.llama_swap import LlamaSwap
from corral.keys import LocalKeys
from corral.lock import lock as locks

PORT = 9460
_PRINT_KEY = 'cat "${CORRAL_STATE:-.corral}/keys/operator.key"'  # without a path: it is in answers without a key
_FOLLOW_PAUSE_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "--catalog", "--store")
    parser.add_argument("--once", action="store_true", help="print the metrics of this moment, and end")
    parser.add_argument(
        "--port", type=options.whole_number(1, 65535), default=PORT, metavar="N", help=f"default: {PORT}"
    )
    alertmanager = "whose alerts are recorded too, as http://127.0.0.1:9093"
    parser.add_argument("--alertmanager", type=_url, metavar="URL", help=alertmanager)
    parser.add_argument("--listen", default="127.0.0.1", metavar="ADDRESS", help="default: 127.0.0.1")


def run(args: argparse.Namespace) -> int:
    import prometheus_client

    from corral.exporter.alertmanager import Alertmanager
    from corral.exporter.metrics import Exporter
    from corral.exporter.probes import Probes
    from corral.exporter.recorder import Recorder
    from corral.exporter.server import serve_until_signal
    from corral.exporter.yields import Yields

    state = paths.state_dir()
    recorded = stack.recorded(state)
    catalog = options.catalog_dir(args, recorded)
    lock = locks.require(catalog)
    locked, store = read_lock(catalog / "lock.json"), Store(options.store_dir(args, recorded))

    excesses = replay.continued(paths.records_dir(), time.time())

    follower = Follower()

    def accounts() -> tuple[CardAccount, ...]:
        return excesses.dated(local.read(lock, state))

    def find_llama_swap() -> LlamaSwap | None:
        return _llama_swap(state, follower)

    probes = Probes(find_llama_swap)
    yields = Yields(local.rules(lock), promises=local.promises(lock), accounts=accounts, find_door=lambda: _door(state))
    watch = Watch(lambda: store_state.read(locked, store), output.warn)
    exporter = Exporter(
        seal=lock.seal,
        models=lock.models,
        accounts=accounts,
        find_llama_swap=find_llama_swap,
        budgets=local.budgets(lock),
        probes=lambda: probes.results,
        store=lambda: store_metrics.text(store_metrics.LOCAL, watch.latest(), lock.seal),
        yields=yields.counts,
    )
    if args.once:
        watch.read_once()
        registry = prometheus_client.CollectorRegistry(auto_describe=False)
        registry.register(exporter)
        output.data(prometheus_client.generate_latest(registry).decode())
        return ExitCode.OK
    recorder = Recorder(
        paths.records_dir(),
        seal=lock.seal,
        promises=local.promises(lock),
        read=lambda: local.reading(state),
        find_llama_swap=find_llama_swap,
        is_expected=lambda: stack.recorded(state) is not None,
        alertmanager=Alertmanager(args.alertmanager) if args.alertmanager else None,
        take_yields=yields.take,
    )
    place = f"[{args.listen}]:{args.port}" if ":" in args.listen else f"{args.listen}:{args.port}"
    root = f"http://{place}"
    operator_keys = _operator_keys(args.listen, LocalKeys(state), recorded if recorded and recorded.is_alive else None)
    address = f"{root}/metrics for Prometheus, {root}/ for a browser   Stop it: Ctrl-C"
    if operator_keys:
        address += f"\nIts page needs the operator's key: {_PRINT_KEY}"
    try:
        serve_until_signal(
            (args.listen, args.port),
            exporter,
            lambda: {"at": time.time(), "cards": [one.as_json() for one in accounts()]},
            lambda _port: output.info(address),
            beside=(
                *((_with_operator(LocalKeys(state)),) if operator_keys else ()),
                *(probes.running(), recorder.running(), watch.running(), yields.running()),
                _following(state, follower),
            ),
            recorder=recorder,
            keys=operator_keys,
        )
    except OSError as error:
        message = f"{place} cannot be listened on: {error.strerror or error}."
        is_taken = error.errno == errno.EADDRINUSE  # by an exporter that records already, most likely
        step = (
            "corral exporter --port N"
            if is_taken
            else "Name an address of this machine: corral exporter --listen ADDRESS"
        )
        raise CannotRun(message, next_step=step) from None
    return ExitCode.OK


def _operator_keys(listen: str, store: LocalKeys, running: Running | None) -> OperatorKeys | None:
    """Whose key the page at *listen* needs; None: only this machine reaches it, and the stack requires no key.

    Raises:
        Refused: the keys cannot be read.
    """
    is_required = bool(running.door.keys if running else store.read().of)
    return OperatorKeys(store.file, _PRINT_KEY) if is_required or not _is_loopback(listen) else None


@contextmanager
def _with_operator(store: LocalKeys) -> Iterator[None]:
    """Entered once the address is listened on: an exporter that cannot listen makes no key.

    Raises:
        Refused: the keys cannot be made.
        CannotRun: another command changes them all the time.
    """
    keys.ensure_operator(store)
    yield


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _url(text: str) -> str:
    if not re.fullmatch(r"http://[A-Za-z0-9.-]+:[0-9]{1,5}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no URL as http://127.0.0.1:9093")
    return text


@contextmanager
def _following(state: Path, follower: Follower) -> Iterator[None]:
    """Follow the local stack's llama-swap while the block lasts, as the guard does in a cluster."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(_FOLLOW_PAUSE_S):
            with suppress(Misconfigured, *FAULTS):  # no stack runs, or it has just ended
                asyncio.run(follower.follow(read_config(StackFolder(state).guard_config)))

    threading.Thread(target=repeat, daemon=True).start()  # a stream without events does not delay the end
    try:
        yield
    finally:
        ended.set()


def _llama_swap(state: Path, follower: Follower) -> LlamaSwap | None:
    """The local stack's llama-swap; None when none runs, or its key cannot be read."""
    try:
        running = stack.running(state)
        client = running.client() if running else None
    except CannotRun:
        return None
    return LlamaSwap(client.endpoint, client.headers, followed=follower.listed) if client else None


def _door(state: Path) -> LlamaSwap | None:
    """The same by its front door, whose guard unloads; None also where that needs a key, or speaks TLS."""
    try:
        running = stack.running(state)
    except CannotRun:
        return None
    is_open = running and running.door.keys is None and running.door.tls is None
    return LlamaSwap(running.endpoint, {}, is_door=True) if running and is_open else None
