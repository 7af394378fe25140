"""The guard's configuration: what Terraform renders, and nothing else."""

import copy
import json

import pytest

from corral.door.config import Client, Misconfigured, read_config

KEY = "internal-key-of-llama-swap"


@pytest.fixture
def document(tmp_path):
    (tmp_path / "internal").write_text(f"{KEY}\n")
    return {
        "version": 1,
        "listen": {"host": "127.0.0.1", "port": 8081},
        "upstream": {"host": "::1", "port": 5800},
        "internal_key_file": str(tmp_path / "internal"),
        "keys": str(tmp_path / "keys.json"),
        "clients": {
            "operator": {"models": None, "requests": None, "role": "operator"},
            "immich": {"models": ["qwen3-8b"], "requests": 4, "role": "client"},
        },
        "models": {"qwen3-8b": "qwen3-8b", "gpt-4o": "qwen3-8b", "other": "other"},
        "adapters": {},
        "chosen_versions": None,
        "groups": {},
        "tasks": {},
        "peers": {"p40": {"host": "llama-swap-p40", "port": 8080, "models": ["other"]}},
        "image_hosts": ["images.example:8443"],
        "body_mib": 64,
        "retry_after_seconds": 30,
        "drain_seconds": 60,
    }


def read(tmp_path, document):
    path = tmp_path / "guard.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_config(path)


def test_a_configuration_is_read_whole(tmp_path, document):
    config = read(tmp_path, document)

    assert (config.listen, config.upstream) == (("127.0.0.1", 8081), ("::1", 5800))
    assert config.clients["immich"] == Client("immich", frozenset({"qwen3-8b"}), 4)
    assert config.clients["operator"] == Client("operator", None, None, "operator")
    assert config.models["gpt-4o"] == "qwen3-8b"
    assert config.body_bytes == 64 * 2**20
    assert config.internal_key == KEY
    assert KEY not in repr(config)


def test_the_groups_are_those_of_known_models(tmp_path, document):
    assert read(tmp_path, document | {"groups": {"qwen3-8b": "main"}}).groups == {"qwen3-8b": "main"}
    for groups, problem in (({"gpt-4o": "main"}, "groups.gpt-4o is not the id"), ({"qwen3-8b": ""}, "must be a text")):
        with pytest.raises(Misconfigured, match=problem):
            read(tmp_path, document | {"groups": groups})


def test_the_tasks_are_known_ones_of_known_models(tmp_path, document):
    assert read(tmp_path, document | {"tasks": {"qwen3-8b": "rerank"}}).tasks == {"qwen3-8b": "rerank"}
    for tasks, problem in (
        ({"gpt-4o": "rerank"}, "tasks.gpt-4o is not the id"),
        ({"qwen3-8b": "poem"}, "tasks.qwen3-8b is 'poem'; it must be one of chat, embedding, rerank"),
    ):
        with pytest.raises(Misconfigured, match=problem):
            read(tmp_path, document | {"tasks": tasks})


def test_a_unix_socket_a_key_from_the_environment_and_no_keys_are_other_choices(tmp_path, document, monkeypatch):
    monkeypatch.setenv("GUARD_KEY", KEY)
    del document["internal_key_file"], document["clients"]["immich"]
    document |= {"internal_key_env": "GUARD_KEY", "listen": {"unix": "/run/guard.sock"}, "keys": None}

    config = read(tmp_path, document)

    assert (config.listen, config.internal_key, config.keys) == ("/run/guard.sock", KEY, None)


REFUSED = {
    "an unknown key": ("portt", 1, "portt is not known"),
    "an unknown key inside": ("listen.tls", True, "listen.tls is not known"),
    "another version": ("version", 2, "version is 2"),
    "every address": ("listen.host", "0.0.0.0", "listen.host is '0.0.0.0'; it must be an address of loopback"),
    "a name for loopback": ("upstream.host", "localhost", "upstream.host is 'localhost'"),
    "a port of text": ("listen.port", "8081", "listen.port must be a whole number from 0 to 65535"),
    "a truth for a number": ("body_mib", True, "body_mib must be a whole number"),
    "a body of nothing": ("body_mib", 0, "body_mib must be a whole number from 1"),
    "a relative path": ("keys", "keys.json", "keys must be an absolute path"),
    "no keys and two clients": ("keys", None, "without keys, clients must have exactly one member"),
    "an unknown role": ("clients.immich.role", "admin", "clients.immich.role is 'admin'"),
    "a monitor with models": ("clients.immich.role", "monitor", "clients.immich.models must be []"),
    "a steward with models": ("clients.immich.role", "steward", "immich.models must be []: a steward loads no model"),
    "an alias as a client's model": ("clients.immich.models", ["gpt-4o"], "names 'gpt-4o', which is not the id"),
    "a limit of nothing": ("clients.immich.requests", 0, "clients.immich.requests must be a whole number from 1"),
    "a name with a line break": ("clients.im\nmich", {}, "clients has the name 'im\\nmich'"),
    "a URL for a host": ("image_hosts", ["https://images.example"], "image_hosts must be a list of texts of the form"),
    "a URL for a peer": ("peers.p40.host", "http://other", "peers.p40.host is 'http://other'"),
    "a peer with an unknown model": ("peers.p40.models", ["gpt-4o"], "peers.p40.models names 'gpt-4o'"),
    "two internal keys": ("internal_key_env", "X", "exactly one of internal_key_env and internal_key_file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_configuration_is_refused_by_name(tmp_path, document, case):
    place, value, message = REFUSED[case]
    broken = copy.deepcopy(document)
    *folders, name = place.split(".")
    found = broken
    for folder in folders:
        found = found[folder]
    found[name] = value

    with pytest.raises(Misconfigured) as error:
        read(tmp_path, broken)

    assert message in str(error.value)
    assert str(tmp_path / "guard.json") in str(error.value)


def test_every_key_is_required(tmp_path, document):
    for name in sorted(document):
        with pytest.raises(Misconfigured, match=name):
            read(tmp_path, {key: value for key, value in document.items() if key != name})


def test_an_internal_key_that_is_missing_or_too_short_is_refused_and_not_quoted(tmp_path, document):
    (tmp_path / "internal").write_text("short-key")
    with pytest.raises(Misconfigured, match=r"internal_key_file .* has no key") as error:
        read(tmp_path, document)
    assert "short-key" not in str(error.value)

    (tmp_path / "internal").unlink()
    with pytest.raises(Misconfigured, match=r"internal cannot be read: No such file"):
        read(tmp_path, document)


def test_text_that_parsers_read_differently_is_no_configuration(tmp_path, document):
    twice = json.dumps(document).replace('"version": 1', '"version": 1, "versio\\u006e": 1')
    for text, message in ((twice, "a name twice"), ("{", "line 1, column 2"), ("[" * 100_000, "nested too deep")):
        with pytest.raises(Misconfigured, match=message):
            read(tmp_path, text)
