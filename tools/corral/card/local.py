"""The account of the cards of this machine: a lock's promises, and what the local stack and other processes hold."""

from __future__ import annotations

from pathlib import Path

from corral.engine import engine_process, stack
from corral.exporter import account, holders
from corral.exporter.account import CardAccount, CardPromise, ModelPromise
from corral.exporter.attribution import OnThisMachine
from corral.exporter.budgets import Budget
from corral.exporter.holders import Reading
from corral.exporter.yields import Rule
from corral.lock.lock import Lock, LockEntry
from corral.seating import chart as charts
from corral.seating.chart import Chart
from corral.vram.prediction import MIB


def read(lock: Lock, state: Path) -> tuple[CardAccount, ...]:
    """The account of every card of *lock*; engines are those of the local stack of the state folder *state*."""
    return account.of(promises(lock), reading(state))


def reading(state: Path) -> Reading:
    """What the driver of this machine reports; engines are those of the local stack of the state folder *state*."""
    return holders.read(lambda: OnThisMachine(_models(state)))


def promises(lock: Lock) -> dict[str, CardPromise]:
    """What *lock* promises on each of its cards."""
    chart = charts.of(lock)
    return {
        name: CardPromise(
            card.vram_mib * MIB,
            card.reserve_mib * MIB,
            {tenant: mib * MIB for tenant, mib in card.tenants.items()},
            _models_of(name, chart, lock),
        )
        for name, card in chart.cards.items()
    }


def budgets(lock: Lock) -> tuple[Budget, ...]:
    """The latency budgets of all models of *lock*."""
    return tuple(
        Budget(
            entry.intent.card,
            model_id,
            one.consumer,
            one.prompt_tokens,
            one.answer_tokens,
            one.p95_seconds,
            one.cold,
        )
        for model_id, entry in lock.models.items()
        for one in entry.intent.latency
    )


def rules(lock: Lock) -> dict[str, Rule]:
    """When idle models are unloaded, of each card of *lock* where they are."""
    return {
        name: Rule(card.yields.floor_mib * MIB, card.yields.idle_seconds)
        for name, card in lock.cards.items()
        if card.yields
    }


def _models_of(card: str, chart: Chart, lock: Lock) -> dict[str, ModelPromise]:
    groups = chart.cards[card].groups
    return {
        model_id: _promise(lock.models[model_id], group, mib)
        for group, seats in groups.items()
        for model_id, mib in seats.models.items()
    }


def _promise(entry: LockEntry, group: str, mib: int) -> ModelPromise:
    measured = entry.measured.gpu_bytes if entry.measured else None
    return ModelPromise(group, mib * MIB, entry.predicted.gpu_bytes, measured)


def _models(state: Path) -> dict[int, str]:
    """The models of the local stack by the pids of their engines."""
    found = stack.recorded(state)
    seats = {one.pid: engine_process.seated_model(one.pid) for one in found.engines()} if found else {}
    # vLLM computes in a child, whose new name may have overwritten its environment.
    return {each: model for pid, model in seats.items() if model for each in engine_process.family(pid)}
