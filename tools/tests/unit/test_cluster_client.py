"""`corral.cluster.client`: every way in which a cluster cannot be read, in a message with the next command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from corral.cluster import client
from corral.cluster.client import Forbidden, NotFound, connect
from corral.errors import CannotRun, Refused
from tests.support.fake_kubernetes import fake_kubernetes


@pytest.fixture
def fake(tmp_path):
    with fake_kubernetes(tmp_path) as running:
        yield running


def test_a_connected_context_has_its_version_and_address(fake):
    cluster = connect(fake.kubeconfig, "lab")
    assert (cluster.version, cluster.context, cluster.server) == ("v1.34.4", "lab", f"http://127.0.0.1:{fake.port}")


def test_without_a_context_the_current_one_is_taken_and_named_in_every_command(fake):
    cluster = connect(fake.kubeconfig)
    assert cluster.kubectl("get", "pods", namespace="llama-cpp") == (
        f"kubectl --kubeconfig {fake.kubeconfig} --context lab -n llama-cpp get pods"
    )


def test_the_kubeconfig_of_the_environment_is_used_and_not_repeated_in_commands(fake, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", f"/nowhere/at/all:{fake.kubeconfig}")
    assert connect().kubectl("get", "nodes") == "kubectl --context lab get nodes"


def test_one_that_is_named_is_the_only_kubeconfig_then_come_those_of_the_environment_then_the_home_folders(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", ":first:~/second:")

    assert client.kubeconfigs(Path("named")) == [tmp_path / "named"]
    assert client.kubeconfigs() == [tmp_path / "first", tmp_path / "home" / "second"]
    for nothing in ("", ":"):
        monkeypatch.setenv("KUBECONFIG", nothing)
        assert client.kubeconfigs() == [tmp_path / "home" / ".kube" / "config"]


def test_a_missing_kubeconfig_is_refused_by_name(tmp_path):
    with pytest.raises(Refused, match=r"no kubeconfig .*/none") as error:
        connect(tmp_path / "none")
    assert "--kubeconfig FILE" in error.value.next_step


def test_an_unknown_context_is_refused_with_those_there_are(fake):
    with pytest.raises(Refused, match="has no context prod; it has: lab, expired, gone") as error:
        connect(fake.kubeconfig, "prod")
    assert error.value.next_step == f"kubectl --kubeconfig {fake.kubeconfig} config get-contexts"


@pytest.mark.parametrize("text", ["", "just words", "a: [", "contexts: 3\nclusters: []\nusers: []\n", "\x00"])
def test_a_file_that_is_no_kubeconfig_is_refused_in_words(tmp_path, text):
    path = tmp_path / "odd"
    path.write_text(text)
    with pytest.raises(Refused, match=r"/odd (is no kubeconfig|names no current context)"):
        connect(path)


def test_a_server_that_is_down_is_named_with_its_context(fake):
    with pytest.raises(CannotRun, match=r"127.0.0.1:1 of context gone does not respond: .*Connection refused") as error:
        connect(fake.kubeconfig, "gone")
    assert error.value.next_step.endswith("--context gone cluster-info")


def test_credentials_that_are_not_accepted_are_refused(fake):
    with pytest.raises(Refused, match=r"does not accept the credentials \(401\).*expired"):
        connect(fake.kubeconfig, "expired")


def test_a_credentials_program_that_is_missing_is_named_instead_of_a_401(fake):
    path = fake.kubeconfig
    plugin = "exec: {apiVersion: client.authentication.k8s.io/v1, command: /nowhere/aws, interactiveMode: Never}"
    path.write_text(path.read_text().replace("token: a-token", plugin))
    with pytest.raises(CannotRun, match=r"credentials of context lab .* cannot be obtained: .*/nowhere/aws"):
        connect(path, "lab")


def test_a_forbidden_list_names_the_verb_and_the_resource(fake):
    fake.refuse["/api/v1/nodes"] = 403
    with pytest.raises(Forbidden, match='cannot list resource "nodes"') as error:
        connect(fake.kubeconfig).items("/api/v1/nodes")
    assert error.value.next_step.endswith("auth can-i --list")


def test_a_missing_object_differs_from_a_missing_response(fake):
    cluster = connect(fake.kubeconfig)
    with pytest.raises(NotFound):
        cluster.get("/api/v1/namespaces/none")
    fake.refuse["/api/v1/namespaces/none"] = 503
    with pytest.raises(CannotRun, match="returned 503"):
        cluster.get("/api/v1/namespaces/none")


def test_a_server_that_is_no_kubernetes_is_an_error(fake):
    fake.objects["/api/v1/nodes"] = "<html>a router's login page</html>"
    with pytest.raises(CannotRun, match="returned no Kubernetes object"):
        connect(fake.kubeconfig).get("/api/v1/nodes")


def test_the_library_is_imported_only_by_connect():
    modules = [client.__name__, "corral.cluster.collect", "corral.cluster.diagnosis", "corral.cluster.port_forward"]
    code = f"import sys, {', '.join(modules)}, corral.cli.status, corral.cli.smoke, corral.cli.why"
    probe = f"{code}; print([name for name in ('kubernetes', 'aiohttp') if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
