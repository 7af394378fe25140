"""The download Job when it is interrupted: the next pod, or the next Job, goes on where the last one was."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
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
RATE = 12 * MIB  # bytes a second: slow enough to be interrupted midway


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    file = tmp_path_factory.mktemp("big") / "big.gguf"
    tiny_gguf.write_text(file, n_ff=80_000)
    assert file.stat().st_size > 100 * MIB
    return file


@pytest.fixture
def lab(cluster, tmp_path, big):
    name = f"interrupted-{secrets.token_hex(3)}"  # a store that was kept has nothing left to fetch
    with homelab(cluster, tmp_path, name) as lab:
        lab.hub.update("corral/tiny-text-GGUF", RepoContent({"tiny-text-F16.gguf": big}))
        lab.corral("lock", "--upgrade")
        lab.whole = sum(file.stat().st_size for file in tmp_path.glob("files/*vision*")) + big.stat().st_size
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


def midway(lab):
    """The Job's pod, once a third of all bytes have been sent; what is asked for from now on comes quickly."""
    wait_for(lambda: sent(lab) > lab.whole // 3, limit_s=120, what="a third of the download")
    lab.hub.faults.clear()
    return next(one for one in job_pods(lab) if one.status.phase in {"Pending", "Running"})


def test_a_drained_node_costs_no_bytes_and_the_job_completes(lab):
    apply = threading.Thread(target=lab.apply)
    apply.start()
    pod = midway(lab)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.metadata.name}}
    client.CoreV1Api(lab.cluster.api).create_namespaced_pod_eviction(pod.metadata.name, lab.namespace, eviction)
    apply.join()

    job = client.BatchV1Api(lab.cluster.api).read_namespaced_job("download-models", lab.namespace)
    assert job.status.succeeded == 1
    assert pod.metadata.name not in {one.metadata.name for one in job_pods(lab) if one.status.phase == "Succeeded"}
    assert lab.whole <= sent(lab) <= 1.1 * lab.whole
    lab.corral("smoke", "tiny-text")


def test_a_killed_agent_costs_no_bytes_and_the_job_completes(lab, big):
    """The kernel's killer sends the same signal; tests/cluster/test_faults.py has it come for real."""
    apply = threading.Thread(target=lab.apply)
    apply.start()
    kill_agent(midway(lab))
    apply.join()

    assert killed(lab)
    assert lab.whole <= sent(lab) <= 1.1 * lab.whole
    assert (lab.store / "tiny-text" / "model.gguf").read_bytes() == big.read_bytes()


def killed(lab):
    """Whether a fetch container ended by SIGKILL."""
    states = [
        status.state.terminated or status.last_state.terminated
        for pod in job_pods(lab)
        for status in pod.status.init_container_statuses or ()
    ]
    return any(one.exit_code == 137 for one in states if one)


def kill_agent(pod):
    """SIGKILL, from outside of its container."""
    agents = subprocess.run(["pgrep", "-f", "agent fetch --store"], capture_output=True, text=True, check=True)
    for pid in agents.stdout.split():
        if pod.metadata.uid in Path(f"/proc/{pid}/cgroup").read_text():
            os.kill(int(pid), signal.SIGKILL)
            return
    raise AssertionError(f"no agent runs in pod {pod.metadata.name}")
