"""Caddy with what Terraform renders: which requests reach the guard, and that streams do so whole."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
from http.client import IncompleteRead

import pytest

from corral.engine import door as front_door
from tests.support import door as support
from tests.support.engine_process import wait_for

LISTEN = "127.0.0.1:1"  # each test's own takes its place


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return support.render(tmp_path_factory.mktemp("plain"), listen=LISTEN, body_mib=1)["caddy"]


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory):
    return support.render(tmp_path_factory.mktemp("encrypted"), listen=LISTEN, tls={})["caddy"]


@pytest.fixture(scope="module")
def door(plain, tmp_path_factory):
    """One Caddy for the tests that leave it as it is."""
    with support.caddy(tmp_path_factory.mktemp("door"), plain) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_received(door):
    door.stub.received.clear()


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST", "[::1]:{port}", "localhost:1"])
def test_a_request_for_this_machine_reaches_the_guard(door, host):
    answer = door.send(Host=host.format(port=door.port))

    assert (answer.status, answer.body) == (200, support.ANSWER)
    assert len(door.stub.received) == 1


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.", "0.0.0.0", "127.1"]
)
def test_a_request_for_another_host_gets_421_and_no_further(door, host):
    answer = door.send(Host=host.format(port=door.port))

    assert (answer.status, answer.code) == (421, "host-not-served")
    assert door.stub.received == []


def test_a_request_without_a_host_gets_421(door):
    with socket.create_connection(("127.0.0.1", door.port)) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.0\r\n\r\n")
        assert connection.recv(4096).split()[1] == b"421"
    assert door.stub.received == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://127.0.0.1:{port}"},
        {"Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "none"},
        {"Host": "localhost:{port}", "Origin": "http://localhost:{port}", "Sec_Fetch_Site": "same-origin"},
    ],
    ids=str,
)
def test_the_servers_own_pages_reach_the_guard(door, headers):
    answer = door.send(**{name: value.format(port=door.port) for name, value in headers.items()})

    assert answer.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://127.0.0.1:1{port}"},
        {"Origin": "http://localhost:{port}"},
        {"Origin": "http://127.0.0.1:{port}, http://evil.example"},
        {"Origin": "http://{{http.request.hostport}}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": ""},
        {"Origin": "http://127.0.0.1:{port}", "Sec_Fetch_Site": "cross-site"},
    ],
    ids=str,
)
def test_pages_of_another_origin_get_403_and_no_further(door, headers):
    answer = door.send(**{name: value.format(port=door.port) for name, value in headers.items()})

    assert (answer.status, answer.code) == (403, "origin-not-allowed")
    assert door.stub.received == []


@pytest.mark.parametrize("in_chunks", [False, True], ids=["with-its-length", "in-chunks"])
def test_a_body_over_the_limit_gets_413(door, in_chunks):
    body = b"a" * ((1 << 20) + 1)
    with door.request("POST", "/v1/completions", iter([body]) if in_chunks else body) as answer:
        assert answer.status == 413

    assert door.stub.received == []


def test_no_answer_names_the_programs(door):
    refused = [door.send(Host="evil.example"), door.send(Origin="null"), door.send()]

    assert [one.status for one in refused] == [421, 403, 200]
    assert not [one.headers for one in refused if {"Server", "Via"} & one.headers.keys()]


def test_a_client_does_not_choose_the_address_that_the_guard_is_given(door):
    door.send(X_Forwarded_For="10.0.0.7", X_Forwarded_Proto="gopher")

    [(_, headers, _)] = door.stub.received
    assert (headers["X-Forwarded-For"], headers["X-Forwarded-Proto"]) == ("127.0.0.1", "http")


def test_each_chunk_of_a_stream_leaves_at_once_and_a_reload_ends_none(plain, tmp_path):
    with support.caddy(tmp_path, plain) as door, door.request("GET", "/stream") as answer:
        assert answer.readline() == b"data: first\n"  # the stub waits with the rest

        door.config.write_text(door.config.read_text().replace('"localhost"', '"renamed"'))
        door.reload()
        wait_for(lambda: _statuses(door, "renamed", "localhost") == [200, 421], what="the new configuration alone")
        door.stub.go_on.set()

        assert answer.read().endswith(b"data: [DONE]\n\n")


def _statuses(door, *hosts):
    with contextlib.suppress(ConnectionResetError):  # the old listener takes with it what it has not accepted yet
        return [door.send(Host=host).status for host in hosts]


def test_a_configuration_that_is_wrong_leaves_the_one_before_it(plain, tmp_path):
    with support.caddy(tmp_path, plain) as door:
        door.config.write_text('{"apps": {"http": {"nothing": 1}}}')
        door.reload()
        wait_for(lambda: "failed to reload" in door.log, what="the failed reload")

        assert door.send().status == 200


KEYS = {"Authorization": "Bearer corral-secret-a", "x_api_key": "corral-secret-x"}


def test_without_the_guard_the_answer_is_502_and_no_key_is_logged(plain, tmp_path):
    with support.caddy(tmp_path, plain, has_guard=False) as door:
        answer = door.send("/v1/models?q=corral-secret-q", **KEYS)
        door.stop()

    assert (answer.status, answer.code) == (502, "door")
    assert not {"Server", "Via"} & answer.headers.keys()
    assert "secret" not in door.log


def test_an_answer_that_breaks_off_ends_there_and_no_key_is_logged(plain, tmp_path):
    with support.caddy(tmp_path, plain) as door:
        with pytest.raises(IncompleteRead):
            door.send("/broken?q=corral-secret-q", **KEYS)
        door.stop()

    assert "secret" not in door.log


def test_nothing_but_the_door_is_listened_at(door):
    assert [tuple(one) for one in support.listening(door.process.pid)] == [("127.0.0.1", door.port)]


def test_with_tls_the_authority_of_the_door_is_enough(encrypted, tmp_path):
    with support.caddy(tmp_path, encrypted) as door:
        wait_for(lambda: _certificate(door.port, front_door.authority(tmp_path), "localhost"), what="a certificate")
        answer = wait_for(lambda: _answer_over_tls(door), what="the certificate of the address")

        assert (answer.status, answer.body) == (200, support.ANSWER)
        assert door.send(Origin=f"http://127.0.0.1:{door.port}").code == "origin-not-allowed"
        with socket.create_connection(("127.0.0.1", door.port)) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"400" in connection.recv(4096)


def _answer_over_tls(door):
    with contextlib.suppress(ssl.SSLError):
        return door.send(Origin=f"https://127.0.0.1:{door.port}")


def _certificate(port, authority, name):
    """The certificate that is shown for *name*, if *authority* vouches for it."""
    with contextlib.suppress(OSError):
        context = ssl.create_default_context(cafile=str(authority))
        with (
            socket.create_connection(("127.0.0.1", port)) as connection,
            context.wrap_socket(connection, server_hostname=name) as session,
        ):
            return session.getpeercert(binary_form=True)


def test_the_files_of_caddy_are_its_users_alone(encrypted, tmp_path):
    with support.caddy(tmp_path, encrypted):
        key = front_door.authority(tmp_path).with_name("root.key")
        wait_for(key.exists, what="the authority's key")
        assert key.stat().st_mode & 0o077 == 0


def test_a_certificate_of_the_operators_own_is_the_one_that_is_shown(tmp_path):
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    subject = ["-subj", "/CN=door.example", "-addext", "subjectAltName=DNS:door.example"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    subprocess.run([*command, *subject, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    files = {"certificate": str(certificate), "key": str(key)}
    rendered = support.render(tmp_path / "rendered", listen=LISTEN, hosts=["door.example"], tls=files)["caddy"]

    with support.caddy(tmp_path / "door", rendered) as door:
        assert _certificate(door.port, certificate, "door.example") == ssl.PEM_cert_to_DER_cert(certificate.read_text())

    assert not front_door.authority(tmp_path / "door").exists()
