"""Plans, applies and reads ``terraform/stacks/homelab``, in its own folder and with its own state.

Plain ``terraform`` in that folder uses the same: terraform.tfvars, backend_override.tf, TF_VAR_… and
TF_CLI_CONFIG_FILE.  Only TF_CLI_ARGS… is withheld here: it would change corral's command lines; and where the variable
kubeconfig is null, KUBECONFIG counts instead of KUBE_CONFIG_PATH and KUBE_CONFIG_PATHS.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from python_terraform import IsFlagged

from corral.cluster.client import kubeconfigs, kubectl
from corral.cluster.target import NAMESPACE, ClusterTarget
from corral.errors import CannotRun, CorralError, Refused
from corral.files import refuse_unwritable
from corral.paths import REPOSITORY
from corral.terraform import applying, failures, installation, remains, remedies, variables
from corral.terraform.program import ON_PATH, as_typed, find_terraform
from corral.terraform.remains import Remaining
from corral.terraform.runner import Finished, Terraform, refused

if TYPE_CHECKING:
    from corral.terraform.guard import ClusterGuard

STACK = REPOSITORY / "terraform" / "stacks" / "homelab"
_NO_VALUE = "No value for required variable"
_NOT_INSTALLED = "Required plugins are not installed"  # or not with the hash that is pinned
_OTHER_PROVIDER = re.compile(r"dependency lock file|locked provider|previously-selected|Provider dependency changes")
_ADOPTION, _BACKEND = "corral-adopt.tf", "backend_override.tf"
_NOWHERE = {  # the provider wants a kubeconfig, and sends nothing where there is no state
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}}],
    "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nowhere"}}],
    "users": [{"name": "nowhere", "user": {}}],
    "current-context": "nowhere",
}
_HALF_WRITTEN = "Unsupported state file format"
_WRITING_LIMIT_S = 5.0
_STALE = "Saved plan is stale"
_LOCKED = "Error acquiring the state lock"
_TARGET_VARIABLES = ("catalog", "kube_context", "kubeconfig", "namespace")
_VARIABLE = re.compile(r'input variable "(\w+)"')
_LOCK_ID = re.compile(r"^\s*ID:\s+(\S+)$", re.MULTILINE)
_WHO = re.compile(r"^\s*Who:\s+(\S+)$", re.MULTILINE)
_EXPORTER = 'variable "card_exporter"'
_SCHEMA = re.compile(r'schema_name\s*=\s*"([^"]+)"')
_TYPE = re.compile(r"(?:^|\.)([a-z]+_[a-z0-9_]+)(?=\.)")


@dataclass(frozen=True)
class Plan:
    """A plan that can be applied."""

    file: Path  # Terraform's own
    document: dict[str, Any]  # `terraform show -json` of it
    text: str  # `terraform show` of it
    target: ClusterTarget  # the cluster, and the catalog

    @property
    def claim(self) -> str | None:
        """The claim that exists already, when that is the store."""
        store = self.document.get("variables", {}).get("store", {}).get("value") or {}
        return store.get("claim")


class Homelab:
    """The stack in *stack* (None: of this clone), with the values of the command line beside terraform.tfvars.

    *catalog* replaces the variable's value; of *var_files* later ones win; *report* takes progress, a line at a time;
    *command* is what goes on where this one was stopped.
    """

    def __init__(
        self,
        stack: Path | None = None,
        *,
        catalog: Path | None = None,
        var_files: Sequence[Path] = (),
        report: Callable[[str], None] = lambda _: None,
        command: str = "corral apply",
    ) -> None:
        self._stack = stack or STACK
        self._command = command
        self._catalog, self._report = catalog, report
        # The operator's own run: its backend, provider and modules may need any of the shell's variables.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_CLI_ARGS")}
        environment.pop("KUBE_CONFIG_PATH", None)  # the provider prefers it to KUBE_CONFIG_PATHS: _name_kubeconfigs
        self._terraform = Terraform(find_terraform(), self._stack, environment, self._explain)
        self._inputs: dict[str, Any] = {
            "var_file": [str(file.absolute()) for file in var_files],
            "var": [f"catalog={catalog.absolute()}"] if catalog else [],
        }

    @contextmanager
    def plan(self, *, destroy: bool = False) -> Iterator[Plan]:
        """The changes that an apply, or a *destroy*, would make; the plan's file is removed after the block.

        A destroy needs no usable lock: Terraform removes what the state has.  Only the modules of the exporter refuse a
        catalog without cards, and nothing needs them for that.

        Raises:
            Refused: a rule of the modules is broken, a variable has no value, or a ConfigMap was made by hand.
            CannotRun: the state is locked, the cluster does not answer, or Terraform failed for another reason.
            ProgramMissing: Terraform is missing or too old.
        """
        for state in (*self._stack.glob("terraform.tfstate*"), *self._stack.glob("terraform.tfstate.d/*/*")):
            with suppress(
                PermissionError
            ):  # an earlier Terraform wrote it for all to read; only its owner can close it
                state.chmod(0o600)
        self._name_kubeconfigs()
        with tempfile.TemporaryDirectory(prefix="corral-plan-") as folder:
            file = Path(folder) / "plan"
            options = self._inputs | (self._destroying() if destroy else {})
            planned = self._terraform.understood(self._run("plan", input=False, out=str(file), **options))
            self._refuse_undeclared(planned.undeclared)

            def show(options: dict[str, Any]) -> str:
                return self._terraform.judged(self._terraform.cmd("show", str(file), **options)).stdout

            with ThreadPoolExecutor(2) as pool:
                plan, text = pool.map(show, ({"json": IsFlagged}, {}))
            document = json.loads(plan)
            values = {name: one.get("value") for name, one in document.get("variables", {}).items()}
            if not destroy:
                self._require_declared(document)
            found = Plan(file, document, text, self._target(values))
            workspace = installation.workspace(self._terraform.environment, self._data_folder)
            installation.require_same(document, found.target.namespace, workspace, self._typed)
            installation.require_owned(self._terraform, document, found.target.namespace, workspace)
            if foreign := failures.made_by_hand(found):
                raise foreign
            yield found

    def plan_from_nothing(self) -> dict[str, Any]:
        """What an apply would make where nothing is: ``terraform show -json`` of that plan; no cluster is asked.

        It is made in a folder beside the stack's, so that relative paths of variables lead where they lead from there.

        Raises:
            Refused: the stack is not initialised, and as ``plan``.
            CannotRun, ProgramMissing: as ``plan``.
        """
        providers = self._data_folder / "providers"
        if not providers.is_dir():
            raise Refused(f"{self._stack} has no provider yet.", next_step="make init")
        with (
            refuse_unwritable(self._stack.parent, next_step=f"Check who owns {self._stack.parent}"),
            tempfile.TemporaryDirectory(prefix=".corral-", dir=self._stack.parent) as name,
        ):
            folder = Path(name)
            for pattern in ("[!.]*.tf", ".terraform.lock.hcl", *variables.FILES):
                for file in self._stack.glob(pattern):
                    if file.name not in (_BACKEND, _ADOPTION):
                        shutil.copy(file, folder)
            kubeconfig, values = folder / "kubeconfig", folder / "nowhere.tfvars.json"
            kubeconfig.write_text(json.dumps(_NOWHERE), encoding="utf-8")
            values.write_text(json.dumps({"kubeconfig": str(kubeconfig), "kube_context": None}), encoding="utf-8")
            environment = self._terraform.environment | {
                "TF_DATA_DIR": str(folder / "data"),
                "KUBE_CONFIG_PATHS": str(kubeconfig),
            }
            terraform = Terraform(self._terraform.terraform_bin_path, folder, environment, self._explain)
            terraform.run("init", plugin_dir=str(providers.absolute()))
            inputs = {**self._inputs, "var_file": [*self._inputs["var_file"], str(values)]}
            terraform.run("plan", out=str(folder / "plan"), **inputs)
            shown = terraform.judged(terraform.cmd("show", str(folder / "plan"), json=IsFlagged))
            document: dict[str, Any] = json.loads(shown.stdout)
            self._require_declared(document)
            return document

    def _require_declared(self, document: Mapping[str, Any]) -> None:
        self._refuse_undeclared(variables.undeclared_keys(self._terraform, document, **self._inputs))

    def _refuse_undeclared(self, sentences: Sequence[str]) -> None:
        if sentences:
            raise Refused("\n".join(sentences), next_step=f"The variables there are: {self._stack}/README.md")

    def _name_kubeconfigs(self) -> None:
        """Let the provider, which knows no KUBECONFIG, find its files; one that is missing it always refuses.

        Where none of them is there it gets the file that the variable kubeconfig names, else all, so that its error
        names one.
        """
        files = kubeconfigs()
        if not (found := [file for file in files if file.is_file()]):
            named = self.target().kubeconfig
            found = [named] if named else files
        self._terraform.environment["KUBE_CONFIG_PATHS"] = os.pathsep.join(map(str, found))

    def _destroying(self) -> dict[str, Any]:
        declared = any(_EXPORTER in file.read_text(encoding="utf-8") for file in self._stack.glob("[!.]*.tf"))
        without = ["card_exporter=null"] if declared else []
        return {"destroy": IsFlagged, "var": [*self._inputs["var"], *without]}

    def apply(self, plan: Plan, *, guard: ClusterGuard) -> None:
        """Apply exactly *plan*, inside its block.

        Raises:
            Failed: the cluster could not do it: the finding's sentence, the event and the next command.
            Refused: the store is a claim that exists already, and its namespace does not.
            CannotRun: the cluster does not answer, or Terraform failed for another reason.
        """
        if changed := _changed_in_place(plan.document):
            guard.begin(changed)
        finished, stuck = applying.apply(
            self._terraform, plan.file, guard=guard, report=self._report, command=self._command
        )
        if finished.code == 0:
            return
        if stuck:
            raise failures.cluster_failed((stuck,), failures.lock_left(finished) or "Terraform was stopped.")
        if missing := failures.without_namespace(plan, finished) or failures.already_there(finished):
            raise missing
        error = self._explain(finished)
        addresses = [str(one.get("address", "")) for one in finished.errors]
        try:
            found = guard.inspect({kind for address in addresses for kind in _TYPE.findall(address)})
        except CorralError:
            found = ()
        raise failures.cluster_failed(found, error.message) if found else error

    @contextmanager
    def importing(self, blocks: str) -> Iterator[None]:
        """Plans and applies in the block also have *blocks*, ``import`` blocks, in the stack.

        Raises:
            Refused: the stack's folder cannot be written.
        """
        file = self._stack / _ADOPTION
        with refuse_unwritable(self._stack, next_step=f"Check who owns {self._stack}"):
            file.write_text(blocks, encoding="utf-8")
        try:
            yield
        finally:
            file.unlink(missing_ok=True)

    def outputs(self) -> dict[str, Any]:
        """The outputs of the last apply by name; empty when there was none.

        Raises:
            CannotRun: the state cannot be read.
            ProgramMissing: Terraform is missing or too old.
        """
        until = time.monotonic() + _WRITING_LIMIT_S
        while True:
            # An apply beside this one writes the file of the state in place, and this may be in the middle of it.
            is_over = time.monotonic() > until
            try:
                if (found := self._terraform.values(self._run("output"))) or not self._may_have_outputs():
                    return found
                if is_over:
                    raise self._empty_state()
            except CannotRun as error:
                if _HALF_WRITTEN not in error.message or is_over:
                    raise
            time.sleep(0.1)

    def _may_have_outputs(self) -> bool:
        """Whether the file of the state is empty or has outputs; Terraform takes an empty one for no state at all."""
        file = self._state_file()
        try:
            content = file.read_bytes() if file else b"{}"
        except OSError:
            return False
        try:
            return bool(json.loads(content)["outputs"])
        except (ValueError, TypeError):
            return True
        except KeyError:
            return False

    def _empty_state(self) -> CannotRun:
        message = (
            f"{self._state_file()} is empty or changes all the time: an apply may have been cut while it wrote it."
        )
        step = f"corral apply once more, or restore it: ls -l {shlex.quote(str(self._stack))}/terraform.tfstate*"
        return CannotRun(message, next_step=step)

    @property
    def _data_folder(self) -> Path:
        return self._stack / self._terraform.environment.get("TF_DATA_DIR", ".terraform")

    def _state_file(self) -> Path | None:
        """The file of a local state; None: it is kept elsewhere."""
        try:
            backend = json.loads((self._data_folder / "terraform.tfstate").read_bytes())["backend"]
            kind, path = backend["type"], (backend.get("config") or {}).get("path")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            kind, path = "local", None  # no backend was chosen
        if kind != "local":
            return None
        name, file = installation.workspace(self._terraform.environment, self._data_folder), path or "terraform.tfstate"
        return self._stack / (file if name == "default" else Path("terraform.tfstate.d", name, "terraform.tfstate"))

    def state(self) -> Remaining | None:
        """Where the state is, as something that a destroy leaves; None: there is none."""
        if file := self._state_file():
            return remains.of_file(file) if file.exists() else None
        override = self._stack / "backend_override.tf"
        schema = _SCHEMA.search(override.read_text(encoding="utf-8")) if self._is_in_postgresql else None
        return remains.of_postgresql(schema[1] if schema else "terraform_remote_state")

    def target(self) -> ClusterTarget:
        """The cluster that the variables name.

        They are evaluated apart from the stack, so that a running apply is not in the way.

        Raises:
            As ``plan``.
        """
        return self._target(variables.values(self._terraform, _TARGET_VARIABLES, **self._inputs))

    def _target(self, values: dict[str, Any]) -> ClusterTarget:
        kubeconfig, catalog = (
            self._stack / Path(str(values[name])).expanduser() if values.get(name) else None
            for name in ("kubeconfig", "catalog")
        )
        return ClusterTarget(
            kubeconfig=kubeconfig,
            context=values.get("kube_context") or None,
            namespace=str(values.get("namespace") or NAMESPACE),
            catalog=catalog.resolve() if catalog else None,
        )

    def _run(self, command: str, **options: Any) -> Finished:
        """*command* with JSON, after ``terraform init`` where it needs one."""
        finished = self._terraform.cmd(command, json=IsFlagged, **options)
        if finished.code != 0 and _wants_init(finished):
            self._init()
            finished = self._terraform.cmd(command, json=IsFlagged, **options)
        return finished

    def _init(self) -> None:
        self._report(f"terraform init in {self._stack}")
        pins = self._stack / ".terraform.lock.hcl"
        pinned = {"lockfile": "readonly"} if pins.exists() else {}
        finished = self._terraform.cmd("init", json=IsFlagged, input=False, **pinned)
        if finished.code == 0:
            return
        if pinned and _OTHER_PROVIDER.search(finished.message):
            raise Refused(
                f"The provider is not the one that {pins} pins since the first `make init`.\n{finished.message}",
                next_step=f"Only where it is meant to be another one: rm {shlex.quote(str(pins))}, then: make init",
            )
        alone, message = f"make init, which is: {self._typed('init')}", finished.message
        if "migrat" in message:
            raise Refused(
                f"The state of {self._stack} would move to another backend, which Terraform does only after a yes.",
                next_step=f"Answer it: {alone} -migrate-state",
            )
        raise self._without_place(message) or CannotRun(
            f"Terraform could not prepare {self._stack}.\n{message}", next_step=f"See it alone: {alone}"
        )

    def _explain(self, finished: Finished) -> CorralError:
        """The errors of Terraform, as one of corral's."""
        errors, rules, message = finished.errors, finished.broken_rules, finished.message
        if rules and rules == errors:
            return refused(rules, self._catalog)
        if errors and all(one["summary"] == _NO_VALUE for one in errors):
            return self._without_value([name for one in errors for name in _VARIABLE.findall(one["detail"])])
        if _HALF_WRITTEN in message and (file := self._state_file()):
            return CannotRun(
                f"{file} is cut off or damaged, or an apply is writing it: {_HALF_WRITTEN}.",
                next_step=f"Restore it: ls -l {shlex.quote(str(file))}*; or move it away, then: corral adopt "
                "(docs/runbooks/state-lost-or-behind.md)",
            )
        if _LOCKED in message:
            return self._locked(message)
        if error := self._without_place(message):
            return error
        if _STALE in message:
            return CannotRun(
                f"Another run applied {self._stack} since this plan was made, so nothing was changed.\n{message}",
                next_step=f"{self._command}, which plans anew",
            )
        if unreachable := next(filter(None, map(failures.unreachable, errors)), None):
            if not rules:
                return CannotRun(unreachable, next_step=self._check_it())
            refusal = refused(rules, self._catalog)
            both = "; then: ".join(filter(None, (self._check_it(), refusal.next_step)))
            return CannotRun(f"{unreachable}\n{refusal.message}", next_step=both)
        step = next(filter(None, map(remedies.of_resource, errors)), f"See it alone: {self._typed('plan')}")
        return CannotRun(f"Terraform failed.\n{message}", next_step=step)

    def _typed(self, words: str) -> str:
        """The command line of one Terraform command in the stack, for an operator's shell."""
        return f"{as_typed(self._terraform.terraform_bin_path)} -chdir={shlex.quote(str(self._stack))} {words}"

    def _check_it(self) -> str:
        try:
            target = self.target()
            alone = kubectl(target.context or "", target.kubeconfig, "get", "nodes")
            where = "" if target.kubeconfig else " (there is no kubeconfig: KUBECONFIG counts)"
        except CorralError:  # the variables cannot be read either
            alone, where = "kubectl get nodes", ""
        return (
            f"Correct kube_context and kubeconfig in terraform.tfvars{where}, or start the cluster; to check: {alone}"
        )

    def _without_place(self, message: str) -> Refused | None:
        """The state is in PostgreSQL, and no setting names the place: Terraform then tries this machine."""
        if "dial tcp" not in message or not self._is_in_postgresql or "PG_CONN_STR" in self._terraform.environment:
            return None
        return Refused(
            f"The state of {self._stack} is in PostgreSQL, and PG_CONN_STR does not name the place.\n{message}",
            next_step="export PG_CONN_STR=postgres://USER@HOST/DATABASE, then the same command again",
        )

    @property
    def _is_in_postgresql(self) -> bool:
        override = self._stack / _BACKEND
        return override.is_file() and 'backend "pg"' in override.read_text(encoding="utf-8")

    def _without_value(self, names: Sequence[str]) -> Refused:
        example = next(iter(sorted(self._stack.glob("*.tfvars.example"))), None)
        tfvars = self._stack / "terraform.tfvars"
        step = f"Write {'them' if len(names) > 1 else 'it'} into {tfvars}, or into a file for: --var-file FILE"
        if example and not tfvars.exists():
            step = f"cp {shlex.quote(str(example))} {shlex.quote(str(tfvars))}, then edit it"
        return Refused(f"{self._stack} has no value for: {', '.join(names)}.", next_step=step)

    def _locked(self, message: str) -> CannotRun:
        who, lock = _WHO.search(message), _LOCK_ID.search(message)
        if self._is_in_postgresql:
            unlock = self._typed(f"force-unlock {lock[1] if lock else 'ID'}")
            step = f"Wait for the other run; only if there is none: {unlock}"
        else:  # a file's lock is the kernel's, and ends with the process
            step = "Wait for the other run, or end it: its lock ends with it"
        in_use = f"The state of {self._stack} is in use{f' by {who[1]}' if who else ''}."
        return CannotRun(f"{in_use}\n{message}", next_step=step)


def _wants_init(finished: Finished) -> bool:
    words = (_NOT_INSTALLED, *(f"{name} init" for name in ON_PATH))
    return any(one in f"{finished.stdout}{finished.stderr}" for one in words)


def _changed_in_place(document: dict[str, Any]) -> set[str]:
    """The types of the cluster's objects that a plan changes without replacing them."""
    changes = [one for one in document.get("resource_changes", ()) if one["change"]["actions"] == ["update"]]
    return {one["type"] for one in changes if one["type"].startswith("kubernetes_")}
