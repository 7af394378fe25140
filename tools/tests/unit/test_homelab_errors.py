"""What Terraform and its provider complain of, as one sentence and the next step; the diagnostics are real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.cluster.finding import Finding
from corral.cluster.target import ClusterTarget
from corral.errors import CannotRun, CorralError, Refused
from corral.terraform import applying, failures, homelab
from corral.terraform.runner import Finished

PROVIDER = 'provider["registry.terraform.io/hashicorp/kubernetes"]'
REFUSED = 'Post "https://127.0.0.1:1/api/v1/namespaces": dial tcp 127.0.0.1:1: connect: connection refused'
JOB = "module.model_fetch.kubernetes_job_v1.download_models"


HERE = ClusterTarget(Path("/kube/config"), "home", "llm")


def failed(*more, **diagnostic):
    found = [{"severity": "error", "detail": "", **one} for one in (diagnostic, *more)]
    return Finished(1, [{"type": "diagnostic", "diagnostic": one} for one in found], "", "")


def explained(tmp_path, monkeypatch, target=lambda _self: HERE, more=(), **diagnostic):
    monkeypatch.setattr(homelab, "find_terraform", lambda: "terraform")
    monkeypatch.setattr(homelab.Homelab, "target", target)
    return homelab.Homelab(tmp_path)._explain(failed(*more, **diagnostic))


@pytest.mark.parametrize(
    ("diagnostic", "message"),
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
            'The cluster cannot be reached: context "nope" does not exist.',
        ),
        (
            {
                "summary": "Invalid attribute in provider configuration",
                "detail": "'config_path' refers to an invalid path: \"/nowhere\": stat /nowhere: no such file",
                "address": PROVIDER,
            },
            "The cluster cannot be reached: 'config_path' refers to an invalid path",
        ),
        ({"summary": "Unauthorized", "address": "kubernetes_namespace_v1.x"}, "does not accept the kubeconfig's cred"),
    ],
    ids=["refused", "refused-in-words", "certificate", "context", "kubeconfig", "credentials"],
)
def test_a_cluster_that_cannot_be_reached_names_what_to_correct(tmp_path, monkeypatch, diagnostic, message):
    error = explained(tmp_path, monkeypatch, **diagnostic)

    assert isinstance(error, CannotRun)
    assert error.message.startswith(message) or message in error.message
    assert "kube_context" in error.next_step
    assert error.next_step.endswith(": kubectl --kubeconfig /kube/config --context home get nodes")


def test_without_a_kubeconfig_in_the_variables_the_environment_is_what_to_correct(tmp_path, monkeypatch):
    error = explained(tmp_path, monkeypatch, lambda _self: ClusterTarget(None, "home", "llm"), summary=REFUSED)

    assert "KUBECONFIG counts" in error.next_step
    assert error.next_step.endswith(": kubectl --context home get nodes")


def test_a_cluster_that_cannot_be_reached_does_not_hide_a_broken_rule(tmp_path, monkeypatch):
    short = {
        "summary": "Module output value precondition failed",
        "detail": "Card t4 is short of 26 MiB.",
        "snippet": {"values": [{"traversal": "local.card_holds_its_set"}]},
    }

    error = explained(tmp_path, monkeypatch, more=[short], summary=REFUSED)

    assert isinstance(error, CannotRun)
    assert error.message.splitlines()[1:] == ["Card t4 is short of 26 MiB."]
    assert error.next_step.endswith("get nodes; then: corral seat")


def unknown(_self):
    raise CannotRun("No variable has a value.")


@pytest.mark.parametrize("target", [unknown, lambda _self: ClusterTarget(None, None, "llm")], ids=["unknown", "none"])
def test_a_context_without_a_name_is_not_invented(tmp_path, monkeypatch, target):
    assert explained(tmp_path, monkeypatch, target, summary=REFUSED).next_step.endswith(": kubectl get nodes")


@pytest.mark.parametrize(
    "summary",
    [
        'Internal error occurred: failed calling webhook "x": Post "https://hook.svc:443/": connection refused',
        "namespaces is forbidden: User me cannot create resource: Unauthorized",
    ],
)
def test_what_the_cluster_answered_is_not_taken_for_silence(tmp_path, monkeypatch, summary):
    error = explained(tmp_path, monkeypatch, summary=summary, address=JOB)

    assert error.message == f"Terraform failed.\n{summary}"
    assert error.next_step == "corral status, docs/runbooks/download-job-failed.md"


class Guard:
    """The findings while the namespace is not there."""

    def inspect(self, _kinds):
        return (Finding("namespace/llm", "does not exist.", "", "corral apply", is_stuck=False),)


def applied(tmp_path, monkeypatch, claim, **diagnostic):
    monkeypatch.setattr(homelab, "find_terraform", lambda: "terraform")
    monkeypatch.setattr(applying, "apply", lambda *_, **__: applying.Applied(failed(**diagnostic), None))
    plan = homelab.Plan(tmp_path / "plan", {"variables": {"store": {"value": {"claim": claim}}}}, "", HERE)
    with pytest.raises(CorralError) as caught:
        homelab.Homelab(tmp_path).apply(plan, guard=Guard())
    return caught.value


LABELS = {"summary": 'The resource "llm" does not exist', "address": "kubernetes_labels.llama_cpp[0]"}
POLICY = {"summary": 'namespaces "llm" not found', "address": "kubernetes_network_policy_v1.default_deny"}


@pytest.mark.parametrize("diagnostic", [LABELS, POLICY], ids=["labels", "policy"])
def test_a_namespace_that_the_stack_does_not_make_is_made_by_the_next_command(tmp_path, monkeypatch, diagnostic):
    error = applied(tmp_path, monkeypatch, "own", **diagnostic)

    assert isinstance(error, Refused)
    assert error.message.startswith("The namespace llm does not exist")
    assert "the namespace of the claim own and the claim itself must be there before" in error.message
    assert "kubectl --kubeconfig /kube/config --context home create namespace llm;" in error.next_step


def test_a_namespace_of_the_stacks_own_is_made_by_the_stack(tmp_path, monkeypatch):
    assert applied(tmp_path, monkeypatch, None, **POLICY).next_step == "corral apply"


def test_something_else_that_does_not_exist_is_not_taken_for_the_namespace(tmp_path, monkeypatch):
    other = {**LABELS, "address": "kubernetes_annotations.other"}
    assert "create namespace" not in applied(tmp_path, monkeypatch, "own", **other).next_step


def test_a_failure_without_a_hint_names_the_plain_command(tmp_path, monkeypatch):
    error = explained(tmp_path, monkeypatch, summary="Odd", detail="very", snippet={"code": 'output "x" {'})

    assert error.message == "Terraform failed.\nOdd: very"
    assert error.next_step == f"See it alone: terraform -chdir={tmp_path} plan"


@pytest.mark.parametrize(
    "words",
    [
        'Module not installed: This module is not yet installed. Run "terraform init" to install all modules required',
        'Backend initialization required, please run "tofu init": Reason: Initial configuration of the requested',
    ],
    ids=["terraform", "opentofu"],
)
def test_terraform_and_opentofu_are_understood_when_they_want_an_init(words):
    assert homelab._wants_init(Finished(1, [], words, ""))
    assert not homelab._wants_init(failed(summary="Unauthorized"))


def content_replaced(before, after, actions):
    """The change of a ConfigMap by the names of both sides."""
    sides = {
        side: {"metadata": [{"name": name, "namespace": "llm"}]}
        for side, name in (("before", before), ("after", after))
    }
    return {"type": "kubernetes_config_map_v1", "change": {"actions": actions, **sides}}


def test_a_config_map_that_no_apply_can_correct_is_refused_with_the_command_that_can(tmp_path):
    document = {"resource_changes": [content_replaced("door-1", "door-1", ["create", "delete"])]}

    error = failures.made_by_hand(homelab.Plan(tmp_path, document, "", HERE))

    assert isinstance(error, Refused)
    assert error.message.startswith("The ConfigMap door-1 was made by hand")
    assert error.next_step.startswith(
        "kubectl --kubeconfig /kube/config --context home -n llm delete configmap door-1; then: corral apply"
    )


@pytest.mark.parametrize(
    ("before", "after", "actions"),
    [("door-1", "door-2", ["create", "delete"]), ("door-1", "door-1", ["update"])],
    ids=["another-namespace-or-name", "put-right-in-place"],
)
def test_a_config_map_that_an_apply_corrects_is_not_refused(tmp_path, before, after, actions):
    document = {"resource_changes": [content_replaced(before, after, actions)]}

    assert failures.made_by_hand(homelab.Plan(tmp_path, document, "", HERE)) is None


def test_objects_that_the_state_lacks_are_no_failure_of_the_cluster_and_adopt_is_the_way_out():
    service = 'services "llama-swap" already exists'

    error = failures.already_there(failed(summary=service, address="module.a.kubernetes_service_v1.a"))

    assert isinstance(error, Refused)
    assert "Terraform's state lacks" in error.message
    assert service in error.message
    assert error.next_step == "corral adopt, docs/runbooks/state-lost-or-behind.md"
    assert failures.already_there(failed(summary="Unauthorized")) is None
