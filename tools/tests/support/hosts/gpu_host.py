"""What a host needs before the role gpu_node comes: containerd, and something that looks like a card on the bus."""

from __future__ import annotations

from typing import Any

from tests.support.hosts.host import Host
from tests.support.hosts.vendor import Vendor

DRIVER, TOOLKIT = "570.195.03", "1.18.1"
SAYS = "/etc/nvidia-smi.says"
"""What the stand-in of nvidia-smi prints."""

_PCI = "/opt/pci"
_SETTINGS = """version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"""


def prepare(host: Host) -> None:
    """Give *host* containerd as kubeadm leaves it, and a card of which the kernel and the driver tell."""
    host.run("apt-get install --yes --no-install-recommends containerd gpg")
    host.run("install -d -m 0700 /root/.ansible /root/.ansible/tmp")  # Ansible warns that it makes it
    host.put(_SETTINGS, "/etc/containerd/config.toml")
    host.put("0x10de\n", f"{_PCI}/0000:01:00.0/vendor")
    host.put(f"Tesla T4, 15360, 7.5, {DRIVER}, Enabled\n", SAYS)


def variables(vendor: Vendor) -> dict[str, Any]:
    """The role's variables in every test: the catalog's card, and versions that *vendor* has."""
    return {
        "gpu_node_card": "t4",
        "gpu_node_driver_version": DRIVER,
        "gpu_node_toolkit_version": TOOLKIT,
        "gpu_node_repositories": vendor.repositories(),
        "gpu_node_kernel_headers": "kmod",
        "gpu_node_pci_devices": _PCI,
    }
