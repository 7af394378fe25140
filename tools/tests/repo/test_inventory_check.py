"""The plays of playbooks/check.yml: each value that a role refuses is refused before any host is contacted."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from pathlib import Path

import pytest
import yaml

from tests.support.hosts.inventory import ANSIBLE, EMPTY, EXAMPLE, GROUPS, check_cases, flat, run_playbook
from tests.support.tiny_catalog import DEMO

pytestmark = pytest.mark.long
ROLES = ANSIBLE / "roles"
COMMIT = "0123456789" * 4
REPOSITORY = {
    "name": "vendor",
    "uri": "https://x.invalid/",
    "key": "https://x.invalid/key.asc",
    "fingerprint": "0A" * 20,
}
UNLOCKED, STALE = (
    f"{{{{ lookup('ansible.builtin.env', 'CATALOGS_OF_THE_TEST') }}}}/{one}" for one in ("unlocked", "stale")
)


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
    # One task takes all variables of the host's roles.  It refuses values of another type, which Ansible converts only
    # for its own check; values that cannot be evaluated, which would switch a role off; and line ends, which begin
    # another line of a file.
    "types of the store": (
        "store",
        {
            "nfs_store_v3": "false",
            "nfs_store_uid": True,
            "nfs_store_gid": 10001.0,
            "nfs_store_threads": "1_6",
            "nfs_store_clients": {"host": "nas", "access": "ro"},
            "nfs_store_path": "/srv/x\n",
            "nfs_store_mode": "0755\n",
            "node_metrics_address": "{{ store_address }}",
            "node_metrics_port": " 9100 ",
        },
        [
            'nfs_store_v3 is the text "false"; it must be true or false, without quotes',
            "nfs_store_uid is true; it must be a whole number",
            "nfs_store_gid is the number 10001.0",
            'nfs_store_threads is the text "1_6"',
            "nfs_store_clients is a mapping; it must be a list",
            'nfs_store_path is "/srv/x "; it must not have a line end',
            'nfs_store_mode is "0755 "; it must not have a line end',
            "nfs_store/README.md",
            "node_metrics_address cannot be evaluated: 'store_address' is undefined",
            'node_metrics_port is the text " 9100 "',
            "node_metrics/README.md",
        ],
    ),
    "types of a GPU node": (
        "gpu_nodes",
        {
            "gpu_node_driver_packages": "cuda-drivers",
            "gpu_node_driver_version": "570.195.03\n",
            "gpu_node_repositories": [REPOSITORY | {"uri": "https://x.invalid/\nTrusted: yes"}],
            "local_store_disk": "/dev/{{ disk }}",
            "nfs_client_tuning_nconnect": "\uff18",
            "nfs_client_tuning_options": ["hard\n"],
            "nfs_client_tuning_server": EMPTY,
            "nfs_client_tuning_sysctls": {
                "net.ipv4.tcp_rmem": "4096 1 2\nkernel.modprobe = /tmp/x",
                "vm.swappiness": True,
            },
        },
        [
            'gpu_node_driver_packages is the text "cuda-drivers"; it must be a list',
            'gpu_node_driver_version is "570.195.03 "; it must not have a line end',
            "gpu_node_repositories[0].uri is",
            "local_store_disk cannot be evaluated: 'disk' is undefined",
            "nfs_client_tuning_nconnect is the text",
            "nfs_client_tuning_options[0] is",
            "nfs_client_tuning_server is empty; it must be a text",
            "nfs_client_tuning_sysctls.net.ipv4.tcp_rmem is",
            "nfs_client_tuning_sysctls.vm.swappiness is true; it must be a whole number",
        ],
    ),
    "types of a host with llama.cpp": (
        "llama_hosts",
        {
            "llama_cpp_ccache": "no",
            "llama_cpp_install_packages": 0,
            "llama_cpp_release": EMPTY,
            "llama_cpp_root": "/opt/llama.cpp\n",
            "llama_server_clients": "192.168.1.0/24",
            "llama_server_port": "8080\n",
            "llama_server_program": EMPTY,
            "llama_server_store_groups": ["a\n"],
        },
        [
            'llama_cpp_ccache is the text "no"',
            "llama_cpp_install_packages is the number 0",
            "llama_cpp_release is empty; it must be a mapping",
            'llama_cpp_root is "/opt/llama.cpp "; it must not have a line end',
            'llama_server_clients is the text "192.168.1.0/24"; it must be a list',
            'llama_server_port is "8080 "',
            "llama_server_program is empty",
            'llama_server_store_groups[0] is "a "',
        ],
    ),
    "undefined within a mapping": (
        "llama_hosts",
        {"llama_cpp_release": {"build": 11549, "commit": "{{ commits.b11549 }}"}},
        ["llama_cpp_release cannot be evaluated: 'commits' is undefined"],
    ),
    # Addresses and paths; further notations of both are tests of the filters, below.
    "exporter on every address": (
        "store",
        {"node_metrics_address": "::ffff:0.0.0.0"},
        ["node_metrics_address is ::ffff:0.0.0.0, which is every address"],
    ),
    "exporter of a card": (
        "llama_hosts",
        {"node_metrics_address": "192.168.1.50", "node_metrics_card": "a100", "node_metrics_card_port": 80},
        ["node_metrics_card_port is 80; it must be a number from 1024"],
    ),
    "exporter of a card that the catalog does not have": (
        "llama_hosts",
        {"node_metrics_address": "192.168.1.50", "node_metrics_card": "../cards/t4"},
        ['node_metrics_card is "../cards/t4"', "one of: t4"],
    ),
    "exporter of a card of the catalog that is served": (
        "llama_hosts",
        {
            "node_metrics_address": "192.168.1.50",
            "node_metrics_card": "t4",
            "llama_server_catalog": "/nowhere",
            "llama_server_first_engine_port": 12000,  # not beside a case about these ports: this catalog has no models
        },
        ['node_metrics_card is "t4"', "/nowhere/cards", "the folder has no card"],
    ),
    "exporter of a card on every address": (
        "llama_hosts",
        {"node_metrics_address": "0.0.0.0", "node_metrics_card": "t4"},
        ["node_metrics_address is 0.0.0.0, which is every address"],
    ),
    "two exporters on one port": (
        "llama_hosts",
        {"node_metrics_address": "192.168.1.50", "node_metrics_card": "t4", "node_metrics_port": 9460},
        ["node_metrics_port and node_metrics_card_port are both 9460"],
    ),
    "service on the default ports of an exporter and its card": (
        "llama_hosts",
        {
            "node_metrics_address": "192.168.1.50",
            "node_metrics_card": "t4",
            "llama_server_port": 9460,
            "llama_server_first_engine_port": 9100,
            "llama_server_program": "llama-swap",
        },
        ["node_metrics_port is 9100, a port of", "node_metrics_card_port is 9460, a port of"],
    ),
    # Before a machine is touched the card's promises are rendered here.
    "exporter of a card without a lock": (
        "llama_hosts",
        {"node_metrics_address": "192.168.1.50", "node_metrics_card": "laptop", "llama_server_catalog": UNLOCKED},
        ["promised of the card laptop cannot be rendered", "lock.json does not exist. → corral lock --catalog /"],
    ),
    "exporter of a card with a stale lock": (
        "llama_hosts",
        {"node_metrics_address": "192.168.1.50", "node_metrics_card": "laptop", "llama_server_catalog": STALE},
        ["promised of the card laptop cannot be rendered", "lock.json is stale", "→ corral lock --catalog /"],
    ),
    "exporter of a card without corral": (
        "llama_hosts",
        {"node_metrics_corral": "/nonexistent/corral"},  # the exporter of "exporter of a card"
        ["promised of the card a100 cannot be rendered", "Run make setup", 'which is "/nonexistent/corral"'],
    ),
    "exporter of a host on a node": (
        "gpu_nodes",
        {"node_metrics_address": "192.168.1.40", "node_metrics_card": "t4"},
        ["the host is in gpu_nodes", "card_exporter = {}"],
    ),
    "pid namespace": (
        "llama_hosts",
        {"node_metrics_card_pid_namespace": -1},  # the exporter of "exporter of a card"
        ["node_metrics_card_pid_namespace is -1", "readlink /proc/1/ns/pid"],
    ),
    "exporter on a multicast address": (
        "store",
        {"node_metrics_address": "224.0.0.1"},
        ['node_metrics_address is "224.0.0.1", which is a multicast address'],
    ),
    "service on a multicast address": (
        "llama_hosts",
        {"llama_server_listen": "ff02::1", "llama_server_clients": ["192.168.1.0/24"]},
        ['llama_server_listen is "ff02::1", which is a multicast address', "Write 127.0.0.1"],
    ),
    "export of the root, file system with a slash at its end": (
        "store",
        {"nfs_store_path": "/.", "nfs_store_filesystem": "/srv/nfs-ssd/"},
        [
            '"/." cannot be exported: nfs_store_path is the root of the file system',
            'nfs_store_filesystem is not in its shortest form, which is "/srv/nfs-ssd".',
        ],
    ),
    "export of /etc": (
        "store",
        {"nfs_store_path": "/etc", "nfs_store_filesystem": ""},
        ['"/etc" cannot be exported: nfs_store_path is a folder of the system'],
    ),
    "local store in /etc": (
        "gpu_nodes",
        {"local_store_disk": "/dev/vdb", "local_store_path": "/etc"},
        ['local_store_path is "/etc", which is a folder of the system', "remove it for the default"],
    ),
    "root as the store": (
        "llama_hosts",
        {"llama_server_store": "/"},
        ['llama_server_store is "/", which is the root of the file system'],
    ),
    "TCP buffers": (
        "gpu_nodes",
        {"nfs_client_tuning_sysctls": {"net.ipv4.tcp_rmem": "4096 1 2", "net.ipv4.tcp_wmem": "4096 131072"}},
        [
            'sets net.ipv4.tcp_rmem to "4096 1 2"; it must be three numbers that do not fall',
            'sets net.ipv4.tcp_wmem to "4096 131072"; it must be three numbers',
            'net.ipv4.tcp_wmem: "4096 131072 16777216"',
        ],
    ),
    "sysctls out of range": (
        "gpu_nodes",
        {"nfs_client_tuning_sysctls": {"vm.swappiness": 201, "vm.dirty_ratio": 101}},
        ["sets vm.swappiness to 201; it must be a number from 0 to 200", "vm.dirty_ratio to 101", "from 0 to 100"],
    ),
    "sysctls that undo each other": (
        "gpu_nodes",
        {"nfs_client_tuning_sysctls": {"vm.dirty_ratio": 10, "vm.dirty_bytes": 268435456}},
        ["sets vm.dirty_bytes and vm.dirty_ratio", "Remove one"],
    ),
    "repository without addresses": (
        "gpu_nodes",
        {"gpu_node_repositories": [REPOSITORY | {"uri": "not a uri", "key": "nope"}]},
        ['"vendor" with the uri "not a uri"', '"vendor" with the key "nope"', "begins with https://"],
    ),
    "repositories of one name": (
        "gpu_nodes",
        {"gpu_node_repositories": [REPOSITORY, REPOSITORY]},
        ["names a repository twice: vendor, vendor"],
    ),
    # Ports of the engines, one for each model of the catalog.
    "engine's port": (
        "llama_hosts",
        {"llama_server_first_engine_port": 8079, "llama_server_program": "llama-swap"},
        ["llama_server_first_engine_port is 8079", "llama_server_port, 8080, must be none of them"],
    ),
    "engine's port that does not exist": (
        "llama_hosts",
        {"llama_server_first_engine_port": 65535, "llama_server_program": "llama-swap"},
        ["llama_server_first_engine_port is 65535", "must end at 65535 at most"],
    ),
}
ACCEPTED = {
    "unrelated variable that needs facts": ("llama_hosts", {"remark": "{{ ansible_facts.processor_vcpus }}"}),
    "host with an exporter of its card": (
        "llama_hosts",
        {
            "node_metrics_address": "192.168.1.50",
            "node_metrics_card": "laptop",
            "llama_server_catalog": str(DEMO),
        },
    ),
    "node with a store of its own": ("gpu_nodes", {"local_store_disk": "/dev/vdb"}),
    "templates, numbers as an INI inventory has them": (
        "store",
        {
            "nfs_store_v3": "{{ 1 == 2 }}",
            "nfs_store_threads": "{{ 4 * 2 }}",
            "nfs_store_path": "{{ nfs_store_filesystem }}/x",
            "nfs_store_uid": "1000",
        },
    ),
    "repository without TLS, sysctls": (
        "gpu_nodes",
        {
            "gpu_node_repositories": [REPOSITORY | {"uri": "http://10.0.0.1:8000/"}],
            "nfs_client_tuning_sysctls": {
                "vm.swappiness": 200,
                "vm.dirty_bytes": 1,
                "net.ipv4.tcp_wmem": "4096 4096 65536",
            },
        },
    ),
    "cmake's definitions, service for a network on every address": (
        "llama_hosts",
        {
            "llama_cpp_cmake_flags": {"GGML_NATIVE": True, "CMAKE_CXX_FLAGS": "-O2 -g"},
            "llama_server_clients": ["192.168.1.0/24"],
            "llama_server_listen": "0.0.0.0",
            "llama_server_port": 8080,
        },
    ),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """Case → the refusals of its host, "" for an accepted one."""
    catalogs = tmp_path_factory.mktemp("catalogs")
    for name in ("unlocked", "stale"):
        shutil.copytree(DEMO, catalogs / name)
    (catalogs / "unlocked" / "lock.json").unlink()
    with (catalogs / "stale" / "cards" / "laptop.yaml").open("a") as card:
        card.write("# changed\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CATALOGS_OF_THE_TEST", str(catalogs))
        return check_cases(REFUSED, ACCEPTED, tmp_path_factory.mktemp("cases"))


@pytest.mark.parametrize("case", REFUSED)
def test_a_value_that_a_role_refuses_is_refused_with_host_rule_and_remedy(refusals, case):
    assert "HOST" in refusals[case]
    assert [words for words in REFUSED[case][2] if words not in refusals[case]] == [], refusals[case]


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_value_that_the_roles_accept_is_accepted(refusals, case):
    assert refusals[case] == ""


@pytest.fixture(scope="module")
def filters():
    """The filters by their names."""
    return runpy.run_path(str(ANSIBLE / "plugins" / "filter" / "corral.py"))["FilterModule"]().filters()


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "::0", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0"])
def test_an_address_of_every_interface_is_known_in_each_notation(filters, address):
    assert filters["corral_is_unspecified"](address)
    assert not filters["corral_is_loopback"](address)


@pytest.mark.parametrize(
    "address", ["224.0.0.1", "ff02::1", "::ffff:224.0.0.1", "192.168.1.300", "", "nas", "10.0.0.0/8"]
)
def test_an_address_that_no_machine_has_is_refused(filters, address):
    assert filters["corral_address_error"](address) != ""
    assert filters["corral_address_error"]("192.168.1.30") == filters["corral_address_error"]("fd00::1") == ""


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", "root of the file system"),
        ("//", "root of the file system"),
        ("/srv/..", "root of the file system"),
        ("/srv/nfs-ssd/../../etc", 'shortest form, which is "/etc"'),
        ("//etc", 'shortest form, which is "/etc"'),
        ("/srv/models/", 'shortest form, which is "/srv/models"'),
        ("/usr/share/models", "folder of the system"),
        ("/var/lib", "folder of the system"),
        ("/srv", "folder of the system"),
        ("/srv/a b", "other characters"),
        ("/srv/a\n", "other characters"),
        ("srv", "not an absolute path"),
    ],
)
def test_a_folder_that_a_role_must_not_own_is_refused_with_the_reason(filters, path, words):
    assert words in filters["corral_path_error"](path, own=True)
    assert filters["corral_path_error"]("/var/lib/corral/models", own=True) == ""
    assert filters["corral_path_error"]("/srv/a b") == ""


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


def test_no_rule_lets_a_line_end_through():
    files = [*ROLES.glob("*/tasks/*.yml"), *ROLES.glob("*/templates/*.j2")]
    rules = [
        rule
        for file in files
        for rule in re.findall(r"""match\(['"](.*?)['"]\)|\brule: "([^"]*)\"""", file.read_text())
    ]

    assert [rule for rule in map("".join, rules) if rule.endswith("$")] == []
    assert len(rules) >= 20
