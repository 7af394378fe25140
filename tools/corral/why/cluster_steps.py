"""Commands to be typed as they are, for a model that is served in a cluster."""

from __future__ import annotations

import shlex

from corral.cluster.client import kubectl
from corral.why.facts import Place, StackFacts
from corral.why.steps import Steps

_LOOKS = ("smoke", "why", "status")


class ClusterSteps(Steps):
    """What can be typed next about one model in a cluster.

    Args:
        place: what commands must name; its ``cluster`` is set.
        stack: the llama-swap that they are about.
        model: its id.
    """

    def __init__(self, place: Place, stack: StackFacts, model: str) -> None:
        super().__init__(place, stack, model)
        assert place.cluster is not None
        self._at = place.cluster
        self._pod = f"deployment/{self._at.service}"

    def of(self, *words: str, stored: bool = False) -> str:  # noqa: ARG002 - the store is the cluster's own
        """``corral`` *words* for the catalog; those that look, for the cluster too."""
        if words[0] not in _LOOKS:
            return super().of(*words)
        named = ["--context", self._at.context, "--namespace", self._at.namespace]
        named += ["--kubeconfig", str(self._at.kubeconfig)] if self._at.kubeconfig else []
        catalog = self._catalog if words[0] != "status" else []
        return shlex.join(["corral", *words, *named, *catalog])

    def up(self) -> str:
        """Bring the cluster to what the catalog says."""
        return "corral apply"

    def restart(self) -> list[str]:
        """Bring the cluster to what the catalog says; llama-swap is started anew where that differs."""
        return [self.up()]

    def look(self) -> list[str]:
        """See what llama-swap and the engines say, and try it."""
        return [self._kubectl("logs", self._pod, "--tail=200"), self.smoke()]

    def status(self) -> str:
        """See what is loaded."""
        return self.of("status")

    def fetch(self) -> list[str]:
        """Have the Job run again: Terraform makes one that is gone."""
        return [self._kubectl("delete", "job/download-models"), self.up()]

    def verify(self) -> list[str]:
        """Read the files where the server sees them, then have the Job bring those that are not there."""
        return [self._inside("sh", "-c", f"sha256sum /models/{self._model}/*.gguf"), *self.fetch()]

    def warm(self) -> list[str]:
        """See what stayed in memory after the download."""
        return [self._kubectl("logs", "job/download-models", "-c", "warm")]

    def engine(self) -> str:
        """See whether the image has a llama-server that starts."""
        return self._inside("llama-server", "--version")

    def memory(self) -> str:
        """See what memory the pod may have, and its node has."""
        return self._kubectl("describe", "pods", "-l", f"app.kubernetes.io/name={self._at.service}")

    def kills(self) -> list[str]:
        """See whether the kernel killed an engine for its memory: by the pod's own count, and by its limit."""
        return [self._inside("cat", "/sys/fs/cgroup/memory.events"), self.memory()]

    def listeners(self, port: int) -> str:  # noqa: ARG002 - the list has all of them
        """See who listens in the pod."""
        return self._inside("cat", "/proc/net/tcp")

    def unload(self, model: str) -> str:
        """Have llama-swap unload *model*, whatever it is doing."""
        return self._inside("curl", "-X", "POST", f"http://127.0.0.1:8080/api/models/unload/{model}")

    def card(self) -> list[str]:
        """See who holds the card, as far as the container can."""
        return [self._inside("nvidia-smi")]

    def _inside(self, *words: str) -> str:
        return self._kubectl("exec", self._pod, "--", *words)

    def _kubectl(self, *words: str) -> str:
        return kubectl(self._at.context, self._at.kubeconfig, *words, namespace=self._at.namespace)
