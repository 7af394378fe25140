"""A lab whose alerts reach a webhook: real Prometheus and Alertmanager beside its two exporters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from corral.cluster.client import connect
from corral.cluster.port_forward import forwarded
from corral.drill.monitoring import Notification, Receiver, installed, monitoring
from tests.support.cluster.homelab import Homelab
from tests.support.cluster.watched import EXPORTERS, MODEL, NAMESPACE, wait_for_store_exporter
from tests.support.engine_process import get, post, question

_UNITS = {"s": 1, "m": 60, "h": 3600}


@contextmanager
def receiving(lab: Homelab, folder: Path) -> Iterator[Receiver]:
    """What Alertmanager notifies, by the lab's own rules, whose durations are a tenth."""
    rules, inhibit = (lab.terraform("output", "-raw", name).stdout for name in ("alert_rules", "alert_inhibit_rules"))
    target = connect(lab.cluster.kubeconfig, lab.cluster.context)
    programs = installed()
    assert programs
    wait_for_store_exporter(lab)
    with (
        forwarded(target, EXPORTERS, "card-exporter", port="metrics") as card,
        forwarded(target, NAMESPACE, "store-exporter", port="metrics") as store,
        monitoring(
            folder, [urlsplit(one).netloc for one in (card, store)], _faster(rules), inhibit, programs, every_s=3
        ) as receiver,
    ):
        yield receiver


def _faster(rules: str) -> str:
    """*rules* with every duration a tenth: their order stays."""
    document = yaml.safe_load(rules)
    for group in document["groups"]:
        for timed in (group, *group["rules"]):
            for key in {"interval", "for", "keep_firing_for"} & timed.keys():
                timed[key] = f"{int(timed[key][:-1]) * _UNITS[timed[key][-1]] // 10}s"
    return yaml.safe_dump(document).replace("[32s]", "[7s]")


def notified(
    receiver: Receiver, name: str, status: str = "firing", *, after: int = 0, limit_s: float = 120, **labels: str
) -> Notification:
    """The first notification about the alert *name* with *labels*, of those *after* so many."""
    found = receiver.first(
        lambda one: (one.name, one.status) == (name, status) and labels.items() <= one.labels.items(),
        limit_s=limit_s,
        after=after,
    )
    assert found, f"no {name} ({status}) in {receiver.all}"
    return found


def active(receiver: Receiver) -> set[str]:
    """The names of the alerts that Alertmanager has, inhibited ones included."""
    status, text = get(f"{receiver.alertmanager}/api/v2/alerts")
    assert status == 200
    return {one["labels"]["alertname"] for one in json.loads(text)}


def statuses_of_requests(lab: Homelab, count: int) -> list[int]:
    """Of the answers to *count* requests to the model, one after the other."""
    key = lab.key()
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE) as address:
        hello = question("Are you there?", model=MODEL)
        return [post(f"{address}/v1/chat/completions", hello, api_key=key)[0] for _ in range(count)]


def signal_engine(lab: Homelab, name: str) -> None:
    """Send the engine of the model the signal *name*."""
    command = f"kill -{name} $(grep -la -e '[/]models/{MODEL}' /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3)"
    done = lab.run("kubectl", "-n", NAMESPACE, "exec", "deployment/llama-swap", "--", "sh", "-c", command)
    assert done.returncode == 0, done.stderr
