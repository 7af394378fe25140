"""Record what a loaded model really takes, beside what the lock predicted, in measured.json of the catalog.

The model is measured where it runs, with the lock's own command line: in the local stack, or with --context in that
cluster, through a forwarded port; without both, in the cluster that terraform/stacks/homelab was applied to.  It is
loaded first when it is not resident (which unloads the other models of its group).  Without MODEL all models are
measured, one after the other.

Where the engine uses a card, NVIDIA's driver counts (nvidia-smi): buffers, CUDA context and pools.  A large request is
sent before, because pools and projectors grow with use.  Elsewhere the engine's own report is read, the buffers that it
names while it loads.  What cannot be determined is an error, never 0.

In a cluster only the driver on the card's node counts: through the exporter there (card_exporter in terraform.tfvars),
which knows the pod of each process.  Its sample must be later than the large request, and list one engine of the model,
in the pod that was asked.  Nothing is loaded where there is no exporter, or where its driver is silent.

The measurement is written to the lock immediately, unless the catalog or the model's entry has changed meanwhile, and
the model's seat is the larger of prediction and measurement.  It belongs to one command line: when that changes, it
counts no more.  One without a card shows whether predictions hold on such a machine; no seat depends on it.

examples:
  corral measure qwen3-8b               measure, and write it to the ledger
  corral measure qwen3-8b --reload      load it anew first; requests that it works on are cut off
  corral measure qwen3-8b --context homelab
  corral measure --check                exit 1 when a measurement is more than 3 % off; needs no stack
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

from corral import output
from corral.catalog import ledger
from corral.catalog.ledger import Measurement, Source
from corral.cli import endpoints, options
from corral.errors import CannotRun, ExitCode, Refused
from corral.smoke.endpoint import require_sendable
from corral.vram.prediction import mib

if TYPE_CHECKING:
    from corral.catalog.catalog import Catalog
    from corral.cluster.target import ClusterTarget
    from corral.engine.stack import Running
    from corral.lock.lock import Lock
    from corral.measure.comparison import Compared
    from corral.measure.live import Reading

    _Measure = Callable[[str], tuple[Reading, str]]
    """Measures a model by its id: what it takes, and the build of llama-server that ran."""

_COLUMNS = ("model", "device", "source", "predicted MiB", "measured MiB", "difference")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "models", "--catalog", "--json")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--check", action="store_true", help="only compare what was measured with what the lock predicts")
    way.add_argument("--dry-run", action="store_true", help="measure and show, but do not write it down")
    parser.add_argument("--source", choices=get_args(Source), help="what counts the bytes (default: as above)")
    parser.add_argument("--reload", action="store_true", help="unload the model first, so that its report is fresh")
    options.add_cluster(parser)
    parser.set_defaults(endpoint=None)


def run(args: argparse.Namespace) -> int:
    return _check(args) if args.check else _measure(args)


def _measure(args: argparse.Namespace) -> int:
    from corral.lock.relock import write_measurements
    from corral.measure import comparison

    local, target = endpoints.named(args)
    if local is None and target is None:
        raise CannotRun(
            "A model is measured where it runs: no local stack is running, and no cluster was named or applied to.",
            next_step=f"{options.again(args, 'up', '--detach')}, or: {options.again(args, 'measure')} --context NAME",
        )
    if target and args.source == "engine-report":
        message = "In a cluster only the driver counts: an engine there does not name its buffers."
        raise Refused(message, next_step="Leave out --source")
    wanted, locked = options.locked_catalog(options.catalog_dir(args, local or target))
    home, path = wanted.directory, ledger.path_of(wanted.directory)
    found: list[Measurement] = []
    with _in_cluster(args, wanted, locked, target) if target else _here(args, wanted, locked, local) as measure:
        for model_id in wanted.select(args.models):
            entry = locked.models[model_id]
            reading, build = measure(model_id)
            date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            one = comparison.record(model_id, entry, reading, catalog=home, engine=build, date=date)
            found.append(one)
            if not args.dry_run:  # one by one: the next model may fail
                write_measurements(home, model_id, entry, ledger.read(home).with_newest(one))
    records = [one.model_dump() | {"deviation": one.deviation} for one in found]
    document = {"ledger": str(path), "written": not args.dry_run, "measurements": records}
    rows = [_row(one, one.predicted, one.deviation) for one in found]
    output.result(document, _COLUMNS, rows, as_json=args.json)
    if not args.json:
        output.info(f"{path} is unchanged (--dry-run)" if args.dry_run else f"{path} and {wanted.lock_file} written")
        if (grown := _grown(locked, found)) and not args.dry_run:
            apply = local.start_command() if local else options.again(args, "apply")
            output.info(f"The preflight has a smaller seat of {', '.join(grown)} until that is applied: {apply}")
    return ExitCode.OK


def _grown(locked: Lock, found: Sequence[Measurement]) -> list[str]:
    """The models that took more on a card than their seats in *locked*: such a load begins, and runs out of memory."""
    return [one.model for one in found if one.gpu_bytes > locked.models[one.model].seat.bytes]


@contextmanager
def _here(args: argparse.Namespace, wanted: Catalog, locked: Lock, local: Running | None) -> Iterator[_Measure]:
    """Measures a model of the stack *local*."""
    from corral.measure.live import LiveModel

    def measure(model_id: str) -> tuple[Reading, str]:
        assert local
        live = LiveModel(local, model_id, wanted.models[model_id], locked.models[model_id], info=output.info)
        return live.read(args.source, reload=args.reload), local.engine.build

    yield measure


@contextmanager
def _in_cluster(args: argparse.Namespace, wanted: Catalog, locked: Lock, target: ClusterTarget) -> Iterator[_Measure]:
    """Measures a model of *target*, while the block lasts."""
    from corral.card import remote
    from corral.cluster import collect, exporters, port_forward
    from corral.cluster.client import Forbidden, connect
    from corral.cluster.snapshot import at, name_of
    from corral.golden.asking import engine_of
    from corral.measure.in_cluster import ModelInCluster, NodeDriver
    from corral.measure.live import ServedModel

    cluster = connect(target.kubeconfig, target.context)
    try:
        exporter = remote.only(cluster, of=target.namespace)
    except Forbidden as error:
        raise Forbidden(error.message, next_step=cluster.kubectl("auth", "can-i", "list", "namespaces")) from None
    words = options.target_words(replace(target, context=cluster.context, catalog=args.catalog))
    with endpoints.opened(args, None, target, command="measure") as place:
        require_sendable(place.api_key)
        assert place.client
        client = place.client

        def measure(model_id: str) -> tuple[Reading, str]:
            entry = locked.models[model_id]
            served = ServedModel(
                client,
                model_id,
                info=output.info,
                task=entry.intent.task,
                root=place.root,
                api_key=place.api_key,
                options=words,
            )
            card = entry.intent.card
            service = collect.collect(cluster, target.namespace).service_of(card) or target.service
            pod = port_forward.ready_pod(cluster, target.namespace, service)
            node = str(at(pod, "spec", "nodeName") or "")
            driver = NodeDriver(
                model_id=model_id,
                card=card,
                pod=f"{target.namespace}/{name_of(pod)}",
                node=node,
                read=lambda: remote.read(cluster, namespace=exporter, node=node),
                account=remote.command(cluster, exporter),
                try_driver=cluster.kubectl(
                    "exec", f"daemonset/{exporters.SERVICE}", "--", "nvidia-smi", namespace=exporter
                ),
                again=served.again,
            )
            live = ModelInCluster(client, served, driver, wanted.models[model_id], entry)
            reading = live.read(reload=args.reload)
            return reading, engine_of(served.fingerprint)

        yield measure


def _check(args: argparse.Namespace) -> int:
    from corral.measure import comparison

    if args.models or args.source or args.reload or args.context or args.namespace or args.kubeconfig:
        raise Refused("--check compares all that was measured.", next_step=options.again(args, "measure", "--check"))
    # With a lock of another argv its measurements would be passed over, and with them what contradicts it.
    wanted, locked = options.locked_catalog(options.catalog_dir(args))
    compared, outdated = comparison.compare(locked, ledger.read(wanted.directory))
    problems = [item.problem for item in compared if item.problem]
    code = ExitCode.FAILED if problems else ExitCode.OK
    if args.json:
        document = {
            "ledger": str(ledger.path_of(wanted.directory)),
            "limit": comparison.LIMIT,
            "agree": not problems,
            "measurements": [_plain(item) for item in compared],
            "outdated": [one.model_dump() for one in outdated],
        }
        output.data_json(document)
        return code
    if compared:
        output.table(_COLUMNS, [_row(item.measurement, item.predicted, item.deviation) for item in compared])
    else:
        command = options.again(args, "measure")
        output.data(f"Nothing was measured yet for what {wanted.lock_file} has. Measure with: {command}")
    for one in outdated:
        output.info(f"{one.model}: the measurement of {one.date[:10]} on {one.device} is for another command line.")
    if problems:
        output.info("\n".join(problems))
        output.info(
            f"  → Measure again: {options.again(args, 'measure', 'MODEL')}. If it takes more for good, declare that in "
            "the model's file: vram: {declared_mib: N, why: …}"
        )
    return code


def _row(one: Measurement, predicted: int | None, deviation: float | None) -> tuple[str, ...]:
    shown = f"{mib(predicted):,}" if predicted is not None else "-"
    difference = f"{round(deviation, 3) + 0.0:+.1%}" if deviation is not None else "-"  # no -0.0%
    return one.model, one.device, one.source, shown, f"{mib(one.measured):,}", difference


def _plain(item: Compared) -> dict[str, Any]:
    return item.measurement.model_dump(include={"model", "device", "source", "date"}) | {
        "predicted_bytes": item.predicted,
        "declared_bytes": item.declared,
        "measured_bytes": item.measurement.measured,
        "deviation": item.deviation,
        "agrees": not item.problem,
    }
