"""Plans, applies and reads ``terraform/stacks/homelab``, in its own folder and with its own state.

Plain ``terraform`` in that folder and corral are the same: terraform.tfvars, backend_override.tf, TF_VAR_… and
TF_CLI_CONFIG_FILE count for both.  Only TF_CLI_ARGS… does not: it would change what corral asks for.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from python_terraform import IsFlagged

from corral.cluster.client import kubectl
from corral.errors import CannotRun, CorralError, Failed, Refused
from corral.paths import REPOSITORY
from corral.terraform import applying, remedies
from corral.terraform.applying import Finding, Guard
from corral.terraform.program import ON_PATH, as_typed, find_terraform
from corral.terraform.runner import Finished, Terraform, refused, undeclared

STACK = REPOSITORY / "terraform" / "stacks" / "homelab"
_NO_VALUE = "No value for required variable"
_STALE = "Saved plan is stale"
_LOCKED = "Error acquiring the state lock"
_TARGET_VARIABLES = ("catalog", "kube_context", "kubeconfig", "namespace")
_TARGET_VARIABLE = re.compile(rf'^variable "(?:{"|".join(_TARGET_VARIABLES)})" {{$.*?^}}$', re.MULTILINE | re.DOTALL)
_VALUES = ("terraform.tfvars", "terraform.tfvars.json", "*.auto.tfvars", "*.auto.tfvars.json")
_VARIABLE = re.compile(r'input variable "(\w+)"')
_LOCK_ID = re.compile(r"^\s*ID:\s+(\S+)$", re.MULTILINE)
_WHO = re.compile(r"^\s*Who:\s+(\S+)$", re.MULTILINE)
_ASKED = re.compile(
    r'(?:Failed to [^:]+: )?(?:Get|Post|Put|Patch|Delete) "(?P<server>https?://[^/"]+)[^"]*": (?P<why>[^\n]+)'
)
_NO_NAMESPACE = re.compile(r'namespaces "(?P<name>[^"]+)" not found')
_NOTHING_TO_LABEL = re.compile(r'The resource "(?P<name>[^"]+)" does not exist')
_CREDENTIALS = re.compile(r"(?:Failed to [^:]+: )?(?:Unauthorized|the server has asked for the client to provide cred)")
_TYPE = re.compile(r"(?:^|\.)([a-z]+_[a-z0-9_]+)(?=\.)")


@dataclass(frozen=True)
class Target:
    """The cluster that the stack is for, as its variables name it, and the catalog that it serves there."""

    kubeconfig: Path | None
    context: str | None
    namespace: str
    catalog: Path | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Plan:
    """A plan that can be applied.

    Attributes:
        file: Terraform's own, for ``Homelab.apply``.
        document: ``terraform show -json`` of it.
        text: ``terraform show`` of it, without colours.
        catalog: the folder that its variable ``catalog`` names.
        target: the cluster.
        claim: the claim that exists already, when that is the store.
    """

    file: Path
    document: dict[str, Any]
    text: str
    catalog: Path
    target: Target
    claim: str | None = None


class Homelab:
    """The stack, with what the command line says beside terraform.tfvars.

    Args:
        stack: its folder; None: the one of this clone.
        catalog: the catalog, instead of the variable's own value.
        var_files: further files of variables, later ones first.
        say: hears what takes its time.
    """

    def __init__(
        self,
        stack: Path | None = None,
        *,
        catalog: Path | None = None,
        var_files: Sequence[Path] = (),
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._stack = stack or STACK
        self._catalog, self._say = catalog, say
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_CLI_ARGS")}
        environment |= {"TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}
        self._terraform = Terraform(find_terraform(), self._stack, environment, self._explain)
        self._inputs: dict[str, Any] = {
            "var_file": [str(file.absolute()) for file in var_files],
            "var": [f"catalog={catalog.absolute()}"] if catalog else [],
        }

    @contextmanager
    def plan(self) -> Iterator[Plan]:
        """What would change; its file goes with the block.

        Raises:
            Refused: a rule of the modules is broken, or a variable has no value.
            CannotRun: the state is locked, the cluster does not answer, or Terraform failed for another reason.
            ProgramMissing: Terraform is missing or too old.
        """
        with tempfile.TemporaryDirectory(prefix="corral-plan-") as folder:
            file = Path(folder) / "plan"
            planned = self._initialised("plan", out=str(file), **self._inputs)
            if unknown := undeclared(planned):
                raise Refused("\n".join(unknown), next_step=f"The variables there are: {self._stack}/README.md")
            with ThreadPoolExecutor(2) as pool:
                told = pool.submit(self._terraform.cmd, "show", str(file), json=IsFlagged)
                shown = pool.submit(self._terraform.cmd, "show", str(file))
            document = json.loads(self._terraform.judged(told.result()).text)
            text = self._terraform.judged(shown.result()).text
            values = {name: one.get("value") for name, one in document.get("variables", {}).items()}
            catalog = (self._stack / Path(str(values.get("catalog", ".")))).resolve()
            claim = (values.get("store") or {}).get("claim")
            yield Plan(file, document, text, catalog, _target(values, self._stack), claim)

    def apply(self, plan: Plan, *, guard: Guard) -> None:
        """Apply exactly *plan*; progress goes to ``say``.

        Args:
            plan: from ``plan``, whose block has not ended.
            guard: watches the cluster while Terraform waits.

        Raises:
            Failed: the cluster could not do it: the finding's sentence, the event and the next command.
            Refused: the store is a claim that exists already, and its namespace does not.
            CannotRun: the cluster does not answer, or Terraform failed for another reason.
        """
        if changed := _changed_in_place(plan.document):
            guard.begin(changed)
        applied = applying.apply(self._terraform, plan.file, guard=guard, say=self._say)
        if applied.finished.code == 0:
            return
        if applied.stuck:
            raise _cluster_says((applied.stuck,), _lock_left(applied.finished) or "Terraform was told to stop.")
        if missing := _without_namespace(plan, applied.finished):
            raise missing
        error = self._explain(applied.finished)
        found = _seen(guard, applied.finished)
        raise _cluster_says(found, error.message) if found else error

    def outputs(self) -> dict[str, Any]:
        """The outputs of the last apply by name; empty when there was none.

        Raises:
            CannotRun: the state cannot be read.
        """
        told = self._terraform.cmd("output", json=IsFlagged)
        if told.code != 0 and _wants_init(told):
            self._init()
            told = self._terraform.cmd("output", json=IsFlagged)
        document = json.loads(self._terraform.judged(told).text)
        return {name: one["value"] for name, one in document.items()}

    def target(self) -> Target:
        """The cluster that the variables name.

        Terraform evaluates them in a temporary folder that holds their declarations and the stack's values: that takes
        no provider and no state, so a running apply is not in the way.

        Raises:
            As ``plan``.
        """
        with tempfile.TemporaryDirectory(prefix="corral-") as name:
            folder = Path(name)
            for file in self._stack.glob("*.tf"):
                declared = _TARGET_VARIABLE.findall(file.read_text(encoding="utf-8"))
                (folder / file.name).write_text("\n".join(declared), encoding="utf-8")
            for pattern in _VALUES:
                for file in self._stack.glob(pattern):
                    (folder / file.name).symlink_to(file.absolute())
            values = {variable: f"${{var.{variable}}}" for variable in _TARGET_VARIABLES}
            (folder / "target.tf.json").write_text(json.dumps({"output": {"target": {"value": values}}}))
            environment = self._terraform.environment | {"TF_DATA_DIR": str(folder / "data")}
            terraform = Terraform(self._terraform.terraform_bin_path, folder, environment, self._explain)
            outputs = terraform.run("apply", auto_approve=IsFlagged, **self._inputs).outputs
        return _target(outputs["target"]["value"], self._stack)

    def catalog(self) -> Path | None:
        """The catalog that the variables name; None where they are not enough to tell, which a plan explains."""
        try:
            return self.target().catalog
        except CorralError:
            return None

    def _initialised(self, command: str, **options: Any) -> Finished:
        """*command*, after ``terraform init`` when it says that it needs one."""
        told = self._terraform.cmd(command, json=IsFlagged, input=False, **options)
        if told.code != 0 and _wants_init(told):
            self._init()
            told = self._terraform.cmd(command, json=IsFlagged, input=False, **options)
        return self._terraform.judged(told)

    def _init(self) -> None:
        self._say(f"terraform init in {self._stack}")
        told = self._terraform.cmd("init", json=IsFlagged, input=False)
        if told.code == 0:
            return
        by_hand = f"make init, which is: {self._typed('init')}"
        words = "\n".join(told.words)
        if "migrat" in words:
            raise Refused(
                f"The state of {self._stack} would move to another backend, and Terraform asks before it does so.",
                next_step=f"Answer it: {by_hand} -migrate-state",
            )
        if nowhere := self._nowhere(words):
            raise nowhere
        raise CannotRun(f"Terraform could not prepare {self._stack}.\n{words}", next_step=f"See it alone: {by_hand}")

    def _explain(self, finished: Finished) -> CorralError:
        """What Terraform complained of, as one of our errors."""
        errors, rules, words = finished.errors, finished.broken_rules, "\n".join(finished.words)
        if rules and rules == errors:
            return refused(rules, self._catalog)
        if errors and all(one["summary"] == _NO_VALUE for one in errors):
            return self._without_value([name for one in errors for name in _VARIABLE.findall(one["detail"])])
        if _LOCKED in words:
            return self._locked(words)
        if nowhere := self._nowhere(words):
            return nowhere
        if _STALE in words:
            return CannotRun(
                f"Somebody else applied {self._stack} since this plan was made, so nothing was changed.\n{words}",
                next_step="corral apply, which plans anew",
            )
        if unreachable := next(filter(None, map(_unreachable, errors)), None):
            if not rules:
                return CannotRun(unreachable, next_step=self._check_it())
            refusal = refused(rules, self._catalog)
            both = "; then: ".join(filter(None, (self._check_it(), refusal.next_step)))
            return CannotRun(f"{unreachable}\n{refusal.message}", next_step=both)
        steps = [step for one in errors if (step := remedies.of_resource(one))]
        by_hand = f"See it alone: {self._typed('plan')}"
        return CannotRun(f"Terraform failed.\n{words}", next_step=steps[0] if steps else by_hand)

    def _typed(self, words: str) -> str:
        """The command line of one Terraform command in the stack, for an operator's shell."""
        return f"{as_typed(self._terraform.terraform_bin_path)} -chdir={shlex.quote(str(self._stack))} {words}"

    def _check_it(self) -> str:
        try:
            alone = _kubectl(self.target(), "get", "nodes")
        except CorralError:  # the variables are not to be had either
            alone = "kubectl get nodes"
        return (
            "Correct kube_context and kubeconfig in terraform.tfvars, or start the cluster; the same question alone: "
            f"{alone}"
        )

    def _nowhere(self, words: str) -> Refused | None:
        """The state is in PostgreSQL, and nothing says where: Terraform then tries this machine."""
        if "dial tcp" not in words or not self._is_in_postgresql or "PG_CONN_STR" in self._terraform.environment:
            return None
        return Refused(
            f"The state of {self._stack} is in PostgreSQL, and PG_CONN_STR does not say where that is.\n{words}",
            next_step="export PG_CONN_STR=postgres://USER@HOST/DATABASE, then the same command again",
        )

    @property
    def _is_in_postgresql(self) -> bool:
        override = self._stack / "backend_override.tf"
        return override.is_file() and 'backend "pg"' in override.read_text(encoding="utf-8")

    def _without_value(self, names: Sequence[str]) -> Refused:
        example = next(iter(sorted(self._stack.glob("*.tfvars.example"))), None)
        tfvars = self._stack / "terraform.tfvars"
        write = f"Write {'them' if len(names) > 1 else 'it'} into {tfvars}, or into a file for: --var-file FILE"
        if example and not tfvars.exists():
            write = f"cp {shlex.quote(str(example))} {shlex.quote(str(tfvars))}, then edit it"
        return Refused(f"{self._stack} has no value for: {', '.join(names)}.", next_step=write)

    def _locked(self, words: str) -> CannotRun:
        who, lock = _WHO.search(words), _LOCK_ID.search(words)
        unlock = self._typed(f"force-unlock {lock[1] if lock else 'ID'}")
        step = f"Wait for the other run; only if nobody runs one: {unlock}"
        if not self._is_in_postgresql:  # a file's lock is the kernel's, and ends with the process
            step = "Wait for the other run, or end it: its lock goes with it"
        return CannotRun(
            f"The state of {self._stack} is in use{f' by {who[1]}' if who else ''}.\n{words}", next_step=step
        )


