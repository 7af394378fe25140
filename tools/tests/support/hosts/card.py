"""A host with a card, of which a stand-in for nvidia-smi tells, and what the role node_metrics serves of it."""

from __future__ import annotations

import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.engine_process import wait_for
from tests.support.fake_nvidia_smi import UUID, install
from tests.support.hosts.host import Host

SMI = "/usr/local/bin/nvidia-smi"


def variables(hosts: Sequence[Host], catalog: Path, card: str) -> dict[str, Any]:
    """The role's variables about *card* of *catalog*; the driver reports the pids of the host, which is a container."""
    spaces = {host.name: int(host.run("readlink /proc/1/ns/pid").strip("pid:[]")) for host in hosts}
    return {
        "node_metrics_card": card,
        "node_metrics_card_pid_namespace": f"{{{{ {spaces}[inventory_hostname] }}}}",
        "node_metrics_catalog": str(catalog),
    }


def report(host: Host, folder: Path, *rows: tuple[int, int, str]) -> None:
    """Let the stand-in on *host*, made in *folder*, list the processes *rows*: pid, MiB, program."""
    table = "".join(f"{UUID}, Tesla T4, {pid}, {mib}, {program}\n" for pid, mib, program in rows)
    host.put(install(folder, table).read_bytes(), SMI, mode="0755")


def get(host: Host, path: str = "/metrics") -> str:
    """The answer of the card's exporter of *host*."""
    with urllib.request.urlopen(f"http://{host.address}:9460{path}", timeout=30) as answer:
        return str(answer.read().decode())


def is_there(host: Host) -> bool:
    """Whether it answers; a host that has just booted may not have started it."""
    try:
        return get(host, "/health") == "OK\n"
    except OSError:
        return False


def held(host: Host) -> dict[tuple[str, str], float | None]:
    """What each holder has on the card of *host*, by kind and name, in MiB; None: it is unknown."""
    text = wait_for(lambda: "corral_unknown{" not in (found := get(host)) and found, what="the driver's answer")
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]

    def of(name: str) -> dict[tuple[str, str], float]:
        return {(one.labels["kind"], one.labels["holder"]): one.value for one in samples if one.name == name}

    known = {holder: value / (1 << 20) for holder, value in of("corral_held_bytes").items()}
    return known | dict.fromkeys(of("corral_held_unknown"))
