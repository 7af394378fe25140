"""The test cluster itself: what the other tests take for granted, and that it leaves the machine as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import psutil
import pytest
from kubernetes import client
from kubernetes.stream import stream

from corral import paths
from corral.errors import CannotRun
from corral.files import OwnFolder
from tests.support.cluster import images, pods, throwaway
from tests.support.cluster.cluster import GPU, RUNTIME_CLASS
from tests.support.cluster.place import NODE, PLACES, Place

TOOLS = Path(__file__).resolve().parents[2]
throwaway_only = pytest.mark.skipif(
    os.environ.get("CLUSTER") == "current", reason="the throwaway cluster's own; CI runs it"
)


@pytest.fixture
def core(cluster):
    return client.CoreV1Api(cluster.api)


def reason(pod):
    """Why the pod waits: of its container, or of the scheduler."""
    for container in pod.status.container_statuses or ():
        if container.state.waiting:
            return container.state.waiting.reason
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message
    return None


def gpus(pod):
    """How many slices the pod holds."""
    limits = (container.resources.limits or {} for container in pod.spec.containers)
    return sum(int(limit.get(GPU, 0)) for limit in limits)


# --- images


@throwaway_only
def test_while_one_cluster_pushes_its_images_another_waits(cluster):
    own = OwnFolder(paths.cache_dir(), "XDG_CACHE_HOME")
    with own.exclusive_lock(images.store(), timeout_s=60), pytest.raises(CannotRun, match="Another corral"):
        images.push_all(cluster.registry, timeout_s=0.1)


@throwaway_only
def test_an_image_that_the_registry_has_is_not_written_again(cluster):
    links = sorted(images.store().rglob("link"))
    before = [link.stat().st_mtime_ns for link in links]
    assert links
    assert images.push_all(cluster.registry) == cluster.images
    assert [link.stat().st_mtime_ns for link in links] == before


def test_a_pod_runs_an_image_that_was_pulled_by_digest(cluster, namespace, core):
    phase, output = pods.run(cluster, namespace, pods.pod("one", cluster.images["fetch"], "python3", "--version"))
    assert phase == "Succeeded", output
    assert output.startswith("Python 3.13.")
    status = core.read_namespaced_pod("one", namespace).status.container_statuses[0]
    assert status.image_id.endswith(cluster.images["fetch"].rpartition("@")[2])


def test_the_fetch_image_has_no_curl_as_the_public_one(cluster, namespace):
    script = "import shutil; print(shutil.which('curl'), shutil.which('python'))"
    _, output = pods.run(cluster, namespace, pods.pod("one", cluster.images["fetch"], "python3", "-c", script))
    assert output.split() == ["None", "/usr/local/bin/python"]


def test_the_llama_swap_image_holds_the_real_programs_and_no_root(cluster, namespace):
    script = "id -u; which curl llama-swap llama-server; llama-swap -version; llama-server --version 2>&1"
    wanted = pods.pod("one", cluster.images["llama-swap"], "sh", "-c", script)
    phase, output = pods.run(cluster, namespace, wanted)
    assert phase == "Succeeded", output
    assert output.startswith("10001\n/usr/bin/curl\n/app/llama-swap\n/app/llama-server\nversion: v")
    assert output.count("version: ") == 2


def test_a_digest_that_the_registry_does_not_have_is_not_pulled(cluster, namespace, core):
    wrong = cluster.images["fetch"].rpartition("@")[0] + "@sha256:" + "0" * 64
    core.create_namespaced_pod(namespace, pods.pod("one", wrong, "true"))
    found = pods.eventually(lambda: reason(core.read_namespaced_pod("one", namespace)), {"ErrImagePull"}.__contains__)
    assert found == "ErrImagePull"


# --- what a pod is allowed, and what it gets


def test_restricted_pod_security_rejects_a_pod_that_may_be_root(cluster, namespace, core):
    core.patch_namespace(namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    wanted = pods.pod("one", cluster.images["fetch"], "true")
    core.create_namespaced_pod(namespace, wanted)
    wanted["metadata"]["name"] = "two"
    wanted["spec"]["securityContext"].pop("runAsNonRoot")
    with pytest.raises(client.ApiException, match="runAsNonRoot != true") as refusal:
        core.create_namespaced_pod(namespace, wanted)
    assert refusal.value.status == 403


def test_the_node_has_four_gpu_slices_and_a_fifth_pod_stays_pending_for_that_reason(cluster, namespace, core):
    held = {"field_selector": f"spec.nodeName={cluster.node}"}
    pods.eventually(  # an earlier test may not have let go of its slice yet
        lambda: [pod.metadata.name for pod in core.list_pod_for_all_namespaces(**held).items if gpus(pod)],
        lambda names: not names,
    )
    cluster.set_gpus(4)
    for number in range(5):
        wanted = pods.pod(
            f"gpu-{number}",
            cluster.images["fetch"],
            *("sleep", "1000"),
            gpus=1,
            runtime_class=cluster.runtime_class,
        )
        core.create_namespaced_pod(namespace, wanted)
    found = pods.eventually(
        lambda: core.list_namespaced_pod(namespace).items,
        lambda items: sum(pod.status.phase == "Running" for pod in items) == 4 and any(map(reason, items)),
    )
    (waiting,) = [pod for pod in found if pod.status.phase == "Pending"]
    assert f"Insufficient {GPU}" in reason(waiting)
    cluster.set_gpus(5)
    pods.eventually(
        lambda: core.read_namespaced_pod(waiting.metadata.name, namespace).status.phase, {"Running"}.__contains__
    )
    cluster.set_gpus(4)


# --- volumes


@throwaway_only
@pytest.mark.parametrize("kind", ["nfs", "local"])
def test_a_volume_mounts_and_only_its_writers_write(cluster, namespace, kind):
    folder = cluster.nfs(f"/{namespace}") if kind == "nfs" else cluster.local(namespace)
    (folder / "given").write_text("on the machine")
    if kind == "nfs":
        source = {"nfs": {"server": "nas.example", "path": f"/{namespace}"}, "mountOptions": ["hard", "noatime"]}
        name = pods.claim(cluster, namespace, source, "ReadWriteMany")
    else:
        name = pods.claim(cluster, namespace, {"local": {"path": str(folder)}}, "ReadWriteOnce", node=cluster.node)
    script = "cat /store/given; echo $? >/store/taken"
    image = cluster.images["fetch"]
    phase, output = pods.run(cluster, namespace, pods.pod("writer", image, "sh", "-c", script, claim=name))
    assert (phase, output, (folder / "taken").read_text()) == ("Succeeded", "on the machine", "0\n")
    wanted = pods.pod("reader", image, "sh", "-c", script, claim=name, read_only=True)
    phase, output = pods.run(cluster, namespace, wanted)
    assert phase == "Failed"
    assert "Read-only file system" in output
    if kind == "nfs":
        mount = cluster.nfs_mounts()[-1].split()
        assert (mount[0], set(mount[2].split(","))) == (f"nas.example:/{namespace}", {"hard", "noatime"})


@throwaway_only
def test_an_export_that_the_server_does_not_have_keeps_the_pod_waiting(cluster, namespace, core):
    name = pods.claim(cluster, namespace, {"nfs": {"server": "nas.example", "path": "/nothing"}}, "ReadWriteMany")
    core.create_namespaced_pod(namespace, pods.pod("one", cluster.images["fetch"], "true", claim=name))
    output = pods.eventually(
        lambda: [
            event.message for event in core.list_namespaced_event(namespace).items if event.reason == "FailedMount"
        ],
        lambda messages: messages,
    )
    assert "reason given by server: No such file or directory" in output[0]


# --- network


def test_pods_reach_this_machine_and_a_service_by_its_name(cluster, namespace, core, tmp_path):
    (tmp_path / "page").write_text("from the machine")
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    serve = "import http.server as s; s.test(s.SimpleHTTPRequestHandler, s.ThreadingHTTPServer, port=8080)"
    server = pods.pod("server", cluster.images["fetch"], "python3", "-c", serve, labels={"app": "server"})
    core.create_namespaced_pod(namespace, server)
    ports = {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]}
    core.create_namespaced_service(namespace, {"metadata": {"name": "web"}, "spec": ports})
    pods.eventually(lambda: core.read_namespaced_pod("server", namespace).status.phase, {"Running"}.__contains__)
    with ThreadingHTTPServer(("", 0), handler) as httpd:
        Thread(target=httpd.serve_forever, daemon=True).start()
        asks = f"""
