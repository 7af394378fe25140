"""playbooks/llama-server.yml and playbooks/upgrade.yml: llama.cpp moves under a server that answers, and back.

What is compiled is a stand-in that hands over to the embedded engine, so that each version takes a second.
"""

from __future__ import annotations

import pytest

from tests.support.engine_process import chat
from tests.support.hosts import llama_host
from tests.support.hosts.llama_cpp_archive import release
from tests.support.hosts.playbook import ANSIBLE, play

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def run(builders, tmp_path_factory):
    """Plays a playbook on the hosts, with build N of the stand-in, further variables and options."""
    folder = tmp_path_factory.mktemp("served")
    catalog = llama_host.write_catalog(folder)
    for host in builders:
        llama_host.prepare(host, catalog)
    common = llama_host.variables(catalog)
    del common["llama_server_engine"]

    def run(name, build, *options, **further):
        variables = common | release(folder, build) | further
        return play(ANSIBLE / "playbooks" / f"{name}.yml", {"llama_hosts": builders}, *options, variables=variables)

    return run


@pytest.fixture(scope="module")
def upgraded(builders, run):
    """The hosts, moved from build 1 to build 2 by the playbook, and the servers' pids before and after."""
    run("llama-server", 1).succeeded()
    assert [state(host) for host in builders] == [("b1-cpu", "OK")] * len(builders)
    before = [server_pid(host) for host in builders]
    run("upgrade", 2).succeeded()
    return builders, before, [server_pid(host) for host in builders]


def state(host):
    """The current version and its answer."""
    answer = chat(llama_host.endpoint(host), "Hello.", model="tiny-text")["message"]["content"]
    return host.run("readlink /opt/llama.cpp/current"), answer


def server_pid(host):
    return host.run("systemctl show --property=MainPID --value llama-swap")


def test_an_upgrade_moves_the_version_and_restarts_the_server(upgraded):
    hosts, before, after = upgraded
    assert [state(host) for host in hosts] == [("b2-cpu", "OK")] * len(hosts)
    assert all(old != new for old, new in zip(before, after, strict=True))


def test_a_version_that_does_not_answer_is_taken_back_before_the_next_host(upgraded, run):
    """Build 3 compiles and is verified, and cannot serve."""
    first, second = upgraded[0]
    played = run("upgrade", 3, llama_cpp_cmake_flags={"CMAKE_C_FLAGS": "-DSPOILED"})
    assert played.failed == {first.name}
    assert f"{first.name} serves with b2-cpu as before; the upgrade failed" in " ".join(played.text.split())
    assert state(first) == ("b2-cpu", "OK")
    assert "b3-cpu" not in second.run("ls /opt/llama.cpp")


def test_one_variable_takes_an_upgrade_back(upgraded, run):
    _, second = upgraded[0]
    run("upgrade", 2, "--limit", second.name, llama_cpp_rollback_to="b1-cpu").succeeded()
    assert state(second) == ("b1-cpu", "OK")
