"""Turns the account of the cards, and what llama-swap reports, into metrics at each scrape.

No label comes from outside: models and tenants are those of the lock (``(other)`` for the rest), programs are limited
to the largest ones.  What is unknown has no series but one that says so.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from math import inf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from . import llama_swap
from .account import FOREIGN, MOST_FOREIGN, OTHER, CardAccount, Row
from .budgets import Budget, Budgets
from .errors import LlamaSwapUnknown
from .llama_swap import Change, LlamaSwap, News, Request, Resident
from .metric_table import DURATIONS_S, METRICS
from .probes import Result

Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily


class Families:
    """The families of one scrape, each made from its line in ``METRICS`` when it has its first series."""

    def __init__(self) -> None:
        self._made: dict[str, Family] = {}

    def add(self, name: str, labels: tuple[str, ...], value: float) -> None:
        """A series of the gauge or counter *name*."""
        family = self._of(name)
        assert not isinstance(family, HistogramMetricFamily)
        family.add_metric(labels, value)

    def add_histogram(self, name: str, labels: tuple[str, ...], one: Histogram) -> None:
        """The series of *one*."""
        family = self._of(name)
        assert isinstance(family, HistogramMetricFamily)
        family.add_metric(labels, buckets=one.buckets(), sum_value=one.sum)

    @contextmanager
    def timed(self, source: str) -> Iterator[None]:
        """The block reads *source*."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add("corral_scrape_seconds", (source,), time.monotonic() - began)

    def all(self) -> list[Metric]:
        """In the order of ``METRICS``."""
        return [self._made[name] for name in METRICS if name in self._made]

    def _of(self, name: str) -> Family:
        if name not in self._made:
            one = METRICS[name]
            kinds = {
                "gauge": GaugeMetricFamily,
                "counter": CounterMetricFamily,
                "histogram": HistogramMetricFamily,
            }
            self._made[name] = kinds[one.type](name, one.help, labels=one.labels)
        return self._made[name]


