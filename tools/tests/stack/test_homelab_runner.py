"""The homelab's runner with the real Terraform, on a stack without a provider."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from corral.cluster.target import ClusterTarget
from corral.errors import CannotRun, CorralError, Failed, ProgramMissing, Refused
from corral.terraform import applying, homelab, remedies
from corral.terraform.homelab import Homelab
from corral.terraform.program import find_terraform
from tests.support.kernel import modes, umask
from tests.support.terraform_mirror import REQUIRED, write_mirror
from tests.support.tiny_stack import set_variables, write_stack


@dataclass(frozen=True)
class Found:
    subject: str = "pod/llama-swap"
    what: str = "gets no card: none is free."
    event: str = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    next_step: str = "kubectl get pods -A"
    is_stuck: bool = True


@pytest.fixture
def stack(tmp_path):
    return write_stack(tmp_path / "stack", catalog="../catalog")


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(applying.apply, "__kwdefaults__", {"stays_s": 0.3, "every_s": 0.02})


class Guard:
    """Returns the findings of *inspect*, and records what it had to end."""

    def __init__(self, inspect=tuple, end=None):
        self.inspected, self.ended = [], []
        self._inspect, self._end = inspect, end or (lambda: None)

    def inspect(self, kinds):
        self.inspected.append(set(kinds))
        return self._inspect() if kinds else ()  # nothing is wrong with what Terraform has not begun

    def end(self, kinds):
        self.ended.append(set(kinds))
        self._end()


def apply(stack, guard=None, **options):
    lab = Homelab(stack, **options)
    with lab.plan() as plan:
        lab.apply(plan, guard=guard or Guard())


def terraform(stack, *words):
    return subprocess.run([find_terraform(), *words], cwd=stack, capture_output=True, text=True, check=False)


def test_a_stack_is_initialised_when_it_has_to_be_and_only_then(stack):
    reported: list[str] = []
    for _ in range(2):
        with Homelab(stack, report=reported.append).plan() as plan:
            assert "terraform_data.thing will be created" in plan.text

    assert reported == [f"terraform init in {stack}"]


def test_a_provider_with_another_hash_than_that_of_the_first_init_is_refused(stack, tmp_path, monkeypatch):
    (stack / "versions.tf").write_text(REQUIRED)
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(write_mirror(tmp_path / "mirror", "first")))
    Homelab(stack)._init()
    pins = stack / ".terraform.lock.hcl"
    pinned = pins.read_text()
    shutil.rmtree(stack / ".terraform")
    Homelab(stack)._init()
    write_mirror(tmp_path / "mirror", "second")
    shutil.rmtree(stack / ".terraform")

    with pytest.raises(Refused, match=f"is not the one that {pins} pins") as caught, Homelab(stack).plan():
        pass

    assert caught.value.next_step == f"Only where it is meant to be another one: rm {pins}, then: make init"
    assert pins.read_text() == pinned
    for edited in (pinned.replace('"3.2.1"', '"3.1.0"'), "# nothing is pinned\n"):
        pins.write_text(edited)
        with pytest.raises(Refused, match=f"is not the one that {pins} pins"), Homelab(stack).plan():
            pass
        assert pins.read_text() == edited
    pins.unlink()
    Homelab(stack)._init()
    assert pins.read_text() != pinned


def test_terraform_and_corral_share_the_stack(stack):
    apply(stack)

    plain = terraform(stack, "plan", "-detailed-exitcode", "-no-color")
    assert (plain.returncode, "No changes." in plain.stdout) == (0, True)
    assert Homelab(stack).outputs() == {"note": "first"}
    assert terraform(stack, "apply", "-auto-approve", "-var=note=second").returncode == 0
    assert Homelab(stack).outputs() == {"note": "second"}


def test_plans_states_and_providers_are_closed_to_other_users_also_a_state_that_was_not(stack):
    with umask(0):
        terraform(stack, "init")
        terraform(stack, "apply", "-auto-approve")
        assert modes(stack)["files"] >= {0o666}
        (stack / ".terraform").rename(stack / ".terraform.before")
        lab = Homelab(stack)
        with lab.plan() as plan:
            assert modes(plan.file.parent) == {"folders": {0o700}, "files": {0o600}}
        set_variables(stack, catalog="../catalog", note="second")
        apply(stack)

    assert modes(stack / ".terraform") == {"folders": {0o700}, "files": {0o600}}
    states = [file for file in stack.iterdir() if file.name.startswith("terraform.tfstate")]
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in states} == {
        "terraform.tfstate": "0o600",
        "terraform.tfstate.backup": "0o600",
    }


def test_a_stack_that_was_never_applied_has_no_outputs(stack):
    assert Homelab(stack).outputs() == {}


@pytest.mark.parametrize("path", ["terraform.tfstate", "own/state"])
def test_a_state_that_an_apply_has_emptied_is_read_when_it_is_whole(stack, monkeypatch, path):
    if path != "terraform.tfstate":
        (stack / "backend_override.tf").write_text(
            f'terraform {{\n  backend "local" {{\n    path = "{path}"\n  }}\n}}\n'
        )
    apply(stack)
    state, begun = stack / path, []
    whole = state.read_bytes()
    state.write_bytes(b"")

    def sleep(_):
        begun.append(state.read_bytes())
        state.write_bytes(whole)

    monkeypatch.setattr(homelab, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    assert Homelab(stack).outputs() == {"note": "first"}
    assert begun == [b""]


def test_a_state_that_stays_empty_is_no_answer(stack, monkeypatch):
    apply(stack)
    (stack / "terraform.tfstate").write_bytes(b"")
    monkeypatch.setattr(homelab, "_WRITING_LIMIT_S", 0.0)

    with pytest.raises(CannotRun, match=r"terraform\.tfstate is empty"):
        Homelab(stack).outputs()


@pytest.mark.parametrize("output", ["", "Hello", "[]", '{"note": "first"}'])
def test_a_program_that_is_no_terraform_is_not_believed_when_it_ends_well(stack, tmp_path, monkeypatch, output):
    program = tmp_path / "terraform"
    program.write_text(f"#!/bin/sh\necho '{output}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    for call in (Homelab(stack).outputs, Homelab(stack).target, Homelab(stack).plan().__enter__):
        with pytest.raises(ProgramMissing, match=f"^{program} does not answer as Terraform and OpenTofu do: "):
            call()


def test_errors_of_terraform_have_no_colours(stack):
    apply(stack)
    (stack / "terraform.tfstate").write_text("{")

    with pytest.raises(CannotRun) as caught:
        Homelab(stack).outputs()

    assert "state" in caught.value.message
    assert "\x1b" not in caught.value.message


def test_another_backend_is_respected(stack):
    (stack / "backend_override.tf").write_text('terraform {\n  backend "local" {\n    path = "own/state"\n  }\n}\n')

    apply(stack)

    assert json.loads((stack / "own" / "state").read_text())["outputs"]["note"]["value"] == "first"
    assert not (stack / "terraform.tfstate").exists()
    assert Homelab(stack).outputs() == {"note": "first"}


def test_a_state_that_would_move_is_left_to_the_operator(stack):
    apply(stack)
    (stack / "backend_override.tf").write_text('terraform {\n  backend "local" {\n    path = "own/state"\n  }\n}\n')

    with pytest.raises(Refused, match="would move to another backend") as caught:
        apply(stack)

    assert caught.value.next_step.endswith("init -migrate-state")
    assert not (stack / "own" / "state").exists()


def test_values_of_the_command_line_win(stack, tmp_path):
    (tmp_path / "more.tfvars").write_text('note = "third"\ncatalog = "elsewhere"\n')

    with Homelab(stack, catalog=tmp_path / "mine", var_files=[tmp_path / "more.tfvars"]).plan() as plan:
        assert plan.target.catalog == tmp_path / "mine"
        assert plan.document["variables"]["note"] == {"value": "third"}


def test_a_catalog_in_the_variables_is_relative_to_the_stack(stack, tmp_path):
    with Homelab(stack).plan() as plan:
        assert plan.target.catalog == tmp_path / "catalog"
        assert plan.target == ClusterTarget(None, "home", "llama-cpp", catalog=tmp_path / "catalog")
        assert plan.claim is None


@pytest.mark.parametrize(("store", "claim"), [('{ claim = "own" }', "own"), ('{ nfs = "nas" }', None)])
def test_a_claim_that_exists_is_known_from_the_variables(stack, store, claim):
    (stack / "store.tf").write_text(f'variable "store" {{\n  default = {store}\n}}\n')

    with Homelab(stack).plan() as plan:
        assert plan.claim == claim


def test_the_cluster_is_known_without_a_plan_and_while_one_is_applied(stack, tmp_path):
    set_variables(stack, catalog="c", kubeconfig="~/kube/config", namespace="llm", kube_context="other")
    apply(stack)

    with held(stack):
        assert Homelab(stack).target() == ClusterTarget(
            Path.home() / "kube/config", "other", "llm", catalog=stack / "c"
        )


def test_the_cluster_is_known_before_the_stack_is_initialised(stack, tmp_path, monkeypatch):
    set_variables(stack, catalog="../catalog", kube_context="file", namespace="file")
    (stack / "more.auto.tfvars").write_text('kube_context = "more"\n')
    further = tmp_path / "further.tfvars"
    further.write_text('namespace = "further"\n')
    monkeypatch.setenv("TF_VAR_kubeconfig", "/shell")

    found = Homelab(stack, var_files=[further]).target()

    catalog = (stack / "../catalog").resolve()
    assert found == ClusterTarget(Path("/shell"), "more", "further", catalog=catalog)
    assert not (stack / ".terraform").exists()


def test_a_variable_that_is_declared_or_overridden_elsewhere_counts_too(stack):
    set_variables(stack, catalog="c")
    (stack / "own_override.tf").write_text('variable "kube_context" {\n  default = "overridden"\n}\n')
    assert Homelab(stack).target().context == "overridden"

    (stack / "own_override.tf").unlink()
    (stack / "variables.tf").rename(stack / "all.tf")
    assert Homelab(stack).target().context == "home"


def test_an_editors_lock_in_the_stack_does_not_matter(stack):
    set_variables(stack, catalog="c")
    (stack / ".#variables.tf").symlink_to("root@host.1:2")

    assert Homelab(stack).target().context == "home"


def test_a_value_that_its_variable_refuses_is_refused_in_its_own_words(stack):
    file = stack / "variables.tf"
    rule = """
  validation {
    condition     = var.namespace != "default"
    error_message = "The namespace is ${var.namespace}; it must be one of its own."
  }
