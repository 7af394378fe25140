"""A machine without Kubernetes: driver pid → unit of systemd → tenant or model."""

from __future__ import annotations

import os

import pytest

from corral.exporter import account, driver, holders
from corral.exporter.account import CardPromise, ModelPromise
from corral.exporter.attribution import OnHost
from corral.exporter.driver import Process
from corral.exporter.holders import Kind, Owner
from tests.support.fake_nvidia_smi import UUID, install

MIB = 1 << 20
ID = "ab" * 32
UNITS = ("llama-server.service", "llama-swap.service")
TENANTS = {"immich-ml": "immich-ml.service", "media": "media.slice"}
ENGINE = ("llama-server", "-m", "x.gguf", "--alias", "chat", "--port", "1")


@pytest.fixture
def proc(tmp_path):
    folder = tmp_path / "proc"
    folder.mkdir()
    return folder


def start(proc, pid, group, *words):
    """A process *pid* in the control group *group*."""
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cgroup").write_text(f"0::{group}\n")
    (proc / str(pid) / "cmdline").write_bytes(b"\0".join(word.encode() for word in words))


def owner(proc, group, *words, tenants=TENANTS):
    start(proc, 1, group, *words)
    return OnHost(tenants, UNITS, ["chat"], proc).owner(Process(UUID, "Tesla T4", 1, 1, "1", "/usr/bin/python3"))


@pytest.mark.parametrize("unit", UNITS)
def test_an_engine_of_the_roles_unit_is_the_model_of_its_alias(proc, unit):
    assert owner(proc, f"/system.slice/{unit}", *ENGINE) == Owner(Kind.MODEL, "chat")


@pytest.mark.parametrize("words", [("llama-server",), ("llama-server", "--alias"), ("llama-server", "--alias", "x")])
def test_another_process_of_that_unit_is_no_model(proc, words):
    group = "/system.slice/llama-swap.service"
    assert owner(proc, group, *words) == Owner(Kind.PROCESS, "python3 in llama-swap.service")


@pytest.mark.parametrize(
    ("group", "place"),
    [
        ("/system.slice/ollama.service", "ollama.service"),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/llama-swap.service",
            "user@1000.service/llama-swap.service",
        ),
        ("/system.slice/plex.service/llama-swap.service", "plex.service"),
        (f"/system.slice/docker-{ID}.scope/system.slice/llama-swap.service", f"docker-{ID[:12]}.scope"),
        (f"/docker/{ID}/system.slice/llama-swap.service", f"docker/{ID[:12]}"),
    ],
)
def test_the_alias_of_a_model_makes_no_engine_of_a_process_elsewhere(proc, group, place):
    assert owner(proc, group, *ENGINE) == Owner(Kind.PROCESS, f"python3 in {place}")


@pytest.mark.parametrize(
    ("group", "tenant"),
    [
        ("/system.slice/immich-ml.service", "immich-ml"),
        (f"/system.slice/immich-ml.service/libpod-payload-{ID}", "immich-ml"),
        (f"/media.slice/docker-{ID}.scope", "media"),
        ("/media.slice/media-tv.slice/plex.service", "media"),
    ],
)
def test_a_process_is_of_the_tenant_whose_unit_it_is_in(proc, group, tenant):
    assert owner(proc, group) == Owner(Kind.TENANT, tenant)


def test_a_process_of_the_units_of_two_tenants_is_counted_for_none(proc):
    group = "/media.slice/immich-ml.service"
    name = "python3 in immich-ml.service"
    assert owner(proc, group) == Owner(Kind.PROCESS, name, claims=("immich-ml", "media"))


def test_a_tenant_without_a_unit_has_no_process(proc):
    tenants = {"immich-ml": None, "python3": None}
    assert owner(proc, "/system.slice/immich-ml.service", tenants=tenants).kind is Kind.PROCESS


def test_a_pod_a_process_in_no_group_and_one_that_has_ended_stay_apart(proc):
    start(proc, 2, f"/kubepods/burstable/pod0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9/{ID}")
    start(proc, 3, "/")
    on_host = OnHost(TENANTS, UNITS, [], proc)
    found = [on_host.owner(Process(UUID, "Tesla T4", pid, 1, "1", "/usr/bin/python3")) for pid in (2, 3, 4)]
    assert found == [
        Owner(Kind.POD, "pod 0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"),
        Owner(Kind.PROCESS, "python3"),
        Owner(Kind.HIDDEN, "pid 4"),
    ]


@pytest.fixture
def held(proc, tmp_path, monkeypatch):
    """What model and tenants of a T4 hold, and the problem, where tenants have *units* and a process holds *mib*."""
    monkeypatch.setattr(driver, "pid_namespace", lambda: driver.FIRST_PID_NAMESPACE)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    models = {"chat": ModelPromise("main", 7030 * MIB, 7030 * MIB, None)}
    promises = {"t4": CardPromise(15360 * MIB, 512 * MIB, dict.fromkeys(TENANTS, 1000 * MIB), models)}
    start(proc, 1, "/system.slice/immich-ml.service")

    def read(units, mib, *others):
        install(tmp_path, "".join(f"{UUID}, Tesla T4, {pid}, {mib}, python3\n" for pid in (1, *others)))
        (found,) = account.of(promises, holders.read(lambda: OnHost(units, UNITS, list(models), proc)))
        return {row.name: row.held for row in found.rows if row.kind in ("model", "tenant")}, found.problem

    return read


def test_a_model_and_a_tenant_without_a_process_hold_0(held):
    assert held(TENANTS, 1500) == ({"chat": 0, "immich-ml": 1500 * MIB, "media": 0}, "")


def test_where_a_tenant_has_no_unit_no_tenant_without_a_process_holds_0_and_the_problem_names_it(held):
    found, problem = held(TENANTS | {"media": None}, 1500)
    assert found == {"chat": 0, "immich-ml": 1500 * MIB, "media": None}
    assert problem == "The card's file names no unit of these tenants: media."


def test_while_a_process_is_hidden_no_tenant_and_no_model_without_one_holds_0(held):
    found, problem = held(TENANTS, 1500, os.getpid())
    assert found == {"chat": None, "immich-ml": 1500 * MIB, "media": None}
    assert problem == f"Whose these processes on the card are cannot be read in /proc: pid {os.getpid()}."


def test_what_two_tenants_of_one_process_hold_is_unknown(held):
    found, problem = held({"immich-ml": "immich-ml.service", "media": "system.slice"}, 1500)
    assert found == {"chat": 0, "immich-ml": None, "media": None}
    assert problem == (
        "The card's file makes these holders those of several tenants: "
        "python3 in immich-ml.service of immich-ml, media."
    )
