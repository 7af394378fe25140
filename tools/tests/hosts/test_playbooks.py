"""The playbooks themselves, on bare hosts."""

from __future__ import annotations

from tests.support.hosts.playbook import ANSIBLE, AS_OPERATORS_DO, play

CLIENTS = [{"host": "10.231.0.1", "access": "rw"}]


def test_the_stores_play_runs_in_check_mode(hosts):
    playbook = ANSIBLE / "playbooks" / "store.yml"

    play(playbook, {"store": hosts}, "--check", variables={"nfs_store_clients": CLIENTS}).succeeded()


def test_a_restart_of_every_machine_is_refused(hosts):
    playbook = ANSIBLE / "playbooks" / "reboot.yml"

    play(playbook, {"store": hosts}).refused("Name the machines", "--limit debian-12")


def test_a_restart_takes_the_named_machine_and_no_other(hosts):
    before = [host.booted() for host in hosts]

    playbook = ANSIBLE / "playbooks" / "reboot.yml"
    # Mitogen complains of the connection that the restart took.
    played = play(playbook, {"store": hosts}, "--limit", "debian-12", environment=AS_OPERATORS_DO).succeeded()

    after = [host.booted() for host in hosts]
    assert set(played.changed) == {"debian-12"}
    assert [old != new for old, new in zip(before, after, strict=True)] == [True, False]
