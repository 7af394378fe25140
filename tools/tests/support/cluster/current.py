"""The cluster that the user's current context leads to: ``CLUSTER=current make test-cluster``.

What the tests cannot find out, the user states:

* ``CORRAL_TEST_REGISTRY``: HOST:PORT of a registry over plain http that takes pushes and has the same name on this
  machine and on the nodes.  k3d: ``k3d cluster create --registry-create corral-registry:5005``.  kind: the script
  "Local registry" of its documentation.
* ``CORRAL_TEST_HUB_HOST``: the address under which pods reach a server that listens on this machine; for kind and k3d
  the gateway of their Docker network.
* ``CORRAL_TEST_NODE``: the node to use; not needed where there is one.
"""

from __future__ import annotations

import os
from pathlib import Path

from kubernetes import client, config
from urllib3.exceptions import HTTPError

from corral.errors import CannotRun, Refused
from tests.support.cluster import images, oci
from tests.support.cluster.cluster import RUNTIME_CLASS, Cluster


def connect() -> Cluster:
    """The cluster of the current context, with the tests' images in its registry.

    Raises:
        Refused: a variable is missing.
        CannotRun: the cluster or its registry does not answer.
    """
    registry = _required("CORRAL_TEST_REGISTRY", "localhost:5005")
    hub_host = _required("CORRAL_TEST_HUB_HOST", "172.18.0.1")
    kubeconfig = Path(os.environ.get("KUBECONFIG") or "~/.kube/config").expanduser()
    try:
        _, active = config.list_kube_config_contexts(str(kubeconfig))
        api = config.new_client_from_config(str(kubeconfig), active["name"])
        nodes = [node.metadata.name for node in client.CoreV1Api(api).list_node().items if not node.spec.unschedulable]
        classes = [found.metadata.name for found in client.NodeV1Api(api).list_runtime_class().items]
    except (config.ConfigException, client.ApiException, HTTPError, OSError) as error:
        raise CannotRun(
            f"The current context of {kubeconfig} leads to no cluster that answers: {error}",
            next_step="kubectl get nodes",
        ) from None
    return Cluster(
        kubeconfig=kubeconfig,
        context=active["name"],
        node=_node(nodes),
        registry=registry,
        hub_host=hub_host,
        images={name: oci.push(image, registry) for name, image in images.all_images().items()},
        runtime_class=RUNTIME_CLASS if RUNTIME_CLASS in classes else None,
        folder=None,
    )


def _node(nodes: list[str]) -> str:
    named = os.environ.get("CORRAL_TEST_NODE")
    if named in nodes:
        return named
    if len(nodes) == 1 and not named:
        return nodes[0]
    raise Refused(
        f"CORRAL_TEST_NODE={named or ''} names no node that takes pods; there are: {', '.join(nodes) or 'none'}.",
        next_step=f"CORRAL_TEST_NODE={nodes[0] if nodes else 'NAME'}",
    )


def _required(variable: str, example: str) -> str:
    if value := os.environ.get(variable):
        return value
    raise Refused(
        f"CLUSTER=current needs {variable}: tests/support/cluster/current.py explains it.",
        next_step=f"{variable}={example} CLUSTER=current make test-cluster",
    )