def _target(values: dict[str, Any], stack: Path) -> Target:
    named = values.get("kubeconfig")
    kubeconfig = stack / Path(str(named)).expanduser() if named else None
    catalog = (stack / Path(str(values["catalog"]))).resolve() if values.get("catalog") else None
    return Target(kubeconfig, values.get("kube_context") or None, str(values.get("namespace") or "llama-cpp"), catalog)


def _kubectl(target: Target, *words: str) -> str:
    return kubectl(target.context or "", target.kubeconfig, *words)


def _without_namespace(plan: Plan, failed: Finished) -> Refused | None:
    """Nobody made the namespace: with a claim that exists already the stack expects both, and only labels it."""
    if plan.claim is None:
        return None
    for one in failed.errors:
        is_label = str(one.get("address", "")).startswith("kubernetes_labels.")
        said = f"{one['summary']}: {one.get('detail', '')}"
        if found := _NO_NAMESPACE.search(said) or (is_label and _NOTHING_TO_LABEL.search(said)):
            make = _kubectl(plan.target, "create", "namespace", found["name"])
            return Refused(
                f"The namespace {found['name']} does not exist, or may not be read. With store.claim the stack does "
                f"not make it: whoever made the claim {plan.claim} made its namespace, and both must be there.",
                next_step=f"Correct namespace in terraform.tfvars, or make it: {make}; then the claim in it",
            )
    return None


