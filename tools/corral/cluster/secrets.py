"""A Secret of corral's own: its entries are texts, and it is written only where one of them differs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress

from corral.cluster.client import Cluster, NotFound, Object
from corral.cluster.keys import LABELS
from corral.cluster.snapshot import at


def read(cluster: Cluster, namespace: str, name: str) -> Object | None:
    """The Secret *name* of *namespace*; None when there is none.  Raises as ``Cluster.get``."""
    with suppress(NotFound):
        return cluster.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
    return None


def entry(secret: Object | None, name: str) -> str:
    """The entry *name* of *secret*; empty without one that can be read."""
    try:
        return base64.b64decode(at(secret, "data", name) or "", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def write(cluster: Cluster, namespace: str, name: str, entries: Mapping[str, str], *, before: Object | None) -> None:
    """Put *entries*, and no others, into the Secret *name* of *namespace*, where *before* is another.

    Raises:
        Refused: the user may not.
        CannotRun: it was changed since *before* was read, or the API server does not respond.
    """
    metadata = {"name": name, "namespace": namespace, "labels": LABELS}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in entries.items()}
    if at(before, "data") == data:
        return
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
    path = f"/api/v1/namespaces/{namespace}/secrets"
    if before is None:
        cluster.create(path, secret)
    else:
        metadata["resourceVersion"] = at(before, "metadata", "resourceVersion")
        cluster.replace(f"{path}/{name}", secret)
