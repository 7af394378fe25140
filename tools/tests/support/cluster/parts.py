"""The parts of a throwaway cluster: what each is started with.

Runs in the room, see ``room.py``.  Most settings are there for a machine that is itself a container, or a virtual
machine whose root may not do everything; none of them changes what a pod finds.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.cluster import pki
from tests.support.cluster.place import NODE, Place
from tests.support.cluster.programs import KUBERNETES

ETCD = "http://127.0.0.1:2379"
CONTAINERD = "/run/containerd.sock"
"""The socket of the first node's."""
BRIDGE = "corral0"
PODS = "0.0/24"
SERVICES = "96.0/24"
_CNI_PROGRAMS = ("/usr/lib/cni", "/opt/cni/bin")


def registry(place: Place, port: int, store: Path) -> list[str]:
    """The registry; started once on the node and once on this machine, so that one reference means the same to both."""
    settings = {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(store)}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    return ["docker-registry", "serve", _written(place, "registry.json", settings)]


def etcd() -> list[str]:
    """Its data lies in memory: it goes with the room.

    Debian's is too old to report on request how far a watch is, and the API server would query it for every list.
    """
    program = str(KUBERNETES.folder / "server")
    where = (f"--listen-client-urls={ETCD}", f"--advertise-client-urls={ETCD}")
    return [program, "--data-dir=/run/etcd", *where, "--unsafe-no-fsync", "--log-level=warn"]


def _of(node: str) -> str:
    """The end of the names that are *node*'s own."""
    return "" if node == NODE else f"-{node}"


def containerd_socket(node: str) -> str:
    """The socket of *node*'s."""
    return CONTAINERD.replace(".sock", f"{_of(node)}.sock")


def containerd(place: Place, pause: str, node: str = NODE) -> list[str]:
    """The container runtime of *node*; its network plugin connects pods by a bridge, and enforces no NetworkPolicy.

    The bridge and its addresses are those of all nodes.
    """
    own = _of(node)
    network = {
        "cniVersion": "0.4.0",
        "name": "corral",
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isGateway": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni",
                    "ranges": [
                        [
                            {
                                "subnet": f"{place.network}.{PODS}",
                                "rangeStart": f"{place.network}.0.10",
                                "gateway": place.node_address,
                            }
                        ]
                    ],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }
    (place.folder / "cni").mkdir(exist_ok=True)
    _written(place, "cni/10-corral.conflist", network)
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    programs = next((folder for folder in _CNI_PROGRAMS if Path(folder, "bridge").exists()), _CNI_PROGRAMS[0])
    runtimes = "".join(
        f"""
[{cri}.containerd.runtimes.{name}]
  runtime_type = "io.containerd.runc.v2"
  [{cri}.containerd.runtimes.{name}.options]
    BinaryName = "{shutil.which("runc")}"
    Root = "/run/runc{own}"
    SystemdCgroup = false
"""
        for name in ("runc", "nvidia")
    )
    settings = place.folder / f"containerd{own}.toml"
    settings.write_text(f"""version = 2
root = "/run/containerd-root{own}"
state = "/run/containerd{own}"
disabled_plugins = [{", ".join(f'"io.containerd.snapshotter.v1.{name}"' for name in ("aufs", "btrfs", "devmapper"))}]
[grpc]
  address = "{containerd_socket(node)}"
[plugins."io.containerd.internal.v1.opt"]
  path = "/run/containerd-opt{own}"
[{cri}]
  sandbox_image = "{pause}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  # Where root lacks CAP_SYS_RESOURCE, lowering oom_score_adj kills every sandbox.
  restrict_oom_score_adj = true
[{cri}.cni]
  bin_dir = "{programs}"
  conf_dir = "{place.folder}/cni"
[{cri}.containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
{runtimes}""")
    return ["containerd", "--config", str(settings)]


AUDITED = "corral-people"
"""The namespace whose service accounts' requests are in the audit log."""


def audit_log(folder: Path) -> Path:
    """The audit log of the cluster in *folder*: a line of JSON for each answer."""
    return folder / "log" / "audit.json"


def _gates(features: Sequence[str]) -> list[str]:
    """The flag of every part of Kubernetes that turns *features* on, alpha ones; none: as they are."""
    return [f"--feature-gates={','.join(f'{one}=true' for one in features)}"] if features else []


