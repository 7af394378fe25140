"""An operator's clone with a catalog of tiny models, applied to the test cluster from terraform/stacks/homelab."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kubernetes import client

from corral import keys, paths
from corral.cluster.client import connect
from corral.cluster.keys import ClusterKeys
from corral.demo import tiny_gguf
from corral.demo.hub import RepoContent
from corral.demo.tour import write_tiny_repositories
from corral.errors import CorralError
from corral.lock import lock as locks
from corral.terraform.program import find_terraform
from tests.support import safetensors
from tests.support.cluster import images, pods
from tests.support.cluster.cluster import COLLECT_LATE, Cluster
from tests.support.faulty_hub import FaultyHub

CARD = "t4"
STACK = "terraform/stacks/homelab"
_NOT_CLONED = shutil.ignore_patterns(".terraform*", "*.tfstate*", "terraform.tfvars", "backend_override.tf")
_LOCKS: dict[str, str] = {}


@dataclass
class Homelab:
    """What an operator has: a clone, a catalog in it, a hub to lock against, and a cluster.

    Attributes:
        clone: the folder of the clone; nothing of it is this repository's own.
        variables: of terraform.tfvars.
    """

    clone: Path
    cluster: Cluster
    hub: FaultyHub
    variables: dict[str, Any] = field(default_factory=dict)

    @property
    def catalog(self) -> Path:
        return self.clone / "terraform" / "catalog"

    @property
    def stack(self) -> Path:
        return self.clone / STACK

    @property
    def namespace(self) -> str:
        return str(self.variables["namespace"])

    @property
    def store(self) -> Path:
        """The store on this machine: behind the stand-in for NFS."""
        return self.cluster.nfs(self.variables["store"]["nfs"]["path"])

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "PYTHONPATH": str(self.clone / "tools"),
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "HF_ENDPOINT": self.hub.endpoint,
            "CORRAL_ALLOW_HTTP": self.cluster.hub_host,
            "CORRAL_STATE": str(self.clone / "state"),
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",
            "COLUMNS": "160",
            "PYTHONDONTWRITEBYTECODE": "",  # the clone is read by many commands
            "GOGC": COLLECT_LATE,
        }

    def set(self, **variables: Any) -> None:
        """Change terraform.tfvars."""
        self.variables |= variables
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in self.variables.items()]
        (self.stack / "terraform.tfvars").write_text("".join(lines))

    def name_images(self, **others: str) -> None:
        """Write images.yaml: llama-swap with the engine in it, or by key *others* of the cluster's images."""
        names = {key: key for key in (images.LLAMA_SWAP, images.DOOR, images.FETCH)} | others
        tagged = {key: self.cluster.images[name].partition("@")[0] for key, name in names.items()}
        (self.catalog / "images.yaml").write_text(json.dumps(tagged))

    def model(self, name: str, **intent: Any) -> None:
        """Write the intent of one model."""
        whole = {"source": {"repo": f"corral/{name}-GGUF", "quant": "F16"}, "card": CARD, "context": 2048} | intent
        (self.catalog / "models" / f"{name}.yaml").write_text(json.dumps(whole))

    def run(self, *words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a program in the clone."""
        options = {"cwd": self.clone, "env": self.environment, "timeout": 300} | options
        return subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **options)

    def corral(self, *words: str | Path, code: int | None = 0, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the clone's corral; its exit code is *code*, unless that is None; *options* are those of ``run``."""
        done = self.run(Path(sys.executable).with_name("corral"), *words, **options)
        assert code is None or done.returncode == code, (
            f"corral {words[0]}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done

    def terraform(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run plain Terraform in the stack; its exit code is *code*, unless that is None."""
        done = self.run(find_terraform(), *words, cwd=self.stack)
        assert code is None or done.returncode == code, f"terraform {words[0]}\n{done.stdout}{done.stderr}"
        return done

    def server_pod(self) -> Any:
        """The server's pod that is not on its way out, else the one that is; None without any."""
        label = "app.kubernetes.io/name=llama-swap"
        found = client.CoreV1Api(self.cluster.api).list_namespaced_pod(self.namespace, label_selector=label)
        return min(found.items, key=lambda one: one.metadata.deletion_timestamp is not None, default=None)

    def tries_to_write(self) -> str:
        """The output of the server's own container when it makes a file in the store, and when it changes one."""
        words = ("-n", self.namespace, "exec", "deployment/llama-swap", "--", "sh", "-c")
        return self.run("kubectl", *words, "touch /models/new; echo x >> /models/tiny-text/model.gguf; true").stderr

    def lose_image(self, key: str, digest: str) -> None:
        """The lock as it would be had the registry once had the image *key* at *digest*, and lost it since."""
        file = self.catalog / "lock.json"
        locked = locks.read(file)
        assert locked is not None
        lost = locked.images | {key: f"{locked.images[key].partition('@')[0]}@{digest}"}
        locks.write(file, locked.model_copy(update={"images": lost}))

    def lock(self) -> dict[str, Any]:
        """`corral lock`; what it wrote."""
        self.corral("lock")
        found: dict[str, Any] = json.loads((self.catalog / "lock.json").read_text())
        return found

    def apply(self, *words: str) -> float:
        """Plain `terraform apply`, and beside it the keys that its pod waits for; the seconds that it took."""
        begin, ended = time.monotonic(), threading.Event()
        giving = threading.Thread(target=self._give_keys, args=(ended,))
        giving.start()
        try:
            self.terraform("apply", "-auto-approve", "-input=false", "-no-color", *words)
        finally:
            ended.set()
            giving.join()
        return time.monotonic() - begin

    def key(self, client: str = "operator") -> str:
        """A key of *client*: the operator's own, else a new one, which the guard knows when its file has changed."""
        store = ClusterKeys(connect(self.cluster.kubeconfig, self.cluster.context), self.namespace)
        return keys.ensure_operator(store) if client == "operator" else keys.add(store, client)

    def _give_keys(self, ended: threading.Event) -> None:
        while not ended.is_set():
            with suppress(CorralError):  # the namespace is not there yet
                self.key()
                return
            ended.wait(0.2)

    def planned(self, *words: str) -> dict[str, list[str]]:
        """What a plan would do: address to actions, of everything that it would touch."""
        plan = str(self.clone / "plan")
        self.terraform("plan", "-input=false", f"-out={plan}", *words)
        document = json.loads(self.terraform("show", "-json", plan).stdout)
        changes = {one["address"]: one["change"]["actions"] for one in document["resource_changes"]}
        return {address: actions for address, actions in changes.items() if actions != ["no-op"]}

    def destroy(self) -> float:
        """`terraform destroy`; the seconds that it took."""
        begin = time.monotonic()
        self.terraform("destroy", "-auto-approve", "-input=false", "-no-color")
        return time.monotonic() - begin


class Watch(threading.Thread):
    """Asks *question* again and again while its ``with`` block runs; ``answers`` has every answer, in order."""

    def __init__(self, question: Any, pause_s: float = 0.02) -> None:
        super().__init__(daemon=True)
        self._question, self._pause, self._over = question, pause_s, threading.Event()
        self.answers: list[Any] = []

    def run(self) -> None:
        while not self._over.is_set():
            self.answers.append(self._question())
            self._over.wait(self._pause)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def tiny_repositories(folder: Path) -> dict[str, RepoContent]:
    """The demo's tiny models as repositories of a hub, two more texts (one to add, one that answers slowly), and one
    of safetensors for the stand-in for vLLM."""
    repositories = {repo: RepoContent(files) for repo, files in write_tiny_repositories(folder).items()}
    for name, size in {"more": tiny_gguf.DEFAULT_FF, "slow": 30_000}.items():
        file = folder / f"tiny-{name}-F16.gguf"
        tiny_gguf.write_text(file, n_ff=size)
        repositories[f"corral/tiny-{name}-GGUF"] = RepoContent({file.name: file})
    repositories["corral/tiny-safetensors"] = RepoContent(safetensors.repository())
    return repositories


@contextmanager
def homelab(cluster: Cluster, folder: Path, namespace: str, **variables: Any) -> Iterator[Homelab]:
    """A clone in *folder* with a locked catalog of a text and a vision model, initialised and not applied.

    What was applied is gone at the end; from a throwaway cluster a little later, and the next lab of that name waits.

    Args:
        cluster: where it would be applied.
        folder: an empty one.
        namespace: of its own, so that several can be on one cluster.
        variables: of terraform.tfvars, instead of the usual ones.
    """
    clone = folder / "clone"
    for part in ("terraform/modules", STACK, "tools/corral", "tools/dev"):
        shutil.copytree(paths.REPOSITORY / part, clone / part, ignore=_NOT_CLONED)
    (clone / ".venv").symlink_to(sys.prefix)
    with FaultyHub(tiny_repositories(folder / "files"), cluster.hub_host) as hub:
        lab = Homelab(clone, cluster, hub)
        _write_catalog(lab)
        usual: Mapping[str, Any] = {
            "catalog": str(lab.catalog),
            "kubeconfig": str(cluster.kubeconfig),
            "kube_context": cluster.context,
            "namespace": namespace,
            "hub": hub.endpoint,
            "hub_cidrs": [f"{socket.gethostbyname(cluster.hub_host)}/32"],
            "runtime_class": cluster.runtime_class,
            "store": {"nfs": {"server": "nas.test", "path": f"/{namespace}"}},
        }
        lab.set(**usual | variables)
        if "nfs" in lab.variables["store"]:
            assert lab.store.is_dir()
        _lock(lab)
        lab.terraform("init", "-input=false")
        pods.wait_until_left(cluster, namespace)
        try:
            yield lab
        finally:
            if cluster.is_throwaway:
                pods.leave(cluster, namespace)
            else:
                lab.terraform("destroy", "-auto-approve", "-input=false", "-no-color", code=None)


def _lock(lab: Homelab) -> None:
    """`corral lock`, once for all labs: the same catalog and the same files have the same lock on any hub."""
    catalog = repr(sorted((file.name, file.read_text()) for file in lab.catalog.rglob("*.*")))
    if catalog not in _LOCKS:
        lab.lock()
        _LOCKS[catalog] = (lab.catalog / "lock.json").read_text()
    (lab.catalog / "lock.json").write_text(_LOCKS[catalog])


def _write_catalog(lab: Homelab) -> None:
    (lab.catalog / "models").mkdir(parents=True)
    (lab.catalog / "cards").mkdir()
    card = {"vram_mib": 15360, "reserve_mib": 512, "compute_capability": "7.5", "node": lab.cluster.node}
    (lab.catalog / "cards" / f"{CARD}.yaml").write_text(json.dumps(card))
    lab.name_images()
    lab.model("tiny-text", modalities=["text"], group="text", smoke={"prompt": "Are you there?", "expect": "OK"})
    lab.model("tiny-vision", modalities=["text", "image"], group="vision", image_max_tokens=64)
