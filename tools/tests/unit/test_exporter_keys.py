"""The operator's key in front of the exporter's page: real keys of `corral keys`, over a real server and socket."""

from __future__ import annotations

import base64
import hmac
import json
from contextlib import suppress
from http.client import HTTPConnection

import pytest
from prometheus_client.registry import Collector

from corral import keys
from corral.exporter import keys as exporter_keys
from corral.exporter.keys import OperatorKeys
from corral.exporter.server import serving
from corral.keys import MONITOR, OPERATOR, LocalKeys

CLOSED = ("/", "/card.json", "/records?since=0")
COMMAND = "cat operator.key"


class NoMetrics(Collector):
    def collect(self):
        return []


@pytest.fixture
def store(tmp_path):
    """Keys of this machine: the operator's, and those of others, which open no page."""
    found = LocalKeys(tmp_path)
    keys.ensure_operator(found)
    return found


@pytest.fixture
def ask(store):
    """The status, the text and the headers of a GET of a server with the keys of *store*."""
    with serving(("127.0.0.1", 0), NoMetrics(), dict, keys=OperatorKeys(store.file, COMMAND)) as server:

        def get(path, *authorization):
            connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
            try:
                connection.putrequest("GET", path)
                for value in authorization:
                    connection.putheader("Authorization", value)
                connection.endheaders()
                answer = connection.getresponse()
                return answer.status, answer.read().decode(), answer.headers
            finally:
                connection.close()

        yield get


def basic(password, user="me"):
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def bearer(key):
    return f"Bearer {key}"


@pytest.mark.parametrize("path", CLOSED)
def test_without_a_key_there_is_the_command_that_prints_it_and_nothing_else(ask, path):
    status, text, headers = ask(path)
    assert status == 401
    assert headers["WWW-Authenticate"] == 'Basic realm="corral", charset="UTF-8"'
    assert text == (
        "The operator's key is required: as the password, with any user name, or as Authorization: Bearer KEY. "
        f"This prints it: {COMMAND}\n"
    )


def test_metrics_and_health_need_none(ask):
    assert (ask("/metrics")[0], ask("/health")[0], ask("/nothing")[0]) == (200, 200, 404)


@pytest.mark.parametrize("path", CLOSED)
def test_the_operators_key_opens_it_for_a_browser_and_for_a_program(ask, store, path):
    key = store.operator_key()
    for sent in (bearer(key), f"bearer {key}", basic(key), basic(key, user=""), basic(key, user="ä")):
        assert ask(path, sent)[0] == 200, sent


@pytest.mark.parametrize("path", CLOSED)
def test_what_is_not_the_operators_key_opens_nothing(ask, store, path):
    key, photos = store.operator_key(), keys.add(store, "photos")
    with store.exclusive_lock():
        store.write(store.read().replaced(MONITOR, ["a-monitors-key"]))
    (digest,) = store.read().of[OPERATOR]
    wrong = (
        *(bearer(one) for one in ("x", "", digest, photos, "a-monitors-key", key[:-1], key + "x", f"{key} {key}")),
        *(basic(one) for one in ("", "x", digest, photos, key.upper(), f":{key}")),
        *("Basic", "Basic %%", f"Basic {key}", f"Basic {base64.b64encode(key.encode()).decode()}", "Basic é"),
        *(key, f"Digest {key}", f"Bearer{key}", "", " ", "Bearer é"),
    )
    for sent in wrong:
        assert ask(path, sent)[0] == 401, sent
    assert ask(path, bearer(key), bearer(key))[0] == 401
    assert ask(path, bearer("x"), bearer(key))[0] == 401


def test_while_the_key_is_rotated_both_open_it_and_then_the_new_one_alone(ask, store):
    old = store.operator_key()
    new = keys.rotate(store, OPERATOR)
    assert [ask("/card.json", bearer(key))[0] for key in (old, new)] == [200, 200]
    keys.revoke(store, OPERATOR, only_old=True)
    assert [ask("/card.json", bearer(key))[0] for key in (old, new)] == [401, 200]


def test_a_file_that_a_link_replaces_is_in_force_at_the_next_request(ask, store, tmp_path):
    """As the kubelet changes the files of a Secret."""
    old = store.operator_key()
    other = LocalKeys(tmp_path / "other")
    new = keys.ensure_operator(other)
    (tmp_path / "link").symlink_to(other.file)
    (tmp_path / "link").replace(store.file)
    assert [ask("/card.json", bearer(key))[0] for key in (old, new)] == [401, 200]


def broken(text):
    return lambda file: file.write_text(text)


def hashes(*found):
    return broken(json.dumps({"version": 1, "clients": {"operator": list(found)}}))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda file: file.unlink(), "The keys cannot be read: No such file or directory."),
        (lambda file: (file.unlink(), file.mkdir()), "The keys cannot be read: Is a directory."),
        *(
            (damage, "The file of the keys is not what `corral keys` writes, or has no key of the operator.")
            for damage in (
                *map(broken, ("", "[]", "null", "\x00", "[" * 100_000)),
                *map(broken, ('{"version": 1}', '{"version": 1, "clients": []}')),
                broken('{"version": 2, "clients": {"operator": ["' + "0" * 64 + '"]}}'),
                broken('{"version": 1, "clients": {"photos": ["' + "0" * 64 + '"]}}'),
                broken('{"version": 1, "clients": {"operator": "' + "0" * 64 + '"}}'),
                *(hashes(), hashes("0" * 63), hashes("0" * 64, "a-key"), hashes(1)),
                lambda file: file.write_bytes(b"\xff"),
            )
        ),
    ],
)
def test_a_file_that_cannot_be_read_opens_nothing_until_it_can(ask, store, damage, reason):
    key, right = store.operator_key(), store.file.read_text()
    damage(store.file)
    for path in CLOSED:
        status, text, headers = ask(path, bearer(key))
        assert (status, headers["WWW-Authenticate"]) == (503, None)
        assert text.startswith(f"{reason} ")
        assert "corral apply" in text
        assert ask(path)[0] == 503
    assert ask("/metrics")[0] == 200
    store.file.rmdir() if store.file.is_dir() else store.file.unlink(missing_ok=True)
    store.file.write_text(right)
    assert ask("/card.json", bearer(key))[0] == 200


def test_each_hash_is_compared_in_constant_time_wherever_the_right_one_is(ask, store, monkeypatch):
    compared = []

    def compare(one, other):
        compared.append(one)
        return hmac.compare_digest(one, other)

    old = store.operator_key()
    new = keys.rotate(store, OPERATOR)
    monkeypatch.setattr(exporter_keys, "compare_digest", compare)
    for key in (old, new, "x"):
        compared.clear()
        ask("/card.json", bearer(key))
        assert compared == list(store.read().of[OPERATOR])


def test_no_key_is_in_a_log_not_even_of_a_request_that_fails(store, capfd):
    def fail():
        raise RuntimeError("a test")

    key = store.operator_key()
    with serving(("127.0.0.1", 0), NoMetrics(), fail, keys=OperatorKeys(store.file, COMMAND)) as server:
        for sent in (bearer(key), basic(key), bearer(f"{key}x")):
            connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
            connection.request("GET", "/card.json", headers={"Authorization": sent})
            with suppress(ConnectionError):
                assert connection.getresponse().read()
            connection.close()
    logged = "".join(capfd.readouterr())
    assert logged.count("RuntimeError: a test") == 2
    assert key not in logged
    assert basic(key).split()[1] not in logged