class Histogram:
    """Counts durations by the bounds of ``DURATIONS_S``."""

    def __init__(self) -> None:
        self._counts = [0] * (len(DURATIONS_S) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count *seconds*."""
        at = next((at for at, most in enumerate(DURATIONS_S) if seconds <= most), len(DURATIONS_S))
        self._counts[at] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound and cumulative count of each bucket."""
        names = [*map(str, DURATIONS_S), "+Inf"]
        return [(name, float(sum(self._counts[: at + 1]))) for at, name in enumerate(names)]


class Served:
    """What was served since the first ``take``, whose requests are older than the exporter and do not count."""

    def __init__(self, models: Collection[str], budgets: Iterable[Budget] = ()) -> None:
        self._models = frozenset(models)
        self._budgets = Budgets(budgets)
        self._news: News[Request] = News()
        self._missed = 0
        self._codes: Counter[tuple[str, str]] = Counter()
        self._failed_loads: Counter[tuple[str, str]] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._durations: dict[str, Histogram] = {}
        self._prompts: dict[str, Histogram] = {}

    def name(self, model: str) -> str:
        """*model*, if the lock has it."""
        return model if model in self._models else OTHER

    def take(self, listed: tuple[Request, ...], ready: Collection[str] = ()) -> None:
        """Add what is new in *listed*, the oldest first: the whole list of llama-swap, whose models *ready* are so."""
        fresh, missed = self._news.take(listed)
        for one in fresh:
            self._add(one)
        self._budgets.take(fresh, ready)
        self._missed += missed

    def lose_sight(self) -> None:
        """Llama-swap is not known: that ends nothing, and begins nothing."""
        self._budgets.lose_sight()

    def _add(self, one: Request) -> None:
        model = self.name(one.model)
        self._codes[model, str(one.status) if 100 <= one.status <= 599 else OTHER] += 1
        if one.load_failure:
            self._failed_loads[model, one.load_failure] += 1
        self._tokens[model, "corral_prompt_tokens"] += one.prompt_tokens
        self._tokens[model, "corral_output_tokens"] += one.output_tokens
        if one.status == 200:
            self._durations.setdefault(model, Histogram()).observe(one.seconds)
        if one.prompt_s is not None:
            self._prompts.setdefault(model, Histogram()).observe(one.prompt_s)

    def write(self, families: Families) -> None:
        """All sums."""
        families.add("corral_missed_requests", (), self._missed)
        # From 0 on, where an alert looks: the increase to a first value is none.
        codes = dict.fromkeys(((model, "429") for model in self._models), 0)
        for (model, code), count in sorted((codes | self._codes).items()):
            families.add("corral_requests", (model, code), count)
        loads = {(model, reason): 0 for model in self._models for reason in llama_swap.LOAD_FAILURES}
        for labels, count in sorted((loads | self._failed_loads).items()):
            families.add("corral_failed_loads", labels, count)
        for budget, count, slow in self._budgets.counted():
            of = (budget.card, budget.model, budget.consumer)
            families.add("corral_latency_budget_seconds", of, budget.seconds)
            families.add("corral_latency_budget_requests", of, count)
            families.add("corral_latency_budget_slow_requests", of, slow)
        for (model, name), count in sorted(self._tokens.items()):
            families.add(name, (model,), count)
        for name, histograms in (
            ("corral_request_duration_seconds", self._durations),
            ("corral_prompt_seconds", self._prompts),
        ):
            for model, one in sorted(histograms.items()):
                families.add_histogram(name, (model,), one)


class Loaded:
    """What was loaded and unloaded since the first ``take``, as ``Served``."""

    def __init__(self, models: Collection[str]) -> None:
        self._models = frozenset(models)
        self._news: News[Change] = News()
        self._missed = 0
        self._loads: Counter[str] = Counter()
        self._unloads: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[tuple[str, str], Histogram] = {}

    def take(self, listed: tuple[Change, ...]) -> None:
        """Add what is new in *listed*, the oldest first: the whole list of the follower."""
        fresh, missed = self._news.take(listed)
        self._missed += missed
        for one in fresh:
            model = one.model if one.model in self._models else OTHER
            if one.cause:
                self._unloads[model, one.cause] += 1
                continue
            self._loads[model] += 1
            if one.seconds is not None:
                self._seconds.setdefault((model, one.page_cache), Histogram()).observe(one.seconds)

    def write(self, families: Families) -> None:
        """All sums."""
        families.add("corral_missed_changes", (), self._missed)
        for model, count in sorted((dict.fromkeys(self._models, 0) | self._loads).items()):
            families.add("corral_loads", (model,), count)
        unloads = {(model, cause): 0 for model in self._models for cause in llama_swap.CAUSES}
        for labels, count in sorted((unloads | self._unloads).items()):
            families.add("corral_unloads", labels, count)
        for labels, one in sorted(self._seconds.items()):
            families.add_histogram("corral_load_seconds", labels, one)


class Exporter(Collector):
    """Reads everything at each scrape, one scrape at a time.

    Args:
        seal: of the lock.
        models: ids of the lock.
        accounts: reads the cards.
        find_llama_swap: the llama-swap that runs now, None: none does; without it, this exporter reads none.
        budgets: the latency budgets of the lock.
        probes: the last results of the deep probe, by model.
        store: gives the metrics of the model store as text; none where another exporter serves them.
        yields: how often models were unloaded for their neighbours, by card, model and reason.
    """

    def __init__(
        self,
        *,
        seal: str,
        models: Collection[str],
        accounts: Callable[[], tuple[CardAccount, ...]],
        find_llama_swap: Callable[[], LlamaSwap | None] | None,
        budgets: Iterable[Budget] = (),
        probes: Callable[[], Mapping[str, Result]] = dict,
        store: Callable[[], str] = str,
        yields: Callable[[], Mapping[tuple[str, str, str], int]] = dict,
    ) -> None:
        self._seal, self._accounts, self._find = seal, accounts, find_llama_swap
        self._probes, self._store, self._yields = probes, store, yields
        self._served, self._loaded = Served(models, budgets), Loaded(models)
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """The families of this moment."""
        families = Families()
        with self._lock:
            families.add("corral_lock_info", (self._seal,), 1)
            with families.timed("driver"):
                accounts = self._accounts()
            for account in accounts:
                _write_account(account, families)
            for labels, count in sorted(self._yields().items()):
                families.add("corral_yields", labels, count)
            if self._find:
                with families.timed("llama-swap"):
                    self._write_llama_swap(self._find(), families)
        yield from families.all()
        yield from text_string_to_metric_families(self._store())

    def _write_llama_swap(self, client: LlamaSwap | None, families: Families) -> None:
        residents: tuple[Resident, ...] = ()
        listed: tuple[Request, ...] = ()
        try:
            if client:
                residents, listed = client.residents(), client.requests()
        except LlamaSwapUnknown:
            client = None
        ready = {one.model for one in residents if one.state == "ready"}
        if client:
            self._served.take(listed, ready)
        else:
            self._served.lose_sight()
        families.add("corral_llama_swap_up", (), 1 if client else 0)
        self._served.write(families)
        if client:
            with suppress(LlamaSwapUnknown):
                self._loaded.take(client.changes())
                self._loaded.write(families)
            with ThreadPoolExecutor(max(1, len(residents))) as pool:  # engines that hang cost one limit together
                read = list(pool.map(partial(_figures, client), residents))
            _write_residents(
                [(self._served.name(one.model), one.state, its) for one, its in zip(residents, read, strict=True)],
                families,
            )
            # The last round may be older than the end of a model.
            probed = [(self._served.name(model), its) for model, its in self._probes().items() if model in ready]
            _write_probes(probed, families)


def _figures(client: LlamaSwap, resident: Resident) -> Mapping[str, float] | None:
    """What the engine of *resident* reports; None: nothing."""
    try:
        return client.engine(resident) if resident.state == "ready" else None
    except LlamaSwapUnknown:
        return None


def _write_residents(found: Iterable[tuple[str, str, Mapping[str, float] | None]], families: Families) -> None:
    """Name, state and figures of each; strangers, which have one name, are summed up by it."""
    states: dict[tuple[str, str], int] = {}
    up: dict[str, int] = {}
    requests: dict[tuple[str, str], float] = {}
    for model, state, figures in found:
        states[model, state] = 1
        if state == "ready":
            up[model] = min(up.get(model, 1), 0 if figures is None else 1)
        for state_of, name in (("busy", "requests_processing"), ("deferred", "requests_deferred")):
            if figures and name in figures:
                requests[model, state_of] = requests.get((model, state_of), 0) + figures[name]
    for labels, is_so in states.items():
        families.add("corral_model_state", labels, is_so)
    for model, answers in up.items():
        families.add("corral_engine_up", (model,), answers)
    for labels, count in requests.items():
        families.add("corral_engine_requests", labels, count)


def _write_probes(found: Iterable[tuple[str, Result]], families: Families) -> None:
    """The result of each name; of strangers, which have one, the worst."""
    # The worst is the last of its name, which stays.
    worst = dict(sorted(found, key=lambda one: inf if one[1].seconds is None else one[1].seconds))
    for model, result in sorted(worst.items()):
        families.add("corral_probe_success", (model,), 0 if result.seconds is None else 1)
        families.add("corral_probe_timestamp_seconds", (model,), result.at)
        if result.seconds is not None:
            families.add("corral_probe_seconds", (model,), result.seconds)


def _write_account(account: CardAccount, families: Families) -> None:
    card = account.name
    if account.unknown:
        families.add("corral_unknown", (card, account.unknown), 1)
    known: dict[str, float | None] = {
        "corral_card_memory_bytes": account.vram,
        "corral_card_used_bytes": account.used,
        "corral_card_free_bytes": account.driver.free if account.driver else None,
        "corral_others_held_bytes": account.others,
        "corral_others_promised_bytes": account.others_promised,
    }
    for name, value in known.items():
        if value is not None:
            families.add(name, (card,), value)
    for row in _bounded(account.rows):
        labels = (card, row.kind, row.name)
        figures = {
            "corral_promised_bytes": row.promised,
            "corral_predicted_bytes": row.predicted,
            "corral_measured_bytes": row.measured,
            "corral_held_bytes": row.held,
            "corral_over_promise_since_timestamp_seconds": row.over_since,
        }
        for name, value in figures.items():
            if value is not None:
                families.add(name, labels, value)
        if row.held is None and row.kind != "reserve":
            families.add("corral_held_unknown", labels, 1)
        if row.selected is not None:
            families.add("corral_tenant_pods", (card, row.name), row.selected)
            families.add("corral_tenant_expectations_broken", (card, row.name), len(row.breaks))
        if row.kind == "model" and row.short is not None:
            families.add("corral_model_short_bytes", (card, row.name), row.short)


def _bounded(rows: tuple[Row, ...]) -> Iterator[Row]:
    """*rows*, where all foreign holders but the ``MOST_FOREIGN`` largest, which come first, are one of each kind."""
    foreign = [row for row in rows if row.kind in FOREIGN]
    yield from (row for row in rows if row.kind not in FOREIGN)
    yield from foreign[:MOST_FOREIGN]
    rest = foreign[MOST_FOREIGN:]
    for kind in sorted(FOREIGN):
        held = [row.held for row in rest if row.kind == kind]
        if held:
            known = [one for one in held if one is not None]
            yield Row(kind, OTHER, held=sum(known) if len(known) == len(held) else None)
