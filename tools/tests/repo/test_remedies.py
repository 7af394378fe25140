"""Every rule of the modules and stacks has its next command in one table, and no sentence is read for it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from corral.paths import REPOSITORY
from corral.terraform import remedies, runner

RULE = re.compile(r"precondition \{\s+condition\s*=\s*(.+)\n")
WORKLOAD = re.compile(r'^resource "(kubernetes_(?:job|deployment)_v1)" "(\w+)"', re.MULTILINE)


def of_all_files(pattern: re.Pattern[str]) -> list[tuple[str, ...] | str]:
    folder = REPOSITORY / "terraform"
    files = [file for file in folder.glob("*/*/*.tf") if ".terraform" not in file.parts]
    return [found for file in files for found in pattern.findall(file.read_text(encoding="utf-8"))]


def test_every_rule_has_its_next_command():
    conditions = of_all_files(RULE)

    assert len(conditions) > 8
    assert sorted(conditions) == sorted(f"local.{rule}" for rule in remedies.RULES), "each is one local, and once"


def test_every_workload_has_its_runbook():
    workloads = {".".join(found) for found in of_all_files(WORKLOAD)}

    assert workloads == remedies.RESOURCES.keys()
    for step in remedies.RESOURCES.values():
        assert Path(REPOSITORY, step.rpartition(" ")[2]).is_file()


def test_a_rule_is_known_by_its_address_and_its_sentence_is_not_read():
    rule = {"detail": "Gur ybpx vf fgnyr.", "snippet": {"values": [{"traversal": "local.lock_is_fresh"}]}}
    variable = {"detail": "Orggre.", "snippet": {"context": None, "values": [{"traversal": "var.image"}]}}
    other = {"detail": "Run: corral lock", "snippet": {"values": [{"traversal": "local.of_another_stack"}]}}

    assert remedies.of_rule(rule, Path("/my catalog")) == "corral lock --catalog '/my catalog'"
    assert remedies.of_rule(variable, None) == "corral lock"
    assert remedies.of_rule(other, None) == remedies.of_rule({"detail": "x"}, None) == ""


def test_another_program_than_corral_gets_no_catalog():
    rule = {"snippet": {"values": [{"traversal": "local.card_names_its_node"}]}}

    assert remedies.of_rule(rule, Path("/c")) == "kubectl get nodes"


def test_rules_that_are_broken_together_come_in_the_order_of_their_mending():
    names = ["card_holds_its_set", "lock_is_fresh", "card_names_its_node"]
    broken = [
        {"detail": name, "snippet": {"values": [{"traversal": f"local.{name}"}]}, "summary": ""} for name in names
    ]

    for rules in itertools.permutations(broken):
        refusal = runner.refused(rules, None)
        assert refusal.message.splitlines() == ["lock_is_fresh", "card_names_its_node", "card_holds_its_set"]
        assert refusal.next_step == "corral lock"