import time, urllib.request
print(urllib.request.urlopen("http://{cluster.hub_host}:{httpd.server_port}/page", timeout=10).read().decode())
for attempt in range(100):
    try:
        print(urllib.request.urlopen("http://web.{namespace}.svc.cluster.local/", timeout=10).status)
        print(urllib.request.urlopen("http://web/", timeout=10).status)
        break
    except OSError as error:
        print(error)
        time.sleep(0.1)
"""
        phase, output = pods.run(cluster, namespace, pods.pod("one", cluster.images["fetch"], "python3", "-c", asks))
        httpd.shutdown()
    assert phase == "Succeeded", output
    lines = output.splitlines()
    assert (lines[0], lines[-2:]) == ("from the machine", ["200", "200"]), output


def test_a_command_runs_in_a_running_pod(cluster, namespace, core):
    core.create_namespaced_pod(namespace, pods.pod("one", cluster.images["fetch"], "sleep", "1000"))
    pods.eventually(lambda: core.read_namespaced_pod("one", namespace).status.phase, {"Running"}.__contains__)
    asked = {"command": ["cat", "/proc/1/cmdline"], "stdout": True, "stderr": True, "_preload_content": False}
    output = stream(core.connect_get_namespaced_pod_exec, "one", namespace, **asked)
    output.run_forever(timeout=30)
    assert output.read_all() == "sleep\x001000\x00"
    output.sock.shutdown()  # close() does nothing once the other side has closed


# --- the machine


def machine():
    """What a cluster could leave behind on this machine outside of its place, which other clusters do not touch."""
    settings = (
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "net/ipv4/ip_forward",
    )
    places = (
        "/var/lib/kubelet",
        "/var/lib/cni",
        "/var/log/pods",
        "/var/log/containers",
        "/run/containerd",
        "/run/netns",
    )
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {
        "settings": {name: Path("/proc/sys", name).read_text() for name in settings},
        "links": sorted(link.name for link in Path("/sys/class/net").iterdir() if not link.name.startswith("corral-")),
        "rules": subprocess.check_output(["iptables-save", "-t", "nat"], text=True).count("KUBE-"),
        "mounts": mounts,
        "folders": {path: sorted(map(str, Path(path).iterdir())) for path in places if Path(path).exists()},
    }


def remains(place):
    """What a cluster left of its place."""
    routes = subprocess.check_output(["ip", "route", "show", "root", f"{place.network}.0.0/16"], text=True).splitlines()
    link = Path("/sys/class/net", place.link)
    return [*routes, *(path for path in (link, place.folder) if path.exists()), *place.cgroups()]


def inhabitants(place):
    """Every process of the cluster at *place*."""
    shell = psutil.Process(place.pid())
    return [shell, *shell.children(recursive=True)]


@pytest.fixture
def apart(monkeypatch):
    """A place that is free again would be taken by the first other worker that starts its cluster."""
    monkeypatch.setenv(PLACES, "apart")


@throwaway_only
@pytest.mark.usefixtures("apart")
def test_a_cluster_ends_with_its_owner_and_its_place_is_used_again(cluster):
    before = machine()
    script = (
        "from tests.support.cluster import throwaway as t; c = t.up(keep=False); print(c.folder, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=TOOLS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        place = Place(int(Path(owner.stdout.readline().strip()).name))
        assert place.folder != cluster.folder
        left = inhabitants(place)
        assert len(left) > 10
        owner.kill()
    _, alive = psutil.wait_procs(left, timeout=30)
    assert not alive
    assert machine() == before

    again = throwaway.up(keep=True)  # finds what the first one left, and cleans it away
    try:
        assert again.folder == place.folder
        core = client.CoreV1Api(again.api)
        core.create_namespaced_pod("default", pods.pod("one", again.images["fetch"], "sleep", "1000"))
        pods.eventually(lambda: core.read_namespaced_pod("one", "default").status.phase, {"Running"}.__contains__)
    finally:
        again.api.close()
        left = inhabitants(place)
        assert throwaway.down(place)
    assert not [process for process in left if process.is_running()]
    assert not remains(place)
    assert machine() == before
    assert not throwaway.down(place)


@throwaway_only
@pytest.mark.usefixtures("cluster", "apart")
def test_a_cluster_whose_every_process_was_killed_leaves_nothing_after_the_next_command():
    before = machine()
    other = throwaway.up(keep=True)
    other.api.close()
    place = Place(int(other.folder.name))
    victims = inhabitants(place)
    for process in victims:
        process.suspend()  # so that none can react to another's end
    for process in reversed(victims):
        process.kill()
    psutil.wait_procs(victims, timeout=30)
    assert throwaway.down(place)
    assert not remains(place)
    assert machine() == before


@throwaway_only
def test_the_node_is_the_one_that_the_fixture_names_with_a_runtime_for_gpus(cluster, core):
    (node,) = core.list_node().items
    assert node.metadata.name == cluster.node == NODE
    assert cluster.runtime_class == RUNTIME_CLASS
    assert client.NodeV1Api(cluster.api).read_runtime_class(RUNTIME_CLASS).handler == RUNTIME_CLASS
