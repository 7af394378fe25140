"""What an exporter serves is read back as it was, and an answer that is none is refused by its field."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.registry import Collector

from corral import keys
from corral.card import findings, remote
from corral.cluster.client import Forbidden, NotFound, kubectl
from corral.cluster.finding import Cause
from corral.errors import CannotRun, Refused
from corral.exporter.account import CardAccount, Row
from corral.exporter.driver import Card
from corral.exporter.keys import OperatorKeys
from corral.exporter.server import serving
from corral.keys import LocalKeys

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
NAMESPACES = "/api/v1/namespaces"
DOCUMENT = {"at": 1.0, "node": "n1", "seal": "0" * 64, "cards": [ACCOUNT.as_json()]}


class NoMetrics(Collector):
    def collect(self):
        return []


@dataclass
class Api:
    """An API server with the namespaces of exporters, the instance of each, by its label, and the operator's key."""

    instances: dict[str, str]
    key: str | None = "a-key"
    context: str = "lab"
    kubeconfig: Path | None = None

    def items(self, path: str, labelSelector: str) -> list[dict[str, Any]]:  # noqa: N803 - Kubernetes' name
        assert (path, labelSelector) == (NAMESPACES, "app.kubernetes.io/name=card-exporter")
        return [self._namespace(at) for at in self.instances]

    def get(self, path: str) -> dict[str, Any]:
        if path.count("/") == NAMESPACES.count("/") + 1:
            return self._namespace(path.rpartition("/")[2])
        keys_of = {f"{NAMESPACES}/{one}/secrets/corral-keys" for one in self.instances.values()}
        if self.key is None or path not in keys_of:
            raise NotFound("a test", next_step="a test")
        return {"data": {"operator": base64.b64encode(self.key.encode()).decode()}}

    def _namespace(self, name: str) -> dict[str, Any]:
        own = {"app.kubernetes.io/name": "card-exporter", "app.kubernetes.io/instance": self.instances[name]}
        return {"metadata": {"name": name, "labels": own}}

    def kubectl(self, *words: str, namespace: str = "") -> str:
        return kubectl(self.context, None, *words, namespace=namespace)


@pytest.fixture
def answering(monkeypatch):
    """Lets an exporter in the namespace watch answer with a document, or that of each node with its own."""

    def answer(document, operator_keys=None, **others):
        documents = {"n1": document} | others

        @contextmanager
        def forwarded(_cluster, namespace, service, port, node):
            assert (namespace, service, port) == ("watch", "card-exporter", "metrics")
            with serving(("127.0.0.1", 0), NoMetrics(), lambda: documents[node], keys=operator_keys) as server:
                yield f"http://127.0.0.1:{server.server_port}"

        monkeypatch.setattr(remote, "forwarded", forwarded)
        monkeypatch.setattr(remote, "ready_nodes", lambda *_: tuple(sorted(documents)))

    return answer


def test_an_account_is_read_as_it_was_served(answering):
    answering(DOCUMENT)
    assert remote.read(Api({"watch": "llama-cpp"})) == (1.0, "n1", "0" * 64, (ACCOUNT,))


def test_the_cards_of_all_nodes_are_read_and_those_of_one_where_it_is_named(answering):
    other = replace(ACCOUNT, name="p40")
    answering(DOCUMENT, n2=DOCUMENT | {"node": "n2", "cards": [other.as_json()]})
    assert remote.read(Api({"watch": "llama-cpp"})).cards == (ACCOUNT, other)
    found = remote.read(Api({"watch": "llama-cpp"}), node="n2")
    assert (found.node, found.cards) == ("n2", (other,))


def test_records_of_several_nodes_are_read_one_at_a_time(answering):
    answering(DOCUMENT, n2=DOCUMENT)
    with pytest.raises(CannotRun, match=r"records on several nodes: n1, n2\.") as error:
        remote.records(Api({"watch": "llama-cpp"}), 0.0)
    assert error.value.next_step == "Name one: --node n1"
    assert remote.records(Api({"watch": "llama-cpp"}), 0.0, node="n2") == b""


def test_a_card_of_which_nothing_is_known_stays_unknown(answering):
    unknown = replace(ACCOUNT, driver=None, unknown="hanging")
    answering(DOCUMENT | {"cards": [unknown.as_json()]})
    assert remote.read(Api({"watch": "llama-cpp"}), namespace="watch").cards == (unknown,)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"node": None}, "node"),
        ({"at": None}, "at"),
        ({"at": 1e300}, "at"),
        ({"cards": [ACCOUNT.as_json() | {"vram_bytes": "much"}]}, "cards.0.vram_bytes"),
        ({"cards": [ACCOUNT.as_json() | {"holders": [{"kind": "ghost", "name": "x"}]}]}, "cards.0.holders.0.kind"),
        ({"cards": [ACCOUNT.as_json() | {"holders": [{"name": "x"}]}]}, "cards.0.holders.0.kind"),
        *(
            (
                {"cards": [ACCOUNT.as_json() | {"holders": [{"kind": "tenant", "name": "x", "pods": [pod]}]}]},
                "cards.0.holders",
            )
            for pod in ("kube-system/--all", "x", "x/", "X/y", "a/b c", "a/$(id)", "a/b/c")
        ),
    ],
)
def test_an_answer_that_is_no_account_is_refused_by_its_field(answering, changed, field):
    answering(DOCUMENT | changed)
    with pytest.raises(CannotRun, match=f"gave no account of its cards: {field}: ") as error:
        remote.read(Api({"watch": "llama-cpp"}), namespace="watch")
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
        ({"b": "x", "a": "y"}, "has several exporters, in a, b", "corral card --context lab --namespace a"),
    ],
)
def test_none_and_several_are_an_error_each_with_a_way_out(instances, problem, step):
    with pytest.raises(CannotRun, match=problem) as error:
        remote.read(Api(instances))
    assert step in error.value.next_step


