"""The account of the cards in a cluster, as the exporter of their node has it."""

from __future__ import annotations

from typing import NamedTuple

import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

from corral.cluster.client import Cluster
from corral.cluster.port_forward import forwarded
from corral.cluster.snapshot import NAME, labels, namespace_of
from corral.errors import CannotRun
from corral.exporter.account import CardAccount, Row
from corral.exporter.driver import Card

SERVICE = "card-exporter"
_INSTANCE = "app.kubernetes.io/instance"
_LIMIT_S = 10.0


class Answer(NamedTuple):
    """What an exporter reports: the node, the seal of the lock that its promises are from, and its cards."""

    node: str
    seal: str
    cards: tuple[CardAccount, ...]


class _Card(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    card: str
    vram_bytes: int
    driver: Card | None
    unknown: str | None
    problem: str | None
    holders: tuple[Row, ...]


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    node: str
    seal: str
    cards: tuple[_Card, ...]


def find(cluster: Cluster, *, of: str | None = None) -> tuple[str, ...]:
    """The namespaces with an exporter, sorted; *of*: only of those that know the engines of that namespace.

    Raises:
        Refused: the user may not list the Services of all namespaces.
        CannotRun: the API server does not respond.
    """
    services = cluster.items("/api/v1/services", labelSelector=f"{NAME}={SERVICE}")
    return tuple(sorted(namespace_of(one) for one in services if of is None or labels(one).get(_INSTANCE) == of))


def read(cluster: Cluster, *, namespace: str | None = None) -> Answer:
    """What the exporter in *namespace*, by default the only one of the cluster, reports now.

    Raises:
        CannotRun: there is none, there are several and *namespace* is None, it is not ready, or it gives no account.
        Refused: the user may not list Services, or forward a port to the exporter.
    """
    if namespace is None:
        namespace = _only(find(cluster), cluster)
    with forwarded(cluster, namespace, SERVICE, port="metrics") as root:
        try:
            # Loopback: no proxy, and no certificates, which take 30 ms to read.
            response = httpx2.get(f"{root}/card.json", timeout=_LIMIT_S, trust_env=False, verify=False)
            response.raise_for_status()
            found = _Document.model_validate_json(response.content)
        except (httpx2.HTTPError, ValidationError) as error:
            message = f"The exporter in {namespace} gave no account of its cards: {_reason(error)}."
            step = cluster.kubectl("logs", f"daemonset/{SERVICE}", namespace=namespace)
            raise CannotRun(message, next_step=step) from None
    return Answer(found.node, found.seal, tuple(map(_account, found.cards)))


def _only(namespaces: tuple[str, ...], cluster: Cluster) -> str:
    if len(namespaces) == 1:
        return namespaces[0]
    if namespaces:
        message = f"The cluster (context {cluster.context}) has several exporters, in {', '.join(namespaces)}."
        raise CannotRun(message, next_step="Name one with: --namespace NS")
    message = f"The cluster (context {cluster.context}) has no exporter, which knows what is held on its cards."
    raise CannotRun(message, next_step="Write card_exporter = {} into terraform.tfvars, then run: corral apply")


def _reason(error: httpx2.HTTPError | ValidationError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the document'}: {first['msg']}"
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__


def _account(card: _Card) -> CardAccount:
    return CardAccount(card.card, card.vram_bytes, card.driver, card.unknown or "", card.problem or "", card.holders)
