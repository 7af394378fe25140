"""Runs Terraform in the folder of one stack; the only place that starts it.

Its JSON lines (``-json``) become events, its errors become corral's.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import python_terraform
from python_terraform import IsFlagged

from corral.agent.hub_policy import printable
from corral.errors import CorralError, ProgramMissing, Refused
from corral.terraform import remedies

MINIMUM_VERSION = (1, 9)
UMASK = 0o077
"""States and plans hold secrets, and providers are programs: all that Terraform writes is this user's alone."""
_TERRAFORM, _OPENTOFU = "https://developer.hashicorp.com/terraform/install", "https://opentofu.org/docs/intro/install/"
_RULES = {"Module output value precondition failed", "Invalid value for variable"}
_UNDECLARED = "Value for undeclared variable"
_RULE_ADDRESS = re.compile(r"\n\nThis was checked by the validation rule at .*", re.DOTALL)


class Finished(NamedTuple):
    """A Terraform command that has ended: its exit code, its events, stdout and stderr."""

    code: int
    events: list[dict[str, Any]]
    stdout: str
    stderr: str

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Its diagnostics of severity error, in Terraform's own form."""
        return [one for one in self._diagnostics if one["severity"] == "error"]

    @property
    def broken_rules(self) -> list[dict[str, Any]]:
        """Those of its errors that are broken rules of corral's own modules."""
        return [one for one in self.errors if one["summary"] in _RULES]

    @property
    def messages(self) -> list[str]:
        """Summary and detail of each error, each once; all output where there is no error."""
        lines = (f"{_place(one)}{': '.join(filter(None, (one['summary'], one.get('detail'))))}" for one in self.errors)
        return list(dict.fromkeys(lines)) or [f"{self.stdout}{self.stderr}".strip()]

    @property
    def message(self) -> str:
        return "\n".join(self.messages)

    @property
    def undeclared(self) -> list[str]:
        """Terraform's sentences about values that no variable takes, of which it only warns."""
        found = [one["detail"] for one in self._diagnostics if one["summary"] == _UNDECLARED]
        return [" ".join(detail.partition(" If you meant")[0].split()) for detail in found]

    @property
    def _diagnostics(self) -> list[dict[str, Any]]:
        return [event["diagnostic"] for event in self.events if "diagnostic" in event]


