"""The account of the cards in a cluster, as the exporter of their node has it."""

from __future__ import annotations

from typing import NamedTuple

import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

from corral.cluster.client import Cluster
from corral.cluster.port_forward import forwarded
from corral.errors import CannotRun
from corral.exporter.account import CardAccount, Row
from corral.exporter.driver import Card

NAMESPACE = "corral-exporter"
SERVICE = "card-exporter"
_LIMIT_S = 10.0


class Answer(NamedTuple):
    """What an exporter reports: the node, the seal of the lock that its promises are from, and its cards."""

    node: str
    seal: str
    cards: tuple[CardAccount, ...]


class _Driver(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    uuid: str
    name: str
    total: int | None
    free: int | None


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    kind: str
    name: str
    group: str | None = None
    promised: int | None = None
    predicted: int | None = None
    measured: int | None = None
    held: int | None = None
    pids: tuple[int, ...] = ()
    short: int | None = None


class _Card(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    card: str
    vram_bytes: int
    driver: _Driver | None
    unknown: str | None
    problem: str | None
    holders: tuple[_Row, ...]


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    node: str
    seal: str
    cards: tuple[_Card, ...]


def read(cluster: Cluster, *, namespace: str = NAMESPACE) -> Answer:
    """What the exporter in *namespace* reports now.

    Raises:
        CannotRun: there is none, it is not ready, or it gives no account.
        Refused: the user may not forward a port to it.
    """
    with forwarded(cluster, namespace, SERVICE, port="metrics") as root:
        try:
            # Loopback: no proxy, and no certificates, which take 30 ms to read.
            response = httpx2.get(f"{root}/card.json", timeout=_LIMIT_S, trust_env=False, verify=False)
            response.raise_for_status()
            found = _Document.model_validate_json(response.content)
        except (httpx2.HTTPError, ValidationError) as error:
            message = f"The exporter in {namespace} gave no account of its cards: {type(error).__name__}."
            step = cluster.kubectl("-n", namespace, "logs", "daemonset/card-exporter")
            raise CannotRun(message, next_step=step) from None
    return Answer(found.node, found.seal, tuple(map(_account, found.cards)))


def _account(card: _Card) -> CardAccount:
    driver = Card(**card.driver.model_dump()) if card.driver else None
    rows = tuple(Row(**row.model_dump()) for row in card.holders)
    return CardAccount(card.card, card.vram_bytes, driver, card.unknown or "", card.problem or "", rows)
