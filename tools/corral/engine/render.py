"""The only place that runs Terraform: a catalog and its lock become a llama-swap configuration.

``terraform/stacks/local`` needs no provider and no network.  Everything that Terraform writes lies in the state
folder, so that the repository stays clean and several users of it do not meet.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import python_terraform
from python_terraform import IsFlagged

from corral.errors import CannotRun, ProgramMissing, Refused
from corral.files import alone
from corral.paths import REPOSITORY

STACK = REPOSITORY / "terraform" / "stacks" / "local"
MINIMUM_VERSION = (1, 9)
_GET_IT = "Install it from https://developer.hashicorp.com/terraform/install, and see that it is on PATH."
_PATIENCE = 60.0  # seconds to wait for another corral in the same state folder
_OTHER_STATE = "Stop it, or choose another state folder with: CORRAL_STATE=DIR"
_RULES = {"Resource precondition failed", "Invalid value for variable"}
_ADVICE = "Check block assertion failed"
_REMEDY = re.compile(r"(?P<what>.*\.)\s+(?P<remedy>[^.]*\brun: .+)", re.DOTALL | re.IGNORECASE)
_CHART = "jsonencode(module.seating.chart)"
_ANYWHERE = (Path("/models"), Path("llama-server"))  # a seat depends on neither the store nor the engine's path
_RULE_ADDRESS = re.compile(r"\n\nThis was checked by the validation rule at .*", re.DOTALL)


class _Finished(NamedTuple):
    code: int
    events: list[dict[str, Any]]
    text: str
    complaints: str


def render_local(
    catalog: Path,
    store: Path,
    engine: Path,
    *,
    state: Path,
    start_port: int = 5800,
    preflight: Path | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> str:
    """Apply ``terraform/stacks/local`` and return the llama-swap configuration, as YAML.

    Args:
        catalog: folder with ``models/`` and ``lock.json``.
        store: the model store, as llama-server will see it.
        engine: the llama-server to run.
        state: the state folder; ``terraform/`` below it is Terraform's, and can be deleted at any time.
        start_port: loopback port of the first model; each further one takes the next.
        preflight: the module's ``preflight.sh`` on a machine that does not have this clone; this clone's by default.
        warn: hears what the modules advise against and do not refuse, one sentence or two at a time.

    Raises:
        Refused: a rule of the modules is broken (a stale lock, …): the rule's own words.
        ProgramMissing: Terraform is missing or too old.
        CannotRun: the state folder is not writable or busy, or Terraform failed for another reason.
    """
    with _stack(catalog, store, engine, state, start_port, preflight) as terraform:
        applied = terraform.run("apply", auto_approve=IsFlagged, **terraform.inputs)
        _pass_on_advice(applied, warn)
        # The plan announces the outputs too, without their values: the last event has them.
        outputs = [event["outputs"] for event in applied.events if event.get("type") == "outputs"]
        return str(outputs[-1]["llama_swap_config"]["value"])


def plan_local(
    catalog: Path,
    store: Path,
    engine: Path,
    *,
    state: Path,
    start_port: int = 5800,
    warn: Callable[[str], None] = lambda _: None,
) -> str:
    """What ``render_local`` with the same arguments would change since it last ran, in Terraform's words.

    Raises:
        As ``render_local``.
    """
    with _stack(catalog, store, engine, state, start_port) as terraform:
        file = str(terraform.folder / "plan")
        _pass_on_advice(terraform.run("plan", out=file, **terraform.inputs), warn)
        return terraform.cmd("show", file, no_color=IsFlagged).text


def seating(catalog: Path, *, state: Path) -> dict[str, Any]:
    """The seating chart of *catalog* as ``terraform/modules/seating`` computes it: its output ``chart``.

    A set that does not fit has a chart too; the plan is what refuses it.

    Args:
        catalog: folder with ``models/``, ``cards/`` and ``lock.json``.
        state: as for ``render_local``.

    Raises:
        Refused: the catalog breaks a rule of seating other than that a set must fit, so that no chart is true.
        ProgramMissing, CannotRun: as ``render_local``.
    """
    with _stack(catalog, *_ANYWHERE, state, 5800) as terraform:
        # Unless told, console locks terraform.tfstate in the stack's own folder, whatever the backend says.
        own = str(terraform.folder / "terraform.tfstate")
        asked = terraform.cmd("console", stdin=f"{_CHART}\n", var_file=terraform.inputs["var_file"], state=own)
        told = [line for line in asked.text.splitlines() if line.startswith('"')]
        if not told:  # console tells in prose, and with exit code 0, what a plan tells in JSON
            terraform.run("plan", **terraform.inputs)
            raise _error(asked, catalog, terraform.folder)
    chart: dict[str, Any] = json.loads(json.loads(told[-1]))
    if chart["refusals"]:
        raise _refused(chart["refusals"], catalog)
    return chart


def find_terraform() -> str:
    """The ``terraform`` on PATH.

    Raises:
        ProgramMissing: there is none.
    """
    program = shutil.which("terraform")
    if program is None:
        raise ProgramMissing(f"Terraform is not installed; corral needs {_minimum()} or newer.", next_step=_GET_IT)
    return program


def require_version(program: str) -> None:
    """Return when *program* is a Terraform that corral's modules can use.

    Raises:
        ProgramMissing: it is too old, or does not start.
    """
    try:
        answer = subprocess.run([program, "version", "-json"], capture_output=True, check=True, text=True).stdout
        version = str(json.loads(answer)["terraform_version"])
        numbers = tuple(int(part) for part in version.partition("-")[0].split("."))
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError) as error:
        raise ProgramMissing(f"{program} does not say its version: {error}", next_step=_GET_IT) from None
    if numbers < MINIMUM_VERSION:
        raise ProgramMissing(
            f"{program} is Terraform {version}; corral needs {_minimum()} or newer.", next_step=_GET_IT
        )


class _Terraform(python_terraform.Terraform):  # type: ignore[misc]
    """python-terraform writes the command line.

    Running it is ours: the library's own way can set no environment for one call, reads states that are not asked
    for, and reports through calls that Python deprecates.
    """

    def __init__(self, program: str, folder: Path, catalog: Path) -> None:
        super().__init__(working_dir=str(STACK), terraform_bin_path=program)
        self.folder = folder
        self.inputs = {"var_file": str(folder / "inputs.tfvars.json"), "lock_timeout": f"{_PATIENCE:.0f}s"}
        self._catalog = catalog
        self._environment = _environment(os.environ, data=folder / "data")

    def read_state_file(self, file_path: str | None = None) -> None:
        """Nothing: apply prints the outputs."""

    def run(self, command: str, **options: Any) -> _Finished:
        """Run *command* in the stack; raise what it complains of."""
        finished = self.cmd(command, json=IsFlagged, input=False, **options)
        if finished.code != 0:
            require_version(self.terraform_bin_path)
            raise _error(finished, self._catalog, self.folder)
        return finished

    def cmd(self, cmd: str, *args: str, stdin: str = "", **options: Any) -> _Finished:
        """Run one Terraform command in the stack; the JSON lines that it prints are the events."""
        command = self.generate_cmd_string(cmd, *args, **options)
        try:
            done = subprocess.run(
                command,
                cwd=self.working_dir,
                env=self._environment,
                input=stdin,
                capture_output=True,
                check=False,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise ProgramMissing(f"{command[0]} does not start: {error.strerror}.", next_step=_GET_IT) from None
        events = [json.loads(line) for line in done.stdout.split("\n") if line.startswith('{"@')]
        return _Finished(done.returncode, events, done.stdout, done.stderr)


@contextmanager
def _stack(
    catalog: Path, store: Path, engine: Path, state: Path, start_port: int, preflight: Path | None = None
) -> Iterator[_Terraform]:
    """Terraform in the local stack: initialised, its inputs written, nobody else in its folder."""
    inputs: dict[str, Any] = {
        "catalog": str(catalog.absolute()),
        "store": str(store.absolute()),
        "engine": str(engine),
        "start_port": start_port,
    }
    if preflight:
        inputs["preflight"] = str(preflight)
    folder = state.absolute() / "terraform"
    with alone(folder, patience_s=_PATIENCE, remedy=_OTHER_STATE):
        terraform = _Terraform(find_terraform(), folder, catalog)
        (folder / "inputs.tfvars.json").write_text(json.dumps(inputs, indent=2) + "\n", encoding="utf-8")
        terraform.run("init", reconfigure=IsFlagged, backend_config={"path": str(folder / "terraform.tfstate")})
        yield terraform


def _environment(outer: Mapping[str, str], *, data: Path) -> dict[str, str]:
    """*outer* without what would change a run behind our back, and with Terraform's folder at *data*."""
    kept = {
        name: value for name, value in outer.items() if not name.startswith(("TF_CLI_ARGS", "TF_VAR_", "TF_WORKSPACE"))
    }
    return kept | {"TF_DATA_DIR": str(data), "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}


def _error(finished: _Finished, catalog: Path, folder: Path) -> Refused | CannotRun:
    """What Terraform complained of, as one of our errors."""
    found = [event["diagnostic"] for event in finished.events if event.get("diagnostic", {}).get("severity") == "error"]
    if found and all(one["summary"] in _RULES for one in found):
        return _refused([_RULE_ADDRESS.sub("", one["detail"]) for one in found], catalog)
    what = [f"{one['summary']}: {one['detail']}" for one in found] or [f"{finished.text}{finished.complaints}".strip()]
    return CannotRun(
        "\n".join(["Terraform failed.", *what]),
        next_step=f"Check the catalog: corral validate --catalog {shlex.quote(str(catalog))}; "
        f"when the reason is in {folder}, delete that folder: the next run makes it again",
    )


def _refused(told: Sequence[str], catalog: Path) -> Refused:
    """The sentences of broken rules as one refusal, each sentence once; the first one's remedy is the next step."""
    parts = [_REMEDY.fullmatch(text) for text in told]
    remedies = [f"{part['remedy']} --catalog {shlex.quote(str(catalog))}" for part in parts if part]
    what = [part["what"] if part else text for part, text in zip(parts, told, strict=True)]
    return Refused("\n".join(dict.fromkeys(what)), next_step=remedies[0] if remedies else "")


def _pass_on_advice(finished: _Finished, warn: Callable[[str], None]) -> None:
    """What the check blocks said, each once: an apply evaluates them twice."""
    found = [event["diagnostic"] for event in finished.events if "diagnostic" in event]
    for text in dict.fromkeys(one["detail"] for one in found if one["summary"] == _ADVICE):
        warn(text)


def _minimum() -> str:
    return ".".join(str(number) for number in MINIMUM_VERSION)
