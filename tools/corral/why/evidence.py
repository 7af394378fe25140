"""The evidence that a local stack and a cluster share: the catalog's names, and what llama-swap reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from corral.engine import log_lines
from corral.engine.command import Command
from corral.engine.llama_swap import LlamaSwap
from corral.engine.log_lines import EngineError
from corral.errors import CannotRun, Refused
from corral.measure import engine_report
from corral.measure.engine_report import Report
from corral.parallel import Result, value_of
from corral.why import history
from corral.why.facts import ModelFacts
from corral.why.history import History


def model_ids(catalog: Path) -> dict[str, str]:
    """The id of each name, id, alias or adapter (MODEL:NAME), of the models in *catalog*.

    Intents are not checked: one that is being edited is still the intent of a model that was started.

    Raises:
        Refused: there is no model.
    """
    found = {path.stem: path for path in sorted((catalog / "models").glob("[!.]*.yaml"))}
    if not found:
        raise Refused(f"The catalog {catalog} has no model.", next_step="Name another with: --catalog DIR")
    others = {name: model for model, path in found.items() for name in _other_names(path)}
    return others | {model: model for model in found}


def _other_names(intent: Path) -> list[str]:
    try:
        document = yaml.load(intent.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        adapters = [f"{intent.stem}:{one['name']}" for one in document.get("adapters", ()) if "name" in one]
        return [*adapters, *(alias for alias in document.get("aliases", ()) if isinstance(alias, str))]
    except (OSError, ValueError, yaml.YAMLError, AttributeError, TypeError):
        return []


def sources(client: LlamaSwap) -> dict[str, Callable[[], Any]]:
    """The sources that llama-swap itself is."""
    return {
        "/running": client.residents,
        "the requests in flight": client.in_flight,
        "the last requests": client.exchanges,
    }


def model_facts(
    name: str,
    model: str,
    found: Mapping[str, Result[Any]],
    commands: Mapping[str, Command],
    histories: Mapping[str, History],
    now: float,
) -> ModelFacts:
    """The facts of *model*, given as *name*, in what was *found* at ``sources``; *now* in seconds since 1970."""
    residents = {one.model: one for one in value_of(found, "/running", ())}
    in_flight = value_of(found, "the requests in flight", ())
    exchanges = value_of(found, "the last requests", ())
    others = [one for one in residents if one != model]
    return ModelFacts(
        name=name,
        id=model,
        command=commands.get(model),
        resident=residents.get(model),
        history=histories.get(model, History()),
        in_flight=tuple(one for one in in_flight if one.model == model),
        refused=tuple(one for one in exchanges if (one.model, one.status) == (model, 429)),
        answered=tuple(one for one in exchanges if (one.model, one.status) == (model, 200)),
        other_models=tuple((other, sum(one.model == other for one in in_flight)) for other in others),
        missing_evidence=problems(found),
        now=now,
    )


def problems(found: Mapping[str, Result[Any]]) -> tuple[str, ...]:
    """A line for each source that gave nothing."""
    return tuple(f"{source}: {one.problem}" for source, one in found.items() if one.problem)


def memory(client: LlamaSwap, model: str) -> Report | None:
    """The buffers of the model's engine by its log; None where it does not hold them, or not where they are."""
    with suppress(CannotRun):
        return engine_report.parse(client.model_log(model))
    return None


def engine_error(client: LlamaSwap, facts: ModelFacts) -> EngineError | None:
    """Why the model's engine ended, by its own log, which llama-swap keeps for a while; None when it is empty."""
    log = log_lines.last_start(client.model_log(facts.id))
    return history.engine_error(log, facts.history) if log else None
