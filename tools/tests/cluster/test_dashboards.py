"""Grafana's dashboards: a real Prometheus answers each query, with the labels that its legend names.

The exporter's code is real; its driver and its llama-swap are the test's.  Grafana itself can be had nowhere here.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from corral import paths
from corral.agent import store_metrics
from corral.agent.store_state import ModelState, StoreState
from corral.drill.alert_rules import render_rules
from corral.drill.monitoring import installed, monitoring
from corral.exporter import account
from corral.exporter.budgets import Budget
from corral.exporter.llama_swap import Change, Request, Resident
from corral.exporter.metrics import Exporter
from corral.exporter.probes import Result
from corral.exporter.server import serving
from tests.support.cluster.pods import eventually
from tests.support.engine_process import get
from tests.support.recorded import PROMISES, reading

FOLDER = paths.REPOSITORY / "terraform" / "modules" / "alerts" / "dashboards"
DASHBOARDS = {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}
PANELS = [(name, panel) for name, one in DASHBOARDS.items() for panel in one["panels"]]
SEAL = "0" * 64
VARIABLES = {"$__rate_interval": "10s", "$card": ".*", "$model": ".*", "$store": ".*"}
STORE = StoreState(100, 40, 10, 1, (ModelState("chat", "ready", 30, 20),))
pytestmark = pytest.mark.timeout(240)


class LlamaSwap:
    """Three requests more at each reading: one that is answered, one that is refused, one whose load fails."""

    def __init__(self):
        self._numbers, self._listed, self._changes = itertools.count(1), [], []

    def residents(self):
        return (Resident("chat", "ready", "http://127.0.0.1:1"),)

    def engine(self, _resident):
        return {"requests_processing": 1.0, "requests_deferred": 0.0}

    def changes(self):
        """A load more at each reading, and an unload."""
        for one in (Change(0, 1.0, "chat", 1.5, "warm"), Change(0, 1.0, "chat", cause="evicted")):
            self._changes.append(replace(one, number=len(self._changes) + 1))
        return tuple(self._changes)

    def requests(self):
        for status, failure in ((200, ""), (429, ""), (500, "process-ended")):
            number = next(self._numbers)
            self._listed.append(Request(number, "chat", status, 0.7, 0.3, 12, 8, failure, str(number), 0))
        return tuple(self._listed[-900:])


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """Answers a query of the API of a Prometheus that has scraped the exporter, with its rules."""
    grown = reading(immich_ml=10726, frigate=None, free=1900)
    client = LlamaSwap()
    exporter = Exporter(
        seal=SEAL,
        models=["chat"],
        accounts=lambda: account.of(PROMISES, grown),
        find_llama_swap=lambda: client,
        budgets=[Budget("t4", "chat", "desk", prompt_tokens=20, answer_tokens=20, seconds=0.5, cold="allowed")],
        probes=lambda: {"chat": Result(0.2, time.time())},
        store=lambda: store_metrics.text("llama-cpp", STORE, SEAL),
    )
    rules, inhibit = render_rules(["t4"], tmp_path_factory.mktemp("alerts") / "module", SEAL)
    folder = tmp_path_factory.mktemp("monitoring")
    with (
        serving(("127.0.0.1", 0), exporter, dict) as server,
        monitoring(folder, [f"127.0.0.1:{server.server_port}"], rules, inhibit, installed(), every_s=2) as receiver,
    ):

        def ask(path, **parameters):
            status, text = get(f"{receiver.prometheus}/api/v1/{path}?{urlencode(parameters)}")
            return json.loads(text)["data"] if status == 200 else {"error": text}

        assert receiver.first(lambda one: one.name == "CorralTenantOverBudget", limit_s=120)
        yield ask


def filled(query):
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query
    return query


def labels_of(answer):
    return set().union(*(one["metric"] for one in answer["result"]))


def test_there_are_dashboards_of_several_panels():
    assert {name: len(one["panels"]) > 5 for name, one in DASHBOARDS.items()} == dict.fromkeys(
        ("card", "incident", "models", "store"), True
    )


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=[f"{name}-{panel['title']}" for name, panel in PANELS])
def test_each_query_is_answered_with_the_labels_of_its_legend(prometheus, name, panel):
    (target,) = panel["targets"]
    query, wanted = filled(target["expr"]), set(re.findall(r"{{(\w+)}}", target["legendFormat"]))

    answer = eventually(  # an alert has its labels once it fires, one before the other
        lambda: prometheus("query", query=query),
        lambda found: "error" in found or (found["result"] and wanted <= labels_of(found)),
        limit_s=60,
    )

    assert "error" not in answer, answer
    assert all(float(one["value"][1]) == float(one["value"][1]) for one in answer["result"])  # no NaN


@pytest.mark.parametrize("name", DASHBOARDS)
def test_each_variable_has_values_and_is_used_and_annotations_are_alerts(prometheus, name):
    dashboard = DASHBOARDS[name]
    texts = json.dumps(dashboard["panels"]) + json.dumps(dashboard["annotations"])
    for variable in dashboard["templating"]["list"]:
        used = f"${variable['name']}" in texts or f"${{{variable['name']}}}" in texts
        assert used, variable["name"]
        if found := re.fullmatch(r"label_values\((\w+), (\w+)\)", str(variable.get("query"))):
            assert prometheus(f"label/{found[2]}/values", **{"match[]": found[1]})
    (annotation,) = dashboard["annotations"]["list"]
    assert prometheus("query", query=annotation["expr"])["result"]
