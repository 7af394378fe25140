"""The cluster's resolver: Debian's dnsmasq, which gets every Service.  ``python -m tests.support.cluster.names PLACE``.

It knows <service>.<namespace>.svc.cluster.local and nothing else; the rest of the world does not exist.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from kubernetes import client, config, watch

from tests.support.cluster.place import Place

_HOSTS = Path("/run/service-names")


def main() -> None:
    """Run dnsmasq, and tell it whenever a Service comes or goes."""
    place = Place(int(sys.argv[1]))
    _HOSTS.touch()
    resolver = subprocess.Popen(
        [
            *(
                "dnsmasq",
                "--keep-in-foreground",
                "--user=root",
                "--pid-file=",
                "--conf-file=/dev/null",
                "--log-facility=-",
            ),
            *("--no-hosts", "--no-resolv", "--local=/cluster.local/", f"--addn-hosts={_HOSTS}", "--local-ttl=1"),
            *(f"--listen-address={place.node_address}", "--bind-interfaces"),
        ]
    )
    config.load_kube_config(str(place.kubeconfig))
    services: dict[str, str] = {}
    while True:
        for event in watch.Watch().stream(client.CoreV1Api().list_service_for_all_namespaces, timeout_seconds=3600):
            service = event["object"]
            name = f"{service.metadata.name}.{service.metadata.namespace}.svc.cluster.local"
            if event["type"] == "DELETED" or service.spec.cluster_ip in (None, "", "None"):
                services.pop(name, None)
            else:
                services[name] = service.spec.cluster_ip
            _HOSTS.write_text("".join(f"{address} {name}\n" for name, address in services.items()))
            resolver.send_signal(signal.SIGHUP)


if __name__ == "__main__":
    main()
