"""HTTPS with a real server: a certificate is accepted when a trusted authority signed it for this host."""

import os
import subprocess
import sys

import pytest

from tests.support.faulty_hub import RepoContent, SecureHub
from tests.support.fetching import MIB, REPO, weights
from tests.support.locks import hub_model, write_lock


def certificate(folder, name):
    """A certificate for *name* that is self-signed, and its key, in one file."""
    path = folder / "hub.pem"
    words = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=hub -addext {name}"
    made = subprocess.run([*words.split(), "-keyout", "-"], check=True, capture_output=True)
    path.write_bytes(made.stdout)
    return path


@pytest.fixture
def attempt(tmp_path):
    """Fetch from a hub with a certificate for *name*; the ended process, whether the file arrived, and the requests."""

    def run(name, *, trusted):
        pem = certificate(tmp_path, name)
        content = weights(3 * MIB)
        with SecureHub({REPO: RepoContent({"a.gguf": content})}, pem) as hub:
            lock = write_lock(tmp_path, m=hub_model(hub, REPO, "a.gguf"))
            environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": "hf_secret"}
            environment.pop("SSL_CERT_FILE", None)
            if trusted:
                environment["SSL_CERT_FILE"] = str(pem)
            store = tmp_path / "store"
            words = [sys.executable, "-m", "corral.agent", "fetch", "--lock", str(lock), "--store", str(store)]
            done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
            model = store / "m" / "model.gguf"
            return done, model.exists() and model.read_bytes() == content, hub.log

    return run


LOCAL = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def test_a_certificate_without_an_authority_is_refused_without_retries(attempt):
    done, arrived, requests = attempt(LOCAL, trusted=False)
    assert done.returncode == 3
    assert "The certificate of 127.0.0.1:" in done.stderr
    assert "SSL_CERT_FILE" in done.stderr
    assert not arrived
    assert requests == []  # not even the token was sent


def test_a_certificate_that_ssl_cert_file_names_is_trusted(attempt):
    done, arrived, requests = attempt(LOCAL, trusted=True)
    assert (done.returncode, arrived) == (0, True), done.stderr
    assert {(entry.host, entry.headers.get("authorization")) for entry in requests} == {
        ("127.0.0.1", "Bearer hf_secret"),
        ("localhost", None),
    }


def test_a_trusted_certificate_of_another_host_is_refused(attempt):
    done, arrived, requests = attempt("subjectAltName=DNS:hub.example", trusted=True)
    assert done.returncode == 3
    assert "is not trusted" in done.stderr
    assert (arrived, requests) == (False, [])
