"""The plays of playbooks/check.yml: each value that a role refuses is refused before any host is contacted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.support.hosts.inventory import ANSIBLE, EXAMPLE, GROUPS, check_cases, flat, run_playbook

ROLES = ANSIBLE / "roles"
COMMIT = "0123456789" * 4


def clients(*hosts):
    return [{"host": host, "access": "ro"} for host in hosts]


# Group, variables that differ from the example, and what the refusal has to contain besides the host.
# Values that one task refuses are one case: a task names all of them.
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
    "no address, no prefix, two halves of IPv4, half of IPv6": (
        "store",
        {"nfs_store_clients": clients("10.0.0.300", "10.0.0.0/33", "0.0.0.0/1", "128.0.0.0/1", "::/1")},
        [
            'nfs_store_clients has the host "10.0.0.300", which is not an IP address',
            '"10.0.0.0/33", which is not',
            '"0.0.0.0/1", which is a network of more addresses than /8',
            '"128.0.0.0/1", which is a network of more addresses than /8',
            '"::/1", which is a network of more addresses than /16',
            "Write an address",
        ],
    ),
    "mode": ("store", {"nfs_store_mode": "0777"}, ['nfs_store_mode is "0777"', 'nfs_store_mode: "0755"']),
    "root, threads": (
        "store",
        {"nfs_store_uid": 0, "nfs_store_threads": 0},
        [
            "nfs_store_uid is 0; it must be a number from 1 to 2147483647; 0 is root",
            "nfs_store_threads is 0; it must be a number from 1 to 1024",
        ],
    ),
    "card's path": ("gpu_nodes", {"gpu_node_card": "../cards/t4"}, ['gpu_node_card is "../cards/t4"', "one of: t4"]),
    "sysctl": (
        "gpu_nodes",
        {"nfs_client_tuning_sysctls": {"vm.dirty_bites": 1}},
        ["sets nfs_client_tuning_sysctls.vm.dirty_bites", "nfs_client_tuning_sysctls.vm.dirty_bytes"],
    ),
    # Misspelt and missing variables.
    "misspelt, also of another role and in a list": (
        "store",
        {"nfs_store_thread": 4, "llama_cpp_comit": 1, "nfs_store_clients": [{"host": "nas", "acces": "ro"}]},
        [
            "sets nfs_store_thread, which no role has; the nearest known name is nfs_store_threads.",
            "sets llama_cpp_comit, which no role has",
            "sets nfs_store_clients[0].acces, which no role has; the nearest known name is nfs_store_clients[0].access",
        ],
    ),
    "missing": ("gpu_nodes", {"gpu_node_card": None}, ["missing required", "gpu_node_card", "gpu_node/README.md"]),
    # A role that a variable switches on.
    "disk": ("gpu_nodes", {"local_store_disk": "vdb"}, ['local_store_disk is "vdb"', "a device below /dev"]),
    "exporter": (
        "store",
        {"node_metrics_address": "::"},
        ["node_metrics_address is ::", "no password", "Name the"],
    ),
}
ACCEPTED = {
    "unrelated variable that needs facts": ("llama_hosts", {"remark": "{{ ansible_facts.processor_vcpus }}"}),
    "node with a store of its own": ("gpu_nodes", {"local_store_disk": "/dev/vdb"}),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """Case → its refusal, "" for an accepted one."""
    cases = {case: (group, changed) for case, (group, changed, _) in REFUSED.items()} | ACCEPTED
    return check_cases(cases, tmp_path_factory.mktemp("cases"))


@pytest.mark.parametrize("case", REFUSED)
def test_a_value_that_a_role_refuses_is_refused_with_host_rule_and_remedy(refusals, case):
    assert "HOST" in refusals[case]
    assert [words for words in REFUSED[case][2] if words not in refusals[case]] == [], refusals[case]


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_value_that_the_roles_accept_is_accepted(refusals, case):
    assert refusals[case] == ""


def read(file):
    return yaml.safe_load(Path(file).read_text())


def check(inventory, folder):
    """Run playbooks/check.yml as site.yml does."""
    assert read(ANSIBLE / "playbooks" / "site.yml")[0]["ansible.builtin.import_playbook"] == "check.yml"
    return run_playbook(ANSIBLE / "playbooks" / "check.yml", inventory, folder)


def test_the_example_is_accepted_without_a_connection(tmp_path):
    done = check(EXAMPLE, tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^nas +: ok=[1-9]", done.stdout, re.MULTILINE)
    assert not re.search(r"(failed|unreachable)=[1-9]", done.stdout)


NAS = GROUPS["store"] | {"ansible_host": "nas.invalid"}


@pytest.mark.parametrize(
    ("inventory", "words"),
    [
        pytest.param({"all": {"hosts": {}}}, ["hosts.json has no hosts", "cp -r ansible/inventories"], id="empty"),
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
