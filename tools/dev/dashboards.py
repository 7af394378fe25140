"""Write Grafana's dashboards, terraform/modules/alerts/dashboards/*.json, with Grafana's own SDK.

python tools/dev/dashboards.py            exit 1 when one is out of date
python tools/dev/dashboards.py --write    bring them up to date

tests/cluster/test_dashboards.py has every query answered by a real Prometheus.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard, prometheus, statetimeline, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef

FOLDER = Path(__file__).resolve().parents[2] / "terraform" / "modules" / "alerts" / "dashboards"
_PROMETHEUS = DataSourceRef(type_val="prometheus", uid="${datasource}")
_ALERTS = 'ALERTS{alertname=~"Corral.+", alertstate="firing"}'
_RATE = "[$__rate_interval]"


def _of_card(metric: str) -> str:
    return f'{metric}{{card=~"$card"}}'


def _of_model(metric: str) -> str:
    return f'{metric}{{model=~"$model"}}'


def _of_store(metric: str) -> str:
    return f'{metric}{{store=~"$store"}}'


def _quantile(share: float, metric: str) -> str:
    buckets = _of_model(f"{metric}_bucket")
    return f"histogram_quantile({share}, sum by (model, le) (rate({buckets}{_RATE})))"


def _of_an_hour(metric: str) -> str:
    return f"sum by (model, page_cache) (increase({_of_model(metric)}[1h]))"


_HELD = f"max by (card, holder) ({_of_card('corral_held_bytes')})"
_PROMISED = f"max by (card, holder) ({_of_card('corral_promised_bytes')})"
_FREE = f"max by (card) ({_of_card('corral_card_free_bytes')})"
_CACHED = f"max by (model) ({_of_store('corral_store_model_cached_bytes')})"
_SIZE = f"max by (model) ({_of_store('corral_store_model_bytes')})"
_SLOW, _ASKED = (
    f"sum by (model, consumer) (increase({_of_model(f'corral_latency_budget_{name}_total')}[1h]))"
    for name in ("slow_requests", "requests")
)
_LOAD = f"{_of_an_hour('corral_load_seconds_sum')} / ({_of_an_hour('corral_load_seconds_count')} > 0)"
_ANSWER, _PROMPT = "corral_request_duration_seconds", "corral_prompt_seconds"

# Each dashboard: its title, its variable with a metric that has its values, and its panels: title, unit, query, legend.
# A panel without a unit shows states over time.
DASHBOARDS = {
    "card": (
        "who holds the card",
        ("card", "corral_card_memory_bytes"),
        (
            ("Held", "bytes", _HELD, "{{holder}}"),
            ("Free", "bytes", _FREE, "{{card}}"),
            ("Held beyond the promise", "bytes", f"{_HELD} - {_PROMISED} > 0", "{{holder}}"),
            ("Missing for a load", "bytes", f"max by (model) ({_of_card('corral_model_short_bytes')})", "{{model}}"),
            ("Promised", "bytes", _PROMISED, "{{holder}}"),
            ("Unknown holders", "short", f"count by (kind) ({_of_card('corral_held_unknown')})", "{{kind}}"),
        ),
    ),
    "models": (
        "models",
        ("model", "corral_requests_total"),
        (
            ("State", "", f"max by (model, state) ({_of_model('corral_model_state')})", "{{model}} {{state}}"),
            (
                "Loads in an hour",
                "short",
                f"sum by (model) (increase({_of_model('corral_loads_total')}[1h]))",
                "{{model}}",
            ),
            (
                "Unloads in an hour",
                "short",
                f"sum by (model, cause) (increase({_of_model('corral_unloads_total')}[1h]))",
                "{{model}} {{cause}}",
            ),
            ("Time of a load, the mean of an hour", "s", _LOAD, "{{model}} {{page_cache}}"),
            (
                "Requests",
                "reqps",
                f"sum by (model, code) (rate({_of_model('corral_requests_total')}{_RATE}))",
                "{{model}} {{code}}",
            ),
            (
                "Tokens of answers in a second",
                "short",
                f"sum by (model) (rate({_of_model('corral_output_tokens_total')}{_RATE}))",
                "{{model}}",
            ),
            ("Half of the answers within", "s", _quantile(0.5, _ANSWER), "{{model}}"),
            ("95 % of the answers within", "s", _quantile(0.95, _ANSWER), "{{model}}"),
            ("95 % of the prompts within", "s", _quantile(0.95, _PROMPT), "{{model}}"),
            (
                "Requests in the engine",
                "short",
                f"max by (model, state) ({_of_model('corral_engine_requests')})",
                "{{model}} {{state}}",
            ),
            (
                "Burn rate of latency budgets in the last hour: 1 is what they allow, 20 is all requests",
                "short",
                f"{_SLOW} / {_ASKED} / 0.05",
                "{{model}} {{consumer}}",
            ),
            ("Time of the last probe", "s", f"max by (model) ({_of_model('corral_probe_seconds')})", "{{model}}"),
        ),
    ),
    "store": (
        "the model store",
        ("store", "corral_store_up"),
        (
            ("Room that is left", "bytes", f"min by (store) ({_of_store('corral_store_free_bytes')})", "{{store}}"),
            (
                "Content that no model links to",
                "bytes",
                f"max by (store) ({_of_store('corral_store_unlinked_bytes')})",
                "{{store}}",
            ),
            (
                "State",
                "",
                f"max by (model, state) ({_of_store('corral_store_model_state')})",
                "{{model}} {{state}}",
            ),
            ("In the page cache", "percentunit", f"{_CACHED} / {_SIZE}", "{{model}}"),
            ("Size of the files", "bytes", _SIZE, "{{model}}"),
            (
                "Files that are being downloaded",
                "short",
                f"max by (store) ({_of_store('corral_store_downloads')})",
                "{{store}}",
            ),
        ),
    ),
    "incident": (
        "an incident",
        ("card", "corral_card_memory_bytes"),
        (
            (
                "Alerts",
                "",
                f"max by (alertname, card, model, holder, culprit) ({_ALERTS})",
                "{{alertname}} {{model}}{{holder}} {{culprit}}",
            ),
            ("Held", "bytes", _HELD, "{{holder}}"),
            ("Free", "bytes", _FREE, "{{card}}"),
            (
                "Requests that failed",
                "reqps",
                f'sum by (model, code) (rate(corral_requests_total{{code!="200"}}{_RATE}))',
                "{{model}} {{code}}",
            ),
            (
                "Loads that failed",
                "reqps",
                f"sum by (model, reason) (rate(corral_failed_loads_total{_RATE}))",
                "{{model}} {{reason}}",
            ),
            ("Engines that answer", "short", "min by (model) (corral_engine_up)", "{{model}}"),
        ),
    ),
}


def build(name: str) -> str:
    """The dashboard *name*, as JSON; each has the alerts as annotations."""
    title, (variable, metric), panels = DASHBOARDS[name]
    alerts = dashboard.AnnotationQuery().name("Alerts").datasource(_PROMETHEUS).enable(True).icon_color("red")
    values = dashboard.QueryVariable(variable).query(f"label_values({metric}, {variable})").datasource(_PROMETHEUS)
    built = (
        dashboard.Dashboard(f"corral: {title}")
        .uid(f"corral-{name}")
        .tags(["corral"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
        .with_variable(values.include_all(True).multi(True))
        .annotation(alerts.expr(_ALERTS))
    )
    for panel in panels:
        built = built.with_panel(_panel(*panel))
    return f"{JSONEncoder(sort_keys=True, indent=2).encode(built.build())}\n"


def _panel(title: str, unit: str, query: str, legend: str) -> timeseries.Panel | statetimeline.Panel:
    panel = timeseries.Panel().unit(unit).min(0).span(12) if unit else statetimeline.Panel().span(24)
    target = prometheus.Dataquery().expr(query).legend_format(legend)
    return panel.title(title).datasource(_PROMETHEUS).height(8).with_target(target)


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when the files are up to date or were written, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write them instead of comparing them")
    args = parser.parse_args(argv)
    texts = {FOLDER / f"{name}.json": build(name) for name in DASHBOARDS}
    present = {file: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.json")}
    if args.write:
        FOLDER.mkdir(exist_ok=True)
        for file in present.keys() - texts.keys():
            file.unlink()
        for file, text in texts.items():
            file.write_text(text, encoding="utf-8")
    elif present != texts:
        print(f"{FOLDER} is out of date. Run: make fix", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
