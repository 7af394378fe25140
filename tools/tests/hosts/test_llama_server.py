"""The role llama_server on real hosts: the real llama-swap in front of the embedded engine, under systemd."""

from __future__ import annotations

import json
import plistlib
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from corral.cli.main import main
from corral.engine import host_services
from tests.support.engine_process import Stream, chat, get
from tests.support.hosts import card, llama_host
from tests.support.hosts.host import wait_for
from tests.support.hosts.playbook import play_cases, play_role
from tests.support.hosts.room import NETWORK

pytestmark = pytest.mark.timeout(600)

UNIT = "llama-swap.service"
LAUNCHCTL = "/usr/local/bin/launchctl"
ANSWER_S = 5.0  # long enough to be stopped in the middle, and far from the half minute that llama-swap waits
EXPOSURE = re.compile(r"Overall exposure level for \S+: ([0-9.]+)")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    return llama_host.write_catalog(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def variables(catalog):
    return llama_host.variables(catalog)


@pytest.fixture(scope="module")
def prepared(hosts, catalog):
    """The hosts with an engine and a store, and nothing of the role yet."""
    for host in hosts:
        llama_host.prepare(host, catalog)
    return hosts


@pytest.fixture(scope="module")
def served(prepared, variables):
    """The same hosts with the running service."""
    play_role("llama_server", prepared, variables=variables).succeeded()
    return prepared


@pytest.fixture
def one(served):
    """One of them, for the tests that change the service; they run last."""
    return served[:1]


def main_pid(host):
    return int(host.run(f"systemctl show --property=MainPID --value {UNIT}"))


def processes(host):
    """The commands of the unit's control group."""
    group = host.run(f"systemctl show --property=ControlGroup --value {UNIT}")
    pids = host.run(f"cat /sys/fs/cgroup{group}/cgroup.procs").split()
    return host.run(f"ps --format args= --pid {','.join(pids)}")


def answers(host):
    return chat(llama_host.endpoint(host), "Hello.", model="tiny-text")["message"]["content"]


# Bare hosts first.


def test_a_host_without_engine_or_store_is_refused(hosts, variables):
    known = {name: value for name, value in variables.items() if name != "llama_server_engine"}
    cases = {"engine": {"llama_server_engine": llama_host.ENGINE}, "store": {"llama_server_engine": "/bin/true"}}
    played = play_cases("llama_server", hosts[:1], cases, variables=known)
    played["engine"].refused("has no /opt/embedded-engine/llama-server", "llama_cpp")
    played["store"].refused("has no model store /srv/models", "corral fetch")


def test_a_check_of_a_bare_host_fails_on_nothing_and_changes_nothing(hosts, variables):
    before = [host.changed_files() for host in hosts]
    play_role("llama_server", hosts, "--check", variables=variables).succeeded()
    assert [host.changed_files() - old for host, old in zip(hosts, before, strict=True)] == [set()] * len(hosts)


@pytest.fixture(scope="module")
def refused(prepared, variables, tmp_path_factory):
    """The outcome of each case that is refused although engine and store exist, in one run."""
    stale = llama_host.write_catalog(tmp_path_factory.mktemp("stale"))
    model = stale / "models" / "slow.yaml"
    model.write_text(model.read_text().replace("512", "1024"))
    foreign = tmp_path_factory.mktemp("foreign") / "llama-swap"
    foreign.write_bytes(b"\x7fELF\x02\x01\x01 of no machine")
    cases = {
        "no model": {"llama_server_program": "llama-server"},
        "unknown model": {"llama_server_program": "llama-server", "llama_server_model": "big"},
        "system port": {"llama_server_port": "80"},
        "stale lock": {"llama_server_catalog": str(stale)},
        "other platform": {"llama_server_llama_swap": str(foreign)},
    }
    return play_cases("llama_server", prepared[:1], {case: variables | changed for case, changed in cases.items()})


def test_what_the_catalog_does_not_have_is_refused(refused):
    refused["no model"].refused("llama_server_model does not name it")
    refused["unknown model"].refused("has no model big", "it has slow, tiny-text")


def test_a_port_of_the_system_is_refused(refused):
    refused["system port"].refused("from 1024 to 65535")


def test_a_stale_lock_is_refused_in_the_words_of_corral(refused):
    refused["stale lock"].refused("slow", "stale", "corral lock")


def test_a_llama_swap_of_another_platform_is_refused(refused):
    assert refused["other platform"].failed
    assert "Build llama-swap for that platform" in refused["other platform"].text


def test_it_serves_what_terraform_renders_from_the_lock(served, catalog, capsys):
    there = [f"--store={llama_host.STORE}", f"--engine={llama_host.ENGINE}", "--preflight=/opt/llama-swap/preflight.sh"]
    assert main(["render", "--print=llama-swap", f"--catalog={catalog}", *there]) == 0
    rendered = yaml.safe_load(capsys.readouterr().out)
    for host in served:
        assert yaml.safe_load(host.run("cat /etc/llama-swap/llama-swap.yaml")) == rendered
        assert answers(host) == "OK"


def test_a_second_run_changes_nothing_and_the_random_port_stays(served, variables):
    before = [llama_host.endpoint(host) for host in served]
    played = play_role("llama_server", served, variables=variables).succeeded()
    assert set(played.changed.values()) == {0}
    assert [llama_host.endpoint(host) for host in served] == before
    ports = {int(url.rpartition(":")[2]) for url in before}
    assert len(ports) == len(served)
    assert all(20_000 <= port < 32_000 for port in ports)


def streams_at_once(url, tokens):
    """Ten answers of the slow model, all of them begun."""
    with ThreadPoolExecutor(llama_host.SLOTS) as pool:
        return list(pool.map(lambda _: Stream(url, "slow", tokens), range(llama_host.SLOTS)))


def tokens_for(url, seconds):
    """How many tokens ten answers at once have when they take *seconds* here and now."""
    chat(url, "Hello.", model="slow", max_tokens=1)
    began = time.monotonic()
    for stream in streams_at_once(url, 20):
        stream.join()
    return 20 + int(20 * seconds / (time.monotonic() - began))


def test_ten_of_ten_streams_finish_through_a_stop(served):
    for host in served:
        url = llama_host.endpoint(host)
        streams = streams_at_once(url, tokens_for(url, ANSWER_S))
        assert not any(stream.is_whole for stream in streams)
        host.run(f"systemctl stop {UNIT}")
        for stream in streams:
            stream.join()
        assert [stream.is_whole for stream in streams] == [True] * llama_host.SLOTS
        assert host.run(f"systemctl show --property=Result --value {UNIT}") == "success"
        assert host.run("pgrep -f corral.engine.llama_server", check=False) == ""
        host.run(f"systemctl start {UNIT}")


def test_it_comes_back_after_a_kill_and_leaves_no_engine_behind(served):
    for host in served:
        assert answers(host) == "OK"
        old = main_pid(host)
        host.run(f"kill -KILL {old}")
        wait_for("a new llama-swap", lambda h=host, o=old: main_pid(h) not in (0, o), seconds=20)
        wait_for("its port", lambda h=host: get(f"{llama_host.endpoint(h)}/health")[0] == 200, seconds=20)
        assert "llama_server" not in processes(host)
        assert answers(host) == "OK"


def test_it_comes_back_after_a_reboot(served):
    for host in served:
        host.run("touch /run/before; systemctl reboot")
        host.room.forget_connection(host.name)
        wait_for(
            "the reboot", lambda h=host: h.run("test -e /run/before || echo done", check=False) == "done", seconds=60
        )
        wait_for("its port", lambda h=host: get(f"{llama_host.endpoint(h)}/health")[0] == 200, seconds=30)
        assert answers(host) == "OK"


def test_the_unit_is_exposed_to_at_most_2_of_10(served):
    for host in served:
        report = host.run(f"systemd-analyze security --no-pager {UNIT}")
        assert float(EXPOSURE.search(report)[1]) <= 2.0, report


def test_the_service_cannot_write_its_store(served):
    for host in served:
        attempt = host.result(
            f"nsenter --mount --target {main_pid(host)} touch {llama_host.STORE}/tiny-text/model.gguf"
        )
        assert "Read-only file system" in attempt.stderr
        assert host.run(f"stat --format=%U /proc/{main_pid(host)}") != "root"


def test_only_the_named_clients_are_let_through(served):
    """The properties that systemd read; a container may not load the filter itself, so no client connects here."""
    for host in served:
        shown = host.run(f"systemctl show --property=IPAddressAllow,IPAddressDeny {UNIT}").splitlines()
        allowed, denied = (set(line.partition("=")[2].split()) for line in sorted(shown))
        assert allowed == {"127.0.0.0/8", "::1/128", f"{NETWORK}.1/32"}
        assert denied == {"0.0.0.0/0", "::/0"}


def test_no_gpu_stands_in_the_description_and_in_the_engines_environment(served):
    for host in served:
        shown = host.run(f"systemctl show --property=Description,Environment {UNIT}")
        assert "llama-swap: 2 models, GPU layers none (no GPU here)" in shown
        assert "LLAMA_ARG_DEVICE=none" in shown
        (service,) = host_services.installed(host.root)
        assert (service.program, service.serves, service.layers, service.reason) == (
            "llama-swap",
            "2 models",
            "none",
            "no GPU here",
        )


def test_an_engine_of_its_unit_is_the_model_that_the_cards_exporter_names(one, catalog, tmp_path):
    (host,) = one
    answers(host)
    pid = int(host.run("pgrep --full -- '--alias [t]iny-text'"))  # not the shell of this command
    card.report(host, tmp_path, (pid, 700, "/usr/bin/python3"), (main_pid(host), 1, "/opt/llama-swap"))
    variables = {"node_metrics_address": host.address} | card.variables(one, catalog, "laptop")

    play_role("node_metrics", one, variables=variables).succeeded()

    found = card.held(host)
    assert (found["model", "tiny-text"], found["model", "slow"]) == (700, 0)
    assert found["process", "llama-swap in llama-swap.service"] == 1


def test_a_card_takes_all_layers_and_opens_its_devices(one, variables):
    """A stand-in for the driver, which no test host has: a device file, and a program that names a card."""
    for host in one:
        host.run("touch /dev/nvidiactl")
        host.put("#!/bin/sh\necho Tesla T4\n", card.SMI, mode="0755")
    play_role("llama_server", one, variables=variables).succeeded()
    for host in one:
        shown = host.run(f"systemctl show --property=Description,Environment,DeviceAllow {UNIT}")
        assert "GPU layers all (CUDA on Tesla T4)" in shown
        assert "LLAMA_ARG_DEVICE" not in shown
        assert "char-nvidia-uvm rw" in shown
        host.put("#!/bin/sh\necho 'it cannot communicate with the driver'\nexit 9\n", card.SMI, mode="0755")

    silent = play_role("llama_server", one, variables=variables)
    silent.refused("nvidia-smi does not name a card", "it cannot communicate with the driver")
    for host in one:
        host.run(f"rm /dev/nvidiactl {card.SMI}")


def test_one_model_runs_without_llama_swap_by_the_very_words_of_the_lock(one, variables, catalog):
    single = variables | {"llama_server_program": "llama-server", "llama_server_model": "tiny-text"}
    play_role("llama_server", one, variables=single).succeeded()
    argv = json.loads((catalog / "lock.json").read_text())["models"]["tiny-text"]["argv"]
    for host in one:
        url = llama_host.endpoint(host, "llama-server")
        assert chat(url, "Hello.")["message"]["content"] == "OK"
        port = url.rpartition(":")[2]
        expected = [word.replace("${STORE}", llama_host.STORE).replace("${PORT}", port) for word in argv[1:]]
        pid = host.run("systemctl show --property=MainPID --value llama-server")
        running = host.run(f"tr '\\0' '\\n' < /proc/{pid}/cmdline").split("\n")
        assert running[-len(expected) - 2 :] == [*expected, "--host", "0.0.0.0"]
        assert host.run(f"systemctl is-active {UNIT}", check=False) == "inactive"
    again = play_role("llama_server", one, variables=single).succeeded()
    assert set(again.changed.values()) == {0}


def test_a_mac_gets_a_property_list_that_launchd_can_read(one, variables):
    """launchctl is a stand-in that records its arguments: only a Mac has it, so the test proves nothing more."""
    for host in one:
        host.put('#!/bin/sh\necho "$@" >> /run/launchctl.log\n[ "$1" != print ]\n', LAUNCHCTL, mode="0755")
        host.run("mkdir --parents /srv/launchd")
    mac = variables | {"llama_server_service_manager": "launchd", "llama_server_launchd_folder": "/srv/launchd"}
    play_role("llama_server", one, variables=mac).succeeded()
    for host in one:
        found = plistlib.loads(host.run("cat /srv/launchd/corral.llama-swap.plist").encode())
        assert found["ProgramArguments"][0] == "/opt/llama-swap/current/llama-swap"
        assert found["ProgramArguments"][-1].startswith("0.0.0.0:")
        assert (found["KeepAlive"], found["ExitTimeOut"], found["AbandonProcessGroup"]) == (True, 45, False)
        assert found["EnvironmentVariables"]["LLAMA_ARG_DEVICE"] == "none"
        assert host.run("grep -c bootstrap /run/launchctl.log") == "1"
        host.run("mkdir --parents /srv/mac/Library && ln --symbolic ../../launchd /srv/mac/Library/LaunchDaemons")
        (service,) = host_services.installed(host.root / "srv/mac")
        assert (service.layers, service.reason) == ("none", "no GPU here")
