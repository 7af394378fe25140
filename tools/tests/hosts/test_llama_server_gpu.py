"""The GPU layers that the role llama_server chooses for platforms that no test host is: its rule is evaluated."""

from __future__ import annotations

import json

import pytest

from tests.support.hosts.playbook import ANSIBLE, play
from tests.support.hosts.room import FOLDER

MACHINES = {
    "M1": {"system": "Darwin", "processor": "Apple M1"},
    "M4": {"system": "Darwin", "processor": "Apple M4 Max"},
    "M5": {"system": "Darwin", "processor": "Apple M5 Pro"},
    "M12": {"system": "Darwin", "processor": "Apple M12"},
    "Intel": {"system": "Darwin", "processor": "Intel(R) Core(TM) i7"},
    "PC": {"system": "Linux", "processor": ["0", "AuthenticAMD"]},
}


@pytest.fixture(scope="module")
def chosen(room):
    """The choice for every machine, as ``layers: reason``."""
    choose = {
        "name": "Choose",
        "ansible.builtin.copy": {
            "content": "{{ __llama_server_gpu.layers }}: {{ __llama_server_gpu.reason }}",
            "dest": f"{FOLDER}/choice-{{{{ item.key }}}}",
            "mode": "0600",
        },
        "loop": "{{ machines | dict2items }}",
        "vars": {"ansible_facts": "{{ item.value }}", "__llama_server_nvidia": {"stat": {"exists": False}}},
    }
    playbook = FOLDER / "choices.json"
    role = ANSIBLE / "roles" / "llama_server"
    text = {
        "name": "Choices",
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(role / "defaults/main.yml"), str(role / "vars/main.yml")],
        "tasks": [choose],
    }
    playbook.write_text(json.dumps([text]), encoding="utf-8")
    played = play(playbook, {"test": []}, variables={"machines": MACHINES})
    assert played.returncode == 0, played.text
    return {name: (FOLDER / f"choice-{name}").read_text() for name in MACHINES}


@pytest.mark.parametrize(
    ("machine", "choice"),
    [
        ("M1", "none: Apple M1: before M5 bf16 Metal kernels are missing"),
        ("M4", "none: Apple M4: before M5 bf16 Metal kernels are missing"),
        ("M5", "all: Apple M5 has the bf16 Metal kernels"),
        ("M12", "all: Apple M12 has the bf16 Metal kernels"),
        ("Intel", "none: Intel(R) Core(TM) i7 is not a known Apple chip"),
        ("PC", "none: no GPU here"),
    ],
)
def test_the_gpu_takes_what_its_platform_can(chosen, machine, choice):
    assert chosen[machine] == choice
