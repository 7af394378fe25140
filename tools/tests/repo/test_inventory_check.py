"""The plays of playbooks/check.yml: each value that a role refuses is refused before any host is contacted.

The hosts of these inventories cannot exist (RFC 2606), and ssh is a program that fails.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from corral import paths

ANSIBLE = paths.REPOSITORY / "ansible"
EXAMPLE = ANSIBLE / "inventories" / "example"
ROLES = ANSIBLE / "roles"

_FAILURE = re.compile(r"^(?:fatal|failed): \[([^\] ]+)[^\n]*=> *\n((?: +[^\n]*\n| *\n(?= ))*)", re.MULTILINE)


def run_playbook(playbook, inventory, folder, *options, **environment):
    """Run ansible-playbook in ansible/; no connection can be opened."""
    closed = {"ANSIBLE_HOME": str(folder / "ansible"), "ANSIBLE_SSH_EXECUTABLE": "/bin/false", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "--inventory", str(inventory), *options, str(playbook)],
        cwd=ANSIBLE,
        env=os.environ | closed | {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORKS": "4"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def read(file):
    return yaml.safe_load(Path(file).read_text())


GROUPS = {
    "store": read(EXAMPLE / "group_vars" / "store.yml"),
    "gpu_nodes": read(EXAMPLE / "group_vars" / "gpu_nodes.yml"),
    "llama_hosts": read(EXAMPLE / "group_vars" / "llama_hosts.yml"),
}
COMMIT = "0123456789" * 4
ARCHIVE = {"build": 11549, "archive": "/srv/llama.cpp.tar.gz"}


def clients(*hosts):
    return [{"host": host, "access": "ro"} for host in hosts]


# Group, variables that differ from the example, and what the refusal has to contain besides the host.
REFUSED = {
    # The values of the issue that asked for this play.
    "profile": ("llama_hosts", {"llama_cpp_profile": "vulkan"}, ["llama_cpp_profile", "cpu, cuda", "vulkan"]),
    "short commit": (
        "llama_hosts",
        {"llama_cpp_release": {"build": 11549, "commit": "abc1234"}},
        ['llama_cpp_release.commit is "abc1234"', "all 40 hex digits", "git ls-remote"],
    ),
    "comit": (
        "llama_hosts",
        {"llama_cpp_release": {"build": 11549, "comit": COMMIT}},
        ["sets llama_cpp_release.comit", "nearest known name is llama_cpp_release.commit"],
    ),
    "port": ("llama_hosts", {"llama_server_port": "abc"}, ['llama_server_port is "abc"', "from 1024 to 65535"]),
    "one server without a model": (
        "llama_hosts",
        {"llama_server_program": "llama-server"},
        ["llama_server_program is llama-server", "Set llama_server_model"],
    ),
    "unquoted version": (
        "gpu_nodes",
        {"gpu_node_driver_version": 570.10},
        ["gpu_node_driver_version is the number 570.1;", "in quotes", 'gpu_node_driver_version: "570.195.03"'],
    ),
    "open without clients": (
        "llama_hosts",
        {"llama_server_listen": "0.0.0.0"},
        ["llama_server_listen is 0.0.0.0", "llama_server_clients is empty", 'llama_server_clients: ["192.168.1.0/24"]'],
    ),
    "no address": (
        "store",
        {"nfs_store_clients": clients("10.0.0.300")},
        ['nfs_store_clients has the host "10.0.0.300", which is not an IP address', "Write an address"],
    ),
    "no prefix": ("store", {"nfs_store_clients": clients("10.0.0.0/33")}, ['"10.0.0.0/33", which is not']),
    "two halves": (
        "store",
        {"nfs_store_clients": clients("0.0.0.0/1", "128.0.0.0/1")},
        ['"0.0.0.0/1", which is a network of more addresses than /8', "Write an address"],
    ),
    "half of IPv6": ("store", {"nfs_store_clients": clients("::/1")}, ['"::/1", which', "more addresses than /16"]),
    "mode": ("store", {"nfs_store_mode": "0777"}, ['nfs_store_mode is "0777"', 'nfs_store_mode: "0755"']),
    "root": ("store", {"nfs_store_uid": 0}, ["nfs_store_uid is 0", "from 1 to", "0 is root"]),
    "threads": ("store", {"nfs_store_threads": 0}, ["nfs_store_threads is 0", "from 1 to 1024"]),
    "card's path": ("gpu_nodes", {"gpu_node_card": "../cards/t4"}, ['gpu_node_card is "../cards/t4"', "one of: t4"]),
    "sysctl": (
        "gpu_nodes",
        {"nfs_client_tuning_sysctls": {"vm.dirty_bites": 1}},
        ["sets nfs_client_tuning_sysctls.vm.dirty_bites", "nfs_client_tuning_sysctls.vm.dirty_bytes"],
    ),
    # Misspelt and missing variables.
    "misspelt": ("store", {"nfs_store_thread": 4}, ["sets nfs_store_thread,", "name is nfs_store_threads."]),
    "misspelt, of another role": ("store", {"llama_cpp_comit": 1}, ["sets llama_cpp_comit,", "which no role has"]),
    "misspelt in a list": (
        "store",
        {"nfs_store_clients": [{"host": "nas", "acces": "ro"}]},
        ["nfs_store_clients[0].acces,", "nfs_store_clients[0].access"],
    ),
    "missing": ("gpu_nodes", {"gpu_node_card": None}, ["missing required", "gpu_node_card", "gpu_node/README.md"]),
    "undefined": ("gpu_nodes", {"gpu_node_card": "{{ card }}"}, ["'card' is undefined", "gpu_node/README.md"]),
    # The other rules of each role.
    "type": ("store", {"nfs_store_threads": "many"}, ["nfs_store_threads", "int", "nfs_store/README.md"]),
    "no clients": ("store", {"nfs_store_clients": []}, ["nfs_store_clients is empty", "Name the node"]),
    "wildcard": ("store", {"nfs_store_clients": clients("*")}, ['"*", which is not an IP address, a network or a host']),
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
    "exporter on every address": ("store", {"node_metrics_address": "::"}, ["node_metrics_address is ::", "password"]),
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
    "disk": ("gpu_nodes", {"local_store_disk": "vdb"}, ['local_store_disk is "vdb"', "a device below /dev"]),
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
def outcomes(tmp_path_factory):
    """Case → message of its refusal, "" for an accepted one; every case is a host, and all are checked in one run."""
    folder = tmp_path_factory.mktemp("cases")
    cases = {case: (group, changed) for case, (group, changed, _) in REFUSED.items()} | ACCEPTED
    names = {case: f"case-{number}" for number, case in enumerate(cases)}
    inventory = {group: {"hosts": {}} for group in GROUPS}
    for case, (group, changed) in cases.items():
        variables = {"ansible_host": "machine.invalid"} | GROUPS[group] | changed
        inventory[group]["hosts"][names[case]] = {
            name: value for name, value in variables.items() if value is not None
        }
    (folder / "hosts.json").write_text(json.dumps(inventory))
    # Not groups.yml: it would refuse that many stores.
    role = {"name": "inventory_check", "tasks_from": "variables"}
    tasks = [{"ansible.builtin.import_role": role}]
    (folder / "play.json").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    done = run_playbook(
        folder / "play.json", folder / "hosts.json", folder, ANSIBLE_ANY_ERRORS_FATAL="false", ANSIBLE_DEPRECATION_WARNINGS="0"
    )
    assert set(re.findall(r"^(case-\d+) +: ", done.stdout, re.MULTILINE)) == set(names.values()), done.stdout + done.stderr
    assert not re.search(r"unreachable=[1-9]", done.stdout)
    failures = {host: flat(str(yaml.safe_load(block))) for host, block in _FAILURE.findall(done.stdout)}
    return {case: failures.get(name, "") for case, name in names.items()}, names


def flat(text):
    return re.sub(r"\s+", " ", text.replace("\\n", " "))


@pytest.mark.parametrize("case", REFUSED)
def test_a_value_that_a_role_refuses_is_refused_with_host_rule_and_remedy(outcomes, case):
    messages, names = outcomes
    assert names[case] in messages[case]
    assert [words for words in REFUSED[case][2] if words not in messages[case]] == [], messages[case]


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_value_that_the_roles_accept_is_accepted(outcomes, case):
    assert outcomes[0][case] == ""


def check(inventory, folder, *options):
    """Run playbooks/check.yml as site.yml does."""
    assert read(ANSIBLE / "playbooks" / "site.yml")[0]["ansible.builtin.import_playbook"] == "check.yml"
    return run_playbook(ANSIBLE / "playbooks" / "check.yml", inventory, folder, *options)


@pytest.mark.parametrize("options", [[], ["--limit", "nas"]])
def test_the_example_is_accepted_without_a_connection(tmp_path, options):
    done = check(EXAMPLE, tmp_path, *options)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^nas +: ok=[1-9]", done.stdout, re.MULTILINE)
    assert not re.search(r"(failed|unreachable)=[1-9]", done.stdout)


NAS = GROUPS["store"] | {"ansible_host": "nas.invalid"}


@pytest.mark.parametrize(
    ("inventory", "words"),
    [
        pytest.param({"all": {"hosts": {}}}, ["hosts.json has no hosts", "cp -r ansible/inventories/example"], id="empty"),
        pytest.param(
            {"store": {"hosts": {"nas": NAS}}, "gpus": {"hosts": {"a": {}}}},
            ["has the group gpus, which no play uses", "gpu_nodes, llama_hosts, store"],
            id="unknown group",
        ),
        pytest.param(
            {"all": {"hosts": {"lost": {}}, "children": {"store": {"hosts": {"nas": NAS}}}}},
            ["lost is in no group", "Move it"],
            id="no group",
        ),
        pytest.param(
            {"store": {"hosts": {"nas": NAS, "second": NAS}}}, ["nas and second. There is one store"], id="two stores"
        ),
        pytest.param(
            {"store": {"hosts": {"nas": NAS | {"nfs_store_uid": 0}}}}, ["nas: nfs_store_uid is 0"], id="variable"
        ),
    ],
)
def test_an_inventory_that_cannot_work_is_refused(tmp_path, inventory, words):
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))

    done = check(tmp_path / "hosts.json", tmp_path)

    assert done.returncode != 0, done.stdout
    assert [part for part in words if part not in flat(done.stdout)] == [], done.stdout + done.stderr
    assert not re.search(r"unreachable=[1-9]", done.stdout)


def test_the_check_covers_every_role_of_every_play_under_the_conditions_of_the_play():
    played = {
        (play["hosts"], role["role"], f"{{{{ {role['when']} }}}}" if "when" in role else True)
        for name in ("store", "gpu-nodes", "llama-server")
        for play in read(ANSIBLE / "playbooks" / f"{name}.yml")
        for role in play["roles"]
    }
    rows = read(ROLES / "inventory_check" / "vars" / "main.yml")["__inventory_check_roles"]

    assert {(row["group"], row["role"], row["enabled"]) for row in rows} == played
    assert {role for _, role, _ in played} == {folder.name for folder in ROLES.iterdir()} - {"inventory_check"}


def test_every_role_applies_the_same_rules_before_it_does_anything():
    roles = sorted(folder for folder in ROLES.iterdir() if folder.name != "inventory_check")

    first = {role.name: read(role / "tasks" / "main.yml")[0] for role in roles}

    assert {name for name, task in first.items() if task.get("ansible.builtin.import_tasks") != "refuse.yml"} == set()
    assert len(first) >= 7
