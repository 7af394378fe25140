"""The record in a service that the role installed; tests/hosts reads what the role really writes."""

from __future__ import annotations

import json
import os

import pytest

from corral.cli.main import main
from corral.engine import host_services

UNIT = "etc/systemd/system/llama-swap.service"
PLIST = "Library/LaunchDaemons/corral.llama-server.plist"


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    return write


def record(**changes):
    fields = {"program": "llama-swap", "model": None, "models": 2, "gpu_layers": "all"}
    fields |= {"reason": "CUDA on Tesla T4 (9%)"}
    return f"corral-service: {json.dumps(fields | changes)}".replace("--", "-\\u002d")


def test_a_unit_tells_the_choice_and_its_reason(tmp_path, write):
    file = write(UNIT, f"# Ansible managed\n# {record()}\n[Unit]\nDescription=any sentence\n")

    (service,) = host_services.installed(tmp_path)

    assert service == host_services.HostService("llama-swap", file, "2 models", "all", "CUDA on Tesla T4 (9%)")
    assert service.banner == f"llama-swap ({file}): 2 models, GPU layers all: CUDA on Tesla T4 (9%)"


def test_a_property_list_of_a_mac_tells_it_in_its_comment(tmp_path, write):
    one = record(program="llama-server", model="qwen--3", gpu_layers="none", reason="Apple M1: no bf16")
    write(PLIST, f"<!-- Ansible managed -->\n<!-- {one} -->\n<plist/>\n")

    (service,) = host_services.installed(tmp_path)

    assert "--3" not in one
    assert (service.serves, service.layers, service.reason) == ("qwen--3", "none", "Apple M1: no bf16")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[Unit]\nDescription=Another program's service\n", id="another program's"),
        pytest.param(f"# {record(program='llama-server')}\n", id="another program's"),
        pytest.param(f"# {record(gpu_layers='some')}\n", id="unknown choice"),
        pytest.param("# corral-service: {]}\n", id="no JSON"),
        pytest.param("Description=llama-swap: x, GPU layers all (y)\n", id="a sentence"),
        pytest.param("", id="empty"),
    ],
)
def test_a_file_that_does_not_tell_it_is_no_service_of_ours(tmp_path, write, text):
    write(UNIT, text)

    assert host_services.installed(tmp_path) == ()


def test_a_machine_without_the_role_has_none(tmp_path):
    assert host_services.installed(tmp_path) == ()


@pytest.mark.parametrize(("state", "code"), [("active", 0), ("failed", 1)])
def test_status_tells_the_choice_of_an_installed_service_and_whether_it_runs(
    tmp_path, write, monkeypatch, capsys, state, code
):
    write(UNIT, f"# {record(gpu_layers='none', reason='Apple M1: no bf16')}\n")
    services = host_services.installed(tmp_path)
    monkeypatch.setattr(host_services, "installed", lambda: services)
    # systemd itself cannot be made to run a unit here; tests/hosts has the real ones.
    write("bin/systemctl", f"#!/bin/sh\n[ \"$*\" = 'is-active llama-swap.service' ] && echo {state}\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("CORRAL_STATE", str(tmp_path / "state"))

    assert main(["status"]) == code
    printed = capsys.readouterr().out
    assert printed.startswith(f"{state}: llama-swap (")
    banner, *steps = printed.splitlines()
    assert banner.endswith("2 models, GPU layers none: Apple M1: no bf16")
    assert steps == ([] if code == 0 else ["  → journalctl --unit llama-swap.service --lines 50"])
    assert main(["status", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["services"][0]["layers"] == "none"
