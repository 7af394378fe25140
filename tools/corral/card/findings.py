"""What the account of a cluster's cards shows to be wrong, as findings beside those of its objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from corral.card import remote
from corral.cluster import exporters
from corral.cluster.client import Cluster, Forbidden
from corral.cluster.finding import Cause, Finding
from corral.errors import CannotRun, Refused
from corral.exporter.account import CardAccount
from corral.vram.prediction import mib


@dataclass(frozen=True)
class OfCards:
    """What is wrong on the cards of a llama-swap, and the bytes that each of its models holds, where that is known."""

    findings: tuple[Finding, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)


def read(cluster: Cluster, *, of: str) -> OfCards:
    """The cards of the llama-swap in the namespace *of*; empty without an exporter for it.

    A user who may not list namespaces has no exporter here.
    """
    try:
        namespaces = exporters.find(cluster, of=of)
    except Forbidden:
        return OfCards()
    except (CannotRun, Refused) as error:
        return OfCards((_unseen(error.message, error.next_step),))
    found: list[Finding] = []
    held: dict[str, int] = {}
    for namespace in namespaces:
        try:
            accounts = remote.read(cluster, namespace=namespace).cards
        except (CannotRun, Refused) as error:
            found.append(_unseen(error.message, cluster.kubectl("get", "pods", "-o", "wide", namespace=namespace)))
            continue
        for account in accounts:
            found += _of_card(account, remote.command(cluster, namespace))
            held |= {row.name: row.held for row in account.rows if row.kind == "model" and row.held is not None}
    return OfCards(tuple(found), held)


def _unseen(problem: str, step: str) -> Finding:
    what = "gives no account: who holds the card is not known."
    return Finding(f"daemonset/{exporters.SERVICE}", what, problem, step, is_stuck=False, cause=Cause.UNSEEN)


def _of_card(account: CardAccount, step: str) -> Iterator[Finding]:
    unknown = [row.name for row in account.rows if row.kind in ("model", "tenant") and row.held is None]
    if account.unknown:
        what = "has holders that are not known."
        yield Finding(f"card/{account.name}", what, account.problem, step, is_stuck=False, cause=Cause.CARD)
    elif unknown:
        what = f"has holders of whom it is not known what they hold: {', '.join(unknown)}."
        yield Finding(f"card/{account.name}", what, account.problem, step, is_stuck=False, cause=Cause.CARD)
    for row in account.over:
        held, promised = mib(row.held or 0), mib(row.promised or 0)
        what = f"holds {held} MiB of the card {account.name}, and was promised {promised} MiB."
        yield Finding(f"{row.kind}/{row.name}", what, "", step, is_stuck=False, cause=Cause.CARD)
    for row in account.rows:
        for part in row.breaks:
            what = f"does not keep to what cards/{account.name}.yaml expects: {part}."
            yield Finding(f"tenant/{row.name}", what, "", step, is_stuck=True, cause=Cause.CARD)
        if row.selected == 0:
            place = f"cards/{account.name}.yaml"
            what = f"has no pod on the node of {account.name}, by its namespace and selector in {place}."
            yield Finding(f"tenant/{row.name}", what, "", step, is_stuck=False, cause=Cause.CARD)
