"""The versions of adapters that were chosen in a cluster: a ConfigMap that Terraform does not know, as the keys.

The guard reads its entry from a volume.  A kubelet takes a changed entry over when it next synchronises the pod, which
may be a minute later; a changed annotation of the pod has it do so at once.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime

from corral.cluster.client import Cluster, Conflict, Forbidden, NotFound, Object
from corral.cluster.keys import LABELS
from corral.cluster.snapshot import at
from corral.door import adapters
from corral.errors import CannotRun, Refused
from corral.versions import Chosen

CONFIG_MAP = "corral-adapters"
ENTRY = "versions.json"
CHANGED = "corral/adapters-changed"
"""The annotation of a pod that has its kubelet look at the ConfigMap."""


class ClusterVersions:
    """The choices in the ConfigMap of *namespace*; a ``corral.versions.VersionStore``, raising as ``Cluster.get``."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._path = f"/api/v1/namespaces/{namespace}"
        self._found: Object | None = None

    def exclusive_lock(self) -> AbstractContextManager[None]:
        """None is needed: the API server takes no change of what was changed since it was read."""
        return nullcontext()

    def read(self) -> Chosen:
        """As ``VersionStore``.

        Raises:
            Refused: the entry is not what this class writes.
        """
        try:
            self._found = self._cluster.get(f"{self._path}/configmaps/{CONFIG_MAP}")
        except NotFound:
            self._found = None
            return {}
        try:
            return adapters.parse(str(at(self._found, "data", ENTRY)))
        except ValueError as error:
            step = self._cluster.kubectl("delete", "configmap", CONFIG_MAP, namespace=self._namespace)
            message = f"The ConfigMap {CONFIG_MAP} in {self._namespace} is not what `corral adapters` writes: {error}."
            raise Refused(message, next_step=f"Without it the first version of each serves: {step}") from None

    def write(self, chosen: Chosen) -> None:
        """As ``VersionStore``; what ``read`` gave last must still be there.

        Raises:
            CannotRun: it was changed since.
        """
        metadata = {"name": CONFIG_MAP, "namespace": self._namespace, "labels": LABELS}
        one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {ENTRY: adapters.text_of(chosen)}}
        try:
            if self._found is None:
                self._cluster.create(f"{self._path}/configmaps", one)
            else:
                metadata["resourceVersion"] = at(self._found, "metadata", "resourceVersion")
                self._cluster.patch(f"{self._path}/configmaps/{CONFIG_MAP}", one)
        except Conflict:
            message = (
                f"The ConfigMap {CONFIG_MAP} in {self._namespace} was changed by another command at the same time."
            )
            raise CannotRun(message, next_step="Run the same command again") from None
        self._wake()

    def _wake(self) -> None:
        """Have the kubelets of the pods look at once; where the user may not change a pod they look later."""
        patch = {"metadata": {"annotations": {CHANGED: datetime.now(UTC).isoformat()}}}
        with suppress(Forbidden, NotFound):
            for pod in self._cluster.items(f"{self._path}/pods", labelSelector="app.kubernetes.io/name=llama-swap"):
                self._cluster.patch(f"{self._path}/pods/{at(pod, 'metadata', 'name')}", patch)
