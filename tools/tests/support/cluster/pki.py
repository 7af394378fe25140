"""The identities of a throwaway cluster: one authority, certificates where TLS needs them, tokens for everyone else."""

from __future__ import annotations

import json
import secrets
import subprocess
from pathlib import Path

from tests.support.cluster.place import NODE, SECOND, Place

API_PORT = 6443
_USERS = {  # name of the kubeconfig: user and group of its token
    "admin": ("admin", "system:masters"),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
    f"kubelet-{SECOND}": (f"system:node:{SECOND}", "system:nodes"),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
}


def write(place: Place) -> None:
    """Write keys, certificates, tokens and kubeconfigs into the place's folder ``pki``."""
    folder = place.folder / "pki"
    folder.mkdir(mode=0o700)
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-sha256")
    _openssl(folder, *new, "-x509", "-days", "30", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=corral-test")
    names = [f"IP:{place.node_address}", f"IP:{place.network}.96.1", "IP:127.0.0.1", f"DNS:{NODE}", "DNS:localhost"]
    names += [f"IP:{place.address_of(SECOND)}", f"DNS:{SECOND}"]
    names += ["DNS:kubernetes.default.svc", "DNS:kubernetes.default"]
    for name, extension in (
        ("server", f"subjectAltName={','.join(names)}"),
        ("apiserver-kubelet-client", "extendedKeyUsage=clientAuth"),
    ):
        (folder / f"{name}.ext").write_text(extension)
        _openssl(folder, *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", f"{name}.ext")
        _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt")
    _openssl(folder, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "accounts.key")
    _openssl(folder, "ec", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")
    tokens = []
    for name, (user, group) in _USERS.items():
        token = secrets.token_hex(16)
        tokens.append(f'{token},{user},{name},"{group}"\n')
        (folder / f"{name}.kubeconfig").write_text(_kubeconfig(place, token))
    (folder / "tokens.csv").write_text("".join(tokens))


def _kubeconfig(place: Place, token: str) -> str:
    name = place.context
    authority = str(place.folder / "pki" / "ca.crt")
    server = f"https://{place.node_address}:{API_PORT}"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority": authority}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        indent=1,
    )


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
