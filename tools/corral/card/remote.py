"""The account of the cards in a cluster, as the exporters of their nodes have it."""

from __future__ import annotations

import re
import shlex
from http import HTTPStatus
from typing import Annotated, NamedTuple

import httpx2
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from corral.cluster import keys
from corral.cluster.client import Cluster, Forbidden
from corral.cluster.exporters import SERVICE, engines_of, find
from corral.cluster.port_forward import forwarded, ready_nodes
from corral.errors import CannotRun
from corral.exporter.account import CardAccount, Row
from corral.exporter.driver import Card
from corral.exporter.recorder import LATEST

_USUAL_NAMESPACE = "corral-exporter"  # of the stack homelab
_LIMIT_S = 10.0
_MOST_OF_A_SENTENCE = 300
_POD = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class Answer(NamedTuple):
    """What an exporter reports: its cards, and the seal of the lock that its promises are from.

    Attributes:
        at: when it began to read, in seconds since 1970 by the clock of *node*.
        node: that it runs on.
        seal: of the lock.
        cards: of the node.
    """

    at: float
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

    @field_validator("holders")
    @classmethod
    def _have_names_of_pods(cls, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """A pod's name becomes a word of a command that a person types."""
        if wrong := [pod for row in rows for pod in row.pods if not _POD.fullmatch(pod)]:
            raise ValueError(f"{wrong[0][:100]!r} is no namespace and name of a pod")
        return rows


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    at: Annotated[float, Field(ge=0, le=LATEST, allow_inf_nan=False)]
    node: str
    seal: str
    cards: tuple[_Card, ...]


def read(cluster: Cluster, *, namespace: str | None = None, of: str | None = None, node: str = "") -> Answer:
    """What the exporter in *namespace* reports now; by default the one for the engines in *of*, else the only one.

    It has a pod on each node with cards; without a *node*, the cards of all whose pod is ready are in the answer, whose
    time and node are the first's.

    Raises:
        CannotRun: there is none, there are several and *namespace* is None, it is not ready, or it gives no account.
        Refused: the user may not list namespaces, not read the operator's key, or not forward a port to the exporter.
    """
    place = namespace or only(cluster, of=of)
    nodes = (node,) if node else ready_nodes(cluster, place, SERVICE)
    answers = [_answer(cluster, place, one) for one in nodes]
    return answers[0]._replace(cards=tuple(card for one in answers for card in one.cards))


def _answer(cluster: Cluster, place: str, node: str) -> Answer:
    content = _get(cluster, place, "/card.json", "account of its cards", node)
    try:
        found = _Document.model_validate_json(content)
    except ValidationError as error:
        raise _no_answer(cluster, place, "account of its cards", error) from None
    return Answer(found.at, found.node, found.seal, tuple(map(_account, found.cards)))


def records(
    cluster: Cluster, since: float, *, namespace: str | None = None, of: str | None = None, node: str = ""
) -> bytes:
    """What the exporter that ``read`` would ask has recorded from *since* (seconds since 1970) on, as JSON lines.

    Raises:
        CannotRun: as ``read``, or it has pods on several nodes, each with its own records, and *node* names none.
        Refused: as ``read``.
    """
    place = namespace or only(cluster, of=of)
    nodes = (node,) if node else ready_nodes(cluster, place, SERVICE)
    if len(nodes) > 1:
        problem = f"The exporter in {place} has records on several nodes: {', '.join(nodes)}."
        raise CannotRun(problem, next_step=f"Name one: --node {nodes[0]}")
    return _get(cluster, place, f"/records?since={max(0.0, since):.0f}", "records", nodes[0])


def _get(cluster: Cluster, namespace: str, path: str, what: str, node: str) -> bytes:
    headers = {"Authorization": f"Bearer {keys.operator_key(cluster, engines_of(cluster, namespace))}"}
    with forwarded(cluster, namespace, SERVICE, port="metrics", node=node) as root:
        try:
            # Loopback: no proxy, and no certificates, which take 30 ms to read.
            response = httpx2.get(f"{root}{path}", headers=headers, timeout=_LIMIT_S, trust_env=False, verify=False)
            response.raise_for_status()
        except httpx2.HTTPError as error:
            raise _no_answer(cluster, namespace, what, error) from None
        return response.content


def _no_answer(cluster: Cluster, namespace: str, what: str, error: httpx2.HTTPError | ValidationError) -> CannotRun:
    message = f"The exporter in {namespace} gave no {what}: {_reason(error)}."
    if isinstance(error, httpx2.HTTPStatusError) and error.response.status_code == HTTPStatus.UNAUTHORIZED:
        message = f"The exporter in {namespace} does not know the operator's key: a new one reaches it in two minutes."
        return CannotRun(message, next_step="Try it again; then: corral apply")
    return CannotRun(message, next_step=cluster.kubectl("logs", f"daemonset/{SERVICE}", namespace=namespace))


def command(cluster: Cluster, namespace: str) -> str:
    """The command that shows what the exporter in *namespace* reports."""
    kubeconfig = ["--kubeconfig", str(cluster.kubeconfig)] if cluster.kubeconfig else []
    return shlex.join(("corral", "card", "--context", cluster.context, "--namespace", namespace, *kubeconfig))


def _search(cluster: Cluster, of: str | None) -> tuple[str, ...]:
    try:
        return (of and find(cluster, of=of)) or find(cluster)
    except Forbidden as error:
        message = f"The exporter is found by the labels of namespaces. {error.message}"
        raise Forbidden(message, next_step=f"Name its namespace: {command(cluster, _USUAL_NAMESPACE)}") from None


def only(cluster: Cluster, *, of: str | None = None) -> str:
    """The namespace of the exporter for the engines in *of*, else of the only one.

    Raises:
        CannotRun: there is none, or there are several.
        Refused: the user may not list namespaces.
    """
    namespaces = _search(cluster, of)
    if len(namespaces) == 1:
        return namespaces[0]
    if namespaces:
        message = f"The cluster (context {cluster.context}) has several exporters, in {', '.join(namespaces)}."
        raise CannotRun(message, next_step=f"Name one: {command(cluster, namespaces[0])}")
    message = f"The cluster (context {cluster.context}) has no exporter, which knows what is held on its cards."
    raise CannotRun(message, next_step="Write card_exporter = {} into terraform.tfvars, then run: corral apply")


def _reason(error: httpx2.HTTPError | ValidationError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the document'}: {first['msg']}"
    if isinstance(error, httpx2.HTTPStatusError):
        sentence = error.response.text.partition("\n")[0][:_MOST_OF_A_SENTENCE].rstrip(".")
        return f"HTTP {error.response.status_code}, {sentence or 'without a reason'}"
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__


def _account(card: _Card) -> CardAccount:
    return CardAccount(card.card, card.vram_bytes, card.driver, card.unknown or "", card.problem or "", card.holders)
