"""The front door in the pod: who gets in, with which key, and what becomes of a stream meanwhile."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from kubernetes import client

from corral.cluster.client import connect
from corral.cluster.keys import SECRET
from corral.cluster.port_forward import forwarded
from tests.support.adapters import colours_on
from tests.support.cluster.homelab import homelab
from tests.support.engine_process import chat as choice
from tests.support.engine_process import question, wait_for

pytestmark = pytest.mark.timeout(300)
NAMESPACE = "guarded"
CLIENTS = {"clients": {"photos": {"models": ["tiny-text"], "requests": 2}}}
TAKEN_OVER_S = 120.0  # the kubelet's cache and its period, generously


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    with homelab(cluster, folder, NAMESPACE) as lab:
        (lab.catalog / "clients.yaml").write_text(json.dumps(CLIENTS))
        adapters = colours_on(lab.hub, folder, ("red", "green"))
        lab.model("tiny-text", modalities=["text"], group="text", adapters=adapters)
        lab.lock()
        lab.corral("apply", "--yes", "--no-smoke")
        yield lab


def keys(lab, *words, code=0):
    """`corral keys` of the lab's cluster; what it printed to stdout."""
    where = ("--context", lab.cluster.context, "--namespace", NAMESPACE, "--catalog", lab.catalog)
    return lab.corral("keys", *words, *where, code=code).stdout.strip()


@pytest.fixture(scope="module")
def photos(lab):
    """The key of the client photos, which the guard knows."""
    key = keys(lab, "add", "photos")
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE) as address:
        wait_for(lambda: ask(address, key)[0] == 200, limit_s=TAKEN_OVER_S, what="the taking over of a new key")
    return key


@pytest.fixture
def operator(lab):
    """The operator's own key."""
    return lab.key()


def ask(address, key="", path="/v1/models", body=None, **headers):
    """Status, code of the refusal, and headers of the answer to one request."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
    fields = {"Authorization": f"Bearer {key}"} if key else {}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        if body is None:
            connection.request("GET", path, headers=fields)
        else:
            connection.request("POST", path, json.dumps(body), fields | {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    error = json.loads(text).get("error", {}) if answer.getheader("Content-Type") == "application/json" else {}
    return answer.status, error.get("code", "") if isinstance(error, dict) else error, dict(answer.getheaders())


def chat(address, key, model, **headers):
    return ask(address, key, "/v1/chat/completions", question("Are you there?", model=model), **headers)


def test_a_request_without_a_key_is_refused(lab, endpoint):
    assert chat(endpoint, "", "tiny-text")[:2] == (401, "key-missing")
    assert chat(endpoint, "corral-key-that-was-never-made", "tiny-text")[:2] == (401, "key-unknown")
    assert ask(endpoint)[0] == 401


def test_a_client_gets_answers_of_its_models_and_none_of_others(lab, endpoint, photos):
    assert chat(endpoint, photos, "tiny-text")[0] == 200
    assert chat(endpoint, photos, "tiny-vision")[:2] == (404, "model-not-found")


def answer_of(address, key, model):
    return choice(address, "Are you there?", model=model, api_key=key)["message"]["content"]


def test_an_adapter_answers_in_its_models_process_and_a_swap_reaches_the_pod_that_serves(lab, endpoint, photos):
    where = ("--context", lab.cluster.context, "--namespace", NAMESPACE, "--catalog", lab.catalog)

    def adapters(*words):
        return json.loads(lab.corral("adapters", *words, "--json", *where).stdout)

    pod = lab.server_pod()
    names = ("tiny-text", "tiny-text:colour", "tiny-text:colour@green")
    assert [answer_of(endpoint, photos, name) for name in names] == ["OK", "red", "green"]
    assert chat(endpoint, photos, "tiny-text:none")[:2] == (404, "model-not-found")
    assert [(one["adapter"], one["version"]) for one in adapters("list")["adapters"]] == [("tiny-text:colour", "red")]

    assert adapters("swap", "tiny-text:colour", "green")["before"] == "red"
    assert [answer_of(endpoint, photos, name) for name in names] == ["OK", "green", "green"]
    assert adapters("rollback", "tiny-text:colour")["version"] == "red"
    assert answer_of(endpoint, photos, "tiny-text:colour") == "red"
    assert lab.server_pod().metadata.uid == pod.metadata.uid


@pytest.mark.parametrize("path", ["/running", "/logs", "/upstream/tiny-text/props", "/api/events", "/ui", "/unload"])
def test_what_is_the_operators_is_refused_to_a_client(lab, endpoint, photos, path):
    assert ask(endpoint, photos, path)[:2] == (403, "operator-only")


def test_the_operator_may_read_what_a_client_may_not(lab, endpoint, operator):
    assert ask(endpoint, operator, "/running")[0] == 200


def test_a_page_of_another_origin_and_a_name_that_was_rebound_are_refused(lab, endpoint, operator):
    assert chat(endpoint, operator, "tiny-text", Origin="http://evil.example")[:2] == (403, "origin-not-allowed")
    assert chat(endpoint, operator, "tiny-text", Host="evil.example")[:2] == (421, "host-not-served")
    assert chat(endpoint, operator, "tiny-text", Host=f"llama-swap.{NAMESPACE}.svc.cluster.local:8080")[0] == 200


def test_only_the_door_listens_beyond_the_pods_loopback(lab, operator):
    """The node reaches the pod's address, whatever a NetworkPolicy permits."""
    address, reached = lab.server_pod().status.pod_ip, {}
    for port in (8080, 8081, 8082):
        words = ("curl", "--silent", "--output", "/dev/null", "--max-time", "10", f"http://{address}:{port}/health")
        reached[port] = lab.run(*words).returncode

    assert reached[8080] == 0 or lab.cluster.folder is None
    assert (reached[8081], reached[8082]) == (7, 7)


