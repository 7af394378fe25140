"""`corral status`, `smoke` and `why` with --context: exit codes, stdout and stderr.

The API server is the one of tests.support.fake_kubernetes, the llama-swap in its pod that of
tests.support.stub_endpoint; both state why they stand in.  tests/cluster has the same commands on real ones.
"""

from __future__ import annotations

import json
import socket
from argparse import Namespace

import pytest

from corral.card import findings
from corral.cli import one_model
from corral.cli.main import main
from corral.cluster import engine_probe
from corral.terraform import homelab
from tests.support import smoke_catalog
from tests.support.fake_kubernetes import fake_kubernetes
from tests.support.stub_endpoint import fails_to_load, serve

MODELS = {"text": {"smoke": {"expect": "OK"}}}
CONFIG = "startPort: 5800\nmodels:\n  text:\n    cmd: llama-server -m /models/text/model.gguf --port ${PORT}\n"


@pytest.fixture(autouse=True)
def nothing_applied(monkeypatch, tmp_path):
    monkeypatch.setattr(homelab, "STACK", tmp_path / "stack")


@pytest.fixture
def catalog(tmp_path):
    return str(smoke_catalog.write(tmp_path / "catalog", MODELS))


@pytest.fixture
def stub():
    with serve("text") as running:
        yield running


@pytest.fixture
def fake(tmp_path, stub, monkeypatch):
    with fake_kubernetes(tmp_path) as running:
        running.pod(port=stub.port)
        running.deployed(CONFIG)
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig))
        yield running


def pending(fake, **container):
    fake.pod(ready=False)
    pod = fake.objects["/api/v1/namespaces/llama-cpp/pods"][0]
    pod["status"] |= {"phase": "Pending", "containerStatuses": [{"name": "llama-swap", "restartCount": 0, **container}]}
    return pod


NO_IMAGE = {"waiting": {"reason": "ErrImagePull", "message": "registry/x: not found"}}


def test_status_of_a_cluster_that_serves_is_exit_code_0(fake, capsys):
    assert main(["status", "--context", "lab"]) == 0
    out, err = capsys.readouterr()
    rows = [line.split("\t")[:3] for line in out.splitlines()]
    assert rows == [["what", "name", "state"], ["pod", "llama-swap-0", "ready"], ["model", "text", "unloaded"]]
    assert "http://llama-swap.llama-cpp.svc.cluster.local:8080  context lab, Kubernetes v1.34.4" in err


