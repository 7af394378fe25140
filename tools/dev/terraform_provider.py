"""Terraform's provider hashicorp/kubernetes for machines that do not reach the public Terraform registry.

    TF_CLI_CONFIG_FILE=$(tools/dev/terraform_provider.sh)

Prints the path of a Terraform CLI configuration that takes the provider from the user's cache, where it is built with
Go when it is missing.  Prints nothing where it is not needed: the public registry answers, or the user's own
configuration says where providers come from.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import platform
import sys
import threading
import urllib.request
from pathlib import Path

from corral import output
from corral.engine.go_build import Programs
from corral.errors import CorralError

VERSION = "3.2.1"
ADDRESSES = ("registry.terraform.io/hashicorp/kubernetes", "registry.opentofu.org/hashicorp/kubernetes")
PROGRAMS = Programs(
    name=f"terraform-provider-kubernetes-{VERSION}",
    pins=Path(__file__).with_name("terraform_provider"),
    packages=("github.com/hashicorp/terraform-provider-kubernetes",),
    stamps={"main.Version": VERSION},
    minutes=3,
)
TIMEOUT_S = 2.0
VERSIONS_URL = "https://registry.terraform.io/v1/providers/hashicorp/kubernetes/versions"


def registry_answers() -> bool:
    """Whether the public registry lists the provider, within ``TIMEOUT_S`` (including the DNS lookup)."""
    answers: list[bool] = []

    def request() -> None:
        try:
            with urllib.request.urlopen(VERSIONS_URL, timeout=TIMEOUT_S) as answer:
                answers.append(f'"{VERSION}"'.encode() in answer.read())
        except (OSError, http.client.HTTPException):
            answers.append(False)

    query = threading.Thread(target=request, daemon=True)
    query.start()
    query.join(TIMEOUT_S)
    return any(answers)


def users_own() -> bool:
    """Whether the user's own Terraform configuration sets the source of providers."""
    named = os.environ.get("TF_CLI_CONFIG_FILE")
    try:
        return "provider_installation" in (Path(named) if named else Path.home() / ".terraformrc").read_text("utf-8")
    except OSError:
        return False


def mirrored() -> Path:
    """Terraform's configuration for the provider in the cache, which is built if it is missing.

    Raises:
        CannotRun: it could not be built.
    """
    folder = PROGRAMS.build(output.info)
    configuration = folder / "providers.rc"
    if not configuration.exists():
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        for address in ADDRESSES:
            place = folder / "mirror" / address / VERSION / f"{platform.system().lower()}_{machine}"
            place.mkdir(parents=True, exist_ok=True)
            program = place / f"terraform-provider-kubernetes_v{VERSION}_x5"
            with contextlib.suppress(FileExistsError):  # another process may have been quicker
                program.hardlink_to(folder / "terraform-provider-kubernetes")
        fresh = folder / f"{configuration.name}.{os.getpid()}"
        both = json.dumps(ADDRESSES)
        fresh.write_text(
            "provider_installation {\n"
            f'  filesystem_mirror {{\n    path    = "{folder / "mirror"}"\n    include = {both}\n  }}\n'
            f"  direct {{\n    exclude = {both}\n  }}\n"
            "}\n",
            encoding="utf-8",
        )
        fresh.replace(configuration)
    return configuration


def main() -> int:
    """Return 0; 3 when the provider can be neither downloaded nor built."""
    if users_own() or registry_answers():
        return 0
    try:
        print(mirrored())
    except CorralError as error:
        print(f"terraform_provider: {error.message}\n{error.next_step}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
