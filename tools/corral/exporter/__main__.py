"""``python3 -m exporter CONFIG``: the exporter of one machine with a card, until SIGTERM.

In a cluster ``NODE_NAME`` in the environment names the node, and Kubernetes' own variables the API server.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import account, driver, expectations, holders, replay
from .account import CardAccount
from .alertmanager import Alertmanager
from .attribution import Attribution, OnHost, OnNode
from .config import Config, read_config
from .errors import Misconfigured
from .holders import Reading
from .keys import OperatorKeys
from .llama_swap import LlamaSwap
from .metrics import Exporter
from .pods import ApiServer, Pod, PodNames
from .probes import Probes
from .recorder import Recorder
from .server import serve_until_signal
from .yields import Yields


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM; 2: the configuration cannot be used, 3: the address cannot."""
    parser = argparse.ArgumentParser(prog="python3 -m exporter", description=__doc__)
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the configuration, as the package describes it")
    parser.add_argument("--check", action="store_true", help="only read the configuration")
    args, node = parser.parse_args(argv), os.environ.get("NODE_NAME", "")
    try:
        config = read_config(args.config)
    except Misconfigured as error:
        print(f"exporter: {error}", file=sys.stderr)  # noqa: T201 - a program of its own
        return 2
    if args.check:
        return 0
    if config.engines and not node:
        print("exporter: NODE_NAME is not set: it is the node whose cards are read.", file=sys.stderr)  # noqa: T201
        return 2
    cards = NodeCards(config, node) if config.engines else HostCards(config)
    find_llama_swap = cards.find_llama_swap if config.door else None
    probes = Probes(cards.find_llama_swap)
    yields = Yields(
        config.yields if config.door else {},
        promises=config.promises,
        accounts=cards.accounts,
        find_door=cards.find_llama_swap,
    )
    recorder = Recorder(
        config.records,
        seal=config.seal,
        promises=config.promises,
        read=cards.reading,
        find_llama_swap=find_llama_swap,
        alertmanager=Alertmanager(config.alertmanager) if config.alertmanager else None,
        take_yields=yields.take,
    )
    exporter = Exporter(
        seal=config.seal,
        models=config.models,
        accounts=cards.accounts,
        find_llama_swap=find_llama_swap,
        budgets=config.budgets,
        probes=lambda: probes.results,
        yields=yields.counts,
    )
    try:
        serve_until_signal(
            (config.host, config.port),
            exporter,
            cards.as_json,
            lambda port: print(f"exporter: listening on port {port}", flush=True),  # noqa: T201
            beside=(probes.running(), recorder.running(), yields.running()),
            recorder=recorder,
            keys=OperatorKeys(config.operator_keys, _print_key(config)),
        )
    except OSError as error:
        print(f"exporter: It cannot listen: {error}.", file=sys.stderr)  # noqa: T201
        return 3
    return 0


class HostCards:
    """The cards of this machine, each tenant by its unit of systemd."""

    def __init__(self, config: Config, node: str = "") -> None:
        self._config = config
        self._node = node or os.uname().nodename
        self._excesses = replay.continued(config.records, time.time())

    def accounts(self) -> tuple[CardAccount, ...]:
        """The account of each card now."""
        return self._excesses.dated(account.of(self._config.promises, self.reading()))

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        seal = self._config.seal
        return {
            "at": time.time(),
            "node": self._node,
            "seal": seal,
            "cards": [one.as_json() for one in self.accounts()],
        }

    def find_llama_swap(self) -> LlamaSwap | None:
        """None: llama-swap is not read without Kubernetes."""
        return None

    def reading(self) -> Reading:
        """What the driver reports now, each process with its owner."""
        return holders.read(
            self._attribution, pid_namespace=self._config.driver_pid_namespace or driver.FIRST_PID_NAMESPACE
        )

    def _attribution(self) -> Attribution:
        tenants = {name: unit for card in self._config.tenant_units.values() for name, unit in card.items()}
        return OnHost(tenants, self._config.engine_units, self._config.models)


class NodeCards(HostCards):
    """The cards of this node of a cluster, each tenant by its pods."""

    def __init__(self, config: Config, node: str) -> None:
        super().__init__(config, node)
        variables = {name for card in config.expects.values() for one in card.values() for name in one}
        self._names = PodNames(ApiServer(node, variables=variables).pods)

    def accounts(self) -> tuple[CardAccount, ...]:
        """The account of each card now, with the pods of its tenants."""
        return tuple(map(self._with_selected, super().accounts()))

    def find_llama_swap(self) -> LlamaSwap | None:
        """The llama-swap of this node, by its front door; None: no pod of it runs here, or there is no key for it."""
        door, engines = self._config.door, self._config.engines
        assert door
        assert engines
        try:
            key = door.key_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):  # `corral apply` makes it, and the kubelet brings it within two minutes
            return None
        pods = [pod for pod in (self._names.by_uid() or {}).values() if engines.selects(pod) and not pod.has_ended]
        at = max((pod for pod in pods if pod.ip), key=lambda pod: pod.name, default=None)
        if not key or at is None:
            return None
        address = f"[{at.ip}]" if ":" in at.ip else at.ip
        headers = {"Host": door.host, "Authorization": f"Bearer {key}"}
        return LlamaSwap(f"http://{address}:{door.port}", headers, is_door=True)

    def _with_selected(self, one: CardAccount) -> CardAccount:
        pods, tenants = self._names.by_uid(), self._config.tenants[one.name]
        if pods is None:
            return one
        running, is_old = [pod for pod in pods.values() if not pod.has_ended], bool(self._names.problem)
        selected = {name: tuple(filter(one.selects, running)) for name, one in tenants.items() if one}
        expects = self._config.expects[one.name]
        rows = (
            replace(
                row,
                selected=len(found),
                breaks=_breaks(expects.get(row.name, {}), found),
                waiting=None if is_old else sum(pod.waits for pod in found),
            )
            if row.kind == "tenant" and (found := selected.get(row.name)) is not None
            else row
            for row in one.rows
        )
        return replace(one, rows=tuple(rows))

    def _attribution(self) -> Attribution:
        assert self._config.engines
        tenants = {name: one for card in self._config.tenants.values() for name, one in card.items()}
        pods = self._names.by_uid()
        return OnNode(pods, tenants, self._config.engines, self._config.models, self._names.problem)


def _print_key(config: Config) -> str:
    """The command that prints the operator's key; ``corral.keys`` and ``corral.cluster.keys`` write it."""
    if not config.engines:
        return 'cat "${CORRAL_STATE:-.corral}/keys/operator.key"'
    words = f"kubectl -n {config.engines.namespace} get secret corral-keys -o jsonpath='{{.data.operator}}'"
    return f"{words} | base64 -d"


def _breaks(expected: Mapping[str, str], pods: Sequence[Pod]) -> tuple[str, ...]:
    """What *pods* are set to against *expected*, each once."""
    found = (part for pod in pods for part in expectations.broken(expected, pod.variables))
    return tuple(dict.fromkeys(found))


if __name__ == "__main__":
    sys.exit(main())
