"""The values of a stack's variables: as Terraform converts them, and what it drops of them without a word."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from corral.terraform.runner import Terraform

FILES = ("terraform.tfvars", "terraform.tfvars.json", "*.auto.tfvars", "*.auto.tfvars.json")
"""The files of values that Terraform reads by itself."""
_DECLARATION = re.compile(r'^variable "(\w+)" {$.*?^}$', re.MULTILINE | re.DOTALL)
_RULE = re.compile(r"^  validation {$.*?^  }$", re.MULTILINE | re.DOTALL)


def values(terraform: Terraform, names: Collection[str], **inputs: Any) -> dict[str, Any]:
    """The values of the variables *names* of the stack of *terraform*, by their own rules; *inputs* are its options.

    They are evaluated apart from the stack: that takes no provider, no state, and no value of another variable.

    Raises:
        CorralError: what the *explain* of *terraform* makes of a value that is missing or refused.
    """
    return _evaluated(terraform, names, lambda text: [one[0] for one in _declared(text) if one[1] in names], inputs)


def undeclared_keys(terraform: Terraform, document: Mapping[str, Any], **inputs: Any) -> list[str]:
    """A sentence for each key, in the values of a plan, that the type of its variable does not have.

    Args:
        terraform: of the stack that was planned.
        document: the plan, as ``show -json`` has it: with the values as they were given.
        inputs: the options of the plan.
    """
    whole = {name: one.get("value") for name, one in document.get("variables", {}).items()}
    given = {name: value for name, value in whole.items() if isinstance(value, dict | list) and value}
    if not given:
        return []
    # Without the rules, which the plan has applied, and which name more of the stack.
    converted = _evaluated(terraform, given, lambda text: [_RULE.sub("", one) for one, _ in _declared(text)], inputs)
    return [sentence for name in given for sentence in dropped(given[name], converted[name], name)]


def dropped(given: Any, converted: Any, place: str) -> Iterator[str]:
    """A sentence for each key of *given* that is not in *converted*, which is the same by the type of its variable.

    Args:
        given: a value, as the operator wrote it.
        converted: what Terraform makes of it.
        place: the variable, and the path within it.
    """
    if isinstance(given, Mapping) and isinstance(converted, Mapping):
        for key, value in given.items():
            if key in converted:
                yield from dropped(value, converted[key], f"{place}.{key}")
            else:
                yield f"{place} has no key {key}; its keys are: {', '.join(sorted(converted))}."
    elif isinstance(given, list) and isinstance(converted, list) and converted:
        for number, value in enumerate(given):
            yield from dropped(value, converted[0], f"{place}[{number}]")  # elements of a list have one type


def _declared(text: str) -> list[tuple[str, str]]:
    """The declarations of variables in *text*, each with its name."""
    return [(found[0], found[1]) for found in _DECLARATION.finditer(text)]


def _evaluated(
    terraform: Terraform, names: Collection[str], declarations: Callable[[str], list[str]], inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of *names*; *declarations* takes from the text of a file those that are needed."""
    stack = Path(terraform.working_dir)
    with tempfile.TemporaryDirectory(prefix="corral-") as name:
        folder = Path(name)
        for file in stack.glob("[!.]*.tf"):
            (folder / file.name).write_text("\n".join(declarations(file.read_text(encoding="utf-8"))), encoding="utf-8")
        for pattern in FILES:
            for file in stack.glob(pattern):
                (folder / file.name).symlink_to(file.absolute())
        shown = {variable: f"${{var.{variable}}}" for variable in names}
        (folder / "values.tf.json").write_text(json.dumps({"output": {"values": {"value": shown}}}))
        apart = terraform.environment | {"TF_DATA_DIR": str(folder / "data")}
        evaluating = Terraform(terraform.terraform_bin_path, folder, apart, terraform.explain)
        found: dict[str, Any] = evaluating.applied(**inputs)["values"]
        return found