class Terraform(python_terraform.Terraform):  # type: ignore[misc]
    """python-terraform writes the command line of *program*, this class runs it in *stack*.

    The library's own way cannot set the environment of one call, reads the state file after each, and logs through
    deprecated calls.  *explain* makes one of corral's errors of a command that failed.
    """

    def __init__(
        self, program: str, stack: Path, environment: Mapping[str, str], explain: Callable[[Finished], CorralError]
    ) -> None:
        super().__init__(working_dir=str(stack), terraform_bin_path=program)
        self.environment = {**environment, "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}
        self.explain = explain

    def read_state_file(self, file_path: str | None = None) -> None:
        """Nothing, where the library reads the state."""

    def run(self, command: str, *args: str, **options: Any) -> Finished:
        """Run *command* with JSON lines in the stack; raises as ``understood``."""
        return self.understood(self.cmd(command, *args, json=IsFlagged, input=False, **options))

    def applied(self, **options: Any) -> dict[str, Any]:
        """Apply the stack and return the value of each output by name; raises as ``understood``."""
        finished = self.run("apply", auto_approve=IsFlagged, **options)
        # The plan before the apply announces the outputs without values.
        reported = (event.get("outputs") for event in reversed(finished.events) if event.get("type") == "outputs")
        return self._values(next(reported, None), finished)

    def values(self, finished: Finished) -> dict[str, Any]:
        """The value of each output by name, of ``output -json``; raises as ``understood``."""
        try:
            outputs = json.loads(self.judged(finished).stdout)
        except ValueError:
            outputs = None
        return self._values(outputs, finished)

    def _values(self, outputs: Any, finished: Finished) -> dict[str, Any]:
        try:
            return {name: one["value"] for name, one in outputs.items()}
        except (AttributeError, KeyError, TypeError):
            raise self._foreign(finished) from None

    def understood(self, finished: Finished) -> Finished:
        """*finished*, a command with JSON lines, unless it failed or does not begin them with a version.

        A program of that name that is no Terraform may end with exit code 0; this takes no further start of it.

        Raises:
            As ``judged``.
            ProgramMissing: this is neither a Terraform nor an OpenTofu.
        """
        if not any(event.get("type") == "version" for event in self.judged(finished).events):
            raise self._foreign(finished)
        return finished

    def _foreign(self, finished: Finished) -> ProgramMissing:
        program = self.terraform_bin_path
        return ProgramMissing(
            f"{program} does not answer as Terraform and OpenTofu do: {_last_words(finished)}.",
            next_step=_get_it(program),
        )

    def judged(self, finished: Finished) -> Finished:
        """*finished*, unless it failed.

        Raises:
            CorralError: what ``explain`` makes of it.
            ProgramMissing: this Terraform is too old to be understood.
        """
        if finished.code != 0:
            require_version(self.terraform_bin_path)
            raise self.explain(finished)
        return finished

    def cmd(self, cmd: str, *args: str, **options: Any) -> Finished:
        """Run one Terraform command in the stack and wait for its end."""
        command = self.generate_cmd_string(cmd, *args, no_color=IsFlagged, **options)
        with starting(command[0]):
            done = subprocess.run(
                command,
                cwd=self.working_dir,
                env=self.environment,
                umask=UMASK,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                encoding="utf-8",
                errors="replace",
            )
        return finished(done.returncode, done.stdout, done.stderr)


@contextmanager
def starting(program: str) -> Iterator[None]:
    """Raise ProgramMissing when *program* does not start in the block."""
    try:
        yield
    except OSError as error:
        raise ProgramMissing(f"{program} does not start: {error.strerror}.", next_step=_get_it(program)) from None


def finished(code: int, stdout: str, stderr: str) -> Finished:
    """A command that has ended, with the events in its *stdout*."""
    return Finished(code, [event for line in stdout.split("\n") if (event := event_of(line))], stdout, stderr)


def event_of(line: str) -> dict[str, Any] | None:
    """The event on *line* of a command with ``-json``; None for any other line."""
    if not line.startswith('{"@'):
        return None
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return event


def require_version(program: str) -> None:
    """Return when *program* is a Terraform or an OpenTofu that corral's modules can use; both print the same JSON.

    Raises:
        ProgramMissing: it is too old, or does not start.
    """
    with starting(program):
        done = subprocess.run(
            [program, "version", "-json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    try:
        version = str(json.loads("" if done.returncode else done.stdout)["terraform_version"])
        numbers = tuple(int(part) for part in version.partition("-")[0].split("."))
    except (ValueError, KeyError, TypeError):
        words = _last_words(Finished(done.returncode, [], done.stdout, done.stderr))
        raise ProgramMissing(f"{program} does not print its version: {words}.", next_step=_get_it(program)) from None
    if numbers < MINIMUM_VERSION:
        name = "OpenTofu" if Path(program).name == "tofu" else "Terraform"
        minimum = ".".join(map(str, MINIMUM_VERSION))
        raise ProgramMissing(
            f"{program} is {name} {version}; corral needs {minimum} or newer.", next_step=_get_it(program)
        )


def _get_it(program: str) -> str:
    page = _OPENTOFU if Path(program).name == "tofu" else _TERRAFORM
    return f"Upgrade or repair it: {page}; or take it off PATH, then: make setup, which installs corral's own"


def _last_words(finished: Finished) -> str:
    """The last line of an output that is not Terraform's, for a sentence."""
    lines = [line for line in f"{finished.stdout}\n{finished.stderr}".splitlines() if line.strip()]
    words = f'its last line is "{printable(lines[-1].strip())}"' if lines else "it prints nothing"
    return f"{words} (exit code {finished.code})"


def refused(rules: Sequence[Mapping[str, Any]], catalog: Path | None) -> Refused:
    """The broken *rules* as one refusal, each sentence once; the next step is that of the first that has one.

    Terraform names them in any order; here they come in the order in which they can be mended.
    """
    ordered = sorted(rules, key=remedies.order)
    sentences = dict.fromkeys(_RULE_ADDRESS.sub("", rule["detail"]) for rule in ordered)
    steps = (remedies.of_rule(rule, catalog) for rule in ordered)
    return Refused("\n".join(sentences), next_step=next(filter(None, steps), ""))


def _place(diagnostic: Mapping[str, Any]) -> str:
    """Where a file of variables is wrong; a place in a module's own file is of no use to an operator."""
    where = diagnostic.get("range") or {}
    file = str(where.get("filename", ""))
    return f"{file}:{where['start']['line']}: " if "tfvars" in Path(file).name else ""
