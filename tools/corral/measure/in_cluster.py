"""Measures a model of a llama-swap in a cluster, by what the exporter of its card's node has from NVIDIA's driver.

The exporter reads the driver outside of all containers and knows the pod of each process.  In the engine's own pod
nvidia-smi has other pids, and may list no process at all: it is not asked there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from corral.catalog.intent import Model
from corral.engine.llama_swap import LlamaSwap
from corral.errors import CannotRun
from corral.exporter.account import CardAccount, Row
from corral.lock.lock import LockEntry
from corral.measure import engine_report
from corral.measure.live import Reading, ServedModel, require_locked_command, require_locked_files

_LIMIT_S = 45.0  # the exporter's list of pods is up to 15 s old, and its reading may take some
_PAUSE_S = 0.5
_APPLY = "corral apply"
_DEPLOY = "Write card_exporter = {} into terraform.tfvars, then run: corral apply"


class Sample(Protocol):
    """What an exporter reports: when it began to read, in seconds since 1970 by its own clock, its node, its cards."""

    @property
    def at(self) -> float: ...
    @property
    def node(self) -> str: ...
    @property
    def cards(self) -> tuple[CardAccount, ...]: ...


class Engine(NamedTuple):
    """The process of a model on a card, by its driver: the card's name, the pid on the node, and bytes."""

    device: str
    pid: int
    size: int


@dataclass(frozen=True)
class NodeDriver:
    """The driver of the node that a model runs on, through the exporter there.

    Attributes:
        model_id: of the model.
        card: that the catalog gives it.
        pod: ``NAMESPACE/NAME`` of the llama-swap that gets the requests.
        node: of that pod.
        read: a sample of the exporter; raises CannotRun or Refused where there is none.
        account: the command that shows what the exporter reports.
        try_driver: the command that asks the driver on the node.
        again: the command that measures the model.
        limit_s: how long a sample that is new enough, and lists the engine, is waited for.
    """

    model_id: str
    card: str
    pod: str
    node: str
    read: Callable[[], Sample]
    account: str
    try_driver: str
    again: str
    limit_s: float = _LIMIT_S

    def sample(self) -> tuple[float, CardAccount]:
        """The time of a sample, and the account of the model's card in it.

        Raises:
            CannotRun: the exporter is on another node, does not have the card, or gets nothing from the driver; or as
                ``read``.
            Refused: as ``read``.
        """
        found = self.read()
        if found.node != self.node:
            raise CannotRun(
                f"No exporter reads the card of {self.model_id}: its pod {self.pod} is on the node {self.node}, "
                f"and the exporter that answers on {found.node}.",
                next_step=f"cards/{self.card}.yaml must name the node. {_DEPLOY}",
            )
        card = next((one for one in found.cards if one.name == self.card), None)
        if card is None:
            names = ", ".join(one.name for one in found.cards) or "none"
            problem = f"The exporter on the node {self.node} has no card {self.card}, which the lock gives "
            raise CannotRun(f"{problem}{self.model_id}; it has: {names}.", next_step="corral apply")
        if card.unknown or card.driver is None:
            reason = card.problem or "it gives no reason."
            problem = f"The exporter on the node {self.node} gets no figures from NVIDIA's driver: {reason}"
            raise CannotRun(problem, next_step=self.try_driver)
        return found.at, card

    def engine(self, *, after: float | None = None) -> Engine:
        """The engine of the model, by the first sample later than *after* (None: any) that lists it.

        Raises:
            CannotRun: there is no such sample within ``limit_s`` seconds, the driver has no figure for it, or the model
                has several engines or one in another pod; or as ``sample``.
            Refused: as ``read``.
        """
        ends = time.monotonic() + self.limit_s
        while True:
            at, card = self.sample()
            if after is not None and at <= after:
                late = self._is_old(at)
            elif (row := self._row(card)).pids or row.held is not None:
                return self._counted(card, row)
            else:  # the exporter's list of pods may be older than the pod
                late = self._is_unknown(card)
            if time.monotonic() >= ends:
                raise late
            time.sleep(_PAUSE_S)

    def _row(self, card: CardAccount) -> Row:
        rows = [row for row in card.rows if (row.kind, row.name) == ("model", self.model_id)]
        if len(rows) == 1:
            return rows[0]
        problem = f"The exporter on the node {self.node} does not know {self.model_id}: it has another lock."
        raise CannotRun(problem, next_step="corral apply")

    def _is_old(self, at: float) -> CannotRun:
        return CannotRun(
            f"The exporter on the node {self.node} has no sample from after the largest request to {self.model_id}: "
            f"within {self.limit_s:g} s its last one stayed that of {_shown(at)}.",
            next_step=self.account,
        )

    def _is_unknown(self, card: CardAccount) -> CannotRun:
        problem = f"Which process on the card {self.card} is the engine of {self.model_id} is not known. "
        return CannotRun(f"{problem}{card.problem}".rstrip(), next_step=self.account)

    def _counted(self, card: CardAccount, row: Row) -> Engine:
        if not row.pids:
            raise CannotRun(
                f"The driver of the node {self.node} lists no process of {self.model_id} on the card {self.card}: "
                "its engine is not there any more, or does not use the card.",
                next_step=self.account,
            )
        pids, pods = ", ".join(map(str, row.pids)), " and ".join(row.pods) or "a pod that is not known"
        if len(row.pids) > 1:
            raise CannotRun(
                f"The driver lists {len(row.pids)} engines of {self.model_id} (pids {pids}, in {pods}), "
                "and the exporter has only their sum.",
                next_step=f"Wait until one is left: {self.account}",
            )
        if row.pods != (self.pod,):
            problem = f"The engine of {self.model_id} on the card (pid {pids}) is in {pods}, not in {self.pod}, "
            raise CannotRun(f"{problem}which has got the requests.", next_step=self.again)
        if row.held is None or row.held <= 0:
            problem = f"The driver reports no amount that the engine of {self.model_id} (pid {pids}) holds. "
            raise CannotRun(f"{problem}{card.problem}".rstrip(), next_step=self.try_driver)
        assert card.driver
        return Engine(card.driver.name, row.pids[0], row.held)