def test_status_of_a_cluster_has_the_last_requests_of_each_model_and_none_where_they_are_not_listed(fake, stub, capsys):
    tokens = {"input_tokens": 9, "output_tokens": 4, "tokens_per_second": 41.26}
    one = {"model": "text", "timestamp": "2026-01-01T00:00:00Z", "resp_status_code": 200, "duration_ms": 350}
    activity = {"data": [one | {"tokens": tokens}]}
    stub.acts["/api/metrics/activity?limit=500"] = lambda exchange: exchange.reply_json(200, activity)

    assert main(["status", "--context", "lab"]) == 0
    assert "last request 0.35 s, 41.3 tokens/s, " in capsys.readouterr().out
    assert main(["status", "--context", "lab", "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert (model["seat_mib"], model["gpu_bytes"]) == (None, None)
    assert [(one["status"], one["seconds"], one["tokens_per_second"]) for one in model["requests"]] == [
        (200, 0.35, 41.3)
    ]

    stub.acts["/api/metrics/activity?limit=500"] = lambda exchange: exchange.reply_json(404, {})
    assert main(["status", "--context", "lab"]) == 0
    assert "model\ttext\tunloaded\tlast request unknown\n" in capsys.readouterr().out


def test_status_of_a_cluster_has_what_a_model_holds_by_the_exporter(fake, monkeypatch, capsys):
    """A stub stands for the exporter, whose account tests/unit/test_card_remote.py reads."""
    monkeypatch.setattr("corral.card.findings.read", lambda *_, **__: findings.OfCards((), {"text": 150 << 20}))
    assert main(["status", "--context", "lab"]) == 0
    assert "model\ttext\tunloaded\tholds 150 MiB" in capsys.readouterr().out


def test_status_of_a_pod_without_an_image_is_exit_code_1_with_the_event_and_the_next_command(fake, capsys):
    pending(fake, state=NO_IMAGE)
    assert main(["status", "--context", "lab"]) == 1
    out = capsys.readouterr().out
    assert "pod/llama-swap-0: cannot get the image" in out
    assert "\n  ErrImagePull: registry/x: not found\n  → corral lock --upgrade llama-swap\n" in out


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_status_of_a_cluster_with_a_failed_model_is_exit_code_1(fake, capsys, more):
    ended = "2026-01-01T00:00:00Z [WARN] group: running text exited: upstream command exited prematurely\n"
    fake.objects["/api/v1/namespaces/llama-cpp/pods/llama-swap-0/log"] = ended

    assert main(["status", "--context", "lab", *more]) == 1

    out, err = capsys.readouterr()
    assert "upstream command exited prematurely" in out
    assert more or "corral why MODEL --context lab" in err


@pytest.fixture
def engine(fake, stub):
    """The address of an engine in the pod; for it stands a port of this machine that never responds."""
    engine = "http://127.0.0.1:5800"
    resident = {"model": "text", "state": "ready", "proxy": engine}
    stub.acts["/running"] = lambda exchange: exchange.reply_json(200, {"running": [resident]})
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        fake.inner[5800] = deaf.getsockname()[1]
        yield engine


def test_an_engine_in_a_cluster_that_does_not_respond_is_not_called_ready(engine, catalog, monkeypatch, capsys):
    monkeypatch.setattr(engine_probe, "_LIMIT_S", 0.5)

    assert main(["status", "--context", "lab"]) == 1

    out, err = capsys.readouterr()
    assert "model\ttext\tsilent\tits engine gives no response within" in out
    assert "corral why MODEL --context lab" in err
    assert main(["why", "text", "--context", "lab", "--catalog", catalog, "--json"]) == 3
    verdict = json.loads(capsys.readouterr().out)
    assert "its engine gives no response within" in json.dumps(verdict)


def test_an_engine_in_a_cluster_that_responds_is_called_ready(fake, engine, stub, capsys):
    fake.inner[5800] = stub.port

    assert main(["status", "--context", "lab"]) == 0

    assert "model\ttext\tready\t\n" in capsys.readouterr().out
    assert "/upstream" not in " ".join(stub.paths)  # llama-swap would keep the model loaded


def test_status_as_json_has_findings_with_their_cause(fake, capsys):
    pending(fake, state=NO_IMAGE)
    assert main(["status", "--context", "lab", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["running"], document["models"], document["models_unseen"]) == (
        False,
        None,
        "no pod of llama-swap is ready",
    )
    assert [(one["subject"], one["cause"], one["is_stuck"]) for one in document["findings"]] == [
        ("pod/llama-swap-0", "image", True)
    ]


def test_a_pod_that_is_only_starting_is_no_finding_and_no_success(fake, capsys):
    pending(fake, state={"waiting": {"reason": "ContainerCreating"}})
    fake.objects["/api/v1/namespaces/llama-cpp/pods"][0]["metadata"]["creationTimestamp"] = "2999-01-01T00:00:00Z"
    assert main(["status", "--context", "lab"]) == 1
    out, err = capsys.readouterr()
    assert "Pending, ContainerCreating" in out
    assert "Nothing is known to be wrong; it does not serve yet." in err


def test_what_may_not_be_read_makes_status_fail_and_is_named(fake, capsys):
    fake.refuse["/api/v1/nodes"] = 403
    assert main(["status", "--context", "lab"]) == 1
    assert "the nodes could not be read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--context", "prod"], 2, "has no context prod; it has: lab, expired, gone"),
        (["--context", "gone"], 3, "Connection refused"),
        (["--context", "expired"], 2, "does not accept the credentials (401)"),
        (["--kubeconfig", "/nowhere/config"], 2, "There is no kubeconfig /nowhere/config"),
        (["--namespace", "other"], 1, ""),
    ],
)
@pytest.mark.parametrize("command", ["status", "smoke", "why"])
def test_a_cluster_that_cannot_be_read_is_an_error_in_a_sentence(fake, catalog, capsys, command, words, code, message):
    more = ["--catalog", catalog] if command != "status" else []
    expected = 3 if words[0] == "--namespace" and command == "smoke" else code
    assert main([command, *words, *more]) == expected
    assert message in capsys.readouterr().err


def test_a_context_without_a_name_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["status", "--context", ""])
    assert ended.value.code == 2
    assert "--context: it is empty" in capsys.readouterr().err