"""
    default = 'default = "llama-cpp"'
    file.write_text(file.read_text().replace(default, f"{default}{rule}"))
    set_variables(stack, catalog="c", namespace="default")

    with pytest.raises(Refused, match=r"^The namespace is default; it must be one of its own\.$"):
        Homelab(stack).target()


def test_the_cluster_is_known_when_another_variable_has_no_value(stack):
    (stack / "variables.tf").write_text(
        (stack / "variables.tf").read_text() + 'variable "store" {\n  type = string\n}\n'
    )

    assert Homelab(stack).target().context == "home"


def test_variables_of_the_shell_count_and_options_of_the_shell_do_not(stack, monkeypatch):
    monkeypatch.setenv("TF_VAR_note", "shell")
    monkeypatch.setenv("TF_CLI_ARGS_plan", "-destroy")

    apply(stack)

    assert Homelab(stack).outputs() == {"note": "shell"}


def test_variables_without_a_value_are_named_with_the_file_to_write(stack):
    (stack / "terraform.tfvars").unlink()
    (stack / "terraform.tfvars.example").write_text("")

    with pytest.raises(Refused, match=r"has no value for: catalog\.") as caught:
        apply(stack)

    assert caught.value.next_step == f"cp {stack}/terraform.tfvars.example {stack}/terraform.tfvars, then edit it"


def test_a_broken_rule_is_refused_in_its_own_words(stack, tmp_path, monkeypatch):
    monkeypatch.setitem(remedies.RULES, "thing", ("corral", "lock"))
    set_variables(stack, catalog="c", note="broken")

    with pytest.raises(Refused, match=r"^Stale in lock\.json: a\. The intent changed after it was locked\. ") as caught:
        apply(stack, catalog=tmp_path / "mine")

    assert caught.value.next_step == f"corral lock --catalog {tmp_path}/mine"


class held:  # noqa: N801
    """The state of *stack*, locked as another Terraform locks it."""

    def __init__(self, stack):
        self.file = stack / "terraform.tfstate"
        self.info = stack / ".terraform.tfstate.lock.info"

    def __enter__(self):
        self.stream = self.file.open("r+")
        fcntl.lockf(self.stream, fcntl.LOCK_EX)
        self.info.write_text(json.dumps({"ID": "1234-abcd", "Operation": "OperationTypeApply", "Who": "me@desk"}))

    def __exit__(self, *_):
        self.info.unlink()
        self.stream.close()


def test_a_locked_state_names_its_holder_and_the_next_step(stack):
    apply(stack)

    with (
        held(stack),
        pytest.raises(CannotRun, match=r"is in use by me@desk\.\nError acquiring the state lock") as caught,
    ):
        apply(stack)

    # Terraform cannot unlock a file: its lock is the kernel's.  tests/cluster holds the lock of PostgreSQL.
    assert caught.value.next_step == "Wait for the other run, or end it: its lock ends with it"


def test_a_variable_that_does_not_exist_is_refused_with_its_place(stack):
    set_variables(stack, catalog="c", alowed_namespaces="litellm")

    with pytest.raises(
        Refused, match=r'variable named "alowed_namespaces" but a value was found in file "terraform\.tfvars"\.'
    ):
        apply(stack)


def test_a_key_that_a_variable_does_not_have_is_refused_though_terraform_drops_it(stack):
    declared = 'variable "times" {\n  type = object({ load = optional(number, 300) })\n  default = {}\n}\n'
    (stack / "more.tf").write_text(declared)
    (stack / "terraform.tfvars").write_text('catalog = "c"\ntimes = { laod = 3 }\n')

    with pytest.raises(Refused, match=r"^times has no key laod; its keys are: load\.$"):
        apply(stack)
    (stack / "terraform.tfvars").write_text('catalog = "c"\ntimes = { load = 3 }\n')
    apply(stack)


def test_variables_that_cannot_be_read_are_named_with_file_and_line(stack):
    (stack / "terraform.tfvars").write_text('catalog = "c"\nnote = {\n')

    with pytest.raises(CannotRun, match=r"terraform\.tfvars:\d+: "):
        apply(stack)


def test_a_state_in_postgresql_without_a_place_is_refused(stack, monkeypatch):
    monkeypatch.delenv("PG_CONN_STR", raising=False)
    (stack / "backend_override.tf").write_text(
        'terraform {\n  backend "pg" {\n    conn_str = "postgres://127.0.0.1:1/x"\n  }\n}\n'
    )

    with pytest.raises(CorralError, match=r"127\.0\.0\.1:1") as caught:
        apply(stack)

    assert "PG_CONN_STR" in caught.value.next_step


def test_a_failure_names_the_runbook_of_its_resource(stack, monkeypatch):
    monkeypatch.setitem(remedies.RESOURCES, "terraform_data.thing", "corral status, docs/runbooks/thing.md")
    set_variables(stack, catalog="c", command="echo no room >&2; exit 3")

    with pytest.raises(CannotRun, match="no room") as caught:
        apply(stack)

    assert caught.value.next_step == "corral status, docs/runbooks/thing.md"


def test_a_plan_that_another_apply_overtook_is_refused_with_the_next_step(stack):
    lab = Homelab(stack)
    with lab.plan() as plan:
        apply(stack)
        with pytest.raises(CannotRun, match="Another run applied") as caught:
            lab.apply(plan, guard=Guard())

    assert caught.value.next_step == "corral apply, which plans anew"


def test_exactly_the_plan_is_applied(stack):
    lab = Homelab(stack)
    with lab.plan() as plan:
        set_variables(stack, catalog="c", note="later")
        lab.apply(plan, guard=Guard())

    assert Homelab(stack).outputs() == {"note": "first"}


def test_progress_is_reported_line_by_line(stack):
    reported: list[str] = []
    apply(stack, report=reported.append)

    assert "terraform_data.thing: Creating..." in reported
    assert any(line.startswith("terraform_data.thing: Creation complete") for line in reported)
    assert reported[-1] == "Apply complete! Resources: 1 added, 0 changed, 0 destroyed."


def test_what_cannot_heal_ends_terraform_and_is_the_error(stack, impatient):
    set_variables(stack, catalog="c", command="sleep 120")

    guard = Guard(lambda: (Found(is_stuck=False, subject="other"), Found()))
    with pytest.raises(Failed) as caught:
        apply(stack, guard)

    assert {"terraform_data"} in guard.inspected
    assert guard.ended == [{"terraform_data"}]
    assert caught.value.message.splitlines() == [
        "pod/llama-swap gets no card: none is free.",
        "  0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        "Terraform was stopped.",
    ]
    assert caught.value.next_step == "kubectl get pods -A"
    assert not (stack / ".terraform.tfstate.lock.info").exists()
    set_variables(stack, catalog="c")
    apply(stack)
    assert Homelab(stack).outputs() == {"note": "first"}


def test_what_heals_in_time_ends_nothing(stack, tmp_path, impatient):
    """The finding appears, disappears, and appears again: never for long enough."""
    set_variables(stack, catalog="c", command=f"until [ -e {tmp_path}/healed ]; do sleep 0.05; done")
    findings = iter([(Found(),), (), *[(Found(),)] * 2, (Found("another"),), ()])

    def inspect():
        found = next(findings, None)
        if found is None:
            (tmp_path / "healed").touch()
        return found or ()

    apply(stack, Guard(inspect))

    assert Homelab(stack).outputs() == {"note": "first"}


def test_a_cluster_that_cannot_be_read_ends_nothing(stack, tmp_path, impatient):
    set_variables(stack, catalog="c", command=f"until [ -e {tmp_path}/inspected ]; do sleep 0.05; done")
    findings = [0]

    def inspect():
        findings[0] += 1
        if findings[0] > 30:
            (tmp_path / "inspected").touch()
        raise CannotRun("away")

    apply(stack, Guard(inspect))


def test_a_bug_of_the_watcher_is_raised_when_terraform_has_ended(stack):
    inspected = threading.Event()

    def inspect():
        inspected.set()
        raise ZeroDivisionError

    set_variables(stack, catalog="c", command="sleep 2")
    with pytest.raises(ZeroDivisionError):
        apply(stack, Guard(inspect))

    assert inspected.is_set()
    assert Homelab(stack).outputs() == {"note": "first"}


def test_a_failure_of_terraform_is_explained_by_what_the_cluster_shows(stack):
    set_variables(stack, catalog="c", command="exit 3")

    guard = Guard(lambda: (Found(is_stuck=False),))
    with pytest.raises(Failed, match=r"^pod/llama-swap gets no card: none is free\.") as caught:
        apply(stack, guard)

    assert guard.inspected[-1] == {"terraform_data"}

    assert "local-exec provisioner error" in caught.value.message


@pytest.fixture
def deaf(tmp_path, monkeypatch):
    """The real Terraform, which ignores SIGINT as the Kubernetes provider does."""
    program = tmp_path / "bin" / "terraform"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntrap '' INT\n{find_terraform()} \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_a_provider_that_does_not_listen_is_helped_to_its_end(stack, tmp_path, impatient, monkeypatch, deaf):
    over = tmp_path / "over"
    set_variables(stack, catalog="c", command=f"timeout 60 sh -c 'until [ -e {over} ]; do sleep 0.05; done'; exit 1")
    monkeypatch.setattr(applying, "_AGAIN_S", 0.2)
    tries = []

    def end():
        tries.append(1)
        if len(tries) < 3:
            raise CannotRun("busy")
        over.touch()

    with pytest.raises(Failed, match="none is free"):
        apply(stack, Guard(lambda: (Found(),), end))

    assert len(tries) == 3
    assert not (stack / ".terraform.tfstate.lock.info").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_apply_leaves_no_terraform_and_no_lock(stack, tmp_path, number, deaf):
    began, over = tmp_path / "pid", tmp_path / "over"
    wait = f"timeout 60 sh -c 'until [ -e {over} ]; do sleep 0.05; done'"
    set_variables(stack, catalog="c", command=f"echo $PPID > {began}.part; mv {began}.part {began}; {wait}")
    program = f"""