def apiserver(place: Place, features: Sequence[str] = ()) -> list[str]:
    keys = place.folder / "pki"
    audited = {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{AUDITED}"]}
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [audited, {"level": "None"}],
    }
    return [
        str(KUBERNETES.folder / "kube-apiserver"),
        f"--etcd-servers={ETCD}",
        f"--bind-address={place.node_address}",  # endpoints may not be loopback
        f"--advertise-address={place.node_address}",
        f"--secure-port={pki.API_PORT}",
        f"--tls-cert-file={keys}/server.crt",
        f"--tls-private-key-file={keys}/server.key",
        f"--client-ca-file={keys}/ca.crt",
        f"--token-auth-file={keys}/tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys}/accounts.pub",
        f"--service-account-signing-key-file={keys}/accounts.key",
        f"--service-cluster-ip-range={place.network}.{SERVICES}",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={keys}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={keys}/apiserver-kubelet-client.key",
        f"--kubelet-certificate-authority={keys}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        f"--audit-policy-file={_written(place, 'audit-policy.json', policy)}",
        f"--audit-log-path={audit_log(place.folder)}",
        "--enable-priority-and-fairness=false",
        "--profiling=false",
        *_gates(features),
    ]


def controller_manager(place: Place, features: Sequence[str] = ()) -> list[str]:
    keys = place.folder / "pki"
    return [
        str(KUBERNETES.folder / "kube-controller-manager"),
        f"--kubeconfig={keys}/admin.kubeconfig",  # one account for all controllers starts four seconds sooner
        "--use-service-account-credentials=false",
        "--leader-elect=false",
        "--secure-port=0",
        f"--service-account-private-key-file={keys}/accounts.key",
        f"--root-ca-file={keys}/ca.crt",
        "--pvclaimbinder-sync-period=1s",  # else a claim takes 12 s to bind
        "--profiling=false",
        *_gates(features),
    ]


def scheduler(place: Place, features: Sequence[str] = ()) -> list[str]:
    return [
        str(KUBERNETES.folder / "kube-scheduler"),
        f"--kubeconfig={place.folder}/pki/scheduler.kubeconfig",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
        *_gates(features),
    ]


def kubelet_folder(place: Place, node: str = NODE) -> Path:
    """The root folder of *node*'s kubelet."""
    return place.folder / f"kubelet{_of(node)}"


def kubelet(place: Place, node: str = NODE, features: Sequence[str] = ()) -> list[str]:
    """The kubelet of *node*; start it with ``kubelet_environment``."""
    own, address = _of(node), place.address_of(node)
    folder, keys = place.folder, place.folder / "pki"
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": f"{keys}/ca.crt"},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": f"{keys}/server.crt",
        "tlsPrivateKeyFile": f"{keys}/server.key",
        "containerRuntimeEndpoint": f"unix://{containerd_socket(node)}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{place.cgroup}" + (f"/{node}" if own else ""),
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "podLogsDir": f"{folder}/pods{own}",
        "volumePluginDir": f"{folder}/volume-plugins{own}",
        "resolvConf": f"{folder}/resolv.conf",
        "clusterDNS": [place.node_address],
        "clusterDomain": "cluster.local",
        "makeIPTablesUtilChains": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1Gi",
            "imagefs.available": "1Gi",
            "nodefs.inodesFree": "1%",
        },
        "serializeImagePulls": False,
        "syncFrequency": "10s",
    }
    return [
        str(KUBERNETES.folder / "kubelet"),
        f"--config={_written(place, f'kubelet{own}.json', settings)}",
        f"--kubeconfig={keys}/kubelet{own}.kubeconfig",
        f"--root-dir={kubelet_folder(place, node)}",
        f"--cert-dir={keys}",
        f"--hostname-override={node}",
        f"--node-ip={address}",
        *_gates(features),
    ]


def kubelet_environment(place: Place) -> dict[str, str]:
    """Its ``mount`` is the stand-in for NFS."""
    shim = Path(__file__).with_name("shim")
    return dict(os.environ) | {
        "PATH": f"{shim}:{os.environ['PATH']}",
        "CORRAL_NFS": str(place.folder / "volumes" / "nfs"),
    }


def proxy(place: Place) -> list[str]:
    settings = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "bindAddress": place.node_address,
        "healthzBindAddress": "",
        "metricsBindAddress": "",
        "clientConnection": {"kubeconfig": f"{place.folder}/pki/proxy.kubeconfig"},
        "clusterCIDR": f"{place.network}.{PODS}",
        "detectLocalMode": "ClusterCIDR",
        "iptables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
    }
    return [
        str(KUBERNETES.folder / "kube-proxy"),
        f"--config={_written(place, 'proxy.json', settings)}",
        f"--hostname-override={NODE}",
    ]


def _written(place: Place, name: str, settings: dict[str, Any]) -> str:
    path = place.folder / name
    path.write_text(json.dumps(settings, indent=1))
    return str(path)
