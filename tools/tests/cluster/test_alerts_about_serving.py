"""The alerts about llama-swap and its engines: from the exporter of a node to a webhook, each with its runbook."""

from __future__ import annotations

import json
import threading
import time
from urllib.parse import urlencode

import pytest

from corral.cluster.client import connect
from corral.cluster.port_forward import forwarded
from tests.support.cluster import watched
from tests.support.cluster.alerting import active, notified, receiving, signal_engine, statuses_of_requests
from tests.support.cluster.follower import Follower
from tests.support.cluster.pods import eventually
from tests.support.cluster.watched import MODEL, NAMESPACE
from tests.support.engine_process import get, post, question

pytestmark = pytest.mark.timeout(420, func_only=True)  # what makes the lab has limits of its own


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    with watched.watched(cluster, tmp_path_factory.mktemp("alerts")) as lab:
        watched.install_driver(lab)
        watched.start_frigate(lab)
        watched.deploy_tenant(lab, MACHINE_LEARNING_MODEL_TTL="600")
        yield lab


@pytest.fixture(scope="module")
def receiver(lab, tmp_path_factory):
    with receiving(lab, tmp_path_factory.mktemp("monitoring")) as receiver:
        yield receiver


def test_an_engine_that_hangs_is_an_alert_until_the_runbook_has_ended_it(lab, receiver):
    lab.corral("smoke", MODEL)
    before = len(receiver.all)
    signal_engine(lab, "STOP")
    notified(receiver, "CorralEngineHung", model=MODEL, after=before)
    operator = Follower(lab, "engine-hung")

    printed = operator.does("Diagnosis", why=3, status=1)
    assert "engine" in printed[f"corral why {MODEL}"]
    operator.does("Mitigation")

    operator.does("Verify")
    notified(receiver, "CorralEngineHung", "resolved", model=MODEL, after=before)
    operator.assert_all_is_done()


def test_requests_that_are_refused_are_an_alert_whose_runbook_names_the_limit(lab, receiver):
    lab.corral("smoke", MODEL)
    before = len(receiver.all)
    signal_engine(lab, "STOP")  # so that as many as it accepts stay under way
    statuses, key = [], lab.key()
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE) as address:
        hello = question("Are you there?", model=MODEL)
        url = f"{address}/v1/chat/completions"
        crowd = [threading.Thread(target=lambda: statuses.append(post(url, hello, api_key=key)[0])) for _ in range(12)]
        for one in crowd:
            one.start()
        refused = eventually(lambda: tuple(statuses), lambda found: len(found) == 2)
        signal_engine(lab, "CONT")
        for one in crowd:
            one.join()
    assert refused == (429, 429)
    assert sorted(statuses) == [200] * 10 + [429] * 2
    notified(receiver, "CorralQueueFull", model=MODEL, after=before)
    queue = Follower(lab, "queue-full")

    printed = queue.does("Diagnosis", why=1)
    assert "more than 10 requests at a time" in printed[f"corral why {MODEL}"]
    assert any('"status": 429' in text or '"status":429' in text for text in printed.values())
    queue.does("Mitigation")
    queue.does("Verify")
    notified(receiver, "CorralQueueFull", "resolved", model=MODEL, after=before, limit_s=240)
    queue.assert_all_is_done()
    watched.mount_driver(lab)  # which the apply has taken away


def test_the_runbook_of_thrash_shows_the_requests_that_failed_and_its_commands_are_accepted(lab, receiver):
    """Loads are too short here for its alert, which promtool tests."""
    thrash = Follower(lab, "thrash")

    assert "status 429" in thrash.does("Diagnosis")["corral timeline --since 30m"]
    thrash.does("Mitigation")
    thrash.does("Verify")
    thrash.assert_all_is_done()
    watched.mount_driver(lab)


def with_budget(lab, seconds):
    """Give the model a latency budget of *seconds*."""
    file = lab.catalog / "models" / f"{MODEL}.yaml"
    budget = {"consumer": "desk", "prompt_tokens": 500, "answer_tokens": 100, "p95_seconds": seconds}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"latency": [budget]}))


def answer_counted(lab, receiver, count):
    """Let the model answer *count* requests after the applied exporter has read llama-swap: it counts from then on.

    The exporter before it counts those of the apply's own smoke.
    """
    watched.mount_driver(lab)  # which an apply takes away
    watched.wait_for_exporter(lab)
    has_read = f"corral_llama_swap_up == 1 and timestamp(corral_llama_swap_up) > {time.time()}"
    query = urlencode({"query": has_read})
    eventually(
        lambda: json.loads(get(f"{receiver.prometheus}/api/v1/query?{query}")[1])["data"]["result"], bool, limit_s=120
    )
    assert statuses_of_requests(lab, count) == [200] * count


@pytest.fixture
def burnt(lab, receiver):
    """A budget that no answer keeps is applied, and answers are counted; how many notifications there were before."""
    with_budget(lab, 0.0001)
    lab.lock()
    lab.corral("apply", "--yes")
    before = len(receiver.all)
    answer_counted(lab, receiver, 12)
    return before


def test_a_budget_that_is_burnt_is_an_alert_until_its_runbook_has_another_agreed(lab, receiver, burnt):
    notified(receiver, "CorralLatencyBudgetBurnt", model=MODEL, consumer="desk", after=burnt)
    operator = Follower(lab, "latency-budget")

    printed = operator.does("Diagnosis")
    assert any('"status": 200' in text or '"status":200' in text for text in printed.values())
    operator.does("More answers at a time")
    with_budget(lab, 300)
    operator.does("Another budget")
    answer_counted(lab, receiver, 120)  # of all that were counted, slow ones are less than a fifth now

    notified(receiver, "CorralLatencyBudgetBurnt", "resolved", model=MODEL, after=burnt, limit_s=240)
    operator.does("Verify")
    operator.assert_all_is_done()


def test_an_exporter_without_a_valid_key_is_an_alert_until_the_runbook_has_made_one(lab, receiver):
    # The first key of the lab may not have reached the guard yet.
    eventually(lambda: active(receiver), lambda names: "CorralLlamaSwapSilent" not in names, limit_s=200)
    before = len(receiver.all)
    watched.kubectl(lab, "delete", "secret/corral-monitor")
    watched.kubectl(lab, "rollout", "restart", "daemonset/card-exporter")
    watched.wait_for_exporter(lab)
    notified(receiver, "CorralLlamaSwapSilent", card="t4", after=before)
    operator = Follower(lab, "llama-swap-silent")

    operator.does("Diagnosis", status=1)  # its page has no key either
    operator.does("Mitigation")
    watched.mount_driver(lab)

    notified(receiver, "CorralLlamaSwapSilent", "resolved", card="t4", after=before, limit_s=200)
    operator.does("Verify")
    operator.assert_all_is_done()
