"""The hub's client: which servers it contacts, and what it sends them."""

import contextlib
import socket
import ssl
import threading

import pytest

from corral.agent import connection
from corral.agent.connection import Connection
from corral.agent.hub_client import Hub, RetryableError
from corral.agent.hub_policy import Origin, is_loopback
from corral.errors import CannotRun, Refused
from tests.support import faulty_hub as faults
from tests.support.faulty_hub import FaultyHub, RepoContent
from tests.support.fetching import REPO, shop

TOKEN = "hf_secret"


def test_the_token_is_sent_to_the_hub_and_never_to_the_data_host(tmp_path):
    with shop(tmp_path, token=TOKEN) as one:
        one.fetch(token=TOKEN)
        sent = {(entry.host, entry.headers.get("authorization")) for entry in one.hub.log}
    assert sent == {("127.0.0.1", f"Bearer {TOKEN}"), ("localhost", None)}


def test_the_token_does_not_follow_a_redirect_to_another_port(tmp_path):
    with shop(tmp_path) as one, FaultyHub({REPO: RepoContent({"a.gguf": one.content})}) as other:
        sha256 = other.repositories.commit(REPO, "main").files["a.gguf"].sha256
        elsewhere = f"{other.endpoint}/cdn/{sha256}"
        one.hub.faults = [faults.Header(on=faults.RESOLVE, name="Location", value=elsewhere, times=None)]
        one.fetch(token=TOKEN)
        assert one.published.read_bytes() == one.content
        assert {entry.headers.get("authorization") for entry in one.hub.log} == {f"Bearer {TOKEN}"}
        assert {entry.headers.get("authorization") for entry in other.log} == {None}


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (None, "answered 401 .*: it needs a token"),
        ("hf_wrong", "answered 403 .*: the token in HF_TOKEN is not accepted"),
    ],
    ids=["without-token", "with-a-bad-one"],
)
def test_the_refusal_of_a_gated_repo_names_what_it_needs(tmp_path, token, expected):
    with shop(tmp_path, token=TOKEN) as one, pytest.raises(Refused, match=expected) as caught:
        one.fetch(token=token)
    assert "HF_TOKEN" in caught.value.next_step
    assert "hf_" not in caught.value.message


def test_the_address_is_resolved_once_for_all_ranges(tmp_path):
    with shop(tmp_path) as one:
        one.fetch()
        assert sum("/resolve/" in entry.path for entry in one.hub.log) == 1
        assert sum(entry.is_data for entry in one.hub.log) > 1


def test_a_connection_is_handed_over_only_when_its_response_is_closed(tmp_path, monkeypatch):
    closed = []
    give_back = connection.Pool.give_back

    def checked(pool, one, *, reusable):
        closed.append(one.last_response.isclosed())
        give_back(pool, one, reusable=reusable)

    def request(one, *words):
        one.last_response = send(one, *words)
        return one.last_response

    send = Connection.request
    monkeypatch.setattr(Connection, "request", request)
    monkeypatch.setattr(connection.Pool, "give_back", checked)
    with shop(tmp_path) as one:
        one.fetch()
    assert closed
    assert all(closed)


def test_a_redirect_to_plain_http_elsewhere_is_not_followed(tmp_path):
    with shop(tmp_path) as one:
        one.hub.faults = [faults.Header(on=faults.RESOLVE, name="Location", value="http://data.example/x", times=None)]
        with pytest.raises(Refused, match=r"http://data\.example is plain HTTP") as caught:
            one.fetch()
    assert "CORRAL_ALLOW_HTTP=data.example" in caught.value.next_step


def test_a_circle_of_redirects_ends(tmp_path):
    with shop(tmp_path) as one:
        one.hub.faults = [faults.Header(on=faults.RESOLVE, name="Location", value="?again", times=None)]
        with pytest.raises(CannotRun, match="redirects more than 10 times"):
            one.fetch()


@pytest.mark.parametrize("endpoint", ["http://models.example", "http://10.0.0.7:8080", "http://localhost.example"])
def test_plain_http_is_refused_unless_allowed_by_name(endpoint):
    with pytest.raises(Refused, match="is plain HTTP") as caught:
        Hub.from_environment({"HF_ENDPOINT": endpoint})
    allowed = caught.value.next_step.split("CORRAL_ALLOW_HTTP=")[1]
    assert (
        Hub.from_environment({"HF_ENDPOINT": endpoint, "CORRAL_ALLOW_HTTP": f"other, {allowed}"}).endpoint == endpoint
    )


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://x.example"]
)
def test_loopback_and_https_are_allowed(endpoint):
    assert Hub.from_environment({"HF_ENDPOINT": f"{endpoint}/"}).endpoint == endpoint


@pytest.mark.parametrize("endpoint", ["ftp://x.example", "models.example", "http://", "http://[::1"])
def test_an_endpoint_without_the_address_of_a_hub_is_refused(endpoint):
    with pytest.raises(Refused, match="is not the address of a hub"):
        Hub.from_environment({"HF_ENDPOINT": endpoint})