def test_smoke_connects_through_the_api_server_and_reports_the_clusters_address(fake, catalog, capsys):
    assert main(["smoke", "--context", "lab", "--catalog", catalog, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["endpoint"] == "http://llama-swap.llama-cpp.svc.cluster.local:8080"
    assert {one["status"] for one in document["checks"]} == {"passed"}
    assert any(path.endswith("/portforward") for path in fake.paths)


def test_a_failed_smoke_names_kubectl_and_why_and_not_the_forwarded_port(fake, stub, catalog, capsys):
    stub.acts[("text", "*")] = fails_to_load
    assert main(["smoke", "--context", "lab", "--catalog", catalog]) == 1
    out, err = capsys.readouterr()
    assert "kubectl --context lab -n llama-cpp logs service/llama-swap" in out
    assert "127.0.0.1" not in out
    assert f"corral why --context lab --namespace llama-cpp --catalog {catalog}" in err


def test_an_endpoint_and_a_cluster_at_once_are_refused(fake, catalog, capsys):
    assert main(["smoke", "--context", "lab", "--endpoint", "http://x", "--catalog", catalog]) == 2


def test_why_names_what_keeps_the_pod_from_running(fake, catalog, capsys):
    pending(fake, state=NO_IMAGE)
    assert main(["why", "text", "--context", "lab", "--catalog", catalog]) == 1
    out = capsys.readouterr().out
    assert out.startswith("text: the stack is down (pod/llama-swap-0, which cannot get the image")
    assert "→ corral status --context lab --namespace llama-cpp" in out


def test_why_calls_a_store_without_the_file_by_its_name(fake, catalog, capsys):
    pod = pending(fake, state={"running": {}})
    pod["status"]["phase"] = "Running"
    message = "Startup probe failed: startup: file-missing path=/models/text/model.gguf: any sentence"
    about = {"kind": "Pod", "name": "llama-swap-0"}
    event = {"involvedObject": about, "reason": "Unhealthy", "message": message, "type": "Warning", "metadata": {}}
    fake.objects["/api/v1/namespaces/llama-cpp/events"] = [event]
    assert main(["why", "text", "--context", "lab", "--catalog", catalog, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["class"], document["culprit"]) == ("file-missing", "/models/text/model.gguf")


def test_why_of_an_unknown_name_reports_that_before_the_pod(fake, catalog, capsys):
    pending(fake, state=NO_IMAGE)
    assert main(["why", "absent", "--context", "lab", "--catalog", catalog]) == 1
    assert "absent: it is not in the catalog that is served" in capsys.readouterr().out


def test_why_that_cannot_read_the_pods_is_unknown_and_not_healthy(fake, catalog, capsys):
    fake.refuse["/api/v1/namespaces/llama-cpp/pods"] = 403
    assert main(["why", "text", "--context", "lab", "--catalog", catalog]) == 3
    assert "auth can-i --list" in capsys.readouterr().out


def test_why_names_a_known_cause_though_the_nodes_may_not_be_read(fake, catalog, capsys):
    pending(fake, state=NO_IMAGE)
    fake.refuse["/api/v1/nodes"] = 403
    assert main(["why", "text", "--context", "lab", "--catalog", catalog]) == 1
    assert "cannot get the image" in capsys.readouterr().out


def test_without_options_and_without_an_apply_it_is_the_local_stack_as_ever(capsys):
    assert main(["status"]) == 1
    assert "corral up --detach" in capsys.readouterr().err


def test_help_shows_an_example_with_a_context(capsys):
    for command in ("status", "smoke", "why"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "--context homelab" in capsys.readouterr().out


def test_the_requests_under_way_of_a_model_on_another_card_are_those_of_its_own_llama_swap(fake, stub):
    """A stub in place of each door: which of the pods a forwarded port leads to cannot be chosen on real ones."""
    resident = {"model": "text", "state": "ready", "proxy": "http://127.0.0.1:5800", "card": "p40"}
    stub.acts["/running"] = lambda exchange: exchange.reply_json(200, {"running": [resident]})
    request = {"model": "text", "timestamp": "2026-01-01T00:00:00Z"}
    event = json.dumps({"type": "inflight", "data": json.dumps({"requests": [request]})}, separators=(",", ":"))
    named = Namespace(model="text", context="lab", namespace=None, kubeconfig=None, catalog=None)
    with serve("text") as other:
        other.acts["/api/events"] = lambda exchange: exchange.reply(
            200, "text/event-stream", f"data:{event}\n\n".encode()
        )
        fake.card("p40", port=other.port)

        with one_model.opened(named) as one:
            assert [request.model for request in one.client.in_flight()] == ["text"]
