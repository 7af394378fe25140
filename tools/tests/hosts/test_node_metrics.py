"""node_metrics: Debian's node exporter and the exporter of the card, verified by a client without Ansible."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from corral import keys
from corral.keys import LocalKeys
from tests.support.engine_process import authorization, wait_for
from tests.support.hosts import card
from tests.support.hosts.inventory import flat
from tests.support.hosts.playbook import play_cases, play_role
from tests.support.locked_catalog import SMALLEST_INTENT, write_lock, write_sources

EXPOSURE = re.compile(r"Overall exposure level for \S+: ([0-9.]+)")


def ask(host):
    with urllib.request.urlopen(f"http://{host.address}:9100/metrics", timeout=10) as answer:
        return answer.read().decode()


def per_host(hosts):
    """The role's variables: each host listens on its own address."""
    return {"node_metrics_address": "{{ ansible_host }}"}


REFUSED = {
    "no address": ({}, ["missing required arguments: node_metrics_address"]),
    "everywhere": ({"node_metrics_address": "0.0.0.0"}, ["has no password"]),
    "no such address": ({"node_metrics_address": "eth0"}, ['is "eth0"']),
    "unknown card": (
        {"node_metrics_address": "127.0.0.1", "node_metrics_card": "a100"},
        ['node_metrics_card is "a100"', "one of: t4"],
    ),
    "blank": ({"node_metrics_address": "127.0.0.1", "node_metrics_arguments": ["--a b"]}, ['has "--a b"']),
}


@pytest.fixture(scope="module")
def refused(hosts):
    """The outcome of each case on bare hosts, in one run."""
    return play_cases("node_metrics", hosts, {case: changed for case, (changed, _) in REFUSED.items()})


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_before_anything_changes(hosts, refused, case):
    refused[case].refused(*REFUSED[case][1])


def test_check_mode_on_a_bare_host_changes_nothing(hosts):
    before = [host.changed_files() for host in hosts]

    play_role("node_metrics", hosts, "--check", variables=per_host(hosts)).succeeded()

    assert [host.changed_files() for host in hosts] == before


# The exporter of the card.

