"""The download Job when it is interrupted: the next pod, or the next Job, goes on where the last one was."""

from __future__ import annotations

import secrets
import subprocess
import threading

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


@pytest.fixture
def lab(cluster, tmp_path):
    name = f"interrupted-{secrets.token_hex(3)}"  # a store that was kept has nothing left to fetch
    with homelab(cluster, tmp_path, name) as lab:
        big = tmp_path / "big.gguf"
        tiny_gguf.write_text(big, n_ff=80_000)
        assert big.stat().st_size > 100 * MIB
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
    """The Job's pod, once a third of all bytes have been sent."""
    wait_for(lambda: sent(lab) > lab.whole // 3, limit_s=120, what="a third of the download")
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


def test_a_job_that_runs_out_of_memory_says_so_and_the_next_one_goes_on_where_it_was(lab):
    limit = lab.clone / "terraform" / "modules" / "model-fetch" / "memory.tf"
    usual = limit.read_text()
    apply = threading.Thread(
        target=lab.terraform, args=("apply", "-auto-approve", "-input=false"), kwargs={"code": None}
    )
    apply.start()
    pod = midway(lab)
    kill_for_memory(pod)
    seen = wait_for(lambda: killed(lab), limit_s=60, what="a container that was killed")
    apply.join()

    assert limit.read_text() == usual
    assert seen.exit_code == 137
    assert lab.whole <= sent(lab) <= 1.1 * lab.whole
    lab.corral("smoke", "tiny-text")


def killed(lab):
    """The state of a fetch container that ended with a signal, when there is one."""
    states = [
        status.state.terminated or status.last_state.terminated
        for pod in job_pods(lab)
        for status in pod.status.init_container_statuses or ()
    ]
    return next((one for one in states if one and one.exit_code == 137), None)


def kill_for_memory(pod):
    """What the kernel's killer does: SIGKILL to the agent, from outside of its container."""
    uid = pod.metadata.uid
    for folder in subprocess.run(
        ["pgrep", "-f", "agent fetch --store"], capture_output=True, text=True, check=True
    ).stdout.split():
        with open(f"/proc/{folder}/cgroup") as groups:
            if uid in groups.read():
                subprocess.run(["kill", "-KILL", folder], check=True)
                return
    raise AssertionError(f"no agent runs in pod {uid}")
