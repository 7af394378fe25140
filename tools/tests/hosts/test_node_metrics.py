"""node_metrics: Debian's node exporter, verified by a client without Ansible."""

from __future__ import annotations

import urllib.request

import pytest

from tests.support.hosts.playbook import play_cases, play_role


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
