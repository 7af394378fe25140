"""/proc/PID/cgroup as systemd, docker and podman write it on a machine without Kubernetes, recorded on Debian."""

from __future__ import annotations

import pytest

from corral.exporter.units import place, units_of

ID = "ab" * 32
FORMS = {
    "service": ("0::/system.slice/immich-ml.service", ("system.slice", "immich-ml.service"), "immich-ml.service"),
    "service-v1": (
        "12:memory:/system.slice/plex.service\n1:name=systemd:/system.slice/plex.service\n0::/",
        ("system.slice", "plex.service"),
        "plex.service",
    ),
    "service-v2-beside-v1": (
        "9:name=systemd:/\n8:pids:/\n4:memory:/\n0::/system.slice/ssh.service",
        ("system.slice", "ssh.service"),
        "ssh.service",
    ),
    "templated": (
        "0::/system.slice/system-encode\\x2dnow.slice/encode\\x2dnow@1.service",
        ("system.slice", "system-encode\\x2dnow.slice", "encode\\x2dnow@1.service"),
        "encode\\x2dnow@1.service",
    ),
    "own-groups-of-a-service": (
        "0::/system.slice/plex.service/worker/llama-swap.service",
        ("system.slice", "plex.service"),
        "plex.service",
    ),
    "session": (
        "0::/user.slice/user-1000.slice/session-3.scope",
        ("user.slice", "user-1000.slice", "session-3.scope"),
        "session-3.scope",
    ),
    "users-own-unit": (
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service",
        ("user.slice", "user-1000.slice", "user@1000.service"),
        "user@1000.service/jupyter.service",
    ),
    "docker-systemd": (
        f"0::/system.slice/docker-{ID}.scope",
        ("system.slice", f"docker-{ID}.scope"),
        f"docker-{ID[:12]}.scope",
    ),
    "docker-systemd-in-a-slice": (
        f"0::/media.slice/docker-{ID}.scope",
        ("media.slice", f"docker-{ID}.scope"),
        f"docker-{ID[:12]}.scope",
    ),
    "docker-cgroupfs": (f"0::/docker/{ID}", (), f"docker/{ID[:12]}"),
    "docker-with-systemd-inside": (
        f"0::/docker/{ID}/system.slice/llama-swap.service",
        (),
        f"docker/{ID[:12]}",
    ),
    "podman": (
        f"0::/machine.slice/libpod-{ID}.scope/container",
        ("machine.slice", f"libpod-{ID}.scope"),
        f"libpod-{ID[:12]}.scope",
    ),
    "podman-quadlet": (
        f"0::/system.slice/immich-ml.service/libpod-payload-{ID}",
        ("system.slice", "immich-ml.service"),
        "immich-ml.service",
    ),
    "podman-rootless": (
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
        ("user.slice", "user-1000.slice", "user@1000.service"),
        f"user@1000.service/libpod-{ID[:12]}.scope",
    ),
    "outside-of-this-container": ("0::/../llama-swap.service", (), "../llama-swap.service"),
    "a-slice-alone": ("0::/media.slice", ("media.slice",), ""),
    "kernel": ("0::/", (), ""),
    "empty": ("", (), ""),
    "another-controller-alone": ("12:memory:/system.slice/plex.service", (), ""),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_units_are_those_of_the_machines_own_systemd_and_the_place_is_for_people(form):
    text, units, shown = FORMS[form]
    assert (units_of(f"{text}\n"), place(f"{text}\n")) == (units, shown)
