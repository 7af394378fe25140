"""/proc/PID/cgroup as the two cgroup drivers write it, on both versions of control groups."""

from __future__ import annotations

import os

import pytest

from corral.exporter.containers import Container, container_of, read_cgroups

UID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
UNDERSCORED = UID.replace("-", "_")
ID = "ab" * 32
STATIC = "0123456789abcdef" * 2

FORMS = {
    "v1-cgroupfs": f"12:memory:/kubepods/burstable/pod{UID}/{ID}\n11:cpu,cpuacct:/kubepods/burstable/pod{UID}/{ID}\n",
    "v1-systemd": (
        "12:memory:/kubepods.slice/kubepods-burstable.slice/"
        f"kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope\n"
    ),
    "v2-cgroupfs": f"0::/kubepods/pod{UID}/{ID}\n",
    "v2-systemd": f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope\n",
    "cri-o": f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope\n",
    "docker": f"0::/kubepods.slice/kubepods-besteffort-pod{UNDERSCORED}.slice/docker-{ID}.scope\n",
    "containerd-without-scopes": f"1:name=systemd:/kubepods-besteffort-pod{UNDERSCORED}.slice:cri-containerd:{ID}\n",
    "kind": (
        "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
        f"kubelet-kubepods-besteffort-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope\n"
    ),
    "read-in-another-pod-systemd": f"0::/../../kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope\n",
    "read-in-another-pod-cgroupfs": f"0::/../../pod{UID}/{ID}\n",
    "a-group-of-its-own-below": f"0::/kubepods/burstable/pod{UID}/{ID}/worker\n",
    "another-pod-named-below": f"0::/kubepods/burstable/pod{UID}/{ID}/pod{STATIC}/{'cd' * 32}\n",
}
NO_POD = {
    "empty": "",
    "root": "0::/\n",
    "service": "0::/system.slice/immich.service\n",
    "session": "0::/user.slice/user-1000.slice/session-3.scope\n",
    "docker-alone": f"0::/system.slice/docker-{ID}.scope\n",
    "a-slice-with-the-name-of-a-pod": f"0::/user.slice/pod{UNDERSCORED}.slice/{ID}\n",
    "short-id": f"0::/kubepods/pod{UID}/{ID[:12]}\n",
    "the-pod-alone": f"0::/kubepods/pod{UID}\n",
    "rubbish": "\x00kubepods pod\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_names_pod_and_container(form):
    assert container_of(FORMS[form]) == Container(UID, ID)


def test_a_static_pod_has_a_uid_without_dashes():
    assert container_of(f"0::/kubepods/burstable/pod{STATIC}/{ID}\n") == Container(STATIC, ID)


@pytest.mark.parametrize("form", NO_POD)
def test_what_is_in_no_pod_has_no_container(form):
    assert container_of(NO_POD[form]) is None


def test_the_control_groups_of_a_process_are_read_and_those_of_none_are_unknown(tmp_path):
    assert read_cgroups(os.getpid())
    assert read_cgroups(1, proc=tmp_path) is None