HOLDERS = {  # unit: what it runs
    "encode@1": ("/bin/sleep infinity", ""),
    "immich-ml": ("/bin/sleep infinity", ""),
    "in-a-slice": ("/bin/sleep infinity", "Slice=media.slice"),
    "llama-swap": ("/bin/sh -c 'sleep infinity & wait' llama-server --alias chat", ""),
    "ollama": ("/bin/sh -c 'sleep infinity & wait' llama-server --alias chat", ""),
}
TENANTS = {
    "encoder": {"budget_mib": 300, "unit": "encode@1.service"},
    "immich-ml": {"budget_mib": 2100, "unit": "immich-ml.service"},
    "media": {"budget_mib": 900, "unit": "media.slice"},
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    """A locked catalog of one model on a T4 whose tenants are units."""
    models, cards = {"chat": SMALLEST_INTENT | {"card": "t4"}}, {"t4": {"vram_mib": 15360, "tenants": TENANTS}}
    folder = write_sources(tmp_path_factory.mktemp("card") / "catalog", models, cards)
    write_lock(folder)
    return folder


@pytest.fixture
def variables(hosts, catalog):
    """The role's variables for a host with a card; it is a container, and its pid namespace another at each boot."""
    return per_host(hosts) | card.variables(hosts, catalog, "t4")


def test_a_check_of_the_cards_exporter_on_a_bare_host_changes_nothing(hosts, variables):
    before = [host.changed_files() for host in hosts]

    play_role("node_metrics", hosts, "--check", variables=variables).succeeded()

    assert [host.changed_files() for host in hosts] == before


def test_the_first_run_serves_metrics_on_that_address_alone_and_the_second_changes_nothing(hosts):
    play_role("node_metrics", hosts, variables=per_host(hosts)).succeeded()

    for host in hosts:
        assert "node_textfile_scrape_error 0" in ask(host)
        assert host.result("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9100))'").returncode
    again = play_role("node_metrics", hosts, variables=per_host(hosts)).succeeded()
    assert set(again.changed.values()) == {0}, again.text


def test_a_text_file_is_served_also_after_a_reboot(hosts):
    for host in hosts:
        host.put("corral_test 42\n", "/var/lib/prometheus/node-exporter/corral.prom")
        host.reboot()

    assert all("\ncorral_test 42\n" in ask(host) for host in hosts)


def test_a_host_whose_driver_does_not_answer_is_named_with_the_reason(hosts, variables):
    played = play_role("node_metrics", hosts, variables=variables)

    assert played.failed == {host.name for host in hosts}, played.text
    assert "does not know what is held on it: missing. On that machine nvidia-smi must list one card" in flat(
        played.text
    )


def test_the_cards_exporter_serves_on_that_address_alone_and_a_second_run_changes_nothing(hosts, variables, tmp_path):
    for host in hosts:
        card.report(host, tmp_path)
    play_role("node_metrics", hosts, variables=variables).succeeded()

    for host in hosts:
        assert card.held(host)["model", "chat"] == 0
        assert host.result("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9460))'").returncode
    again = play_role("node_metrics", hosts, variables=variables).succeeded()
    assert set(again.changed.values()) == {0}, again.text


def test_each_process_is_its_tenants_or_its_models_by_its_unit_and_the_rest_stays_apart(hosts, tmp_path):
    for host in hosts:
        for unit, (command, more) in HOLDERS.items():
            host.put(f"[Service]\nExecStart={command}\n{more}\n", f"/etc/systemd/system/{unit}.service")
        host.run(f"systemctl daemon-reload && systemctl start {' '.join(HOLDERS)}")
        pids = [int(host.run(f"systemctl show --property=MainPID --value {unit}")) for unit in HOLDERS]
        rows = [(pid, 100 + at, "/usr/bin/x") for at, pid in enumerate(pids)]
        card.report(host, tmp_path, *rows, (2**22, 7, "/gone"))

        assert {holder: mib for holder, mib in card.held(host).items() if holder[0] != "unattributed"} == {
            ("tenant", "encoder"): 100,
            ("tenant", "immich-ml"): 101,
            ("tenant", "media"): 102,
            ("model", "chat"): 103,
            ("process", "x in ollama.service"): 104,
            ("hidden", f"pid {2**22}"): 7,
        }


def test_the_cards_exporter_has_no_right_but_to_read(hosts):
    for host in hosts:
        rated = host.run("systemd-analyze security corral-card-exporter.service --no-pager")
        assert float(EXPOSURE.search(rated)[1]) <= 2.0, rated
        pid = host.run("systemctl show --property=MainPID --value corral-card-exporter")
        assert set(host.run(f"grep ^Cap /proc/{pid}/status | cut -f2").split()) == {"0" * 16}
        assert host.run(f"stat --format %u /proc/{pid}") != "0"


def test_a_new_lock_is_served_by_the_next_run(hosts, variables, catalog):
    (catalog / "models" / "chat.yaml").write_text(
        json.dumps(SMALLEST_INTENT | {"card": "t4", "vram": {"declared_mib": 700, "why": "a test"}})
    )
    play_role("node_metrics", hosts, variables=variables).refused("lock.json is stale")

    write_lock(catalog)
    play_role("node_metrics", hosts, variables=variables).succeeded()

    for host in hosts:
        samples = [one for family in text_string_to_metric_families(card.get(host)) for one in family.samples]
        wanted = {"card": "t4", "kind": "model", "holder": "chat"}
        assert [one.value for one in samples if one.name == "corral_promised_bytes" and one.labels == wanted] == [
            700 << 20
        ]


def test_the_page_is_closed_until_the_host_has_the_operators_key(hosts, tmp_path):
    store = LocalKeys(tmp_path)
    key = keys.ensure_operator(store)
    for host in hosts:
        with pytest.raises(urllib.error.HTTPError, match="503"):
            card.get(host, "/card.json")
        host.put(store.file.read_bytes(), "/etc/corral/card-exporter-keys.json")
        request = urllib.request.Request(f"http://{host.address}:9460/card.json", headers=authorization(key))
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer)["node"] == host.run("uname -n")


def test_the_cards_exporter_is_there_after_a_reboot_and_its_records_go_on(hosts):
    starts = "grep --count is_start.:.*true /var/lib/private/corral-card-exporter/records/00000001.jsonl"
    for host in hosts:
        before = int(host.run(starts))
        host.reboot()
        wait_for(lambda host=host: card.is_there(host), what="its answer")
        wait_for(lambda host=host, before=before: int(host.run(starts)) == before + 1, what="a record")