from pathlib import Path
from corral.terraform.homelab import Homelab
class Guard:
    def inspect(self, kinds):
        return ()
    def end(self, kinds):
        assert kinds == {{"terraform_data"}}
        Path({str(over)!r}).touch()
lab = Homelab(Path({str(stack)!r}))
with lab.plan() as plan:
    lab.apply(plan, guard=Guard())
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        while not began.exists():
            assert running.poll() is None
        os.killpg(running.pid, number)  # as a terminal does
        reported = running.communicate(timeout=60)[1]

    assert over.exists()
    assert running.returncode == (143 if number == signal.SIGTERM else -signal.SIGINT), reported
    with pytest.raises(ProcessLookupError):
        os.kill(int(began.read_text()), 0)
    assert not (stack / ".terraform.tfstate.lock.info").exists()
    assert "terraform_data.thing" in terraform(stack, "state", "list").stdout, "what was being made is lost"
    set_variables(stack, catalog="c")
    apply(stack)


def test_a_state_that_an_apply_is_writing_is_read_when_it_is_whole(stack, monkeypatch):
    apply(stack)
    state = stack / "terraform.tfstate"
    whole = state.read_text()
    state.write_text(whole[: len(whole) // 2])
    monkeypatch.setattr("corral.terraform.homelab.time.sleep", lambda _: state.write_text(whole))  # the apply goes on
    assert Homelab(stack).outputs() == {"note": "first"}


def test_a_state_that_stays_cut_off_is_an_error(stack, monkeypatch):
    (stack / "terraform.tfstate").write_text('{"version": 4, "outputs"')
    monkeypatch.setattr("corral.terraform.homelab._WRITING_LIMIT_S", 0.0)
    with pytest.raises(CannotRun, match="Unsupported state file format"):
        Homelab(stack).outputs()
    with pytest.raises(CannotRun, match=r"terraform\.tfstate is cut off or damaged") as caught:
        apply(stack)
    assert "or move it away, then: corral adopt (docs/runbooks/state-lost-or-behind.md)" in caught.value.next_step
