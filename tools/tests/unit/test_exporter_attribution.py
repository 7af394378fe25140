"""Driver pid → container → pod → tenant or model, from a folder in place of /proc and nvidia-smi's recorded answers."""

from __future__ import annotations

import os
import subprocess

import pytest

from corral.exporter import account, driver, holders
from corral.exporter.account import OTHER, CardPromise, ModelPromise
from corral.exporter.attribution import OnNode
from corral.exporter.driver import Process
from corral.exporter.holders import Kind, Owner
from corral.exporter.pods import Pod, Selector
from tests.support.fake_nvidia_smi import UUID, install

MIB = 1 << 20
UIDS = {name: f"{number}" * 8 + "-0000-0000-0000-000000000000" for number, name in enumerate("abcde")}
ENGINES = Selector("llama-cpp", {"app.kubernetes.io/name": "llama-swap"})
TENANTS = {"immich-ml": Selector("immich", {"app": "ml"}), "frigate": Selector("frigate", {"app": "frigate"})}
PODS = {
    UIDS["a"]: Pod(UIDS["a"], "llama-cpp", "llama-swap-0", ENGINES.labels),
    UIDS["b"]: Pod(UIDS["b"], "immich", "ml-0", {"app": "ml"}),
    UIDS["c"]: Pod(UIDS["c"], "jobs", "train-0", {"app": "ml"}),
}


@pytest.fixture
def proc(tmp_path):
    folder = tmp_path / "proc"
    folder.mkdir()
    return folder


def start(proc, pid, pod="", *words):
    """A process *pid* in a container of the pod with *pod*'s uid; of the host without one."""
    (proc / str(pid)).mkdir()
    group = f"/kubepods/burstable/pod{UIDS[pod]}/{'ab' * 32}" if pod else "/system.slice/xorg.service"
    (proc / str(pid) / "cgroup").write_text(f"0::{group}\n")
    (proc / str(pid) / "cmdline").write_bytes(b"\0".join(word.encode() for word in words))


def owner(proc, pid, pods=PODS, tenants=TENANTS):
    one = OnNode(pods, tenants, ENGINES, ["qwen3-8b"], proc=proc)
    return one.owner(Process(UUID, "Tesla T4", pid, 1, "1", "/usr/bin/python3"))


def test_an_engine_is_the_model_of_its_alias(proc):
    start(proc, 1, "a", "llama-server", "-m", "x.gguf", "--alias", "qwen3-8b", "--port", "1")
    assert owner(proc, 1) == Owner(Kind.MODEL, "qwen3-8b", "llama-cpp/llama-swap-0")


def test_only_a_pod_of_llama_swap_has_engines(proc):
    start(proc, 1, "b", "llama-server", "--alias", "qwen3-8b")
    assert owner(proc, 1) == Owner(Kind.TENANT, "immich-ml", "immich/ml-0")


@pytest.mark.parametrize(
    ("namespace", "model", "expected"),
    [
        ("llama-cpp", "qwen3-8b", Owner(Kind.MODEL, "qwen3-8b", "llama-cpp/vllm-0")),
        ("llama-cpp", "another", Owner(Kind.POD, "llama-cpp/vllm-0", "llama-cpp/vllm-0")),
        ("jobs", "qwen3-8b", Owner(Kind.POD, "jobs/vllm-0", "jobs/vllm-0")),
    ],
)
def test_a_pod_that_serves_one_model_is_it_by_its_label_beside_llama_swap_alone(proc, namespace, model, expected):
    start(proc, 1, "e", "VLLM::EngineCore")
    pods = PODS | {UIDS["e"]: Pod(UIDS["e"], namespace, "vllm-0", {"corral/model": model})}
    assert owner(proc, 1, pods=pods) == expected


@pytest.mark.parametrize(
    "words", [("llama-server",), ("llama-server", "--alias"), ("llama-server", "--alias", "other")]
)
def test_another_process_of_that_pod_is_the_pods(proc, words):
    start(proc, 1, "a", *words)
    assert owner(proc, 1) == Owner(Kind.POD, *["llama-cpp/llama-swap-0"] * 2)


def test_a_pod_of_no_tenant_has_its_own_name(proc):
    start(proc, 1, "c")
    assert owner(proc, 1) == Owner(Kind.POD, *["jobs/train-0"] * 2)


def test_a_pod_of_two_tenants_is_counted_for_none(proc):
    start(proc, 1, "b")
    both = TENANTS | {"immich-server": Selector("immich", {})}
    assert owner(proc, 1, tenants=both) == Owner(Kind.POD, *["immich/ml-0"] * 2, ("immich-ml", "immich-server"))


def test_a_pod_that_is_not_in_the_list_has_its_uid(proc):
    start(proc, 1, "d")
    assert owner(proc, 1) == Owner(Kind.POD, f"pod {UIDS['d']}")
    assert owner(proc, 1, pods=None) == Owner(Kind.POD, f"pod {UIDS['d']}")


def test_a_process_of_the_host_and_one_that_has_ended_stay_apart(proc):
    start(proc, 1)
    assert owner(proc, 1) == Owner(Kind.PROCESS, "python3")
    assert owner(proc, 2) == Owner(Kind.HIDDEN, "pid 2")


def test_a_program_with_the_name_of_the_sum_has_its_pid_for_a_name(proc):
    start(proc, 1)
    one = OnNode(PODS, TENANTS, ENGINES, [], proc=proc)
    assert one.owner(Process(UUID, "Tesla T4", 1, 1, "1", f"/tmp/{OTHER}")) == Owner(Kind.PROCESS, "pid 1")


