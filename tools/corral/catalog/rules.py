"""What only all files of a catalog together show: unknown cards and models, unusable flags, whatever stands twice."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping

from corral.catalog import flags, vllm_rules
from corral.catalog.card import Card, Tenant
from corral.catalog.clients import Client
from corral.catalog.intent import LatencyBudget, Model, Task
from corral.catalog.yaml_reader import KeyPath

_OURS = ("llama-swap", "llama-server", "corral")
_SPECULATION = ("spec-default", "spec-type")  # that drafts by other means than a model
_OUR_LABEL = "=llama-swap"
_EVERYBODYS = ("system.slice", "user.slice")
# Of the names that systemd gives to no process: a template without an instance, the root of all slices, no name.
_UNIT = re.compile(r"[^@]+(@.+)?\.service|[^@-]+(-[^@-]+)*\.slice")


def problems(
    models: Mapping[str, Model],
    cards: Mapping[str, Card],
    clients: Mapping[str, Client],
    *,
    model_files: Collection[str],
    card_files: Collection[str],
) -> Iterator[tuple[str, KeyPath, str]]:
    """Each broken rule: the file by its path in the catalog's folder, the key in it, and a sentence.

    Args:
        models: every model that can be read, by id.
        cards: every card that can be read, by name.
        clients: every client, by name.
        model_files: the ids of all models, whether they can be read or not.
        card_files: the names of all cards, in the same way.
    """
    owners: dict[str, str] = {}
    for model_id, model in models.items():
        source = f"models/{model_id}.yaml"
        if model.card and model.cards:
            yield source, ("cards",), f"stands beside card: keep card: {model.card}, or cards alone."
        places = ((("card",), model.card), *((("cards", at), one) for at, one in enumerate(model.cards)))
        for place, named in places:
            if named and named not in card_files:
                known = f"there are: {', '.join(card_files)}" if card_files else "cards/ has none"
                yield source, place, f"there is no card {named}; {known}."
        drafts = model.draft is not None or not model.unsafe.keys().isdisjoint(_SPECULATION)
        for name, value in model.args.items():
            if problem := flags.problem_with(name, value):
                yield source, ("args", name), problem
            elif not drafts and flags.is_for_drafts(name):
                problem = f"{name} is for a draft model, and there is none: add draft, or leave it out."
                yield source, ("args", name), problem
        for name, flag in model.unsafe.items():
            if problem := flags.problem_with(name, flag.value, unsafe=True):
                yield source, ("unsafe", name), problem
        for name in model.args if model.task != "chat" else ():
            if problem := _not_of_task(model.task, name):
                yield source, ("args", name), problem
        for key, names in (("args", model.args), ("unsafe", model.unsafe)):
            for first, second in flags.repeated(names):
                yield source, (key, second), f"{first} and {second} are the same flag: keep one."
        for index, alias in enumerate(model.aliases):
            if alias == model_id:
                yield source, ("aliases", index), f"{alias} is the model's own id: leave it out."
            elif alias in models:
                yield source, ("aliases", index), f"{alias} is the id of another model."
            elif alias in owners:
                yield source, ("aliases", index), f"{alias} is already an alias of {owners[alias]}."
            elif clash := _adapter_of(alias, models):
                yield source, ("aliases", index), f"{alias} is an adapter of {clash}."
            owners.setdefault(alias, model_id)
        if problem := _no_fallback(model_id, models, model_files):
            yield source, ("fallback",), problem
        if model.card in cards:
            yield from ((source, place, problem) for place, problem in vllm_rules.problems(model, cards[model.card]))
        if model.engine == "vllm" and (problem := vllm_rules.no_service(model_id, models)):
            yield source, ("engine",), problem
        others = (one for one, its in models.items() if one != model_id and its.group == model_id)
        for other in others if model.engine == "vllm" else ():
            problem = (
                f"{model_id} is a model that vLLM keeps loaded, alone in the group of its name: name another group."
            )
            yield f"models/{other}.yaml", ("group",), problem
        for index, budget in enumerate(model.latency):
            if problem := _no_consumer(model_id, budget, clients):
                yield source, ("latency", index), problem
    served = {*_OURS, *models, *owners, *(model.group for model in models.values())}
    for card_name, card in cards.items():
        source = f"cards/{card_name}.yaml"
        for one, other in itertools.combinations(card.tenants, 2):
            if same := _same(card.tenants[one], card.tenants[other]):
                what = f"{one} and {other} mean the same {same}; every user of a card is counted once."
                yield source, ("tenants", other), f"{what} Remove one of them."
        for name, tenant in card.tenants.items():
            if tenant.unit and (problem := _no_tenants_unit(tenant.unit)):
                yield source, ("tenants", name, "unit"), problem
            if name in served or _is_ours(tenant):
                what = f"{name} is served from this catalog and has its seat by its lock"
                yield source, ("tenants", name), f"{what}: remove it from the tenants."
    for name, client in clients.items():
        for model_id in client.models or ():
            if model_id not in model_files:
                is_alias = f"; {model_id} is an alias of {owners[model_id]}" if model_id in owners else ""
                what = f"there is no model {model_id}{is_alias}; there are: {', '.join(sorted(model_files))}."
                yield "clients.yaml", ("clients", name, "models"), what


def _adapter_of(alias: str, models: Mapping[str, Model]) -> str:
    """The model that has an adapter which requests name *alias*; empty: none has."""
    model_id, _, name = alias.partition(":")
    names = models[model_id].adapter_names if model_id in models else ()
    return model_id if name in names else ""


def _no_fallback(model_id: str, models: Mapping[str, Model], model_files: Collection[str]) -> str | None:
    """Why the fallback of *model_id* cannot answer in its place; None where it has none, or it can."""
    model = models[model_id]
    if (name := model.fallback) is None:
        return None
    if name not in model_files:
        return f"there is no model {name}; there are: {', '.join(sorted(model_files))}. An alias is no id."
    if (other := models.get(name)) is None:  # its own file is a problem
        return None
    if other.task != model.task:
        return f"the task of {name} is {other.task}, and that of {model_id} {model.task}: it answers other requests."
    if missing := [kind for kind in model.modalities if kind not in other.modalities]:
        return f"{name} takes no {missing[0]}, and {model_id} does: such a request would fail there too."
    path = [model_id]
    while (name := models[path[-1]].fallback if path[-1] in models else None) is not None:
        if name == model_id:
            return f"{' → '.join([*path, name])} is a circle: a request would have no end."
        if name in path:  # a circle without this model, which is a problem of those in it
            return None
        path.append(name)
    return None


def _not_of_task(task: Task, name: str) -> str | None:
    """Why the flag *name* has no meaning for a model of *task*, which is no chat; None where it has one."""
    if flags.is_for_answers(name):
        return f"task is {task}, which has no answers in words: leave {name} out."
    if task == "rerank" and flags.is_spelling_of("pooling", name):
        return "task is rerank, whose pooling is rank always: leave pooling out."
    return None


def _no_consumer(model_id: str, budget: LatencyBudget, clients: Mapping[str, Client]) -> str | None:
    """Why the front door would not let the consumer of *budget* send what it is for; None where it would."""
    if not clients:
        return None
    name = budget.consumer
    if not (client := clients.get(name)):
        return f"there is no client {name} in clients.yaml; there are: {', '.join(sorted(clients))}."
    if client.models and model_id not in client.models:
        return f"{name} may not use {model_id}: its models in clients.yaml are {', '.join(client.models)}."
    if budget.requests_at_once > client.requests:
        return (
            f"requests_at_once is {budget.requests_at_once}, and {name} may have {client.requests} under way at once: "
            f"its requests in clients.yaml."
        )
    return None


def _labels(tenant: Tenant) -> set[str]:
    return set(tenant.selector.split(",")) if tenant.selector else set()


def _is_ours(tenant: Tenant) -> bool:
    is_engine = tenant.unit is not None and tenant.unit.removesuffix(".service") in _OURS
    return is_engine or any(label.endswith(_OUR_LABEL) for label in _labels(tenant))


def _same(one: Tenant, other: Tenant) -> str:
    """What both name, in a word; empty: nothing."""
    if one.unit and one.unit == other.unit:
        return "unit"
    for outer, inner in ((one.unit, other.unit), (other.unit, one.unit)):
        if outer and inner and _is_inside(inner, outer):
            return f"processes (by its name {inner} is in {outer})"
    return "pods" if _same_pods(one, other) else ""


def _is_inside(inner: str, outer: str) -> bool:
    """Whether *inner* is a slice in the slice *outer*: ``a-b.slice`` is in ``a.slice`` (systemd.slice(5))."""
    return inner.endswith(".slice") and outer.endswith(".slice") and inner.startswith(f"{outer[:-6]}-")


def _no_tenants_unit(unit: str) -> str:
    """Why *unit* cannot be the one of a tenant, with what to name instead; empty: it can."""
    if unit in _EVERYBODYS:
        return f"{unit} holds the processes of everybody: name the tenant's own service, or a slice for it alone."
    if not _UNIT.fullmatch(unit):
        return f"no process is in {unit} by systemd: name a service (of a template with its instance), or a slice."
    return ""


def _same_pods(one: Tenant, other: Tenant) -> bool:
    """Whether a pod can be meant by both: labels in any order; no namespace is every one, no selector all of its pods.

    A tenant with neither names no pods.
    """
    if not all(tenant.namespace or tenant.selector for tenant in (one, other)):
        return False
    near = one.namespace == other.namespace or not one.namespace or not other.namespace
    return near and (_labels(one) <= _labels(other) or _labels(other) <= _labels(one))