def test_a_key_is_rotated_and_revoked_without_a_new_pod_while_its_stream_goes_on(lab, endpoint, operator):
    pod, first = lab.server_pod(), operator
    stream = Events(endpoint, first)
    wait_for(lambda: stream.lines, what="the first line of the stream")

    second = keys(lab, "rotate", "operator")
    wait_for(lambda: ask(endpoint, second)[0] == 200, limit_s=TAKEN_OVER_S, what="the second key")
    both = ask(endpoint, first)[0]
    keys(lab, "revoke", "operator", "--old")
    wait_for(lambda: ask(endpoint, first)[0] == 401, limit_s=TAKEN_OVER_S, what="the end of the first key")
    before = len(stream.lines)
    answered = chat(endpoint, second, "tiny-text")[0]
    wait_for(lambda: len(stream.lines) > before, what="an event for the stream of the first key")
    stream.stop()

    assert both == 200
    assert answered == 200
    assert stream.status == 200
    after = lab.server_pod()
    assert after.metadata.uid == pod.metadata.uid
    restarts = [one.restart_count for one in (*after.status.init_container_statuses, *after.status.container_statuses)]
    assert restarts == [0, 0, 0]


class Events(threading.Thread):
    """llama-swap's stream of events, which never ends by itself, for *key*; ``lines`` has what came."""

    def __init__(self, address, key):
        super().__init__(daemon=True)
        parts = urlsplit(address)
        connection = http.client.HTTPConnection(parts.hostname, parts.port)
        connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {key}"})
        self._connection, self._socket = connection, connection.sock
        self.lines, self.status = [], 0
        self.start()

    def run(self):
        answer = self._connection.getresponse()
        self.status = answer.status
        with contextlib.suppress(OSError, http.client.HTTPException):
            while line := answer.readline():
                self.lines.append(line)

    def stop(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.join(60)
        self._socket.close()


def test_status_and_why_read_through_the_door_and_list_shows_who_has_a_key(lab, photos):
    status = json.loads(lab.corral("status", "--json").stdout)
    listed = json.loads(keys(lab, "list", "--json"))

    assert status["findings"] == []
    assert status["models_unseen"] == ""
    assert {one["model"] for one in status["models"]} == {"tiny-text", "tiny-vision"}
    assert json.loads(lab.corral("why", "tiny-text", "--json").stdout)["class"] == "healthy"
    assert listed["operator"] == {"keys": 1}
    assert {one["name"]: one["keys"] for one in listed["clients"]}["photos"] == 1


def test_a_key_is_in_no_plan_no_state_no_object_but_the_secret_no_log_and_no_command_line(lab, photos, operator):
    core, name = client.CoreV1Api(lab.cluster.api), lab.server_pod().metadata.name
    secret = core.read_namespaced_secret(SECRET, NAMESPACE)
    internal = lab.run("kubectl", "-n", NAMESPACE, "exec", name, "-c", "llama-swap", "--", "cat", "/run/keys/internal")
    logs = [core.read_namespaced_pod_log(name, NAMESPACE, container=one) for one in ("llama-swap", "guard", "door")]
    objects = lab.run("kubectl", "-n", NAMESPACE, "get", "all,configmaps,events", "-o", "json").stdout
    words = lab.run(
        *("kubectl", "-n", NAMESPACE, "exec", name, "-c", "llama-swap", "--", "sh", "-c", "cat /proc/*/cmdline")
    ).stdout
    [state] = [file.read_text() for file in lab.stack.glob("terraform.tfstate")]
    lab.planned()
    printed = lab.terraform("show", "-json", str(lab.clone / "plan")).stdout
    with zipfile.ZipFile(lab.clone / "plan") as plan:
        saved = [plan.read(name).decode("latin-1") for name in plan.namelist()]
    places = [*logs, objects, words, state, printed, *saved]

    assert sorted(secret.data) == ["internal", "keys.json", "operator"]
    assert internal.stdout.startswith("corral-")
    assert "llama-swap" in words
    assert all("llama-swap" in place for place in (state, printed, "".join(saved)))
    for key in (photos, operator, internal.stdout.strip()):
        assert not any(key in place for place in places)


def test_no_container_has_the_operators_key(lab, operator):
    for container in ("llama-swap", "guard"):
        words = ("exec", "deployment/llama-swap", "-c", container, "--", "sh", "-c", "cat /run/keys/*")
        mounted = lab.run("kubectl", "-n", NAMESPACE, *words).stdout
        assert "corral-" in mounted
        assert operator not in mounted


def test_the_program_of_the_image_itself_does_not_start_without_capabilities(lab):
    """So the copy is needed; the image of the tests has the file capability of the official one."""
    words = ("exec", "deployment/llama-swap", "-c", "door", "--")
    assert "ermitted" in lab.run("kubectl", "-n", NAMESPACE, *words, "/usr/bin/caddy", "version").stderr
    assert lab.run("kubectl", "-n", NAMESPACE, *words, "/tmp/caddy", "version").returncode == 0


def test_a_load_without_room_is_a_503_with_the_reason_and_when_to_ask_again(lab, photos):
    before = lab.server_pod().metadata.name
    # The tests' node has no nvidia-smi: this takes its place.
    full = "CORRAL_VRAM_SOURCE=echo 1, 15360"
    lab.run("kubectl", "-n", NAMESPACE, "set", "env", "deployment/llama-swap", "-c", "llama-swap", full)
    wait_for(lambda: (new := lab.server_pod()) and new.metadata.name != before, limit_s=120, what="the new pod")
    lab.run("kubectl", "-n", NAMESPACE, "rollout", "status", "deployment/llama-swap", "--timeout=120s")
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE) as address:
        status, code, headers = chat(address, photos, "tiny-text")

    assert (status, code) == (503, "no-room")
    assert int(headers["Retry-After"]) > 0


def test_without_its_secret_the_pod_waits_and_status_names_the_command_that_ends_it(lab):
    core = client.CoreV1Api(lab.cluster.api)
    core.delete_namespaced_secret(SECRET, NAMESPACE)
    core.delete_namespaced_pod(lab.server_pod().metadata.name, NAMESPACE, grace_period_seconds=1)

    def finding():
        status = json.loads(lab.corral("status", "--json", code=None).stdout)
        return next((one for one in status["findings"] if SECRET in one["what"]), None)

    found = wait_for(finding, limit_s=120, what="the finding about the Secret")
    lab.run(Path("bash"), "-c", f"{lab.catalog.parents[1]}/.venv/bin/{found['next_step']} --catalog {lab.catalog}")
    done = lab.run("kubectl", "-n", NAMESPACE, "rollout", "status", "deployment/llama-swap", "--timeout=150s")

    assert found["is_stuck"]
    assert found["next_step"].startswith("corral keys add operator --context ")
    assert done.returncode == 0
    with forwarded(connect(lab.cluster.kubeconfig, lab.cluster.context), NAMESPACE) as address:
        assert ask(address, lab.key(), "/running")[0] == 200