def test_loopback_is_an_address_or_its_name():
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"))
    assert not any(is_loopback(host) for host in ("127.0.0.1.example", "10.0.0.1", "local", ""))


def test_the_token_is_read_from_the_variable_then_the_file_then_the_login(tmp_path):
    (tmp_path / "named").write_text("hf_named\n")
    (tmp_path / "token").write_text("hf_login\n")
    environment = {"HF_HOME": str(tmp_path)}
    assert Hub.from_environment(environment).token == "hf_login"
    environment["HF_TOKEN_PATH"] = str(tmp_path / "named")
    assert Hub.from_environment(environment).token == "hf_named"
    environment["HF_TOKEN"] = "hf_variable"
    assert Hub.from_environment(environment).token == "hf_variable"
    assert Hub.from_environment({"HF_HOME": str(tmp_path / "none")}).token is None


def test_a_named_token_file_that_is_missing_is_refused(tmp_path):
    with pytest.raises(Refused, match=r"HF_TOKEN_PATH names .*, which cannot be read"):
        Hub.from_environment({"HF_TOKEN_PATH": str(tmp_path / "gone")})


def test_a_token_is_never_shown():
    hub = Hub.from_environment({"HF_TOKEN": TOKEN})
    assert TOKEN not in repr(hub)
    with pytest.raises(Refused) as caught:
        Hub.from_environment({"HF_TOKEN": "hf_se\ncret"})
    assert "cret" not in caught.value.message


def test_certificates_are_checked():
    context = connection._tls()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_an_untrusted_certificate_fails_without_retries_and_names_the_remedy(tmp_path, monkeypatch):
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"

    def fail(*_args, **_kw):
        raise error

    monkeypatch.setattr(Connection, "request", fail)
    with shop(tmp_path) as one, pytest.raises(CannotRun, match="is not trusted: self-signed certificate") as caught:
        one.fetch()
    assert "SSL_CERT_FILE" in caught.value.next_step


def test_a_proxy_is_used_for_other_hosts_only(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://user:pass@proxy.example:3128")
    monkeypatch.setenv("no_proxy", "inside.example")
    outside = Connection(Origin("https", "hub.example", 443), 1)
    assert (outside._http.host, outside._http._tunnel_host) == ("proxy.example", "hub.example")
    for host in ("localhost", "inside.example"):
        direct = Connection(Origin("https", host, 443), 1)
        assert (direct._http.host, direct._http._tunnel_host) == (host, None)


def test_a_proxy_that_fails_is_reported_without_its_password(tmp_path, monkeypatch):
    with shop(tmp_path) as one:
        proxy = one.hub.endpoint.replace("//", "//user:hunter2@")
        monkeypatch.setenv("https_proxy", proxy)
        monkeypatch.setenv("http_proxy", proxy)
        for endpoint in ("https://hub.example", "http://hub.example"):
            hub = Hub(endpoint, plain_http_hosts=frozenset({"hub.example"}))
            source = hub.file(REPO, "main", "a.gguf")
            with pytest.raises((RetryableError, Refused)) as caught:
                source.open(0, 10)
            source.abort()
            text = str(vars(caught.value))
            assert "hunter2" not in text
            assert text.isprintable()
        assert [entry.headers["proxy-authorization"][:5] for entry in one.hub.log] == ["Basic"]


def test_what_a_proxy_answers_is_limited_and_escaped(tmp_path, monkeypatch):
    answers = {
        b"HTTP/1.1 407 \x1b[2J\r\n\r\n": (b"", r"407 \\x1b\[2J"),
        b"HTTP/1.1 200 OK\r\n": (b"a: b\r\n" * 1000, "is too long"),
    }
    for content, (endless, expected) in answers.items():
        with socket.create_server(("127.0.0.1", 0)) as server:
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.getsockname()[1]}")
            thread = threading.Thread(target=_answer, args=(server, content, endless))
            thread.start()
            source = Hub("https://hub.example").file(REPO, "main", "a.gguf")
            with pytest.raises(RetryableError, match=expected) as caught:
                source.open(0, 10)
            source.abort()
            thread.join()
        assert caught.value.reason.isprintable()


def _answer(server, content, endless):
    connection, _ = server.accept()
    with connection, contextlib.suppress(OSError):
        connection.recv(1 << 16)
        connection.sendall(content)
        while endless:
            connection.sendall(endless)


@pytest.mark.parametrize(
    "proxy",
    ["http://user:hunter2@proxy:99999", "http://user:hunter2@[::1", "socks5://user:hunter2@proxy", "user:hunter2@"],
)
def test_a_proxy_that_cannot_be_used_is_refused_without_printing_it(monkeypatch, proxy):
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(Refused, match="https_proxy does not name a proxy") as caught:
        Hub("https://hub.example").file(REPO, "main", "a.gguf").open(0, 10)
    assert "hunter2" not in str(vars(caught.value))
