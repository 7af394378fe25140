"""What of the caller's environment reaches a child process."""

from __future__ import annotations

import subprocess

import pytest

from corral.engine import environment
from corral.errors import Refused

SECRETS = (
    *("ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET", "CORRAL_API_KEY"),
    *("DATABASE_URL", "GITHUB_TOKEN", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN", "HF_TOKEN_PATH"),
    *("KUBECONFIG", "LLAMA_API_KEY", "NGC_API_KEY", "NVIDIA_API_KEY", "OPENAI_API_KEY", "PGPASSWORD", "PG_CONN_STR"),
    *("SSH_AUTH_SOCK", "TF_TOKEN_app_terraform_io", "TF_VAR_password", "VAULT_TOKEN", "ZEROTIER_API_TOKEN"),
)
CHANGES_AN_ENGINE = ("LLAMA_ARG_CTX_SIZE", "LLAMA_LOG_FILE", "LLAMA_SERVER_SLOTS_DEBUG", "LD_PRELOAD")


@pytest.fixture(autouse=True)
def secrets(monkeypatch):
    for name in (*SECRETS, *CHANGES_AN_ENGINE):
        monkeypatch.setenv(name, "secret")


@pytest.mark.parametrize("names", [environment.ENGINE, environment.BUILD, environment.TERRAFORM])
def test_no_secret_of_the_shell_reaches_a_child(names):
    reached = environment.allowed(names)

    assert "PATH" in reached
    assert "secret" not in reached.values()


def test_what_chooses_the_card_and_its_driver_reaches_an_engine(monkeypatch):
    needed = ("CUDA_VISIBLE_DEVICES", "CORRAL_VRAM_SOURCE", "GGML_VK_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION")
    needed += ("LD_LIBRARY_PATH", "LC_ALL", "ONEAPI_DEVICE_SELECTOR", "TMPDIR", "VK_ICD_FILENAMES")
    for name in needed:
        monkeypatch.setenv(name, "here")

    reached = environment.of_engine(ADDED="too")

    assert {reached.get(name) for name in needed} == {"here"}
    assert reached["ADDED"] == "too"


def test_the_operator_adds_a_variable_by_its_name(monkeypatch):
    monkeypatch.setenv("CORRAL_ENGINE_ENV", "LD_PRELOAD, OPENAI_API_KEY,")

    reached = environment.of_engine()

    assert {name for name, value in reached.items() if value == "secret"} == {"LD_PRELOAD", "OPENAI_API_KEY"}


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("HF_TOKEN", "'HF_TOKEN', which never reaches an engine"),
        ("HF_TOKEN_PATH", "'HF_TOKEN_PATH', which never reaches an engine"),
        ("LLAMA_ARG_CTX_SIZE", "'LLAMA_ARG_CTX_SIZE', which never reaches an engine"),
        ("XDG_CONFIG_HOME", "'XDG_CONFIG_HOME', which never reaches an engine"),
        ("AWS_*", "'AWS_*', which is not the name of a variable"),
        ("NAME=value", "'NAME=value', which is not the name of a variable"),
        ("UNSET_ANYWHERE", "UNSET_ANYWHERE, which is not set"),
    ],
)
def test_a_name_that_cannot_reach_an_engine_is_refused(monkeypatch, name, rule):
    monkeypatch.setenv("CORRAL_ENGINE_ENV", f"LD_PRELOAD,{name}")

    with pytest.raises(Refused) as caught:
        environment.of_engine()

    assert caught.value.message == f"CORRAL_ENGINE_ENV names {rule}."
    assert caught.value.next_step.endswith("CORRAL_ENGINE_ENV")


def test_settings_of_the_machine_for_llama_server_are_refused(tmp_path, monkeypatch):
    config = tmp_path / "config.ini"
    monkeypatch.setattr(environment, "_SYSTEM_CONFIG", config)
    environment.of_engine()
    config.write_text("; a comment\n# another\n\n[*]\n")
    environment.of_engine()
    config.write_text("; a comment\n\n[*]\n  tools = all\n")

    with pytest.raises(Refused, match="the lock does not have its settings") as caught:
        environment.of_engine()

    assert caught.value.next_step.startswith(f"sudo mv {config} {config}.old")


def test_settings_of_the_machine_that_cannot_be_read_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_SYSTEM_CONFIG", tmp_path)  # a folder

    with pytest.raises(Refused, match="the lock does not have its settings"):
        environment.of_engine()


def test_a_child_has_exactly_this_environment():
    printed = subprocess.run(
        ["/usr/bin/env"], env=environment.of_engine(), capture_output=True, text=True, check=True
    ).stdout

    assert "XDG_CONFIG_HOME=/dev/null\n" in printed
    assert "secret" not in printed