class ModelInCluster:
    """One model of a llama-swap in a cluster."""

    def __init__(
        self, client: LlamaSwap, served: ServedModel, driver: NodeDriver, model: Model, entry: LockEntry
    ) -> None:
        self._client, self._served, self._driver = client, served, driver
        self._id, self._model, self._entry = driver.model_id, model, entry

    def read(self, *, reload: bool = False) -> Reading:
        """What it takes by the driver of its node, loading it first when it is not resident.

        Args:
            reload: unload it first; its responses are cut off.

        Raises:
            Refused: what runs is not what the lock has, or the user may not read the exporter.
            Failed: it could not be loaded, or gave no response.
            CannotRun: what it takes is not known; the message has the reason, and is never a number.
        """
        require_locked_files(self._client, self._id, self._entry, apply=_APPLY)
        self._driver.sample()  # before a load, which unloads other models
        if reload:
            self._client.unload(self._id)
        self._served.loaded()
        self._require_locked_command()
        before = self._driver.engine()
        # Pools and the projector grow with use: a seat must hold the largest request, not the first.
        self._served.fill(self._model)
        at, _ = self._driver.sample()  # a sample that is later than this one was begun after the request
        found = self._driver.engine(after=at)
        self._require_locked_command()
        if found.pid != before.pid:
            problem = f"{self._id} was loaded anew while it was measured (pid {before.pid}, then {found.pid})."
            raise CannotRun(problem, next_step=self._served.again)
        return Reading(found.device, "nvidia-smi", found.size, self._host_bytes())

    def _host_bytes(self) -> int | None:
        """The engine's own buffers in host memory, which it names only where its `args` set the verbosity for it."""
        with suppress(CannotRun):
            report = engine_report.parse(self._client.model_log(self._id))
            return report.host if report else None
        return None

    def _require_locked_command(self) -> None:
        require_locked_command(self._client, self._id, self._entry.argv, again=self._served.again, apply=_APPLY)


def _shown(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