@pytest.fixture
def accounted(proc, tmp_path, monkeypatch):
    """The account of a T4 on which the driver lists *rows* (pid, MiB)."""
    monkeypatch.setattr(driver, "pid_namespace", lambda: driver.FIRST_PID_NAMESPACE)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    models = {"qwen3-8b": ModelPromise("main", 7030 * MIB, 7030 * MIB, None)}
    budgets = {"immich-ml": 2100 * MIB, "frigate": 2300 * MIB}
    promises = {"t4": CardPromise(15360 * MIB, 512 * MIB, budgets, models)}

    def read(*rows, pods=PODS, tenants=TENANTS):
        install(tmp_path, "".join(f"{UUID}, Tesla T4, {pid}, {mib}, python3\n" for pid, mib in rows))
        on_node = OnNode(pods, tenants, ENGINES, list(models), proc=proc)
        (found,) = account.of(promises, holders.read(lambda: on_node))
        return found

    return read


def test_the_tenant_of_the_incident_is_named_with_what_it_holds_beyond_its_budget(proc, accounted):
    for pid in (10, 11):
        start(proc, pid, "b")
    found = accounted((10, 10000), (11, 726))
    (culprit,) = found.over
    assert (culprit.kind, culprit.name, culprit.held, culprit.over) == (
        "tenant",
        "immich-ml",
        10726 * MIB,
        (10726 - 2100) * MIB,
    )
    assert culprit.pids == (10, 11)
    held = {row.name: row.held for row in found.rows if row.kind in ("tenant", "model")}
    assert held == {"immich-ml": 10726 * MIB, "frigate": 0, "qwen3-8b": 0}


@pytest.mark.parametrize("pods", [None, {UIDS["a"]: PODS[UIDS["a"]]}], ids=["no-list", "a-new-pod"])
def test_while_a_pod_is_unknown_no_tenant_and_no_model_holds_0(proc, accounted, pods):
    start(proc, 10, "b")
    found = accounted((10, 10726), pods=pods)
    assert {row.held for row in found.rows if row.kind in ("tenant", "model")} == {None}
    assert (found.over, found.others) == ((), None)
    assert (UIDS["b"] in found.problem) == (pods is not None)
    assert found.used == 13150 * MIB  # the sum is known all the same


def test_a_tenant_with_a_process_whose_bytes_are_missing_is_unknown(proc, accounted):
    start(proc, 10, "b")
    start(proc, 11, "b")
    found = accounted((10, 100), (11, "[N/A]"))
    assert {row.name: row.held for row in found.rows if row.kind == "tenant"} == {"immich-ml": None, "frigate": 0}


def test_while_a_process_is_hidden_no_tenant_and_no_model_without_one_holds_0(proc, accounted):
    start(proc, 10, "b")
    found = accounted((10, 100), (os.getpid(), 3000))
    held = {row.name: row.held for row in found.rows if row.kind in ("tenant", "model")}
    assert held == {"immich-ml": 100 * MIB, "frigate": None, "qwen3-8b": None}
    assert found.problem == f"Whose these processes on the card are cannot be read in /proc: pid {os.getpid()}."


def test_a_process_that_has_ended_makes_no_tenant_unknown(proc, accounted):
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    found = accounted((ended.pid, 3000))
    assert {row.held for row in found.rows if row.kind in ("tenant", "model")} == {0}
    assert [row.name for row in found.rows if row.kind == "hidden"] == [f"pid {ended.pid}"]
    assert found.problem == ""


def test_a_pid_that_cannot_be_hides_everybody(proc, accounted):
    found = accounted((10**11, 3000))
    assert {row.held for row in found.rows if row.kind in ("tenant", "model")} == {None}


def test_where_a_tenant_names_no_pods_no_tenant_without_a_process_holds_0_and_the_problem_names_it(proc, accounted):
    start(proc, 10, "b")
    found = accounted((10, 100), tenants=TENANTS | {"frigate": None})
    held = {row.name: row.held for row in found.rows if row.kind in ("tenant", "model")}
    assert held == {"immich-ml": 100 * MIB, "frigate": None, "qwen3-8b": 0}
    assert found.problem == "The card's file names no namespace and no selector of these tenants: frigate."


def test_what_two_tenants_of_one_pod_hold_is_unknown_also_with_a_process_of_their_own(proc, accounted):
    start(proc, 10, "b")
    start(proc, 11, "c")
    found = accounted((10, 100), (11, 200), tenants=TENANTS | {"frigate": Selector(None, {"app": "ml"})})
    held = {row.name: row.held for row in found.rows if row.kind in ("tenant", "model", "pod")}
    assert held == {"immich-ml": None, "frigate": None, "qwen3-8b": 0, "immich/ml-0": 100 * MIB}
    assert found.problem == (
        "The card's file makes these holders those of several tenants: immich/ml-0 of frigate, immich-ml."
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("GPU-2, Tesla T4, 7, 1, python3\n", "on a card that it does not list: 'GPU-2'"),
        (f"{UUID}, Tesla T4, 7, 15361, python3\n", "more memory than its card has: 15,361 MiB"),
    ],
)
def test_a_process_that_does_not_fit_the_cards_makes_the_reading_unreadable(proc, accounted, tmp_path, row, reason):
    accounted()
    install(tmp_path, row)
    reading = holders.read(lambda: OnNode(PODS, TENANTS, ENGINES, [], proc=proc))
    assert (reading.cards, reading.unknown) == ((), "unreadable")
    assert reason in reading.problem
