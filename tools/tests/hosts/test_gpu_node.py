"""gpu_node: apt, gpg, containerd and everything rendered are real.

Driver, toolkit and nvidia-smi are stand-ins, since no card is here.
"""

from __future__ import annotations

import os

import pytest
import yaml

from corral import paths
from tests.support.hosts import gpu_host
from tests.support.hosts.playbook import play_cases, play_role


@pytest.fixture(scope="module")
def variables(vendor):
    return gpu_host.variables(vendor)


@pytest.fixture(scope="module")
def nodes(hosts):
    for host in hosts:
        gpu_host.prepare(host)
    return hosts


def held(host):
    return host.run("apt-mark showhold").split()


REFUSED = {
    "unknown card": ({"gpu_node_card": "a100"}, ['gpu_node_card is "a100"', "Name one of: t4"]),
    "inexact": ({"gpu_node_driver_version": "570"}, ['gpu_node_driver_version is the text "570"', "exact"]),
    "no card": ({"gpu_node_pci_devices": "/sys/none"}, ["No NVIDIA device here", "Nothing was changed"]),
}


@pytest.fixture(scope="module")
def refused(nodes, variables):
    """The outcome of each case on bare hosts, in one run."""
    return play_cases("gpu_node", nodes, {case: variables | changed for case, (changed, _) in REFUSED.items()})


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_before_anything_changes(nodes, refused, case):
    refused[case].refused(*REFUSED[case][1])


def test_check_mode_on_a_bare_node_changes_nothing(nodes, variables):
    before = [host.changed_files() for host in nodes]

    played = play_role("gpu_node", nodes, "--check", variables=variables).succeeded()

    assert "runtimes.nvidia" in played.text
    assert [host.changed_files() for host in nodes] == before


def test_a_key_with_another_fingerprint_is_refused_and_nothing_is_installed(nodes, variables, vendor):
    foreign = [{**vendor.repositories()[0], "fingerprint": "0" * 40}]

    played = play_role("gpu_node", nodes, variables=variables | {"gpu_node_repositories": foreign})

    assert played.failed == {"debian-12", "debian-13"}
    assert "does not have the fingerprint 0000" in " ".join(played.text.split())
    assert all(host.result("dpkg -s cuda-drivers").returncode for host in nodes)


def test_the_first_run_installs_the_pinned_versions_and_holds_them(nodes, variables):
    play_role("gpu_node", nodes, variables=variables).succeeded()

    for host in nodes:
        assert host.run("dpkg-query --show --showformat '${Version}' cuda-drivers") == "570.195.03-1"
        assert {"cuda-drivers", "nvidia-container-toolkit"} <= set(held(host))
        host.run("apt-get dist-upgrade --yes")
        assert host.run("dpkg-query --show --showformat '${Version}' nvidia-container-toolkit") == "1.18.1-1"
        assert host.run("systemctl is-active nvidia-persistenced") == "active"


def test_containerd_runs_with_the_runtime_and_all_it_had_before(nodes):
    for host in nodes:
        dump = host.run("containerd config dump")
        assert 'BinaryName = "/usr/bin/nvidia-container-runtime"' in dump
        assert 'sandbox_image = "registry.k8s.io/pause:3.10"' in dump
        assert dump.count("SystemdCgroup = true") == 2
        assert host.run("systemctl is-active containerd") == "active"


def test_every_tenant_of_the_card_and_llama_swap_get_one_share(nodes):
    card = yaml.safe_load((paths.REPOSITORY / "terraform/catalog/cards/t4.yaml").read_text())

    for host in nodes:
        sharing = yaml.safe_load(host.run("cat /etc/nvidia/device-plugin/corral.yaml"))["sharing"]["timeSlicing"]
        assert sharing == {
            "failRequestsGreaterThanOne": True,
            "resources": [{"name": "nvidia.com/gpu", "replicas": len(card["tenants"]) + 1}],
        }


def test_the_second_run_changes_nothing(nodes, variables):
    again = play_role("gpu_node", nodes, variables=variables).succeeded()

    assert set(again.changed.values()) == {0}, again.text


def test_a_card_that_is_not_the_catalogs_fails_the_play(nodes, variables):
    other_card, other_driver = nodes
    other_card.put("Tesla P4, 7680, 6.1, 570.195.03, Enabled\n", gpu_host.SAYS)
    other_driver.put("Tesla T4, 15360, 7.5, 535.1, Disabled\n", gpu_host.SAYS)

    played = play_role("gpu_node", nodes, tasks_from="verify", variables=variables)

    card, driver = (
        "7680 and not 15360; compute capability 6.1 and not 7.5",
        "driver 535.1 and not 570.195.03; persistence",
    )
    played.refused("The card differs from t4.yaml", card, driver)
    assert played.failed == {other_card.name, other_driver.name}


def test_a_driver_that_does_not_answer_fails_the_play_with_the_next_step(nodes, variables):
    for host in nodes:
        host.run(f"rm {gpu_host.SAYS}")

    played = play_role("gpu_node", nodes, tasks_from="verify", variables=variables)

    played.refused("NVIDIA-SMI has failed", "playbooks/reboot.yml --limit")


def test_the_node_is_labelled_with_its_card_once(nodes, variables, tmp_path, monkeypatch):
    """kubectl is a stand-in that remembers one label: no cluster is here."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        f"""#!/bin/sh
[ "$1 $2" = "--kubeconfig /etc/kubeconfig" ] || exit 3
case "$3 $4 $5" in
  "get node k8s-node1") cat {tmp_path}/label 2>/dev/null || true ;;
  "label node k8s-node1") echo "$6" | sed -n 's|^corral/card=||p' >{tmp_path}/label ;;
  *) exit 4 ;;
esac
"""
    )
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    known = variables | {"gpu_node_kubeconfig": "/etc/kubeconfig"}

    runs = [play_role("gpu_node", nodes[:1], tasks_from="sharing", variables=known).succeeded() for _ in range(2)]

    assert (tmp_path / "label").read_text() == "t4\n"
    assert [sum(run.changed.values()) for run in runs] == [1, 0]


def test_another_driver_version_moves_the_held_packages(nodes, variables):
    node = nodes[-1]
    node.put("Tesla T4, 15360, 7.5, 580.10.01, Enabled\n", gpu_host.SAYS)

    play_role("gpu_node", [node], variables=variables | {"gpu_node_driver_version": "580.10.01"}).succeeded()

    assert node.run("dpkg-query --show --showformat '${Version}' cuda-drivers") == "580.10.01-1"
    assert "cuda-drivers" in held(node)
