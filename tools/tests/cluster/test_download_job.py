"""The download Job when it is interrupted: the next pod, or the next Job, goes on where the last one was."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from kubernetes import client

from corral.demo import tiny_gguf
from corral.demo.hub import RepoContent
from tests.support.cluster.homelab import homelab
from tests.support.engine_process import wait_for
from tests.support.faulty_hub import Slow

pytestmark = pytest.mark.timeout(300)
MIB = 1 << 20
RATE = 1 * MIB  # a second, on each of 8 connections: a kill costs what came since the last flush, up to a second ago


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    file = tmp_path_factory.mktemp("big") / "big.gguf"
    tiny_gguf.write_text(file, n_ff=80_000)
    assert file.stat().st_size > 100 * MIB
    return file


@contextmanager
def slow_lab(cluster, folder, big):
    """A lab whose text model is *big*, from a hub that is slow."""
    name = f"interrupted-{secrets.token_hex(3)}"  # a store that was kept has nothing left to fetch
    with homelab(cluster, folder, name) as lab:
        lab.hub.update("corral/tiny-text-GGUF", RepoContent({"tiny-text-F16.gguf": big}))
        lab.corral("lock", "--upgrade")
        lab.whole = sum(file.stat().st_size for file in folder.glob("files/*vision*")) + big.stat().st_size
        lab.hub.faults.append(Slow(times=None, rate=RATE))
        lab.sent_before = lab.hub.data_sent
        yield lab


def sent(lab):
    return lab.hub.data_sent - lab.sent_before


def job_pods(lab):
    return (
        client.CoreV1Api(lab.cluster.api)
        .list_namespaced_pod(lab.namespace, label_selector="job-name=download-models")
        .items
    )


def interrupted(cluster, folder, big, interrupt):
    """What an apply came to whose download had *interrupt* happen to it after a third of all bytes."""
    with slow_lab(cluster, folder, big) as lab, ThreadPoolExecutor() as pool:
        apply = pool.submit(lab.apply)
        wait_for(lambda: sent(lab) > lab.whole // 3, limit_s=120, what="a third of the download")
        pod = next(one for one in job_pods(lab) if one.status.phase in {"Pending", "Running"})
        interrupt(lab, pod)
        lab.hub.faults.clear()
        apply.result()
        return Outcome(
            job=client.BatchV1Api(cluster.api).read_namespaced_job("download-models", lab.namespace),
            others=[one for one in job_pods(lab) if one.metadata.name != pod.metadata.name],
            exit_codes=exit_codes(lab),
            bytes_of_all=sent(lab) / lab.whole,
            file=(lab.store / "tiny-text" / "model.gguf").read_bytes(),
            smoke=lab.corral("smoke", "tiny-text", code=None).returncode,
        )


@dataclass
class Outcome:
    job: client.V1Job
    others: list[client.V1Pod]  # than the one that was interrupted
    exit_codes: set[int]  # of the containers that fetched
    bytes_of_all: float
    file: bytes
    smoke: int

    def assert_is_whole(self, big):
        assert self.job.status.succeeded == 1
        assert "Succeeded" in {one.status.phase for one in self.others}
        assert self.file == big.read_bytes()
        assert self.smoke == 0


def drain(lab, pod):
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.metadata.name}}
    client.CoreV1Api(lab.cluster.api).create_namespaced_pod_eviction(pod.metadata.name, lab.namespace, eviction)


def kill(lab, pod):
    """SIGKILL to the agent, from outside of its container."""
    agents = subprocess.run(["pgrep", "-f", "agent fetch --store"], capture_output=True, text=True, check=True)
    for pid in agents.stdout.split():
        with suppress(FileNotFoundError):  # another pod's, which has just ended
            if pod.metadata.uid in Path(f"/proc/{pid}/cgroup").read_text():
                os.kill(int(pid), signal.SIGKILL)
                return
    raise AssertionError(f"no agent runs in pod {pod.metadata.name}")


def exit_codes(lab):
    states = [
        status.state.terminated or status.last_state.terminated
        for pod in job_pods(lab)
        for status in pod.status.init_container_statuses or ()
    ]
    return {one.exit_code for one in states if one}


@pytest.fixture(scope="module")
def outcomes(cluster, big, tmp_path_factory):
    """What each interruption came to, side by side: ask for ``result()``."""
    with ThreadPoolExecutor() as pool:
        yield {
            how: pool.submit(interrupted, cluster, tmp_path_factory.mktemp(how.__name__), big, how)
            for how in (kill, drain)
        }


def test_a_drained_node_costs_no_bytes_and_the_job_completes(outcomes, big):
    outcome = outcomes[drain].result()

    outcome.assert_is_whole(big)
    assert 137 not in outcome.exit_codes
    assert 1 <= outcome.bytes_of_all <= 1.1


def test_a_killed_agent_costs_no_bytes_and_the_job_completes(outcomes, big):
    """The kernel's killer sends the same signal; tests/cluster/test_faults.py has it come for real."""
    outcome = outcomes[kill].result()

    outcome.assert_is_whole(big)
    assert 137 in outcome.exit_codes
    assert 1 <= outcome.bytes_of_all <= 1.1