def _unreachable(error: dict[str, Any]) -> str:
    """What is wrong with the way to the cluster, as a sentence; empty when *error* is about something else."""
    summary, detail = error["summary"], error.get("detail", "")
    if str(error.get("address", "")).startswith("provider["):
        return f"The cluster cannot be asked: {detail or summary}."
    if found := _ASKED.match(summary):
        return f"The cluster at {found['server']} does not answer: {found['why']}."
    if _CREDENTIALS.match(summary):
        return f"The cluster does not accept the kubeconfig's credentials: {summary}."
    return ""


def _wants_init(finished: Finished) -> bool:
    return any(f"{name} init" in f"{finished.text}{finished.complaints}" for name in ON_PATH)


def _lock_left(finished: Finished) -> str:
    """Terraform's own words when it could not let go of the state; empty when it could."""
    return "\n".join(words for words in finished.words if "state lock" in words or "Failed to save state" in words)


def _changed_in_place(document: dict[str, Any]) -> set[str]:
    """The types of the cluster's objects that a plan changes without replacing them."""
    changes = [one for one in document.get("resource_changes", ()) if one["change"]["actions"] == ["update"]]
    return {one["type"] for one in changes if one["type"].startswith("kubernetes_")}


def _seen(guard: Guard, failed: Finished) -> Sequence[Finding]:
    """What the cluster shows of the resources that Terraform failed at; nothing when it cannot be asked."""
    addresses = [str(error.get("address", "")) for error in failed.errors]
    try:
        return guard.look({part for address in addresses for part in _TYPE.findall(address)})
    except CorralError:
        return ()


def _cluster_says(found: Sequence[Finding], words: str) -> Failed:
    first = sorted(found, key=lambda one: not one.is_stuck)
    told = [line for one in first for line in (f"{one.subject} {one.what}", f"  {one.event}" if one.event else "")]
    return Failed("\n".join([*filter(None, told), words]), next_step=first[0].next_step)
