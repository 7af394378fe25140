"""The keys of the front door in a cluster: a Secret of their own, of which each container mounts only what it needs.

Its entries: ``keys.json``, the hashes that the guard reads; ``internal``, the key of llama-swap, which only the guard
sends; ``operator``, which no pod mounts.  A changed entry reaches the guard's file within a minute or two, without
another pod.
"""

from __future__ import annotations

import base64
import binascii
import shlex
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from corral import keys
from corral.cluster.client import Cluster, Conflict, NotFound, Object
from corral.cluster.snapshot import at
from corral.errors import CannotRun, Refused
from corral.keys import Keys

SECRET = "corral-keys"  # noqa: S105 - its name
_HASHES, _INTERNAL, _OPERATOR = "keys.json", "internal", "operator"
LABELS = {"app.kubernetes.io/part-of": "corral", "app.kubernetes.io/managed-by": "corral"}


class ClusterKeys:
    """The keys in the Secret of *namespace*; a ``corral.keys.KeyStore``, whose methods raise as ``Cluster.get``."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._found: Object | None = None
        self._path = f"/api/v1/namespaces/{namespace}/secrets"

    def exclusive_lock(self) -> AbstractContextManager[None]:
        """None is needed: the API server takes no change of what was changed since it was read."""
        self._found = None
        return nullcontext()

    def read(self) -> Keys:
        """As ``KeyStore``.

        Raises:
            Refused: the Secret's entry is not what this class writes.
        """
        text = self._entry(self._secret(), _HASHES)
        try:
            return keys.parse(text) if text is not None else Keys()
        except ValueError:
            raise Refused(
                f"The Secret {SECRET} in {self._namespace} is not what `corral keys` writes: no key in it can be used.",
                next_step=f"Every client then needs a new key: {self._kubectl('delete', 'secret', SECRET)}",
            ) from None

    def operator_key(self) -> str | None:
        """As ``KeyStore``."""
        return self._entry(self._secret(), _OPERATOR)

    def write(self, found: Keys, operator_key: str | None = None) -> None:
        """As ``KeyStore``; llama-swap's own key is made with the Secret, and stays: a pod reads it only at its start.

        Raises:
            CannotRun: the Secret was changed since it was read.
        """
        before = self._secret()
        entries = {_HASHES: keys.text_of(found), _INTERNAL: self._entry(before, _INTERNAL) or keys.generate()}
        if operator := operator_key or self._entry(before, _OPERATOR):
            entries[_OPERATOR] = operator
        metadata = {"name": SECRET, "namespace": self._namespace, "labels": LABELS}
        data = {name: base64.b64encode(text.encode()).decode() for name, text in entries.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
        try:
            if before is None:
                self._found = self._cluster.create(self._path, secret)
            else:
                metadata["resourceVersion"] = at(before, "metadata", "resourceVersion")
                self._found = self._cluster.replace(f"{self._path}/{SECRET}", secret)
        except Conflict:
            raise CannotRun(
                f"The Secret {SECRET} in {self._namespace} was changed by another command at the same time.",
                next_step="Run the same command again",
            ) from None

    def _secret(self) -> Object | None:
        if self._found is None:
            try:
                self._found = self._cluster.get(f"{self._path}/{SECRET}")
            except NotFound:
                return None
        return self._found

    def _entry(self, secret: Object | None, name: str) -> str | None:
        try:
            text = base64.b64decode(at(secret, "data", name) or "", validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
        return text.strip() or None

    def _kubectl(self, *words: str) -> str:
        return self._cluster.kubectl(*words, namespace=self._namespace)


def operator_key(cluster: Cluster, namespace: str) -> str:
    """The operator's own key, which corral sends with its requests to the pod in *namespace*.

    Raises:
        Refused: there is none, or the user may not read it.
        CannotRun: the API server does not respond.
    """
    store = ClusterKeys(cluster, namespace)
    key = store.operator_key()
    if key is None:
        step = add_operator(cluster.context, namespace, cluster.kubeconfig)
        raise Refused(f"There is no operator's key in the Secret {SECRET} of {namespace}.", next_step=step)
    return key


def add_operator(context: str, namespace: str, kubeconfig: Path | None) -> str:
    """The command that makes the Secret, with the operator's key."""
    where = ["--context", context, "--namespace", namespace, *(["--kubeconfig", str(kubeconfig)] if kubeconfig else [])]
    return shlex.join(["corral", "keys", "add", keys.OPERATOR, *where])
