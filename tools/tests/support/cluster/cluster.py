"""A Kubernetes for tests, as they see it: where it answers, what its images are called, what they may change."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from kubernetes import client, config

from corral.errors import CannotRun

GPU = "nvidia.com/gpu"
RUNTIME_CLASS = "nvidia"
SLICES = 4
"""How many GPU slices the node has when a test begins with a throwaway cluster."""
COLLECT_LATE = "400"
"""GOGC of Terraform and of the cluster's parts: memory is there, and collecting it is a fifth of their work."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        kubeconfig: the file that leads to it.
        context: its name in that file.
        node: the one node that the tests use.
        registry: HOST:PORT under which this machine and the node reach the same registry, over plain http.
        hub_host: the address under which pods reach a server that listens on this machine.
        images: those of ``images.all_images``, each NAME:TAG@DIGEST.
        runtime_class: of pods with a GPU; None where the cluster has none.
        folder: everything that the cluster keeps on this machine; None when it is not a throwaway one.
    """

    kubeconfig: Path
    context: str
    node: str
    registry: str
    hub_host: str
    images: Mapping[str, str]
    runtime_class: str | None
    folder: Path | None

    @cached_property
    def api(self) -> client.ApiClient:
        """A client of its API."""
        return config.new_client_from_config(str(self.kubeconfig), self.context)

    @property
    def is_throwaway(self) -> bool:
        return self.folder is not None

    def nfs(self, path: str) -> Path:
        """The folder of this machine that the node mounts for ``nfs: {server: ANY, path: /PATH}``; made now.

        Raises:
            CannotRun: the cluster is no throwaway one, and has no stand-in for NFS.
        """
        return self._volume("nfs", path)

    def local(self, name: str) -> Path:
        """A folder that has the same path on the node, for ``local`` volumes; made now.

        Raises:
            CannotRun: the cluster is no throwaway one, and its node has another file system.
        """
        return self._volume("local", name)

    def nfs_mounts(self) -> list[str]:
        """The mounts that the stand-in for NFS received so far: "SERVER:/PATH TARGET OPTIONS"."""
        log = self.nfs("/").with_name("nfs.mounts")
        return log.read_text().splitlines() if log.exists() else []

    def set_gpus(self, count: int, resource: str = GPU) -> None:
        """Let the node have *count* GPU slices by the name *resource*."""
        # Both: capacity alone would reach allocatable only at the kubelet's next report.
        status = {"capacity": {resource: str(count)}, "allocatable": {resource: str(count)}}
        client.CoreV1Api(self.api).patch_node_status(self.node, {"status": status})

    def wait_until_ready(self, limit_s: float = 60.0) -> None:
        """Return when the node takes pods.

        Raises:
            CannotRun: it does not within *limit_s*.
        """
        core = client.CoreV1Api(self.api)
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            ready = [
                node.metadata.name
                for node in core.list_node().items
                for condition in (node.status.conditions or ())
                if condition.type == "Ready" and condition.status == "True"
            ]
            accounts = core.list_namespaced_service_account("default").items
            if self.node in ready and accounts:
                return
            time.sleep(0.05)
        where = f"; its logs are in {self.folder}/log" if self.folder else ""
        raise CannotRun(f"The node {self.node} was not ready within {limit_s:.0f} s{where}.")

    def saved(self) -> str:
        """Everything that ``loaded`` needs, as JSON."""
        return json.dumps(asdict(self), default=str, indent=1)

    @classmethod
    def loaded(cls, text: str) -> Cluster:
        """The cluster that ``saved`` wrote."""
        fields: dict[str, Any] = json.loads(text)
        folder = Path(fields["folder"]) if fields["folder"] else None
        return replace(cls(**fields), kubeconfig=Path(fields["kubeconfig"]), folder=folder)

    def _volume(self, kind: str, path: str) -> Path:
        if self.folder is None:
            raise CannotRun(
                f"{kind} volumes of the tests need the throwaway cluster; {self.context} is not one.",
                next_step="make test-cluster",
            )
        folder = self.folder / "volumes" / kind / path.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)  # a real export maps users; here pods of any user may write
        return folder
