"""Rule of ansible-lint: the keys of a task have a fixed order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansiblelint.rules import AnsibleLintRule

if TYPE_CHECKING:
    from ansiblelint.file_utils import Lintable
    from ansiblelint.utils import Task

MODULE = "(module)"
ORDER = (
    "name listen when vars",
    MODULE,
    "loop loop_control environment async poll delegate_to become run_once check_mode",
    "register until retries delay changed_when failed_when notify block rescue always",
)
RANKS = {key: rank for rank, key in enumerate(" ".join(ORDER).split())}


class TaskKeyOrderRule(AnsibleLintRule):
    """The keys of a task have a fixed order: name and condition, then the module, then its result."""

    id = "task-key-order"
    description = f"The order is {' '.join(ORDER)}."
    severity = "LOW"
    tags = ["formatting"]
    version_changed = "1.0.0"

    def matchtask(self, task: Task, file: Lintable | None = None) -> bool | str:
        """Return the order that *task* should have, or False."""
        keys = [key for key in task.raw_task if not key.startswith("__")]
        ordered = sorted(keys, key=lambda key: RANKS.get(key, RANKS[MODULE]))
        return False if keys == ordered else f"Order the keys: {', '.join(ordered)}"
