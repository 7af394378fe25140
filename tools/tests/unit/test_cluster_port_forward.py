"""`corral.cluster.port_forward`: bytes through an API server to a pod, both ways, until one of them has gone."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading

import httpx2
import pytest

from corral.cluster import port_forward
from corral.cluster.client import connect
from corral.cluster.port_forward import forwarded
from corral.errors import CannotRun, Refused
from tests.support.engine_process import wait_for
from tests.support.fake_kubernetes import fake_kubernetes

pytestmark = pytest.mark.timeout(60)


class Pod(http.server.BaseHTTPRequestHandler):
    """Echoes what is posted; streams three events; never ends a silent one."""

    protocol_version = "HTTP/1.1"
    go_on: threading.Event

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._head(len(body))
        self.wfile.write(body)

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"data: 1\n\n")
        self.go_on.wait()
        with contextlib.suppress(OSError):
            self.wfile.write(b"data: [DONE]\n\n")

    def _head(self, length):
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def pod():
    Pod.go_on = threading.Event()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pod)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    Pod.go_on.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def fake(tmp_path, pod):
    with fake_kubernetes(tmp_path) as running:
        running.pod(port=pod)
        yield running


@pytest.fixture
def cluster(fake):
    return connect(fake.kubeconfig)


def test_two_mebibytes_come_back_as_they_were_sent(cluster):
    body = bytes(range(256)) * 8192
    with forwarded(cluster, "llama-cpp") as root:
        assert httpx2.post(f"{root}/", content=body, trust_env=False).content == body


def test_many_connections_at_once_do_not_mix(cluster):
    answers = {}
    with forwarded(cluster, "llama-cpp") as root:

        def ask(number):
            answers[number] = httpx2.post(f"{root}/", content=f"{number}" * 5000, trust_env=False).text

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {number: f"{number}" * 5000 for number in range(20)}


def test_the_first_event_of_a_stream_arrives_before_the_second_is_sent(cluster):
    with forwarded(cluster, "llama-cpp") as root, httpx2.stream("GET", f"{root}/", trust_env=False) as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == b"data: 1\n\n"
        Pod.go_on.set()
        assert b"".join(pieces) == b"data: [DONE]\n\n"


def test_a_response_still_arrives_after_the_client_has_closed_its_half(cluster):
    with (
        forwarded(cluster, "llama-cpp") as root,
        socket.create_connection(("127.0.0.1", int(root.rpartition(":")[2]))) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\nHost: pod\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        received = b""
        while not received.endswith(b"data: 1\n\n"):
            received += client.recv(4096)
        Pod.go_on.set()
        while piece := client.recv(4096):
            received += piece
    assert received.endswith(b"data: [DONE]\n\n")


def test_a_client_that_has_gone_leaves_no_connection_to_a_silent_pod(cluster, fake, monkeypatch):
    monkeypatch.setattr(port_forward, "HALF_OPEN_S", 0.2)
    with forwarded(cluster, "llama-cpp") as root:
        with httpx2.stream("GET", f"{root}/", trust_env=False) as answer:
            next(answer.iter_raw())
            assert fake.open_forwards == 1
        wait_for(lambda: fake.open_forwards == 0, what="the end of the connection to the pod")


def test_a_pod_that_goes_away_ends_the_connection(cluster, fake):
    with forwarded(cluster, "llama-cpp") as root, httpx2.stream("GET", f"{root}/", trust_env=False) as answer:
        pieces = answer.iter_raw()
        next(pieces)
        fake.cut()
        with contextlib.suppress(httpx2.RemoteProtocolError, httpx2.ReadError):
            assert not list(pieces)


def test_after_a_pod_was_replaced_new_connections_go_to_the_new_one(cluster, fake, pod):
    with forwarded(cluster, "llama-cpp") as root:
        fake.pod("llama-swap-1", port=pod)
        assert httpx2.post(f"{root}/", content=b"hello", trust_env=False).text == "hello"
    assert any("/pods/llama-swap-1/portforward" in path for path in fake.paths)


def test_a_port_without_a_listener_resets_the_connection(cluster, fake):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        fake.pod(port=closed.getsockname()[1])
        with forwarded(cluster, "llama-cpp") as root, pytest.raises((httpx2.ReadError, httpx2.RemoteProtocolError)):
            httpx2.post(f"{root}/", content=b"hello", trust_env=False)


def test_leaving_the_block_ends_streams_threads_and_the_port(cluster, fake):
    before = {thread.ident for thread in threading.enumerate()}
    with forwarded(cluster, "llama-cpp") as root:
        port = int(root.rpartition(":")[2])
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"GET / HTTP/1.1\r\nHost: pod\r\n\r\n")
        assert client.recv(4096)
    assert not Pod.go_on.is_set()  # the pod has not ended its answer: leaving did not wait for it
    with contextlib.suppress(ConnectionResetError):
        while client.recv(4096):
            pass
    client.close()
    mine = {thread.name for thread in threading.enumerate() if thread.ident not in before}
    assert not [name for name in mine if "port-forward" in name or "asyncio" in name]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_it_listens_on_loopback_only(cluster):
    with forwarded(cluster, "llama-cpp") as root:
        assert root.startswith("http://127.0.0.1:")


def test_no_ready_pod_is_an_error_with_the_state_of_each_pod(cluster, fake):
    fake.pod(ready=False)
    with (
        pytest.raises(CannotRun, match="llama-swap-0 is Running, but not ready") as error,
        forwarded(cluster, "llama-cpp"),
    ):
        pass
    assert error.value.next_step == "corral status --context lab --namespace llama-cpp"


def test_a_missing_service_is_an_error_with_those_that_exist(cluster, fake):
    fake.objects["/api/v1/namespaces/llama-cpp/services"] = [{"metadata": {"name": "immich"}, "spec": {}}]
    with pytest.raises(CannotRun, match="no Service for llama-swap; it has: immich"), forwarded(cluster, "llama-cpp"):
        pass


def test_a_service_of_another_name_is_found_by_its_label(cluster, fake):
    fake.objects["/api/v1/namespaces/llama-cpp/services"][0]["metadata"]["name"] = "models"
    with forwarded(cluster, "llama-cpp") as root:
        assert httpx2.post(f"{root}/", content=b"hello", trust_env=False).text == "hello"


def test_a_user_who_may_not_forward_is_refused_before_anything_listens(cluster, fake):
    fake.refuse["/api/v1/namespaces/llama-cpp/pods/llama-swap-0/portforward"] = 403
    with pytest.raises(Refused, match="may not create pods/portforward"), forwarded(cluster, "llama-cpp"):
        pass


def test_a_block_that_is_left_in_the_middle_of_a_stream_writes_nothing_to_stderr_or_the_log(cluster, capfd, caplog):
    with forwarded(cluster, "llama-cpp") as root:
        client = socket.create_connection(("127.0.0.1", int(root.rpartition(":")[2])))
        client.sendall(b"GET / HTTP/1.1\r\nHost: pod\r\n\r\n")
        assert client.recv(4096)
    client.close()
    assert (capfd.readouterr().err, caplog.messages) == ("", [])
