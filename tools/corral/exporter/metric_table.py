"""Every metric of the exporter: its name, type, labels and meaning.  docs/metrics.md is made from this table.

Names follow https://prometheus.io/docs/practices/naming/: base units, ``_total`` for what only grows, ``_info`` for
what is 1 and lives in its labels.  A series that would be a guess is left out; ``corral_unknown`` has the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DURATIONS_S = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets of every histogram, in seconds."""


@dataclass(frozen=True)
class Metric:
    """One metric family; a counter's name has no ``_total``, which its series have."""

    name: str
    type: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...]
    help: str

    @property
    def series(self) -> str:
        """The name that a query uses; a histogram's has ``_bucket``, ``_sum`` and ``_count`` after it."""
        return f"{self.name}_total" if self.type == "counter" else self.name


_HOLDER = ("card", "kind", "holder")
_BUDGET = ("card", "model", "consumer")
METRICS = {
    one.name: one
    for one in (
        Metric("corral_lock_info", "gauge", ("seal",), "1; the seal of the lock that the promises are from."),
        Metric("corral_unknown", "gauge", ("card", "reason"), "1 while what is held on the card is unknown."),
        Metric("corral_card_memory_bytes", "gauge", ("card",), "Memory of the card, by the catalog."),
        Metric("corral_card_used_bytes", "gauge", ("card",), "Memory that is taken now, by the driver."),
        Metric("corral_card_free_bytes", "gauge", ("card",), "Memory that a process could get now, by the driver."),
        Metric("corral_promised_bytes", "gauge", _HOLDER, "A model's seat, a tenant's budget, the card's reserve."),
        Metric("corral_predicted_bytes", "gauge", _HOLDER, "What the engine computed for the model's command line."),
        Metric("corral_measured_bytes", "gauge", _HOLDER, "What a card showed of the model once, by the ledger."),
        Metric("corral_held_bytes", "gauge", _HOLDER, "What the holder has on the card now, by the driver."),
        Metric(
            "corral_over_promise_since_timestamp_seconds",
            "gauge",
            _HOLDER,
            "When the holder was first observed beyond its promise, in seconds since 1970; none while it is not.",
        ),
        Metric("corral_held_unknown", "gauge", _HOLDER, "1 for a holder of whom it is not known what it holds."),
        Metric(
            "corral_tenant_expectations_broken",
            "gauge",
            ("card", "tenant"),
            "Expectations that the tenant's pods break.",
        ),
        Metric("corral_tenant_pods", "gauge", ("card", "tenant"), "Pods of the card's node that are the tenant's."),
        Metric("corral_others_held_bytes", "gauge", ("card",), "Held by all that is no model of the lock."),
        Metric("corral_others_promised_bytes", "gauge", ("card",), "Kept for others: budgets and reserve."),
        Metric("corral_model_short_bytes", "gauge", ("card", "model"), "What the card lacks to load the model now."),
        Metric("corral_llama_swap_up", "gauge", (), "1 when llama-swap answered as it should."),
        Metric("corral_model_state", "gauge", ("model", "state"), "1 for the state of a model that has a process."),
        Metric("corral_requests", "counter", ("model", "code"), "Requests that are over, by HTTP status."),
        Metric(
            "corral_failed_loads",
            "counter",
            ("model", "reason"),
            "Requests whose model could not be loaded: its process ended, or was not ready in time.",
        ),
        Metric("corral_loads", "counter", ("model",), "Loads that ended ready."),
        Metric(
            "corral_load_seconds",
            "histogram",
            ("model", "page_cache"),
            "Time of such a load from its start on. What was in the node's page cache of the model's files before it: "
            "warm, 90 % or more; cold, less than 10 %; partial; unknown.",
        ),
        Metric(
            "corral_unloads",
            "counter",
            ("model", "cause"),
            "Ends of models that were ready. idle: its time to live was over; evicted: another model was asked for; "
            "yielded: a neighbour needed memory; requested: by an operator, or with llama-swap; died: its process "
            "ended by itself; unknown.",
        ),
        Metric("corral_missed_changes", "counter", (), "Loads and unloads that were not read in time."),
        Metric("corral_request_duration_seconds", "histogram", ("model",), "Requests that were answered with 200."),
        Metric("corral_prompt_seconds", "histogram", ("model",), "Time that the engine took for the prompt."),
        Metric("corral_prompt_tokens", "counter", ("model",), "Tokens of prompts that were not in a cache."),
        Metric("corral_output_tokens", "counter", ("model",), "Tokens of answers."),
        Metric(
            "corral_latency_budget_seconds",
            "gauge",
            _BUDGET,
            "Time within which 95 of 100 requests of the consumer must be answered.",
        ),
        Metric("corral_latency_budget_requests", "counter", _BUDGET, "Answered requests that the budget is about."),
        Metric("corral_latency_budget_slow_requests", "counter", _BUDGET, "Those of them that took longer than it."),
        Metric("corral_missed_requests", "counter", (), "Requests that left llama-swap's list before they were read."),
        Metric(
            "corral_yields",
            "counter",
            ("card", "model", "reason"),
            "How often the model was unloaded because a neighbour needed memory: free-below-floor or tenant-waits.",
        ),
        Metric("corral_engine_requests", "gauge", ("model", "state"), "Requests that an engine has: busy or deferred."),
        Metric("corral_engine_up", "gauge", ("model",), "1 when the engine of a loaded model answered in time."),
        Metric("corral_probe_success", "gauge", ("model",), "1 when the loaded model gave its last probe an answer."),
        Metric("corral_probe_seconds", "gauge", ("model",), "Time of that answer."),
        Metric("corral_probe_timestamp_seconds", "gauge", ("model",), "When that probe ended, in seconds since 1970."),
        Metric("corral_scrape_seconds", "gauge", ("source",), "Time that reading a source took."),
    )
}
"""By name."""
