"""A mirror of Terraform's provider: `terraform init` installs from it and computes hashes, and runs nothing of it."""

from __future__ import annotations

import platform
from pathlib import Path

REQUIRED = 'terraform {\n  required_providers {\n    kubernetes = { source = "hashicorp/kubernetes" }\n  }\n}\n'


def write_mirror(folder: Path, provider: str) -> Path:
    """Terraform's configuration for a provider hashicorp/kubernetes 3.2.1 whose program is the text *provider*."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    version = "registry.terraform.io/hashicorp/kubernetes/3.2.1"
    place = folder / version / f"{platform.system().lower()}_{machine}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "terraform-provider-kubernetes_v3.2.1_x5").write_text(provider)
    (place / "terraform-provider-kubernetes_v3.2.1_x5").chmod(0o755)
    configuration = folder / "terraform.rc"
    configuration.write_text(f'provider_installation {{\n  filesystem_mirror {{\n    path = "{folder}"\n  }}\n}}\n')
    return configuration
