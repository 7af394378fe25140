"""Sets of cases for `corral eval`, written from plain values: JSON is YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral.evaluation.asking import Answer, Asked
from corral.evaluation.cases import EvalSet

NUMBER = {"type": "integer", "minimum": 0, "maximum": 100}


def schema(**properties: Any) -> dict[str, Any]:
    """A schema of an object with exactly these fields."""
    required = {"required": list(properties), "additionalProperties": False}
    return {"type": "object", "properties": properties, **required}


def write(folder: Path, cases: Mapping[str, Mapping[str, Any]], **common: Any) -> Path:
    """Write a set to *folder*: *common* is its ``set.yaml``, each of *cases* has a prompt where it names none."""
    (folder / "cases").mkdir(parents=True, exist_ok=True)
    (folder / "set.yaml").write_text(json.dumps(common))
    for name, case in cases.items():
        (folder / "cases" / f"{name}.yaml").write_text(json.dumps({"prompt": "Answer."} | case))
    return folder


def asked(of: EvalSet, *rounds: Mapping[str, Any], seconds: float | None = 1.0, model: str = "m") -> Asked:
    """What a model answered in each of *rounds*: fields by the case; a text is why there are none."""
    answers = [
        Answer(case, number, problem=found, seconds=seconds)
        if isinstance(found, str)
        else Answer(case, number, json.dumps(found), found, seconds=seconds)
        for number, answers in enumerate(rounds, 1)
        for case, found in answers.items()
    ]
    assert {one.case for one in answers} == {case.id for case in of.cases}
    return Asked(model, tuple(answers), 1.0)
