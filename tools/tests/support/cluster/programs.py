"""The programs of the test cluster that no package brings: Kubernetes itself, and what holds a pod together."""

from __future__ import annotations

from pathlib import Path

from corral.engine.go_build import Programs

VERSION = "v1.34.4"
_HERE = Path(__file__).parent
_STAMP = "k8s.io/component-base/version"

KUBERNETES = Programs(
    name=f"kubernetes-{VERSION}",
    pins=_HERE / "kubernetes",
    packages=(
        *(
            f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
        ),
        "go.etcd.io/etcd/server/v3",
    ),
    stamps={  # without them no client can read its version
        f"{_STAMP}.gitVersion": VERSION,
        f"{_STAMP}.gitMajor": "1",
        f"{_STAMP}.gitMinor": "34",
        f"{_STAMP}.gitTreeState": "clean",
        f"{_STAMP}.gitCommit": "0000000",
    },
    minutes=7,
)
PAUSE = Programs(name="pause", pins=_HERE / "pause", packages=(".",), stamps={}, minutes=0.2)
DRA = Programs(name="dra", pins=_HERE / "dra", packages=(".",), stamps={}, minutes=2)
"""A spike: offers a card by the MiB to the claims of Dynamic Resource Allocation (``dra/main.go``)."""
