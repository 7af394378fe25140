"""What an exporter serves is read back as it was, and an answer that is none is refused by its field."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from prometheus_client.registry import Collector

from corral.card import remote
from corral.cluster.client import kubectl
from corral.errors import CannotRun
from corral.exporter.account import CardAccount, Row
from corral.exporter.driver import Card
from corral.exporter.server import serving

MIB = 1 << 20
ACCOUNT = CardAccount(
    "t4",
    15360 * MIB,
    Card("GPU-1", "Tesla T4", 15360 * MIB, None),
    "",
    "a problem",
    (
        Row("model", "chat", "main", 6996 * MIB, 6900 * MIB, None, 0, (), 5 * MIB),
        Row("tenant", "ml", None, 2100 * MIB, held=10726 * MIB, pids=(7, 8), pods=("immich/ml-0",), over_since=1.5),
        Row("hidden", "pid 7"),
    ),
)
DOCUMENT = {"at": 1.0, "node": "n1", "seal": "0" * 64, "cards": [ACCOUNT.as_json()]}


class NoMetrics(Collector):
    def collect(self):
        return []


@dataclass
class Api:
    """An API server with the Services of exporters, by namespace, and the instance that each is labelled with."""

    instances: dict[str, str]
    context: str = "lab"

    def items(self, path: str, labelSelector: str) -> list[dict[str, Any]]:  # noqa: N803 - Kubernetes' name
        assert (path, labelSelector) == ("/api/v1/services", "app.kubernetes.io/name=card-exporter")
        return [
            {"metadata": {"name": "card-exporter", "namespace": at, "labels": {"app.kubernetes.io/instance": of}}}
            for at, of in self.instances.items()
        ]

    def kubectl(self, *words: str, namespace: str = "") -> str:
        return kubectl(self.context, None, *words, namespace=namespace)


@pytest.fixture
def answering(monkeypatch):
    """Lets an exporter in the namespace watch answer with a document."""

    def answer(document):
        @contextmanager
        def forwarded(_cluster, namespace, service, port):
            assert (namespace, service, port) == ("watch", "card-exporter", "metrics")
            with serving(("127.0.0.1", 0), NoMetrics(), lambda: document) as server:
                yield f"http://127.0.0.1:{server.server_port}"

        monkeypatch.setattr(remote, "forwarded", forwarded)

    return answer


def test_an_account_is_read_as_it_was_served(answering):
    answering(DOCUMENT)
    assert remote.read(Api({"watch": "llama-cpp"})) == ("n1", "0" * 64, (ACCOUNT,))


def test_a_card_of_which_nothing_is_known_stays_unknown(answering):
    unknown = replace(ACCOUNT, driver=None, unknown="hanging")
    answering(DOCUMENT | {"cards": [unknown.as_json()]})
    assert remote.read(Api({}), namespace="watch").cards == (unknown,)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"node": None}, "node"),
        ({"cards": [ACCOUNT.as_json() | {"vram_bytes": "much"}]}, "cards.0.vram_bytes"),
        ({"cards": [ACCOUNT.as_json() | {"holders": [{"kind": "ghost", "name": "x"}]}]}, "cards.0.holders.0.kind"),
        ({"cards": [ACCOUNT.as_json() | {"holders": [{"name": "x"}]}]}, "cards.0.holders.0.kind"),
    ],
)
def test_an_answer_that_is_no_account_is_refused_by_its_field(answering, changed, field):
    answering(DOCUMENT | changed)
    with pytest.raises(CannotRun, match=f"gave no account of its cards: {field}: ") as error:
        remote.read(Api({}), namespace="watch")
    assert error.value.next_step == "kubectl --context lab -n watch logs daemonset/card-exporter"


def test_the_exporter_of_a_llama_swap_is_found_by_its_namespace():
    api = Api({"watch-2": "other", "watch": "llama-cpp"})
    assert remote.find(api, of="llama-cpp") == ("watch",)
    assert remote.find(api) == ("watch", "watch-2")
    assert remote.find(api, of="none") == ()


@pytest.mark.parametrize(
    ("instances", "problem", "step"),
    [
        ({}, "has no exporter", "card_exporter = {}"),
        ({"b": "x", "a": "y"}, "has several exporters, in a, b", "--namespace NS"),
    ],
)
def test_none_and_several_are_an_error_each_with_a_way_out(instances, problem, step):
    with pytest.raises(CannotRun, match=problem) as error:
        remote.read(Api(instances))
    assert step in error.value.next_step
