"""What Terraform and its provider complain of, as one sentence and the next step; the diagnostics are real ones."""

from __future__ import annotations

import pytest

from corral.errors import CannotRun
from corral.terraform import homelab
from corral.terraform.runner import Finished

PROVIDER = 'provider["registry.terraform.io/hashicorp/kubernetes"]'
REFUSED = 'Post "https://127.0.0.1:1/api/v1/namespaces": dial tcp 127.0.0.1:1: connect: connection refused'
JOB = 'resource "kubernetes_job_v1" "download_models" { # failed? corral status, docs/runbooks/download-job-failed.md'


def explained(tmp_path, monkeypatch, **diagnostic):
    monkeypatch.setattr(homelab, "find_terraform", lambda: "terraform")
    event = {"type": "diagnostic", "diagnostic": {"severity": "error", "detail": "", **diagnostic}}
    return homelab.Homelab(tmp_path)._explain(Finished(1, [event], "", ""))


@pytest.mark.parametrize(
    ("diagnostic", "said"),
    [
        ({"summary": REFUSED}, "The cluster at https://127.0.0.1:1 does not answer: dial tcp 127.0.0.1:1: connect: "),
        ({"summary": f"Failed to create deployment: {REFUSED}"}, "The cluster at https://127.0.0.1:1 does not answer"),
        (
            {"summary": 'Get "https://home:6443/api": tls: failed to verify certificate: x509: unknown authority'},
            "The cluster at https://home:6443 does not answer: tls: failed to verify certificate",
        ),
        (
            {
                "summary": "Provider configuration: cannot load Kubernetes client config",
                "detail": 'context "nope" does not exist',
                "address": PROVIDER,
            },
            'The cluster cannot be asked: context "nope" does not exist.',
        ),
        (
            {
                "summary": "Invalid attribute in provider configuration",
                "detail": "'config_path' refers to an invalid path: \"/nowhere\": stat /nowhere: no such file",
                "address": PROVIDER,
            },
            "The cluster cannot be asked: 'config_path' refers to an invalid path",
        ),
        ({"summary": "Unauthorized", "address": "kubernetes_namespace_v1.x"}, "does not accept the kubeconfig's cred"),
    ],
    ids=["refused", "refused-in-words", "certificate", "context", "kubeconfig", "credentials"],
)
def test_a_cluster_that_cannot_be_asked_says_what_to_correct(tmp_path, monkeypatch, diagnostic, said):
    error = explained(tmp_path, monkeypatch, **diagnostic)

    assert isinstance(error, CannotRun)
    assert error.message.startswith(said) or said in error.message
    assert "kube_context" in error.next_step


@pytest.mark.parametrize(
    "summary",
    [
        'Internal error occurred: failed calling webhook "x": Post "https://hook.svc:443/": connection refused',
        "namespaces is forbidden: User me cannot create resource: Unauthorized",
    ],
)
def test_what_the_cluster_answered_is_not_taken_for_silence(tmp_path, monkeypatch, summary):
    error = explained(tmp_path, monkeypatch, summary=summary, snippet={"code": JOB})

    assert error.message == f"Terraform failed.\n{summary}"
    assert error.next_step == "corral status, docs/runbooks/download-job-failed.md"


def test_a_failure_without_a_hint_says_how_to_see_it_alone(tmp_path, monkeypatch):
    error = explained(tmp_path, monkeypatch, summary="Odd", detail="very", snippet={"code": 'output "x" {'})

    assert error.message == "Terraform failed.\nOdd: very"
    assert error.next_step == f"See it alone: terraform -chdir={tmp_path} plan"