def test_a_user_who_may_not_list_namespaces_gets_the_command_that_names_one(monkeypatch):
    monkeypatch.setattr(Api, "items", forbidden)
    with pytest.raises(Forbidden, match=r"labels of namespaces\. a test") as error:
        remote.read(Api({}))
    assert error.value.next_step == "Name its namespace: corral card --context lab --namespace corral-exporter"


def forbidden(*_, **__):
    raise Forbidden("a test", next_step="a test")


def found_of(*accounts, answering):
    answering(DOCUMENT | {"cards": [one.as_json() for one in accounts]})
    return findings.read(Api({"watch": "llama-cpp"}), of="llama-cpp").findings


def test_a_tenant_beyond_its_promise_is_a_finding_with_the_command_that_shows_it(answering):
    (one,) = found_of(ACCOUNT, answering=answering)
    assert (one.subject, one.what) == ("tenant/ml", "holds 10726 MiB of the card t4, and was promised 2100 MiB.")
    assert (one.next_step, one.cause) == ("corral card --context lab --namespace watch", Cause.CARD)


def test_a_tenant_whose_selector_matches_nothing_is_a_finding(answering):
    rows = (
        Row("tenant", "frigate", promised=5, held=0, selected=0),
        Row("tenant", "ml", promised=5, held=0, selected=2),
    )
    (one,) = found_of(replace(ACCOUNT, rows=(*rows, Row("tenant", "x", promised=5, held=1))), answering=answering)
    assert one.subject == "tenant/frigate"
    assert "has no pod on the node of t4" in one.what


def test_a_card_without_a_driver_is_a_finding_with_the_reason(answering):
    (one,) = found_of(replace(ACCOUNT, driver=None, unknown="hanging", rows=()), answering=answering)
    assert (one.subject, one.event) == ("card/t4", "a problem")


def test_the_models_have_what_they_hold_where_that_is_known(answering):
    rows = (Row("model", "chat", held=7), Row("model", "photos"), Row("tenant", "ml", held=9))
    answering(DOCUMENT | {"cards": [replace(ACCOUNT, rows=rows).as_json()]})
    assert findings.read(Api({"watch": "llama-cpp"}), of="llama-cpp").held == {"chat": 7}


def test_an_exporter_that_gives_no_account_is_a_finding(answering):
    answering({})
    (one,) = findings.read(Api({"watch": "llama-cpp"}), of="llama-cpp").findings
    assert (one.subject, one.cause) == ("daemonset/card-exporter", Cause.UNSEEN)


def test_holders_of_whom_nothing_is_known_are_a_finding(answering):
    rows = (Row("tenant", "ml", promised=5), Row("model", "chat", promised=5, held=0), Row("hidden", "pid 7"))
    (one,) = found_of(replace(ACCOUNT, rows=rows), answering=answering)
    assert (one.subject, one.what) == ("card/t4", "has holders of whom it is not known what they hold: ml.")
    assert one.event == "a problem"


def test_an_api_server_that_fails_is_a_finding(monkeypatch):
    def failing(*_, **__):
        raise CannotRun("a test", next_step="a step")

    monkeypatch.setattr(Api, "items", failing)
    (one,) = findings.read(Api({}), of="llama-cpp").findings
    assert (one.event, one.next_step, one.cause) == ("a test", "a step", Cause.UNSEEN)


def test_of_several_exporters_the_one_of_the_llama_swap_is_read(answering):
    answering(DOCUMENT)
    assert remote.read(Api({"a": "other", "watch": "llama-cpp"}), of="llama-cpp").node == "n1"
    assert remote.read(Api({"watch": "other"}), of="llama-cpp").node == "n1"


def test_without_an_exporter_and_without_the_right_to_search_for_one_nothing_is_found(monkeypatch):
    assert findings.read(Api({"watch": "other"}), of="llama-cpp").findings == ()
    monkeypatch.setattr(Api, "items", forbidden)
    assert findings.read(Api({"watch": "llama-cpp"}), of="llama-cpp").findings == ()


def test_it_sends_the_operators_key_of_the_engines_that_the_exporter_knows(answering, tmp_path):
    store = LocalKeys(tmp_path)
    answering(DOCUMENT, OperatorKeys(store.file, "a test"))
    key = keys.ensure_operator(store)
    assert remote.read(Api({"watch": "llama-cpp"}, key=key)).node == "n1"
    assert remote.records(Api({"watch": "llama-cpp"}, key=key), 0.0, namespace="watch") == b""


def test_a_key_that_the_exporter_does_not_know_yet_is_named_with_the_way_out(answering, tmp_path):
    store = LocalKeys(tmp_path)
    answering(DOCUMENT, OperatorKeys(store.file, "a test"))
    with pytest.raises(CannotRun, match=r"HTTP 503, The keys cannot be read: No such file.*`corral apply` brings them"):
        remote.read(Api({"watch": "llama-cpp"}))
    keys.ensure_operator(store)
    with pytest.raises(CannotRun, match="does not know the operator's key") as error:
        remote.read(Api({"watch": "llama-cpp"}))
    assert error.value.next_step == "Try it again; then: corral apply"


def test_without_the_operators_key_nothing_is_asked(answering):
    answering(DOCUMENT)
    with pytest.raises(Refused, match="no operator's key in the Secret corral-keys of llama-cpp") as error:
        remote.read(Api({"watch": "llama-cpp"}, key=None))
    assert error.value.next_step == "corral keys add operator --context lab --namespace llama-cpp"
