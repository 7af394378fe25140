"""Further rules of each role, as the inventory's check applies them; tests/repo/test_inventory_check.py has the others.

They take a minute of both cores and need no host.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hosts.inventory import check_cases

EMBEDDINGS = Path(__file__).parents[1] / "fixtures" / "embeddings"
"""A catalog without a chat."""
ARCHIVE = {"build": 11549, "archive": "/srv/llama.cpp.tar.gz"}


def clients(*hosts):
    return [{"host": host, "access": "ro"} for host in hosts]


# Group, variables that differ from the example, and what the refusal has to contain besides the host.
REFUSED = {
    "type": ("store", {"nfs_store_threads": "many"}, ["nfs_store_threads", "a whole number", "nfs_store/README.md"]),
    "no clients": ("store", {"nfs_store_clients": []}, ["nfs_store_clients is empty", "Name the node"]),
    "wildcard": (
        "store",
        {"nfs_store_clients": clients("*")},
        ['"*", which is not an IP address, a network or a host'],
    ),
    "every address": ("store", {"nfs_store_clients": clients("0.0.0.0")}, ["not the address of one machine"]),
    "host bits": (
        "store",
        {"nfs_store_clients": clients("192.168.1.40/24")},
        ["is ambiguous: the network is 192.168.1.0/24, the single address 192.168.1.40"],
    ),
    "client twice": ("store", {"nfs_store_clients": clients("a", "a")}, ["names a host twice: a, a"]),
    "access": ("store", {"nfs_store_clients": [{"host": "a", "access": "write"}]}, ["ro, rw", "write"]),
    "parent folder": ("store", {"nfs_store_path": "/srv/nfs-ssd/../x"}, ['"/srv/nfs-ssd/../x" cannot be exported']),
    "outside its disk": ("store", {"nfs_store_path": "/srv/other"}, ["does not lie in nfs_store_filesystem"]),
    "mode that YAML read as a number": ("store", {"nfs_store_mode": 0o755}, ["nfs_store_mode is 493", "in quotes"]),
    "root's group": ("store", {"nfs_store_gid": 0}, ["nfs_store_gid is 0"]),
    "exporter on a device": ("store", {"node_metrics_address": "eth0"}, ['"eth0", which is not an IP address']),
    "exporter's port": (
        "store",
        {"node_metrics_address": "192.168.1.30", "node_metrics_port": 80},
        ["node_metrics_port is 80", "from 1024 to 65535"],
    ),
    "unknown card": ("gpu_nodes", {"gpu_node_card": "a100"}, ['gpu_node_card is "a100"', "one of: t4"]),
    "version that is not exact": ("gpu_nodes", {"gpu_node_toolkit_version": "1"}, ['is the text "1"', "1.18.1"]),
    "no driver": ("gpu_nodes", {"gpu_node_driver_packages": []}, ["gpu_node_driver_packages is empty"]),
    "fingerprint": (
        "gpu_nodes",
        {"gpu_node_repositories": [{"name": "a", "uri": "u", "key": "k", "fingerprint": "EB69"}]},
        ['fingerprint "EB69"', "all 40 hex digits", "gpg --show-keys"],
    ),
    "root's volume": ("gpu_nodes", {"local_store_disk": "/dev/vdb", "local_store_uid": 0}, ["local_store_uid is 0"]),
    "volume's mode": (
        "gpu_nodes",
        {"local_store_disk": "/dev/vdb", "local_store_mode": "0644"},
        ['local_store_mode is "0644"', 'local_store_mode: "0755"'],
    ),
    "connections": ("gpu_nodes", {"nfs_client_tuning_nconnect": 17}, ["nconnect is 17", "from 1 to 16"]),
    "soft mount": ("gpu_nodes", {"nfs_client_tuning_options": ["soft"]}, ["has a soft mount", "write hard"]),
    "option with a blank": ("gpu_nodes", {"nfs_client_tuning_options": ["hard, intr"]}, ['has "hard, intr"']),
    "server": ("gpu_nodes", {"nfs_client_tuning_server": "10.0.0.300"}, ['nfs_client_tuning_server is "10.0.0.300"']),
    "no source": ("llama_hosts", {"llama_cpp_release": {"build": 1}}, ["must name a build and one source"]),
    "archive without a checksum": ("llama_hosts", {"llama_cpp_release": ARCHIVE}, ["has no sha256", "sha256sum"]),
    "architecture": ("llama_hosts", {"llama_cpp_cuda_architectures": ["7.5"]}, ['_architectures has "7.5"', "75"]),
    "jobs": ("llama_hosts", {"llama_cpp_jobs": -1}, ["llama_cpp_jobs is -1", "from 0 to 1024"]),
    "port of the system": ("llama_hosts", {"llama_server_port": 80}, ['llama_server_port is "80"', "from 1024"]),
    "listen on a name": ("llama_hosts", {"llama_server_listen": "eth0"}, ['"eth0", which is not an IP address']),
    "wide client": (
        "llama_hosts",
        {"llama_server_clients": ["0.0.0.0/0"]},
        ['llama_server_clients has "0.0.0.0/0"', "no password", "192.168.1.0/24"],
    ),
    "unknown model": (
        "llama_hosts",
        {"llama_server_probe_model": "big"},
        ['llama_server_probe_model is "big"', "has no model big; it has", "Name one of these"],
    ),
    "probe of an embedding": (
        "llama_hosts",
        {"llama_server_catalog": str(EMBEDDINGS), "llama_server_probe_model": "texts"},
        ['llama_server_probe_model is "texts", and its task is embedding', "Name a model of the task chat"],
    ),
    "memory": ("llama_hosts", {"llama_server_memory_max": "lots"}, ['_memory_max is "lots"', "such as 24G"]),
    "relative store": ("llama_hosts", {"llama_server_store": "models"}, ['_store is "models"', "an absolute path"]),
}
ACCEPTED = {
    "example": ("llama_hosts", {}),
    "open for a network": ("llama_hosts", {"llama_server_listen": "::", "llama_server_clients": ["fd00::/64"]}),
    "number as a port": ("llama_hosts", {"llama_server_port": 8080}),
    "engine of its own": ("llama_hosts", {"llama_cpp_release": None, "llama_server_engine": "/usr/bin/llama-server"}),
    "roll back": ("llama_hosts", {"llama_cpp_release": None, "llama_cpp_rollback_to": "b11434-cpu"}),
    "clients of every kind": (
        "store",
        {"nfs_store_clients": clients("10.0.0.0/8", "192.168.1.40", "fd00::1", "node1", "node-2.lan")},
    ),
    "set-group-ID": ("store", {"nfs_store_mode": "2775", "nfs_store_squash": "all_squash"}),
    "local store": ("gpu_nodes", {"local_store_disk": "/dev/vdb", "local_store_size": "400g"}),
    "network buffers": ("gpu_nodes", {"nfs_client_tuning_sysctls": {"net.ipv4.tcp_rmem": "4096 131072 16777216"}}),
    "gpu node with metrics": ("gpu_nodes", {"node_metrics_address": "{{ ansible_host }}", "ansible_host": "10.0.0.1"}),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """Case → the refusals of its host, "" for an accepted one."""
    return check_cases(REFUSED, ACCEPTED, tmp_path_factory.mktemp("cases"))


@pytest.mark.parametrize("case", REFUSED)
def test_a_value_that_a_role_refuses_is_refused_with_host_rule_and_remedy(refusals, case):
    assert "HOST" in refusals[case]
    assert [words for words in REFUSED[case][2] if words not in refusals[case]] == [], refusals[case]


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_value_that_the_roles_accept_is_accepted(refusals, case):
    assert refusals[case] == ""
